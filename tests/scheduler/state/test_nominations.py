"""Nominations: for whom the tables show them, what is left when they go; what rows have left without lower pods."""

from typing import TYPE_CHECKING, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from config.protocol.inventory import Health
from scheduler.core.engine import Engine
from scheduler.pods.gpu_request import GpuRequest, ResourceNames, Selection
from scheduler.pods.pod import Pod
from scheduler.state.amounts import NOTHING, Amount, AvailableOnRows, available_on
from scheduler.state.audit import audit_node
from scheduler.state.available_after_preemption import AvailabilityByPriority, AvailableAfterPreemption
from scheduler.state.cards.booking import CardShare
from scheduler.state.facts.namespace_memory import Priorities
from scheduler.state.ledger import of_tables, recompute
from scheduler.state.nominations import MOST_OF_A_NAMESPACE, Nominations
from scheduler.state.tables import Tables
from tests.support.builders import bound, card, cluster, engine, pod, wire_node
from tests.support.placing import on_card

if TYPE_CHECKING:
    from config.protocol.booked_cards import WrittenAllocation

NODES: Final = ("a", "b")
CARDS: Final = [16, 16]


def share(card: int, units: int, node: str = "a") -> tuple[CardShare, ...]:
    return (CardShare(card, f"GPU-{node}-{card}", units),)


def free(tables: Tables) -> list[int]:
    return [int(units) for units in tables.cards.free[:2, 0]]


def test_each_place_that_is_kept_or_given_up_is_another_version() -> None:
    kept = Nominations(cluster(a=CARDS))
    versions = [kept.version]
    for number in range(2):
        kept.nominate(pod(f"p{number}", 12), "a", share(number, 12))
        versions.append(kept.version)
    for number in range(2):
        kept.remove(f"uid-default-p{number}")
        versions.append(kept.version)

    assert versions == sorted(set(versions))


def test_a_pod_goes_as_long_as_somebody_waits_for_that() -> None:
    tables = cluster(a=CARDS)
    tables.add(bound(pod("low", 12), "a", on_card(0, 12)))
    record = tables.record("uid-default-low")
    kept = Nominations(tables)
    for name in ("p", "q"):
        kept.nominate(pod(name, 6, priority=5), "a", share(0, 6), ["uid-default-low"])
    assert record is not None

    for name, goes in (("p", True), ("q", False)):
        kept.remove(f"uid-default-{name}")
        assert (kept.goes("uid-default-low"), record.going) == (goes, goes)


def test_the_cards_of_a_place_serve_as_long_as_they_may_be_given_out() -> None:
    tables = cluster(a=CARDS)
    kept = Nominations(tables)
    places = [
        kept.nominate(pod("without"), "a", ()),
        kept.nominate(pod("unknown", 6), "a", None),
        kept.nominate(pod("first", 6), "a", share(0, 6)),
        kept.nominate(pod("second", 6), "a", share(1, 6)),
    ]

    def serve() -> list[bool]:
        return [kept.cards_serve(place) for place in places if place is not None]

    assert serve() == [True, True, True, True]
    tables.upsert_node(wire_node("a", [16, card(1, 16, health=Health.UNHEALTHY)]))
    assert serve() == [True, True, True, False]
    tables.remove_node("a")
    assert serve() == [False, False, False, False]


def test_how_many_places_are_kept_on_each_node_is_told_without_the_own_one() -> None:
    kept = Nominations(cluster(a=CARDS, b=CARDS))
    for name, node in (("p", "a"), ("q", "a"), ("r", "b")):
        kept.nominate(pod(name), node, ())

    assert dict(kept.by_node(without="uid-default-p")) == {"a": 1, "b": 1}
    assert dict(kept.by_node(without="uid-default-r")) == {"a": 2, "b": 0}


def test_an_error_of_who_sees_without_its_own_place_leaves_it_kept() -> None:
    tables = cluster(a=CARDS)
    kept = Nominations(tables)
    preemptor = pod("p", 12, priority=5)
    kept.nominate(preemptor, "a", share(0, 12))

    with pytest.raises(KeyError), kept.seen_by(preemptor):
        raise KeyError(free(tables))

    assert free(tables) == [4, 16]


def test_a_place_that_is_kept_no_longer_is_an_opening_whoever_was_decided_last() -> None:
    tables = cluster(a=CARDS)
    kept = Nominations(tables)
    for last in (0, 9):
        kept.nominate(pod("p", 12, priority=5), "a", share(0, 12))
        with kept.seen_by(pod("last", 1, priority=last)):
            pass
        tables.take_cluster_events()
        kept.remove("uid-default-p")
        assert list(tables.take_cluster_events().rows) == [0]


def test_what_is_looked_at_from_another_priority_is_no_opening() -> None:
    tables = cluster(a=CARDS)
    kept = Nominations(tables)
    kept.nominate(pod("p", 12, priority=5), "a", share(0, 12))
    tables.take_cluster_events()
    for priority in (9, 1, 9, 5):
        with kept.seen_by(pod("p" if priority == 5 else "other", 1, priority=priority)):
            pass

    assert not tables.cluster_events


