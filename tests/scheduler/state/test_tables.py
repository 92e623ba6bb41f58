"""Random histories of nodes and pods against the ledger recomputed from scratch; the audit finds what is wrong."""

from typing import TYPE_CHECKING

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from config.protocol import names
from config.protocol.allocation import Allocation, LegacyFields, encode
from config.protocol.inventory import Card, Health
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.audit import audit_node
from scheduler.state.cards.booking import CardShare, chosen, shares_of
from scheduler.state.ledger import of_tables, recompute
from scheduler.state.tables import Tables
from tests.support.builders import UNIT_MIB, bound, card, cluster, pod, wire_node

if TYPE_CHECKING:
    from config.protocol.booked_cards import WrittenAllocation
    from scheduler.kube import objects

NODES = ("a", "b", "c")
HEALTHS = st.sampled_from([Health.HEALTHY, Health.HEALTHY, Health.UNHEALTHY, Health.SUSPECT, Health.CORDONED])


@st.composite
def cards(draw: st.DrawFn, node: str) -> list[Card]:
    sizes = draw(st.lists(st.integers(0, 16), max_size=6))
    return [card(index, units, node=node, health=draw(HEALTHS)) for index, units in enumerate(sizes)]


def written(shares: list[tuple[int, str, int]], *, uuids: bool) -> dict[str, str]:
    """Annotations of a pod with one container on these (index, uuid, units)."""
    allocation = Allocation(
        {0: {index: units for index, _, units in shares}}, {}, {i: u for i, u, _ in shares} if uuids else {}, UNIT_MIB
    )
    return encode(allocation, LegacyFields(sum(units for *_, units in shares), 16, 1))


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tables = Tables(ResourceNames())
        self.nodes: dict[str, objects.Node] = {}
        self.pods: dict[str, tuple[Pod, str, WrittenAllocation | None]] = {}
        self.made = 0

    @rule(data=st.data(), name=st.sampled_from(NODES), gpu=st.booleans(), extra=st.integers(0, 3))
    def node_comes_or_changes(self, data: st.DataObject, name: str, gpu: bool, extra: int) -> None:  # noqa: FBT001 - hypothesis draws it
        announced = data.draw(cards(name)) if gpu else None
        node = wire_node(name, announced, more={f"example.com/r{extra}": "5"})
        self.nodes[name] = node
        self.tables.upsert_node(node)

    @rule(name=st.sampled_from(NODES))
    def node_goes(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.tables.remove_node(name)

    @rule(name=st.sampled_from(NODES), indexes=st.frozensets(st.integers(0, 3)))
    def cards_are_marked_unhealthy(self, name: str, indexes: frozenset[int]) -> None:
        self.tables.mark_unhealthy(name, indexes)

    @rule(
        name=st.sampled_from(NODES),
        index=st.integers(0, 7),
        units=st.integers(1, 20),
        how=st.sampled_from(["uuids", "indexes", "legacy", "none", "broken", "wrong sum"]),
        exclusive=st.booleans(),
    )
    def somebody_binds(self, name: str, index: int, units: int, how: str, exclusive: bool) -> None:  # noqa: FBT001 - as above
        annotations = {
            "uuids": written([(index, f"GPU-{name}-{index}", units)], uuids=True),
            "indexes": written([(index, "", units)], uuids=False),
            "legacy": {names.MEM_IDX: str(index), names.UNIT_MIB: "1024"},
            "none": {},
            "broken": {names.ALLOCATION: "{", names.MEM_IDX: str(index), names.UNIT_MIB: "1024"},
            "wrong sum": written([(index, f"GPU-{name}-{index}", units + 1)], uuids=True),
        }[how]
        if exclusive:
            annotations |= {names.EXCLUSIVE: "true"}
        self.made += 1
        shown = bound(pod(f"p{self.made}", units, annotations=annotations), name)
        self._show(shown)

    @rule(name=st.sampled_from(NODES), slot=st.integers(0, 5), units=st.integers(1, 20), as_sent=st.booleans())
    def we_assume(self, name: str, slot: int, units: int, as_sent: bool) -> None:  # noqa: FBT001 - as above
        row = self.tables.row_of.get(name)
        if row is None or slot >= len(self.tables.cards.slots[row]):
            return
        self.made += 1
        waiting = pod(f"p{self.made}", units)
        there = self.tables.cards.slots[row][slot].card
        shares = (CardShare(there.index, there.uuid, units),)
        annotations = written([(there.index, there.uuid, units)], uuids=True)
        # What is shown later is what was sent, or says the same in other texts.
        self.tables.assume(waiting, row, shares, annotations if as_sent else {**annotations, "other": ""})
        self.pods[waiting.key.uid] = (waiting, name, chosen(waiting, shares, 1024))

    @precondition(lambda self: self.pods)
    @rule(data=st.data(), elsewhere=st.booleans())
    def the_watch_shows_a_pod(self, data: st.DataObject, elsewhere: bool) -> None:  # noqa: FBT001 - as above
        waiting, name, booking = self.pods[data.draw(st.sampled_from(sorted(self.pods)))]
        if booking is not None:
            share = shares_of(booking)[0]
            waiting = replace(waiting, annotations=written([(share.index, share.uuid, share.units)], uuids=True))
        self._show(bound(waiting, NODES[0] if elsewhere and booking is not None else name))

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def a_pod_goes(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.pods)))
        *_, booking = self.pods.pop(uid)
        if booking is not None:
            self.tables.forget(uid)
        else:
            assert self.tables.remove(uid)

    @invariant()
    def tables_are_the_ledger(self) -> None:
        assert of_tables(self.tables) == recompute(self.nodes.values(), self.pods.values(), ResourceNames())

    def _show(self, shown: Pod) -> None:
        self.pods[shown.key.uid] = (shown, shown.node_name, None)
        self.tables.add(shown)


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_many_nodes_grow_every_column() -> None:
    tables = cluster(**{f"n{i}": [16] for i in range(200)})
    assert tables.capacity >= 200
    assert tables.valid.sum() == 200
    assert sorted(tables.row_of, key=lambda name: int(tables.rank[tables.row_of[name]])) == sorted(tables.row_of)


