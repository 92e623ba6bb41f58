"""What plain amounts say of one node: for each set of cards, held against every choice of pods that go."""

from collections.abc import Collection, Iterator, Sequence
from itertools import combinations
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.core.engine import Engine
from scheduler.kube import objects
from scheduler.plugins.preemption.victims import Key, candidate, lower
from scheduler.plugins.preemption.victims_by_amounts import by_amounts, promising
from scheduler.pods.pod import Pod
from scheduler.state.amounts import NOTHING, Amount
from scheduler.state.available_after_preemption import AvailabilityByPriority
from scheduler.state.columns.arrays import Int64Array
from scheduler.state.pod_record import PodRecord
from tests.support.builders import bound, card, engine, pod, wire_node
from tests.support.placing import on_card

GPU_MEM = "aliyun.com/gpu-mem"
GPU_COUNT = "aliyun.com/gpu-count"
EXCLUSIVE = {"gpushare/exclusive": "true"}
GUARDED = {"app": "guarded"}
CARDS = [12, 12, 9]
CORES = 16


def runs(built: Engine, name: str, *, card: int = 0, units: int = 0, minute: int = 0, **options: Any) -> PodRecord:  # noqa: ANN401 - as `pod`
    written = on_card(card, units) if units else {}
    placed = replace(bound(pod(name, units, **options), "a", written), started=f"2026-01-01T00:{minute:02d}:00Z")
    built.pod_assigned(placed)
    found = built.tables.record(placed.key.uid)
    assert found is not None
    return found


def minimum(waiting: Pod) -> Int64Array:
    """int64[amounts]: as the rules that judge by amounts say it."""
    request, needed = waiting.template.gpu_request, np.full(len(Amount), NOTHING, dtype=np.int64)
    needed[Amount.PODS] = 1
    if "cpu" in waiting.template.requests:
        needed[Amount.CPU_MILLIS] = waiting.template.requests["cpu"]
    if request is not None:
        needed[Amount.CARD_UNITS], needed[Amount.NODE_UNITS] = request.units_per_card, request.units
    return needed


def said(built: Engine, waiting: Pod) -> tuple[dict[tuple[int, ...] | None, tuple[str, ...]], tuple[str, ...]]:
    """(by cards, the names of the victims, the cheapest first; what there is too little of)."""
    found, short = by_amounts(waiting, minimum(waiting), built.tables, 0, gpu_mem=GPU_MEM)
    return {one.slots: tuple(record.pod.key.name for record in one.victims) for one in found}, short


def node_with(cards: Sequence[Any], **options: Any) -> Engine:  # noqa: ANN401 - as `wire_node`
    built = engine()
    built.node_changed(wire_node("a", cards, **options))
    return built


def guard(built: Engine, allowed: int) -> None:
    manifest = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": GUARDED}},
        "status": {"disruptionsAllowed": allowed},
    }
    built.budget_changed(msgspec.convert(manifest, objects.PodDisruptionBudget))


class Tried:
    """Every choice of pods, for one set of cards of the one node."""

    def __init__(self, built: Engine, waiting: Pod) -> None:
        self.tables = built.tables
        self.waiting = waiting
        self.potential = lower(waiting, built.tables, 0)
        violating, _ = built.tables.budgets.split(self.potential)
        self.protected = {record.pod.key.uid for record in violating}

    def least_key(self, slots: Sequence[int]) -> Key | None:
        return min(map(self._key, self._choices(slots)), default=None)

    def fits(self, slots: Sequence[int]) -> bool:
        return self._fits(slots, self.tables.records_on("a"))

    def _key(self, gone: Sequence[PodRecord]) -> Key:
        violations = sum(record.pod.key.uid in self.protected for record in gone)
        return candidate(0, tuple(range(3)), gone, violations).key

    def _choices(self, slots: Sequence[int]) -> Iterator[Sequence[PodRecord]]:
        there = self.tables.records_on("a")
        for number in range(len(self.potential) + 1):
            for gone in combinations(self.potential, number):
                if self._fits(slots, [record for record in there if record not in gone]):
                    yield gone

    def _fits(self, slots: Sequence[int], stay: Collection[PodRecord]) -> bool:
        template, inventory = self.waiting.template, self.tables.inventory("a")
        asked = [template, *(record.pod.template for record in stay)]
        cpu = sum(each.requests.get("cpu", 0) for each in asked)
        if template.requests.get("cpu", 0) and cpu > CORES * 1000:
            return False
        if sum(each.gpu_units for each in asked) > inventory.allocatable:
            return False
        request = template.gpu_request
        assert request is not None
        for slot in slots:
            holders = [record for record in stay if record.written.per_card.get(slot, 0)]
            if holders and (request.exclusive or any(record.exclusive for record in holders)):
                return False
            held = sum(record.written.per_card[slot] for record in holders)
            if inventory.cards[slot].units - held < request.units_per_card:
                return False
        return True


