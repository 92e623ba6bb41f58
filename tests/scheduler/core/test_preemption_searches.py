"""Preemption searches while pods come, wait and leave; pods decided without conflicting nominations."""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit, SchedulingCycle
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, Rejection
from scheduler.framework.preemption import Preemption
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import Runtime
from scheduler.plugins.node.node_unschedulable import NodeUnschedulable
from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Rows
from scheduler.state.nominations import MOST_NOMINATIONS
from scheduler.state.tables import Tables
from scheduler.tools.explain.reading import answer_of
from tests.support.builders import away_from, bound, cluster, engine, pod, wire_node
from tests.support.placing import NOW_NS, on_card
from tests.support.preempting import no_fit, search_ended, sought


def waits(built: Engine, name: str, priority: int, gpu_mem: int = 16) -> None:
    """A pod is unschedulable, and preemption did not help."""
    assert sought(built, pod(name, gpu_mem, priority=priority)).preemption is None


def full(*priorities: int) -> Engine:
    """Nodes n0, n1, ... with a pod each, and closed."""
    built = engine()
    for number, priority in enumerate(priorities):
        built.node_changed(wire_node(f"n{number}", [16], unschedulable=True))
        built.pod_assigned(bound(pod(f"low-{number}", 16, priority=priority), f"n{number}", on_card(0, 16)))
    return built


def opens(built: Engine, number: int) -> None:
    built.node_changed(wire_node(f"n{number}", [16]))
    while built.run_hint(0.0):
        pass


def steps(built: Engine) -> list[str]:
    """Pods for which the searches find something, in order; an endless search fails."""
    found: list[str] = []
    for _ in range(100):
        if not built.any_search:
            return found
        post_filtered = built.post_filter_next(0.0)
        if post_filtered is not None and post_filtered.preemption is not None:
            found.append(f"{post_filtered.pod.key.name} on {post_filtered.preemption.node}")
    raise AssertionError(found)


def test_the_best_pod_has_the_first_place_that_opens() -> None:
    built = full(0, 0)
    for name, priority in (("second", 5), ("first", 7), ("third", 5)):
        waits(built, name, priority)

    opens(built, 0)
    assert steps(built) == ["first on n0"]
    opens(built, 1)
    assert steps(built) == ["second on n1"]


def test_a_pod_that_is_about_to_be_decided_is_passed_by_others_of_its_class() -> None:
    built = full(0)
    for name in ("held", "next"):
        waits(built, name, 5)
    built.queue.try_again("uid-default-held", 0.0)
    assert built.queue.throttle(lambda _: True, 0.0)

    opens(built, 0)

    assert steps(built) == ["next on n0"]


def test_a_pod_that_is_gone_is_searched_for_no_longer() -> None:
    built = full(0)
    waits(built, "urgent", 5)
    opens(built, 0)

    built.pod_gone("uid-default-urgent")

    assert steps(built) == []
    assert len(built.nominations) == 0


def test_the_place_is_kept_for_the_pod_as_it_was_seen_last() -> None:
    built = full(0)
    waits(built, "urgent", 5)
    built.pod_waiting(replace(pod("urgent", 16, priority=5), labels={"seen": "later"}), 0.0)
    opens(built, 0)
    while (decision := built.decide(0.0, NOW_NS)) is not None:
        assert isinstance(decision.outcome, NoFit)
        built.post_filter(decision.outcome, 0.0)
    steps(built)

    kept = built.nominations.of("uid-default-urgent")
    assert kept is not None
    assert kept.pod.labels == {"seen": "later"}


@pytest.mark.parametrize(
    ("priority", "first"),
    [
        pytest.param(4, [True, True, True], id="lesser"),
        pytest.param(5, [True, False, True], id="equal"),
        pytest.param(6, [False, False, False], id="better"),
    ],
)
def test_searches_come_before_decisions_for_lesser_pods_and_in_turn_with_equal_ones(
    priority: int, first: list[bool]
) -> None:
    built = full(0)
    waits(built, "urgent", 5)
    built.pod_waiting(pod("other", 99, priority=priority), 0.0)
    assert not built.search_first()

    opens(built, 0)

    assert [built.search_first() for _ in first] == first


def test_nobody_is_searched_for_once_the_last_place_that_would_give_way_serves() -> None:
    built = full(0)
    built.node_changed(wire_node("elsewhere"))
    waits(built, "urgent", 5)
    for number in range(MOST_NOMINATIONS):
        built.nominations.nominate(pod(f"kept-{number}", priority=9), "elsewhere" if number else "later", ())
    opens(built, 0)
    built.pod_waiting(pod("other", 99, priority=1), 0.0)
    assert built.search_first()

    built.tables.upsert_node(wire_node("later"))

    assert steps(built) == []
    assert not built.any_search


@pytest.mark.parametrize("steps_before", range(1, 5))
def test_nobody_goes_where_others_have_left_enough_between_two_steps(steps_before: int) -> None:
    nodes = [f"n{number:02}" for number in range(40)]
    built = engine(**{node: [16] for node in nodes})
    for node in nodes:
        for number in range(10):
            built.pod_assigned(bound(pod(f"{node}-low-{number}", 1, priority=1), node, on_card(0, 1)))
        built.pod_assigned(bound(pod(f"{node}-high", 6, priority=20), node, on_card(0, 6)))
    built.budgets_listed()
    found = built.post_filter(no_fit(built, pod("p", 6, priority=10)), 0.0)
    for _ in range(steps_before - 1):
        assert found is None, "the search has fewer steps than the test needs"
        found = built.post_filter_next(0.0)
    assert found is None, "the search has fewer steps than the test needs"

    for node in nodes:
        built.pod_gone(f"uid-default-{node}-high")

    assert search_ended(built, found).preemption is None