def test_a_card_that_vanished_stays_booked_as_lost_and_counts_against_no_other_card() -> None:
    tables = cluster(a=[16, 16])
    tables.add(bound(pod("p", 5), "a", written([(1, "GPU-a-1", 5)], uuids=True)))
    tables.upsert_node(wire_node("a", [16]))
    row = tables.row_of["a"]
    assert of_tables(tables)["a"].free == {"GPU-a-0": 16, "GPU-a-1": -5}
    assert tables.cards.usable[:, row].tolist()[:2] == [True, False]
    assert tables.cards.counted[row] == 0


def test_memory_of_a_terminating_pod_is_its_own_until_it_is_gone() -> None:
    tables = cluster(a=[16])
    shown = bound(pod("p", 5), "a", written([(0, "GPU-a-0", 5)], uuids=True))
    tables.add(shown)
    tables.add(replace(shown, terminating=True))
    assert of_tables(tables)["a"].free == {"GPU-a-0": 11}
    tables.remove(shown.key.uid)
    assert of_tables(tables)["a"].free == {"GPU-a-0": 16}


def test_a_pod_that_is_shown_as_it_was_sent_but_asks_for_more_is_read_again() -> None:
    tables = cluster(a=[16, 16])
    sent = written([(0, "GPU-a-0", 5)], uuids=True)
    tables.assume(pod("p", 5), tables.row_of["a"], (CardShare(0, "GPU-a-0", 5),), sent)
    assert "differs from the one that the scheduler sent" in tables.add(bound(pod("p", 7), "a", sent))
    assert tables.is_assumed("uid-default-p")


