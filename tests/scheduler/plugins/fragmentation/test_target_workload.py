"""What pods usually ask, and what nodes are worth to them: against plain Python, and as the cluster changes."""

from collections.abc import Iterator
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.protocol import names
from scheduler.plugins.fragmentation.requests_seen import MOST_MODELS, MOST_SHAPES, RequestsSeen, Shape, is_learned
from scheduler.plugins.fragmentation.target_workload import TargetWorkload
from scheduler.plugins.fragmentation.workload import PARTS, PodMix, Room
from scheduler.pods.gpu_request import ResourceNames, Selection
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import ALL_ROWS
from scheduler.state.tables import Tables
from tests.support.builders import bound, card, pod, wire_node
from tests.support.placing import on_card
from tests.support.usable import shapes, usable

MODELS = {"A": 1, "B": 2}
SHAPES = shapes(fewest_cards=1)


@given(
    st.lists(st.tuples(SHAPES, st.floats(0.01, 1.0)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 20), st.sampled_from("AB")), min_size=1, max_size=4),
    st.integers(0, 20_000),
)
def test_worth_is_what_the_requests_can_use(
    weighted: list[tuple[Shape, float]], cards: list[tuple[int, str]], cpu: int
) -> None:
    workload = PodMix.of(weighted, MODELS, 1.0)
    free, model = np.array([[u] for u, _ in cards], dtype=float), np.array([[MODELS[m]] for _, m in cards])
    copies = workload.copies(free, model.astype(np.int32))
    room = Room((free * (copies > 0)).sum(axis=1), copies.sum(axis=1), (copies > 0).sum(axis=1))
    expected = sum(w * usable(shape, [u for u, _ in cards], [m for _, m in cards], cpu) for shape, w in weighted)

    found = workload.worth(room, np.array([float(cpu)]))
    assert found.tolist() == [floor(found[0])]
    assert found[0] / PARTS == pytest.approx(expected, abs=len(weighted) / PARTS)


def test_a_model_that_comes_later_is_taken_by_who_names_none() -> None:
    named = Shape(0, 1, 1, Selection(frozenset("A")))
    workload = PodMix.of([(named, 0.5), (Shape(0, 1, 2), 0.5)], {"A": 1}, 1.0)

    assert workload.copies(np.array([4.0]), np.array([7], dtype=np.int32)).tolist() == [[0.0], [2.0]]


class OfManyModels(dict[str, int]):
    """Codes of which nobody reads all: a node agent that says other names each time leaves as many as it likes."""

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError


def test_models_that_no_request_names_are_not_looked_at() -> None:
    only, but = Selection(frozenset({"m3", "gone"})), Selection(excluded=frozenset({"m3"}))
    workload = PodMix.of(
        [(Shape(0, 1, 1, only), 0.5), (Shape(0, 1, 1, but), 0.5)],
        OfManyModels({f"m{number}": 1 + number for number in range(40)}),
        1.0,
    )

    found = workload.copies(np.ones(4), np.array([3, 4, 5, 99], dtype=np.int32))
    assert found.tolist() == [[0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 1.0]]


def tables_of(nodes: int) -> Tables:
    tables = Tables(ResourceNames())
    tables.fact(TargetWorkload)
    for number in range(nodes):
        tables.upsert_node(wire_node(f"n{number}", [card(slot, 8, node=f"n{number}") for slot in range(2)]))
    return tables


def come(tables: Tables, name: str, units: int, node: int, slot: int = 0) -> Pod:
    """A pod that is seen first with a node."""
    asks = pod(name, units, requests={"cpu": "1"})
    there = bound(asks, f"n{node}", on_card(slot, units))
    tables.pod_seen(there, 0.0)
    tables.add(there)
    return there


def worth(tables: Tables) -> list[float]:
    found = np.zeros(tables.capacity)
    for part in tables.fact(TargetWorkload).parts(ALL_ROWS):
        found[part.places] = part.columns.worth[part.rows]
    return found.tolist()


def as_worked_out_now(tables: Tables) -> list[float]:
    """The same, of each row with the workload that it has."""
    found = np.zeros(tables.capacity)
    for part in tables.fact(TargetWorkload).parts(ALL_ROWS):
        part.columns.work_out(part.rows)
        found[part.places] = part.columns.worth[part.rows]
    return found.tolist()