def test_rows_with_kept_places_have_as_much_left_as_anybody_could_have() -> None:
    tables = cluster(a=CARDS)
    kept = Nominations(tables)
    kept.nominate(pod("p", 12, priority=5, requests={"cpu": "60"}), "a", share(0, 12))
    kept.nominate(pod("q", 16, priority=5), "a", share(1, 16))
    left = AvailableOnRows(tables)

    amounts = left.amounts(tables.rank[:1])
    assert amounts[Amount.CPU_MILLIS, 0] == 64_000
    assert amounts[Amount.CARD_UNITS, 0] >= 16
    assert amounts[Amount.NODE_UNITS, 0] == 32
    assert left.cards(0).free.tolist() == [16, 16]
    assert free(tables) == [4, 0]


def kept_by(tables: Tables, *namespaces: str, node: str = "a") -> Nominations:
    """Return nominations of priority 5, as many in each namespace as it may have."""
    kept = Nominations(tables)
    for namespace in namespaces:
        for number in range(MOST_OF_A_NAMESPACE):
            assert kept.nominate(pod(f"p{number}", namespace=namespace, priority=5), node, ()) is not None
    return kept


@pytest.mark.parametrize(
    ("namespaces", "turned_away"),
    [
        pytest.param(("one",), {"one": 5}, id="a namespace has half of them"),
        pytest.param(("one", "two"), {"one": 5, "two": 5, "": 5}, id="all are given"),
        pytest.param((), {}, id="none is given"),
    ],
)
def test_a_pod_over_a_limit_is_turned_away_unless_one_of_lower_priority_gives_way(
    namespaces: tuple[str, ...], turned_away: dict[str, float]
) -> None:
    kept = kept_by(cluster(a=CARDS), *namespaces)
    assert kept.closed() == turned_away
    for namespace in ("one", "other"):
        limited = namespace in turned_away or "" in turned_away
        equal, better = (pod("q", namespace=namespace, priority=priority) for priority in (5, 6))
        assert (kept.full_for(equal), kept.full_for(better)) == (limited, False)
        gives_way = kept.gives_way_to(better)
        assert (gives_way is not None) is limited
        assert kept.gives_way_to(equal) is None
        assert (kept.nominate(better, "a", ()) is None) is limited
        if gives_way is not None:
            # The latest: its victims have had the least time to go.
            assert gives_way.pod.key.name == f"p{MOST_OF_A_NAMESPACE - 1}"
            assert namespace not in namespaces or gives_way.pod.key.namespace == namespace
            kept.remove(gives_way.pod.key.uid)
            assert kept.nominate(better, "a", ()) is not None


def test_a_nomination_to_a_node_that_does_not_exist_gives_way_until_the_node_comes() -> None:
    tables = cluster(a=CARDS)
    kept = kept_by(tables, "one", node="x")
    lowest = pod("lowest", namespace="one", priority=-10)
    assert not kept.full_for(lowest)
    assert kept.gives_way_to(lowest) is not None
    tables.upsert_node(wire_node("x"))
    assert kept.full_for(lowest)


def test_a_card_that_waits_for_its_victims_is_not_called_over_committed() -> None:
    tables = cluster(a=CARDS)
    tables.add(bound(pod("victim", 16), "a", on_card(0, 16)))
    Nominations(tables).nominate(pod("p", 16, priority=5), "a", share(0, 16))

    found = audit_node(tables, "a")

    assert found is not None
    assert (found.difference, found.overcommitted) == ("", ())


