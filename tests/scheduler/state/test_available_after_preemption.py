"""What rows have left without pods of lower priority: held against the tables with these pods lifted."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.engine import Engine
from scheduler.pods.gpu_request import GpuRequest, Selection
from scheduler.state.amounts import NOTHING, available_on
from scheduler.state.available_after_preemption import AvailabilityByPriority, AvailableAfterPreemption
from scheduler.state.facts.namespace_memory import Priorities
from tests.support.builders import bound, card, engine, pod, wire_node
from tests.support.placing import on_card

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