STEPS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 5), st.integers(0, 1), st.booleans()), max_size=80)


@settings(deadline=None)
@given(STEPS)
def test_every_row_is_worth_what_it_would_be_if_it_were_worked_out_now(steps: list[tuple[int, int, int, bool]]) -> None:
    tables, there = tables_of(6), []
    for number, (units, node, slot, asked) in enumerate(steps):
        there.append(come(tables, f"p{number}", units, node, slot))
        if asked:
            assert worth(tables) == as_worked_out_now(tables)
        if number % 5 == 4:
            tables.remove(there.pop(0).key.uid)
        if number % 17 == 16:
            tables.remove_node("n5")
            tables.upsert_node(wire_node("n5", [4, 4, 4]))

    assert worth(tables) == as_worked_out_now(tables)


def test_rows_take_a_new_workload_up_some_at_a_time() -> None:
    tables = tables_of(200)
    list(tables.fact(TargetWorkload).parts(ALL_ROWS))
    changed = []
    for number in range(160):
        before = tables.changes.version
        come(tables, f"p{number}", 8, number)
        found = tables.changes.since(before)
        assert found is not None
        changed.append(found.rows if found.kinds & Change.FACTS else [])

    assert max(map(len, changed)) < 100
    assert set().union(*changed) == set(tables.row_of.values())


def weights_of(tables: Tables) -> list[list[float]]:
    """Of the workload that each node has."""
    return [tables.fact(TargetWorkload).columns_of(row).workload_of(row).weights[:, 0].tolist() for row in range(200)]


def questioned(tables: Tables) -> list[Pod]:
    """Pods that a query places; they are gone at its end."""
    tables.query = 1
    there = [come(tables, f"q{number}", 7, 199 - number) for number in range(40)]
    weights_of(tables)
    for one in there:
        tables.remove(one.key.uid)
    tables.query = 0
    return there


@pytest.mark.parametrize("before", [0, 1, 15, 40, 63], ids="after {} pods".format)
def test_pods_that_are_gone_at_the_end_of_a_question_move_no_pass_on(before: int) -> None:
    asked, other = tables_of(200), tables_of(200)
    for tables in (asked, other):
        weights_of(tables)
        for number in range(before):
            come(tables, f"p{number}", 8 - number % 3, number)
    for one in questioned(asked):
        other.pod_seen(one, 0.0)
    for number in range(before, 100):
        assert weights_of(asked) == weights_of(other)
        for tables in (asked, other):
            come(tables, f"p{number}", 8, number)


def test_no_pass_begins_with_pods_of_a_question() -> None:
    asked, other = tables_of(200), tables_of(200)
    for one in questioned(asked):
        other.pod_seen(one, 0.0)
    assert weights_of(asked) == weights_of(other)


def test_nobody_pays_for_it_who_does_not_ask() -> None:
    tables = tables_of(100)
    before = tables.changes.version
    come(tables, "p", 8, 99)

    changed = tables.changes.since(before)
    assert changed is not None
    assert changed.rows == [tables.row_of["n99"]]


def test_a_cluster_that_grows_is_worked_out_again() -> None:
    tables = tables_of(2)
    assert sum(value > 0 for value in worth(tables)) == 2
    for number in range(2, 200):
        tables.upsert_node(wire_node(f"n{number}", [8, 8]))

    assert sum(value > 0 for value in worth(tables)) == 200


def asked_units(tables: Tables) -> set[float]:
    """Units of the requests of all workloads that a row has."""
    return {
        units
        for part in tables.fact(TargetWorkload).parts(ALL_ROWS)
        for units in part.columns.workload.units[:, 0].tolist()
    }


@pytest.mark.parametrize("units", [5, 9])
def test_whole_nodes_that_nobody_has_asked_for_are_those_of_now(units: int) -> None:
    tables = tables_of(6)
    assert asked_units(tables) == {8.0}
    tables.upsert_node(wire_node("n5", [units] * 4))
    for number in range(48):
        tables.remove(come(tables, f"p{number}", 1, 0).key.uid)

    assert asked_units(tables) == {1.0, 8.0, float(units)}