class Kept(RuleBasedStateMachine):
    """Pods and nodes come and go, places are kept and given up, and pods of all priorities look."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = Tables(ResourceNames(), 1024)
        self.kept = Nominations(self.tables)
        self.nodes: set[str] = set()
        self.bound: dict[str, Pod] = {}
        self.places: dict[str, tuple[Pod, str, WrittenAllocation]] = {}
        self.priority = -100
        self.made = 0

    def new(self, units: int, priority: int) -> Pod:
        self.made += 1
        return pod(f"p{self.made}", units, priority=priority, requests={"cpu": "1"})

    @rule(name=st.sampled_from(NODES), cards=st.lists(st.just(16), min_size=1, max_size=3))
    def node_comes(self, name: str, cards: list[int]) -> None:
        self.tables.upsert_node(wire_node(name, cards))
        self.nodes.add(name)
        self.node = {**getattr(self, "node", {}), name: wire_node(name, cards)}

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        self.tables.remove_node(name)
        self.nodes.discard(name)

    @rule(name=st.sampled_from(NODES), card=st.integers(0, 2), units=st.integers(1, 16))
    def pod_comes(self, name: str, card: int, units: int) -> None:
        placed = bound(self.new(units, 0), name, on_card(card, units))
        self.tables.add(placed)
        self.bound[placed.key.uid] = placed

    @rule()
    def pod_goes(self) -> None:
        if self.bound:
            uid = next(iter(self.bound))
            self.tables.remove(uid)
            del self.bound[uid]

    @rule(
        name=st.sampled_from(NODES),
        card=st.integers(0, 1),
        units=st.integers(0, 16),
        priority=st.integers(-2, 3),
        known=st.booleans(),
    )
    def nominates(self, name: str, card: int, units: int, priority: int, known: bool) -> None:  # noqa: FBT001 - drawn
        waiting = self.new(units, priority)
        shares = share(card, units, name) if units else ()
        kept = self.kept.nominate(waiting, name, shares if known else None)
        assert kept is not None
        self.places[waiting.key.uid] = (waiting, name, kept.record.written)

    @rule(data=st.data())
    def gives_up(self, data: st.DataObject) -> None:
        if self.places:
            uid = data.draw(st.sampled_from(sorted(self.places)))
            self.kept.remove(uid)
            del self.places[uid]

    @rule(priority=st.integers(-3, 4))
    def looks(self, priority: int) -> None:
        self.priority = priority
        with self.kept.seen_by(self.new(0, priority)):
            self.agrees(None)

    @rule(data=st.data())
    def looks_itself(self, data: st.DataObject) -> None:
        if self.places:
            own, _, _ = self.places[data.draw(st.sampled_from(sorted(self.places)))]
            self.priority = own.priority
            with self.kept.seen_by(own):
                self.agrees(own.key.uid)

    @invariant()
    def is_as_it_was(self) -> None:
        self.agrees(None)

    def agrees(self, own: str | None) -> None:
        places = [place for uid, place in self.places.items() if place[0].priority >= self.priority and uid != own]
        pods = [(placed, placed.node_name, None) for placed in self.bound.values()]
        nodes = [self.node[name] for name in sorted(self.nodes)]
        assert of_tables(self.tables) == recompute(nodes, pods, ResourceNames(), nominated=places)


Kept.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestKept = Kept.TestCase


# What rows have left without pods of lower priority

PODS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 5), st.integers(0, 2), st.booleans()),
    max_size=12,
)
ONE = {"cards": 1, "units_per_card": 9, "containers": (9,), "init_containers": ()}


def runs(built: Engine, name: str, node: str, slot: int, units: int, *, priority: int, alone: bool = False) -> None:
    written = {"gpushare/exclusive": "true"} if alone else {}
    one = pod(name, units, priority=priority, requests={"cpu": f"{units}"}, annotations=written)
    built.pod_assigned(bound(one, node, on_card(slot, units) if units else {}))


@settings(max_examples=60, deadline=None)
@given(first=PODS, then=PODS, priority=st.integers(0, 3))
def test_it_is_what_is_left_when_all_of_lower_priority_are_lifted(
    first: list[tuple[str, int, int, int, bool]], then: list[tuple[str, int, int, int, bool]], priority: int
) -> None:
    built = engine(a=[16, 16, 8], b=[4])
    tables = built.tables
    tables.fact(Priorities)
    above, rows = AvailableAfterPreemption(tables, priority), np.array(sorted(tables.row_of.values()), dtype=np.intp)
    for number, found in enumerate((first, then)):
        for index, (node, slot, units, of_pod, alone) in enumerate(found):
            runs(built, f"p{number}-{index}", node, slot, units, priority=of_pod, alone=alone)
        assert above.follow(1 << 20)
        amounts = above.amounts(rows)
        lowest = tables.fact(Priorities).lowest[rows]
        lower = [record for record in tables.records() if record.pod.priority < priority]
        for record in lower:
            tables.lift(record)
        expected = np.where(lowest < priority, available_on(tables, rows), NOTHING)
        for record in lower:
            tables.put_back(record)
        assert np.array_equal(amounts, expected)


def test_a_row_with_as_many_cards_as_are_asked_serves() -> None:
    built = engine()
    built.node_changed(wire_node("a", [card(0, 16), card(1, 16, model="X"), card(2, 16)]))
    for slot, units, priority in ((0, 12, 0), (1, 12, 0), (2, 4, 5), (2, 10, 0)):
        runs(built, f"p{slot}-{priority}", "a", slot, units, priority=priority)
    above, row = AvailabilityByPriority(built.tables).of(5), np.array([0], dtype=np.intp)
    above.amounts(row)

    def serves(**asked: object) -> bool:
        return bool(above.serves(row, GpuRequest(**(ONE | asked)))[0])  # type: ignore[arg-type]

    assert serves(cards=3, units_per_card=12)
    assert not serves(cards=3, units_per_card=13)
    assert not serves(cards=3, exclusive=True)
    assert serves(cards=2, exclusive=True)
    assert not serves(cards=2, models=Selection(wanted=frozenset({"X"})))
    assert serves(models=Selection(wanted=frozenset({"X"})))


def test_counting_goes_on_where_it_was() -> None:
    built = engine(a=[16], b=[16], c=[16])
    for node in "abc":
        runs(built, f"low-{node}", node, 0, 5, priority=0)
    above, steps = AvailableAfterPreemption(built.tables, 5), 1
    while not above.follow(0):
        steps += 1
    assert steps == 3
    assert above.follow(0)