# Card, units, priority, minute, cores; guarded, has its card alone, goes already. Ties are common; one card is full.
HOLDERS = st.lists(
    st.tuples(
        *(st.sampled_from((0, 0, 0, 0, 1, 2)), st.integers(2, 4), st.sampled_from((-5, 1, 1, 1)), st.integers(0, 3)),
        *(st.integers(0, 4), st.sampled_from((False, False, True)), st.sampled_from((False,) * 7 + (True,))),
        st.sampled_from((False, False, False, True)),
    ),
    min_size=4,
    max_size=8,
)


@settings(max_examples=150)
@given(
    there=HOLDERS,
    asked=st.tuples(st.sampled_from((1, 1, 2)), st.integers(4, 9), st.sampled_from((0, 0, 8, 12)), st.booleans()),
    allowed=st.integers(0, 2),
)
def test_of_each_set_of_cards_those_go_that_matter_least(
    there: list[tuple[Any, ...]], asked: tuple[int, int, int, bool], allowed: int
) -> None:
    built = node_with(CARDS, cpu=str(CORES))
    guard(built, allowed)
    for number, (slot, units, priority, minute, cores, guarded, alone, going) in enumerate(there):
        record = runs(
            built,
            f"v{number}",
            card=slot,
            units=units,
            priority=priority,
            minute=minute,
            requests={"cpu": str(cores)},
            # What goes already is counted by its budget.
            labels=GUARDED if guarded and not going else {},
            annotations=EXCLUSIVE if alone else {},
        )
        record.going = going
    cards, units, cores, alone = asked
    written = {GPU_COUNT: str(cards), **(EXCLUSIVE if alone and units > 7 else {})}
    waiting = pod("p", cards * units, priority=2, requests={"cpu": str(cores)}, annotations=written)

    found, _ = by_amounts(waiting, minimum(waiting), built.tables, 0, gpu_mem=GPU_MEM)

    tried = Tried(built, waiting)
    # Nobody has to go for the others: the node is not asked about, but for what another rule says.
    lacking = [slots for slots in combinations(range(3), cards) if not tried.fits(slots)]
    expected = {slots: key for slots in lacking if (key := tried.least_key(slots)) is not None}
    assert {one.slots: one.key for one in found if one.slots in lacking} == expected
    assert [(one.key, one.slots) for one in found] == sorted((one.key, one.slots) for one in found)


def test_who_goes_already_goes_before_others_and_no_more_of_them_than_needed() -> None:
    built = node_with([12])
    for number in range(4):
        runs(built, f"going-{number}", units=2, priority=1).going = True
    runs(built, "stays", units=4, priority=0)

    assert said(built, pod("p", 4, priority=5))[0] == {(0,): ("going-2", "going-3")}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({}, [(0,), (1,)], id="any"),
        pytest.param({"gpushare/card-models": "X"}, [(1,)], id="of a model"),
        pytest.param({"gpushare/card-uuids": "GPU-a-0"}, [(0,)], id="of a UUID"),
        pytest.param(EXCLUSIVE, [(0,)], id="alone"),
    ],
)
def test_only_cards_that_the_pod_can_have_are_freed(asked: dict[str, str], expected: list[tuple[int, ...]]) -> None:
    built = node_with([card(0, 16), card(1, 16, model="X"), card(2, 16)])
    for slot in range(3):
        runs(built, f"low-{slot}", card=slot, units=12, priority=0)
    runs(built, "high-1", card=1, units=1, priority=9)
    runs(built, "high-2", card=2, units=1, priority=9, annotations=EXCLUSIVE)

    assert list(said(built, pod("p", 10, priority=5, annotations=asked))[0]) == expected