def test_rows_of_which_nobody_knows_how_they_have_changed_are_worked_out_again() -> None:
    tables = tables_of(6)
    worth(tables)
    come(tables, "p", 8, 3)
    before = tables.changes.version
    for _ in range(70_000):
        tables.changes.note(0, int(Change.CARDS))
    assert tables.changes.since(before) is None

    assert worth(tables) == as_worked_out_now(tables)


def test_rows_without_anything_free_take_a_new_workload_up_too() -> None:
    tables = tables_of(2)
    worth(tables)
    for number in range(4):
        come(tables, f"full{number}", 8, number // 2, number % 2)
    for number in range(40):
        tables.add(bound(pod(f"p{number}", requests={"cpu": "1m"}), "n0"))

    assert worth(tables) == as_worked_out_now(tables)


# What pods usually ask: the newer counts more, and what is rare is forgotten first

HOUR_S = 3_600.0
SMALL, LARGE = Shape(1_000, 1, 2), Shape(4_000, 1, 8)


def seen(*came: tuple[Shape, float]) -> RequestsSeen:
    requests = RequestsSeen()
    requests.half_life_s = HOUR_S
    for shape, came_s in came:
        requests.note(shape, came_s)
    return requests


def test_a_shape_is_what_decides_where_a_pod_can_go() -> None:
    models = Selection(frozenset({"T4"}))
    asks = pod("p", 6, labels={"aliyun.com/gpu-count": "2"}, annotations={"gpushare/card-models": "T4"})

    assert Shape.of(asks) == Shape(0, 2, 3, models)
    assert Shape.of(pod("p", requests={"cpu": "1500m"})) == Shape(1_500)


@pytest.mark.parametrize(
    ("models", "expected"),
    [
        pytest.param("", True, id="any model"),
        pytest.param(",".join(f"m{number}" for number in range(MOST_MODELS)), True, id="as many as are kept"),
        pytest.param(",".join(f"m{number}" for number in range(MOST_MODELS + 1)), False, id="one more"),
        pytest.param(",".join(f"!m{number}" for number in range(MOST_MODELS + 1)), False, id="that are excluded"),
        pytest.param("m" * 1_025, False, id="a name that is no name"),
    ],
)
def test_whoever_names_many_models_is_not_learned(models: str, *, expected: bool) -> None:
    """A thousand of them are sorted by names, on the event loop."""
    assert is_learned(pod("p", 4, annotations={names.CARD_MODELS: models})) == expected


MORE_LARGE, YEAR_S = [(LARGE, 2 / 3), (SMALL, 1 / 3)], 365 * 24 * HOUR_S


@pytest.mark.parametrize(
    ("came", "expected"),
    [
        pytest.param([], [], id="nothing is known before somebody came"),
        pytest.param([(SMALL, 0.0), (LARGE, 0.0), (LARGE, 0.0)], MORE_LARGE, id="of those that came"),
        pytest.param([(SMALL, 0.0), (LARGE, HOUR_S)], MORE_LARGE, id="half after its half-life"),
        pytest.param([(LARGE, HOUR_S), (SMALL, 0.0)], MORE_LARGE, id="less if it was there before the first"),
        *(
            pytest.param([(SMALL, 0.0), *[(LARGE, years * YEAR_S)] * 2, (SMALL, years * YEAR_S)], MORE_LARGE, id=text)
            for years, text in ((1, "a year later"), (100, "a hundred years later"))
        ),
    ],
)
def test_shares_of_what_came_count_the_newer_more(
    came: list[tuple[Shape, float]], expected: list[tuple[Shape, float]]
) -> None:
    assert seen(*came).shares(9) == expected


def test_those_that_count_least_are_forgotten() -> None:
    requests = seen(*((Shape(cpu, 1, 1), float(cpu)) for cpu in range(3 * MOST_SHAPES)))
    for _ in range(9):
        requests.note(SMALL, 3.0 * MOST_SHAPES)

    kept = requests.heaviest(2 * MOST_SHAPES)
    assert kept[0][0] == SMALL
    assert len(kept) <= MOST_SHAPES
    assert Shape(0, 1, 1) not in dict(kept)
