"""Free memory that no usual pod can use: against plain Python, of nodes and of the cluster; rows that are alike."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.protocol import names
from scheduler.plugins.fragmentation.cards_seen import FreeCards, FreeCardsOf
from scheduler.plugins.fragmentation.distinct import distinct
from scheduler.plugins.fragmentation.measure import Copied, Fragmentation, measured, of_cards
from scheduler.plugins.fragmentation.requests_seen import Shape
from scheduler.plugins.fragmentation.row_kinds import RowKinds, alike, kinds_of, numbered
from scheduler.plugins.fragmentation.target_workload import TargetWorkload
from scheduler.plugins.fragmentation.workload import PodMix
from scheduler.pods.gpu_request import ResourceNames, Selection
from scheduler.state.columns.arrays import ALL_ROWS
from scheduler.state.tables import Tables
from tests.support.builders import bound, card, pod, wire_node
from tests.support.placing import on_card
from tests.support.usable import shapes, usable

SHAPES = shapes(fewest_cards=0)


class Asked(NamedTuple):
    """A node: (units, model) of each card, its CPU, and units that a pod holds of its first card."""

    cards: list[tuple[int, str]]
    cpu: int
    held: int


NODES = st.builds(
    Asked,
    st.lists(st.tuples(st.integers(1, 20), st.sampled_from("AB")), max_size=9),
    st.integers(0, 20),
    st.integers(0, 20),
)


def tables_of(nodes: list[Asked]) -> Tables:
    tables = Tables(ResourceNames())
    tables.fact(TargetWorkload)
    for number, node in enumerate(nodes):
        name = f"n{number}"
        cards = [card(slot, units, node=name, model=model) for slot, (units, model) in enumerate(node.cards)]
        tables.upsert_node(wire_node(name, cards, cpu=str(node.cpu)))
        held = min(node.held, node.cards[0][0]) if node.cards else 0
        if held:
            tables.add(bound(pod(f"p{number}", held), name, on_card(0, held)))
    return tables


def by_hand(weighted: list[tuple[Shape, float]], node: Asked) -> tuple[float, float]:
    """(free, unusable) of one node."""
    free, models = [units for units, _ in node.cards], [model for _, model in node.cards]
    if free:
        free[0] -= min(node.held, free[0])
    can_use = sum(share * usable(shape, free, models, 1_000 * node.cpu) for shape, share in weighted if any(free))
    return sum(free), sum(free) - can_use if weighted else 0.0


def workload_of(tables: Tables, weighted: list[tuple[Shape, float]]) -> PodMix:
    return PodMix.of(weighted, tables.cards.model_code, 1.0)


@settings(deadline=None)
@given(st.lists(st.tuples(SHAPES, st.integers(1, 9)), min_size=1, max_size=6), st.lists(NODES, max_size=9))
def test_every_node_is_measured_as_the_document_says(counted: list[tuple[Shape, int]], nodes: list[Asked]) -> None:
    total = sum(count for shape, count in counted if shape.cards)
    weighted = [(shape, count / total) for shape, count in counted if shape.cards]
    tables = tables_of(nodes)
    rows = np.array([tables.row_of[f"n{number}"] for number in range(len(nodes))], dtype=np.intp)
    found = measured(tables, workload_of(tables, weighted), rows)
    expected = [by_hand(weighted, node) for node in nodes]

    assert found.free.tolist() == [free for free, _ in expected]
    assert found.unusable.tolist() == pytest.approx([unusable for _, unusable in expected], abs=1e-3)
    whole = measured(tables, workload_of(tables, weighted))
    assert whole.total() == pytest.approx(found.total(), abs=1e-6)
    assert whole.free[rows].tolist() == found.free.tolist()


def test_rows_of_many_nodes_alike_and_of_different_width_are_in_their_places() -> None:
    nodes = [Asked([(8, "A")] * (16 if number == 700 else 2), 9, number % 2 * 5) for number in range(2_500)]
    tables = tables_of(nodes)
    weighted = [(Shape(0, 1, 4), 0.5), (Shape(0, 2, 8), 0.5)]
    found = measured(tables, workload_of(tables, weighted))

    for number in (0, 1, 699, 700, 701, 1_023, 1_024, 2_499):
        row = tables.row_of[f"n{number}"]
        free, unusable = by_hand(weighted, nodes[number])
        assert (found.free[row], found.unusable[row]) == (free, pytest.approx(unusable, abs=1e-3))


def test_a_slice_of_rows_begins_where_it_begins() -> None:
    tables = tables_of([Asked([(number + 1, "A")], 9, 0) for number in range(6)])
    workload = workload_of(tables, [(Shape(0, 1, 4), 1.0)])

    assert measured(tables, workload, slice(2, 5)).free.tolist() == measured(tables, workload).free.tolist()[2:5]


def test_memory_that_is_only_supposed_to_be_free_is_measured_alike() -> None:
    tables = tables_of([Asked([(8, "A"), (8, "A")], 9, 5)])
    workload = workload_of(tables, [(Shape(0, 1, 4), 1.0)])
    cards = FreeCards.of(tables, np.array([tables.row_of["n0"]], dtype=np.intp))
    freed = cards._replace(free=cards.free + np.array([[5.0], [0.0], [0.0], [0.0]]))

    assert of_cards(cards, workload).total() == Fragmentation(11.0, 3.0)
    assert of_cards(freed, workload).total() == Fragmentation(16.0, 0.0)


@pytest.mark.parametrize("closed", [{"unschedulable": True}, {"gpu_mem": 0}], ids=["cordoned", "not allocatable"])
def test_on_a_node_that_takes_no_new_pods_nothing_is_free(closed: dict[str, Any]) -> None:
    tables = tables_of([])
    tables.upsert_node(wire_node("closed", [8], **closed))

    assert measured(tables, workload_of(tables, [(Shape(0, 1, 4), 1.0)])).total() == (0.0, 0.0)


def test_a_copy_is_of_its_moment() -> None:
    tables = tables_of([Asked([(8, "A"), (8, "A")], 9, 0)])
    copied = Copied.of(tables, workload_of(tables, [(Shape(0, 1, 4, Selection(frozenset("A"))), 1.0)]), ALL_ROWS)
    tables.remove_node("n0")
    tables.upsert_node(wire_node("n1", [3]))

    assert copied.measured().total() == Fragmentation(16.0, 0.0)


def test_memory_that_no_usual_pod_fits_into_is_fragmented() -> None:
    tables = tables_of([Asked([(8, "A"), (8, "A")], 9, 0)])
    for _ in range(998):
        tables.pod_seen(pod("usual", 8), 0.0)
    assert measured(tables, tables.fact(TargetWorkload).usual()).total().unusable == pytest.approx(0.0, abs=0.1)
    odd = bound(pod("odd", 3), "n0", on_card(0, 3))
    tables.pod_seen(odd, 0.0)
    tables.add(odd)

    free, unusable = measured(tables, tables.fact(TargetWorkload).usual()).total()
    assert free == 13
    assert unusable == pytest.approx(5.0, abs=0.1)


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"gpu_mem": 9}, id="larger than every card"),
        pytest.param({"gpu_mem": 9, "labels": {names.GPU_COUNT: "3"}}, id="more cards than a node has"),
        pytest.param({"gpu_mem": 5, "annotations": {names.CARD_MODELS: "B"}}, id="too large for a model"),
        pytest.param({"gpu_mem": 1, "annotations": {names.CARD_MODELS: "C"}}, id="a model that no node has"),
    ],
)
def test_what_no_node_could_ever_hold_is_no_usual_pod(asked: dict[str, Any]) -> None:
    tables = tables_of([Asked([(8, "A"), (8, "A")], 9, 0), Asked([(4, "B")], 9, 0)])
    for _ in range(9):
        tables.pod_seen(pod("never", **asked), 0.0)
    tables.pod_seen(pod("usual", 4), 0.0)
    assert measured(tables, tables.fact(TargetWorkload).usual()).total() == (20.0, 0.0)


def test_what_comes_with_a_larger_card_is_usual_from_then_on() -> None:
    tables = tables_of([Asked([(8, "A")], 9, 0)])
    tables.pod_seen(pod("large", 12), 0.0)
    assert measured(tables, tables.fact(TargetWorkload).usual()).total() == (8.0, 0.0)
    tables.upsert_node(wire_node("larger", [16]))
    assert measured(tables, tables.fact(TargetWorkload).usual()).total() == (24.0, 8.0)
    tables.remove_node("larger")
    assert measured(tables, tables.fact(TargetWorkload).usual()).total() == (8.0, 0.0)


def test_pods_without_gpu_memory_fragment_nothing() -> None:
    tables = tables_of([Asked([(8, "A")], 9, 0)])
    for _ in range(9):
        tables.pod_seen(pod("web"), 0.0)
    tables.pod_seen(pod("usual", 8), 0.0)

    assert measured(tables, tables.fact(TargetWorkload).usual()).total() == (8.0, 0.0)


def test_before_anybody_has_asked_nothing_is_fragmented() -> None:
    tables = tables_of([Asked([(8, "A")], 9, 3)])

    assert measured(tables, tables.fact(TargetWorkload).usual()).total() == (5.0, 0.0)


# Rows that are alike

CARDS = st.tuples(st.integers(0, 3), st.sampled_from([1, 2, 4095, 4097, 2**28 - 1]))
ROW_OF_CARDS = st.tuples(st.lists(CARDS, min_size=3, max_size=3), st.integers(0, 2))


@given(st.lists(ROW_OF_CARDS, min_size=8, max_size=40), st.integers(1, 2**24))
def test_rows_are_alike_that_have_the_same(rows: list[tuple[list[tuple[int, int]], int]], scale: int) -> None:
    free = np.array([[units * scale for units, _ in cards] for cards, _ in rows], dtype=np.float64).T
    model = np.array([[code for _, code in cards] for cards, _ in rows], dtype=np.int32).T
    cpu = np.array([millis * scale for _, millis in rows], dtype=np.float64)
    kinds, alone = kinds_of(FreeCards(free, model, cpu)), RowKinds(Tables(ResourceNames()))
    # Of which model a card is that has nothing free matters to nobody.
    has = [(millis, [u for u, _ in cards], [code for units, code in cards if units]) for cards, millis in rows]

    for place in range(len(rows)):
        alone.work_out_row(
            0, FreeCardsOf(free[:, place].astype(int).tolist(), model[:, place].tolist(), int(cpu[place]))
        )
        assert alone.of(slice(0, 1)).tolist() == [kinds[place]]
        assert [kind == kinds[place] for kind in kinds] == [other == has[place] for other in has]


@pytest.mark.parametrize("cards", [3, 9])
def test_one_row_of_each_kind_stands_for_the_others(cards: int) -> None:
    kinds = np.array([7, 7, 8, 7, 8, 7, 7, 8], dtype=np.uint64)
    fits = np.ones((cards, 8), dtype=np.bool_)
    fits[cards - 1, 3] = False

    first, like = alike(kinds)
    assert (kinds[first].tolist(), kinds[first][like].tolist()) == ([7, 8], kinds.tolist())
    first, like = alike(kinds, fits)
    assert sorted(np.asarray(first).tolist()) == [0, 2, 3]
    assert (fits[:, first][:, like] == fits).all()


def test_where_few_are_alike_every_row_stands_for_itself() -> None:
    assert alike(np.arange(20, dtype=np.uint64)) == (ALL_ROWS, ALL_ROWS)
    assert alike(np.zeros(7, dtype=np.uint64)) == (ALL_ROWS, ALL_ROWS)


def test_rows_of_one_number_on_which_other_cards_fit_are_not_taken_for_each_other() -> None:
    """Two kinds may have one number, once in 2^64: here the number hides which cards fit."""
    fits = np.zeros((2, 8), dtype=np.bool_)
    fits[0, ::2] = fits[1, 1::2] = True
    told_apart, _ = alike(np.zeros(8, dtype=np.uint64), fits)
    assert sorted(np.asarray(told_apart).tolist()) == [0, 1]

    assert alike(-numbered(fits), fits) == (ALL_ROWS, ALL_ROWS)


@given(st.lists(st.integers(0, 20), max_size=12), st.sampled_from([1, 10**12]))
def test_every_number_is_one_of_the_different_ones(numbers: list[int], scale: int) -> None:
    given_numbers = np.array([numbers, numbers[::-1]], dtype=np.int64) * scale

    values, like = distinct(given_numbers)

    assert values.tolist() == sorted(set(given_numbers.ravel().tolist()))
    assert values[like].tolist() == given_numbers.tolist()
