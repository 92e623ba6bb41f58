"""Which pods go: held against every choice of node, cards and victims; and by plain amounts on one node."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import NoFit
from scheduler.framework.preemption import Preemption
from scheduler.plugins.preemption.victims import Key, candidate, lower
from scheduler.plugins.preemption.victims_by_amounts import by_amounts, promising
from scheduler.pods.pod import Pod
from scheduler.state.amounts import NOTHING, Amount
from scheduler.state.available_after_preemption import AvailabilityByPriority
from scheduler.state.columns.arrays import Int64Array
from scheduler.state.ledger import of_tables
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables
from tests.support.builders import bound, card, engine, pod, wire_node
from tests.support.placing import decided
from tests.support.preempting import GUARDED, MINUTES, fits, guard, post_filtered, runs


class Tried:
    """Every node, every set of cards, every choice of victims, the slow way."""

    def __init__(self, built: Engine, waiting: Pod, allowed: int) -> None:
        """allowed: how many pods with the label `app` may go."""
        self.tables = built.tables
        self.waiting = waiting
        self.allowed = allowed

    def keys(self) -> Iterator[tuple[int, ...]]:
        request = self.waiting.template.gpu_request
        for node in self.tables.row_of:
            slots = range(len(self.tables.inventory(node).cards))
            for some in combinations(slots, request.cards) if request else [()]:
                for gone in filter(None, choices(self.tables, self.waiting, node, some)):
                    yield self.key([record.pod for record in gone])

    def key(self, gone: Sequence[Pod]) -> tuple[int, ...]:
        highest = max(pod.priority for pod in gone)
        earliest = min(MINUTES.index(pod.started) for pod in gone if pod.priority == highest)
        protected = self._protected(gone[0].node_name)
        violations = sum(pod.key.name in protected for pod in gone)
        return violations, highest, sum(pod.priority + 2**31 for pod in gone), len(gone), -earliest

    def _protected(self, node: str) -> set[str]:
        """Names of those that the budget does not let go, were all of them to go: the most important ones go first."""
        records = self.tables.records_on(node)
        guarded = [r.pod for r in records if r.pod.labels and r.pod.priority < self.waiting.priority]
        ordered = sorted(guarded, key=lambda pod: (-pod.priority, pod.started, pod.key.name))
        return {pod.key.name for pod in ordered[self.allowed :]}


def choices(tables: Tables, waiting: Pod, node: str, slots: Collection[int]) -> Iterator[Sequence[PodRecord]]:
    """Every choice of pods of lower priority after which the pod could have these cards."""
    there = tables.records_on(node)
    potential = [record for record in there if record.pod.priority < waiting.priority]
    for number in range(len(potential) + 1):
        for gone in combinations(potential, number):
            if fits(tables, waiting, node, slots, [record for record in there if record not in gone]):
                yield gone


UNITS = st.integers(3, 12)
# Node, card, units, priority, minute, cores, whether the budget is about it, whether it has its card alone.
VICTIMS = st.lists(
    st.tuples(
        *(st.integers(0, 2), st.integers(0, 3), UNITS, st.integers(0, 4), st.integers(0, 59), st.integers(0, 20)),
        *(st.sampled_from((True, True, False)), st.sampled_from((False, False, False, True))),
    ),
    min_size=8,
    max_size=16,
)
EXCLUSIVE: Final = {"gpushare/exclusive": "true"}


@settings(max_examples=150)
@given(VICTIMS, st.integers(1, 2), st.integers(10, 16), st.integers(0, 40), st.booleans(), st.integers(0, 1))
def test_no_other_node_cards_and_pods_are_cheaper(  # noqa: PLR0917 - as drawn
    there: list[tuple[Any, ...]],
    cards: int,
    units: int,
    cpu: int,
    alone: bool,  # noqa: FBT001 - as drawn
    allowed: int,
) -> None:
    built = engine(a=[16, 16], b=[16, 16, 16, 16], c=[16, 12])
    guard(built, allowed)
    on_node = [0, 0, 0]
    for number, (node, slot, held, priority, minute, cores, guarded, exclusive) in enumerate(there):
        name, most = "abc"[node], (2, 4, 2)[node]
        on_node[node] += 1
        if on_node[node] > 8:
            # Of more, those that cannot come back one by one are taken.
            continue
        runs(
            built,
            f"v{number}",
            name,
            card=slot % most,
            units=held,
            priority=priority,
            minute=minute,
            requests={"cpu": str(cores)},
            labels=GUARDED if guarded else {},
            annotations=EXCLUSIVE if exclusive else {},
        )
    asked = {"aliyun.com/gpu-count": str(cards), **(EXCLUSIVE if alone else {})}
    waiting = pod("p", units * cards, priority=4, requests={"cpu": str(cpu)}, annotations=asked)
    before = of_tables(built.tables)
    built.pod_waiting(waiting, 0.0)
    outcome = decided(built)
    if not isinstance(outcome, NoFit):
        return
    tried = Tried(built, waiting, allowed)
    expected = min(tried.keys(), default=None)
    built.budgets_listed()
    preemption = post_filtered(built, outcome).preemption

    assert (None if preemption is None else tried.key(preemption.victims)) == expected
    assert preemption is None or expected is None or preemption.violations == expected[0]
    built.nominations.remove(waiting.key.uid)
    assert of_tables(built.tables) == before
    assert_it_helps(built, waiting, preemption)


def assert_it_helps(built: Engine, waiting: Pod, preemption: Preemption | None) -> None:
    if preemption is None:
        return
    for victim in preemption.victims:
        built.pod_gone(victim.key.uid)
    while built.run_hint(1.0):
        pass
    outcome = decided(built, 1.0)
    assert not isinstance(outcome, NoFit), f"{waiting.key} still fits nowhere"
    assert outcome.node == preemption.node


# By plain amounts, for each set of cards of one node

GPU_MEM = "aliyun.com/gpu-mem"
GPU_COUNT = "aliyun.com/gpu-count"
CARDS = [12, 12, 9]
CORES = 16


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


def least_key(built: Engine, waiting: Pod, slots: Sequence[int]) -> Key | None:
    """Of every choice of pods, for one set of cards of the one node."""
    violating, _ = built.tables.budgets.split(lower(waiting, built.tables, 0))
    protected = {record.pod.key.uid for record in violating}

    def key(gone: Sequence[PodRecord]) -> Key:
        violations = sum(record.pod.key.uid in protected for record in gone)
        return candidate(0, tuple(range(3)), gone, violations).key

    return min(map(key, choices(built.tables, waiting, "a", slots)), default=None)


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
            "a",
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

    # Nobody has to go for the others: the node is not asked about, but for what another rule says.
    there_now = built.tables.records_on("a")
    lacking = [
        slots for slots in combinations(range(3), cards) if not fits(built.tables, waiting, "a", slots, there_now)
    ]
    expected = {slots: key for slots in lacking if (key := least_key(built, waiting, slots)) is not None}
    assert {one.slots: one.key for one in found if one.slots in lacking} == expected
    assert [(one.key, one.slots) for one in found] == sorted((one.key, one.slots) for one in found)


@settings(max_examples=100)
@given(
    there=st.lists(st.tuples(st.integers(0, 1), st.integers(1, 4), st.integers(0, 4)), min_size=2, max_size=8),
    asked=st.tuples(st.integers(1, 2), st.integers(1, 6), st.integers(0, 12)),
)
def test_alternatives_are_all_choices_of_as_many_pods_or_one_more(
    there: list[tuple[int, int, int]], asked: tuple[int, int, int]
) -> None:
    built = node_with([16, 16], cpu=str(CORES))
    for number, (slot, units, cores) in enumerate(there):
        runs(built, f"v{number}", "a", card=slot, units=units, requests={"cpu": str(cores)})
    cards, more, cores = asked
    free = int(built.tables.cards.stored.free[:2, 0].min())
    waiting = pod(
        "p", cards * (free + more), priority=1, requests={"cpu": str(cores)}, annotations={GPU_COUNT: str(cards)}
    )

    found, _ = by_amounts(waiting, minimum(waiting), built.tables, 0, gpu_mem=GPU_MEM, alternatives=True)

    for slots in {one.slots for one in found if one.slots and one.victims}:
        every = {
            frozenset(record.pod.key.name for record in gone) for gone in choices(built.tables, waiting, "a", slots)
        }
        fewest = min(map(len, every))
        chosen = {frozenset(record.pod.key.name for record in one.victims) for one in found if one.slots == slots}
        assert chosen <= every
        # Pods that hold none of what is short are left out.
        useful = set().union(*chosen)
        few = {names for names in every if len(names) <= fewest + 1 and names <= useful}
        assert chosen == few or fewest > 3


def test_who_goes_already_goes_before_others_and_no_more_of_them_than_needed() -> None:
    built = node_with([12])
    for number in range(4):
        runs(built, f"going-{number}", "a", units=2, priority=1).going = True
    runs(built, "stays", "a", units=4, priority=0)

    assert said(built, pod("p", 4, priority=5))[0] == {(0,): ("going-2", "going-3")}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param({}, [(0,), (1,)], id="any"),
        pytest.param({"gpushare/card-models": "X"}, [(1,)], id="of a model"),
        pytest.param({"gpushare/card-uuids": "GPU-a-0"}, [(0,)], id="of a UUID"),
        pytest.param(EXCLUSIVE, [(0,)], id="alone"),
        pytest.param({"gpushare/isolation": "required"}, [(1,)], id="enforced"),
        pytest.param({GPU_COUNT: "2"}, [], id="several, of which none is an instance"),
    ],
)
def test_only_cards_that_the_pod_can_have_are_freed(asked: dict[str, str], expected: list[tuple[int, ...]]) -> None:
    instance, enforced = replace(card(0, 16), parent="GPU-p"), replace(card(1, 16, model="X"), isolation="driver")
    built = node_with([instance, enforced, card(2, 16)])
    for slot in range(3):
        runs(built, f"low-{slot}", "a", card=slot, units=12, priority=0)
    runs(built, "high-1", "a", card=1, units=1, priority=9)
    runs(built, "high-2", "a", card=2, units=1, priority=9, annotations=EXCLUSIVE)

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
    runs(built, "low", "a", units=6, priority=0, requests={"cpu": "20"})
    runs(built, "high", "a", units=4, priority=9, requests={"cpu": "4"})
    units, cores = asked

    assert said(built, pod("p", units, priority=5, requests={"cpu": str(cores)})) == ({}, (expected,))
    assert said(built, pod("p", 12, priority=5, requests={"cpu": "60"})) == ({(0,): ("low",)}, ())


@pytest.mark.parametrize(
    ("asked", "rows"),
    [
        pytest.param({}, [True, True], id="any"),
        pytest.param({"gpushare/isolation": "required"}, [True, False], id="enforced"),
        pytest.param({GPU_COUNT: "2"}, [False, True], id="whole cards"),
    ],
)
def test_rows_without_the_cards_that_a_pod_needs_are_ruled_out(asked: dict[str, str], rows: list[bool]) -> None:
    built = engine()
    for name, isolation, parent in (("a", "mps", "GPU-p"), ("b", "", "")):
        cards = [replace(card(index, 16, node=name), isolation=isolation, parent=parent) for index in range(2)]
        built.node_changed(wire_node(name, cards))
        built.pod_assigned(bound(pod(f"low-{name}", priority=0), name))
    both, waiting = np.arange(2, dtype=np.intp), pod("p", 8, priority=5, annotations=asked)
    above = AvailabilityByPriority(built.tables).of(5)
    assert above.follow(100)
    assert promising(waiting, minimum(waiting), above, both, GPU_MEM)[0].tolist() == rows


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
        runs(built, f"v{slot}", "a", card=slot, units=16, priority=(slot * 5) % 16)

    waiting = pod("p", 3 * 16, priority=20, annotations={GPU_COUNT: "3"})

    assert said(built, waiting)[0] == {(0, 10, 13): ("v10", "v13", "v0")}


def test_of_many_sets_of_cards_the_cheapest_are_worked_out() -> None:
    built = node_with([16] * 8)
    for slot in range(8):
        runs(built, f"v{slot}", "a", card=slot, units=16, priority=(slot * 3) % 8)

    found, _ = said(built, pod("p", 2 * 16, priority=20, annotations={GPU_COUNT: "2"}))

    priority = {slot: (slot * 3) % 8 for slot in range(8)}
    cheapest = sorted(combinations(range(8), 2), key=lambda slots: sorted((priority[s] for s in slots), reverse=True))
    assert list(found) == cheapest[:16]