def test_a_pod_that_is_shown_as_it_was_sent_is_assumed_no_longer() -> None:
    tables = cluster(a=[16, 16])
    sent = written([(0, "GPU-a-0", 5)], uuids=True)
    tables.assume(pod("p", 5), tables.row_of["a"], (CardShare(0, "GPU-a-0", 5),), sent)
    assert not tables.add(bound(pod("p", 5), "a", {**sent, "other": "1"}))
    assert not tables.is_assumed("uid-default-p")
    assert of_tables(tables)["a"].free == {"GPU-a-0": 11, "GPU-a-1": 16}


def test_an_edit_does_not_make_the_card_of_another_binding_the_one_that_we_sent() -> None:
    tables = cluster(a=[16, 16])
    sent = {**written([(0, "GPU-a-0", 5)], uuids=True), "assumed": "now"}
    tables.assume(pod("p", 5), tables.row_of["a"], (CardShare(0, "GPU-a-0", 5),), sent)
    theirs = written([(1, "GPU-a-1", 5)], uuids=True)
    assert "differs from the one that the scheduler sent" in tables.add(bound(pod("p", 5), "a", theirs))

    tables.add(bound(pod("p", 5), "a", written([(0, "GPU-a-0", 5)], uuids=True)))

    assert of_tables(tables)["a"].free == {"GPU-a-0": 11, "GPU-a-1": 11}
    tables.forget("uid-default-p")
    assert of_tables(tables)["a"].free == {"GPU-a-0": 16, "GPU-a-1": 11}


# The audit


def shown(tables: Tables, name: str, units: int) -> None:
    tables.add(bound(pod(name, units), "a", written([(0, "GPU-a-0", units)], uuids=True)))


def test_nothing_is_found_where_all_is_well() -> None:
    tables = cluster(a=[16], b=[16])
    shown(tables, "p", 16)
    before = tables.changes.version
    found = audit_node(tables, "a")
    assert found is not None
    assert (found.difference, found.overcommitted, found.shared) == ("", (), {})
    assert tables.changes.version == before
    assert audit_node(tables, "gone") is None


def test_columns_that_have_gone_wrong_are_repaired_and_shown() -> None:
    tables = cluster(a=[16, 16])
    shown(tables, "p", 5)
    right = of_tables(tables)
    row = tables.row_of["a"]
    tables.cards.stored.free[0, row] += 5
    tables.resources.requested[0, row] += 7
    found = audit_node(tables, "a")
    assert found is not None
    assert "'GPU-a-0': 16" in found.difference
    assert of_tables(tables) == right
    assert audit_node(tables, "a") == type(found)(node="a", uid="node-a", shared={})


def test_a_card_with_more_booked_than_it_has_is_named_with_the_largest_pods_on_it() -> None:
    tables = cluster(a=[16])
    for name, units in (("one", 8), ("two", 12), ("three", 1), ("four", 2)):
        shown(tables, name, units)
    found = audit_node(tables, "a")
    assert found is not None
    assert [str(card) for card in found.overcommitted] == [
        "card GPU-a-0 has 16 units, and 23 are booked: default/two (12), default/one (8), default/four (2), and 1 more"
    ]
    assert found.difference == ""


def test_a_pod_whose_card_is_unknown_overcommits_nothing() -> None:
    tables = cluster(a=[16])
    shown(tables, "one", 12)
    tables.add(bound(pod("somewhere", 8), "a"))
    tables.add(bound(pod("no-unit", 8), "a", {names.MEM_IDX: "0"}))
    found = audit_node(tables, "a")
    assert found is not None
    assert found.overcommitted == ()


def test_a_uuid_of_two_nodes_is_found_on_both() -> None:
    tables = cluster(a=[16])
    tables.upsert_node(wire_node("b", annotations=dict(wire_node("a", [16]).metadata.annotations or {})))
    found = [audit_node(tables, name) for name in ("a", "b")]
    assert [one.shared for one in found if one] == [{"GPU-a-0": "b"}, {"GPU-a-0": "a"}]
