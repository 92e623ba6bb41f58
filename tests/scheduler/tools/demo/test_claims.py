"""What the demo says is only worth something if it would say otherwise of another course of events."""

from typing import Final

from config.protocol import names
from scheduler.pods.gpu_request import ResourceNames
from scheduler.state.cards.booking import CardShare
from scheduler.state.ledger import NodeLedger
from scheduler.testing.cluster.checker import ClusterChecker, ObservedBinding
from scheduler.testing.cluster.world import World
from scheduler.tools.demo.claims import Assertion, Evidence, claims
from tests.support.builders import manifest, wire_node

CARDS: Final = [CardShare(index, f"GPU-{index}", 3) for index in range(3)]


def evidence(
    *bound: ObservedBinding, ended: list[tuple[str, float]] | None = None, waiting: dict[str, str] | None = None
) -> Evidence:
    """A course of events in an empty world."""
    checker = ClusterChecker(World(lambda: 0.0), ResourceNames(), 1024, now_s=lambda: 0.0, on_bound=lambda _: None)
    checker.bound += bound
    checker.ended += ended or []
    return Evidence(checker, {}, waiting or {})


def claim(about: str, of: Evidence) -> Assertion:
    (found,) = [one for one in claims(of) if about in one.sentence]
    return found


def replicas(*cards: CardShare) -> list[ObservedBinding]:
    return [ObservedBinding(f"binpack-{number}", "a", (share,), 1.0) for number, share in enumerate(cards)]


def test_where_nothing_happened_nothing_is_claimed() -> None:
    holding = [one.sentence for one in claims(evidence()) if one.holds]
    assert holding == ["the scheduler's count of every card matches the API server's objects"]


def test_three_replicas_have_to_be_on_one_card() -> None:
    assert claim("three replicas", evidence(*replicas(CARDS[0], CARDS[0], CARDS[0]))).holds
    assert not claim("three replicas", evidence(*replicas(CARDS[0], CARDS[0], CARDS[1]))).holds
    assert not claim("three replicas", evidence(*replicas(CARDS[0], CARDS[0]))).holds


def test_a_pod_over_two_cards_has_the_same_units_on_each() -> None:
    even = (CardShare(0, "GPU-0", 15), CardShare(1, "GPU-1", 15))
    uneven = (CardShare(0, "GPU-0", 20), CardShare(1, "GPU-1", 10))
    assert claim("over two cards", evidence(ObservedBinding("pair", "a", even, 1.0))).holds
    assert not claim("over two cards", evidence(ObservedBinding("pair", "a", uneven, 1.0))).holds


def test_an_exclusive_card_with_a_second_pod_is_not_claimed() -> None:
    alone, other = ObservedBinding("alone", "a", (CARDS[0],), 1.0), ObservedBinding("other", "a", (CARDS[0],), 2.0)
    assert claim("to itself", evidence(alone, other, ended=[("alone", 1.5)])).holds
    spoilt = claim("to itself", evidence(alone, other, ended=[("alone", 3.0)]))
    assert (spoilt.holds, spoilt.sentence.endswith("but other came there")) == (False, True)


def test_a_pod_that_did_not_wait_for_a_notebook_was_not_woken_by_one() -> None:
    bound = ObservedBinding("serve-2", "a", (CARDS[0],), 5.0)
    assert claim("waited for memory", evidence(bound, ended=[("notebook-0", 4.99)])).sentence.endswith(
        "was bound 10 ms after notebook-0 finished"
    )
    assert not claim("waited for memory", evidence(bound, ended=[("notebook-0", 5.01)])).holds


def test_a_pod_that_cannot_fit_has_to_wait_with_the_right_message() -> None:
    assert claim("too-big", evidence(waiting={"too-big": "wants 100, most free 19"})).holds
    assert not claim("too-big", evidence(waiting={"too-big": "node(s) were unschedulable"})).holds
    bound = ObservedBinding("too-big", "a", (CARDS[0],), 1.0)
    assert not claim("too-big", evidence(bound, waiting={"too-big": "wants 100"})).holds


def test_a_violation_is_named_where_the_claim_is_false() -> None:
    of = evidence(ObservedBinding("p", "a", (CARDS[0],), 1.0))
    of.checker.writes = 1
    assert claim("no card was", of).holds
    of.checker.violations += ["card GPU-0 of node a is over-committed by 4", "pod p was bound without its card"]
    assert claim("no card was", of).sentence.endswith("1 writes; card GPU-0 of node a is over-committed by 4")
    assert claim("each of 1 bindings", of).sentence.endswith("healthy card; pod p was bound without its card")
    assert not claim("no card was", of).holds
    assert not claim("each of 1 bindings", of).holds


def test_a_scheduler_that_counts_differently_from_the_api_server_is_caught() -> None:
    world = World(lambda: 0.0)
    checker = ClusterChecker(world, ResourceNames(), 1024, now_s=lambda: 0.0, on_bound=lambda _: None)
    world.nodes.add(wire_node("a", [16]))
    world.pods.create(manifest("p", 4))
    world.pods.bind("default", "p", "a", {names.MEM_IDX: "0", names.UNIT_MIB: "1024"})
    ledger = checker.ledger()
    assert claim("count of every card", Evidence(checker, ledger, {})).holds
    assert not claim("count of every card", Evidence(checker, {"a": NodeLedger({"GPU-a-0": 16})}, {})).holds