@pytest.mark.parametrize(
    ("card_units", "gpu_mem", "asked", "expected"),
    [
        pytest.param(32, 16, (13, 1), f"Insufficient {GPU_MEM}", id="memory of the node"),
        pytest.param(16, 32, (13, 1), "Insufficient GPU memory on one card", id="memory of a card"),
        pytest.param(16, 16, (12, 61), "Insufficient cpu", id="cpu"),
    ],
)
def test_what_is_too_little_without_all_of_lower_priority_is_told(
    card_units: int, gpu_mem: int, asked: tuple[int, int], expected: str
) -> None:
    built = node_with([card_units], gpu_mem=gpu_mem)
    runs(built, "low", units=6, priority=0, requests={"cpu": "20"})
    runs(built, "high", units=4, priority=9, requests={"cpu": "4"})
    units, cores = asked

    assert said(built, pod("p", units, priority=5, requests={"cpu": str(cores)})) == ({}, (expected,))
    assert said(built, pod("p", 12, priority=5, requests={"cpu": "60"})) == ({(0,): ("low",)}, ())


def test_rows_where_all_of_lower_priority_would_not_be_enough_are_ruled_out_by_plain_amounts() -> None:
    built = engine()
    for name, cards, cpu in (
        ("a", [16], "64"),
        ("b", [16], "8"),
        ("c", [8, 8], "64"),
        ("d", [8], "64"),
        ("e", [16], "64"),
    ):
        built.node_changed(wire_node(name, cards, cpu=cpu))
        built.pod_assigned(bound(pod(f"low-{name}", priority=0), name))
    rows = np.array([built.tables.row_of[name] for name in "abcde"], dtype=np.intp)
    above = AvailabilityByPriority(built.tables).of(5)
    assert above.follow(100)

    def hopeful(waiting: Pod) -> tuple[list[bool], dict[str, int]]:
        enough, reasons = promising(waiting, minimum(waiting), above, rows, GPU_MEM)
        return enough.tolist(), dict(reasons)

    memory = "Insufficient GPU memory on one card"
    assert hopeful(pod("p", 12, priority=5, requests={"cpu": "16"})) == (
        [True, False, False, False, True],
        {"Insufficient cpu": 1, memory: 1, f"Insufficient {GPU_MEM}": 1},
    )
    assert hopeful(pod("q", requests={"cpu": "16"}, priority=5)) == (
        [True, False, True, True, True],
        {"Insufficient cpu": 1},
    )


def test_of_very_many_sets_of_cards_one_is_worked_out_card_by_card() -> None:
    built = node_with([16] * 16)
    for slot in range(16):
        runs(built, f"v{slot}", card=slot, units=16, priority=(slot * 5) % 16)

    waiting = pod("p", 3 * 16, priority=20, annotations={GPU_COUNT: "3"})

    assert said(built, waiting)[0] == {(0, 10, 13): ("v10", "v13", "v0")}


def test_of_many_sets_of_cards_the_cheapest_are_worked_out() -> None:
    built = node_with([16] * 8)
    for slot in range(8):
        runs(built, f"v{slot}", card=slot, units=16, priority=(slot * 3) % 8)

    found, _ = said(built, pod("p", 2 * 16, priority=20, annotations={GPU_COUNT: "2"}))

    priority = {slot: (slot * 3) % 8 for slot in range(8)}
    cheapest = sorted(combinations(range(8), 2), key=lambda slots: sorted((priority[s] for s in slots), reverse=True))
    assert list(found) == cheapest[:16]