# With many nominations, a pod of higher priority is decided without the conflicting ones: as without all of them

NODES = ("a", "b", "c", "d")
ZONE = "topology.kubernetes.io/zone"
PORT = {"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
SHAPES: tuple[dict[str, Any], ...] = (
    {"gpu_mem": 16},
    {"gpu_mem": 8, "requests": {"cpu": "1"}},
    {"gpu_mem": 4, "annotations": {"gpushare/exclusive": "true"}},
    {"gpu_mem": 32, "annotations": {"aliyun.com/gpu-count": "2"}},
    {"requests": {"cpu": "2"}},
    {"requests": {"cpu": "1m"}},
    {"requests": {"cpu": "1"}, "labels": {"app": "x"}, "affinity": away_from("x", ZONE)},
    {"requests": {"cpu": "1m"}, "affinity": away_from("x", ZONE)},
    {"requests": {"cpu": "1m"}, "labels": {"app": "x"}},
    {"gpu_mem": 16, "labels": {"app": "x"}, "affinity": away_from("x", ZONE)},
    PORT,
)


class Answer(NamedTuple):
    """Result for a pod: the nodes that take it; otherwise node, cards and victims of its preemption."""

    feasible: tuple[str, ...]
    preemption: tuple[str, tuple[CardShare, ...], tuple[str, ...]] | None


def takes(built: Engine, probe: Pod, node: str) -> bool:
    with built.queries.without(probe, node) as asked:
        return asked.fits()


def answer(built: Engine, probe: Pod) -> Answer:
    feasible = tuple(node for node in NODES if takes(built, probe, node))
    if feasible:
        return Answer(feasible, None)
    found = answer_of(built.queries.preemption_for(probe))
    if not isinstance(found, Preemption):
        return Answer((), None)
    return Answer((), (found.node, found.cards, tuple(victim.key.name for victim in found.victims)))


def cluster_of(seed: int, most_moved: int) -> tuple[Engine, random.Random]:
    rng, built = random.Random(seed), engine()  # noqa: S311 - no secret
    built.nominations.most_moved = most_moved
    built.budgets_listed()
    for number, name in enumerate(NODES):
        built.node_changed(wire_node(name, [16, 16], cpu="4", labels={ZONE: f"z{number % 2}"}))
    for number in range(14):
        node, card = rng.choice(NODES), rng.randrange(2)
        waiting = pod(f"r{number}", rng.choice((4, 8)), priority=rng.randrange(4), requests={"cpu": "500m"})
        built.pod_assigned(bound(waiting, node, on_card(card, waiting.template.gpu_units)))
    for number in range(8):
        shape, node, priority = rng.choice(SHAPES), rng.choice(NODES), rng.randrange(1, 5)
        waiting = pod(f"k{number}", **shape, priority=priority)
        cards: tuple[CardShare, ...] = ()
        if (request := waiting.template.gpu_request) is not None:
            on = rng.sample(range(2), request.cards)
            cards = tuple(CardShare(card, f"GPU-{node}-{card}", request.units_per_card) for card in on)
        built.nominations.nominate(waiting, node, cards)
    return built, rng


@pytest.mark.parametrize("seed", range(40))
def test_what_is_shown_of_the_others_makes_no_difference(seed: int) -> None:
    few, rng = cluster_of(seed, 0)
    all_of_them, _ = cluster_of(seed, 10_000)
    for number in range(12):
        probe = pod(f"p{number}", **rng.choice(SHAPES), priority=rng.randrange(7))
        assert answer(few, probe) == answer(all_of_them, probe), probe


class AnotherRule(FilterPlugin):
    """A rule of another package."""

    name = "AnotherRule"
    depends = Change.PODS

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:  # noqa: ARG002 - as asked
        return ()


def test_beside_a_rule_of_somebody_else_all_places_are_moved() -> None:
    tables = cluster(a=[16])
    for rule, expected in ((NodeUnschedulable(), True), (AnotherRule(), False)):
        cycle = SchedulingCycle(Runtime(Profile(filter=(rule,)), tables))
        assert (cycle.least_of_row(pod("p")) is not None) is expected


def test_only_places_in_the_way_are_moved() -> None:
    built = engine()
    for number in range(100):
        name = f"n{number:03}"
        built.node_changed(wire_node(name, [16]))
        built.pod_assigned(bound(pod(f"low-{number}", 16), name, on_card(0, 16)))
        built.nominations.nominate(pod(f"kept-{number}", 16, priority=5), name, (CardShare(0, f"GPU-{name}-0", 16),))
    # Nominations whose victim is gone.
    built.pod_gone("uid-default-low-7")
    built.nominations.most_moved = 10
    before = built.tables.changes.version

    with built.queries.without(pod("urgent", 16, priority=9), "n007") as asked:
        assert asked.fits()
        moved = built.tables.changes.since(before)

    assert moved is not None
    assert moved.rows == [built.tables.row_of["n007"]]
