"""Points for what is allocated: for one row and for many they are the same, and as kube-scheduler computes them."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.plugins.node.resource_allocation import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    Scale,
    by_utilization,
    least_allocated,
    mean,
    mean_over,
    most_allocated,
    requestable,
)

SCALES: dict[str, Callable[[], Scale]] = {
    "least": lambda: LEAST_ALLOCATED,
    "most": lambda: MOST_ALLOCATED,
    "line": lambda: by_utilization([(0, 100), (100, 0)]),
    "steep": lambda: by_utilization([(30, 0), (37, 70)]),
}


@pytest.mark.parametrize(
    ("requested", "allocatable", "least", "most"),
    [
        pytest.param(0, 4, 100, 0, id="empty"),
        pytest.param(1, 4, 75, 25, id="a quarter"),
        pytest.param(1, 3, 66, 33, id="rounded down"),
        pytest.param(4, 4, 0, 100, id="full"),
        pytest.param(5, 4, 0, 100, id="over-committed"),
        pytest.param(0, 0, 0, 0, id="nothing there"),
        pytest.param(3, 0, 0, 0, id="nothing there, something asked"),
    ],
)
def test_the_points_of_one_resource(requested: int, allocatable: int, least: int, most: int) -> None:
    assert (least_allocated(requested, allocatable), most_allocated(requested, allocatable)) == (least, most)


def test_points_of_amounts_that_floats_cannot_tell_apart_are_exact() -> None:
    requested, allocatable = 7 * 10**16 - 1, 10**18

    assert most_allocated(requested, allocatable) == 6
    found = MOST_ALLOCATED.of_rows(np.array([requested, requested + 1]), np.array([allocatable, allocatable]))
    assert found.tolist() == [6, 7]


@pytest.mark.parametrize("name", ["cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "example.com/fpga"])
def test_what_a_container_can_request_counts(name: str) -> None:
    assert requestable(name) == name


@pytest.mark.parametrize("name", ["pods", "cpus", "hugepages-2M", "example.com/", "requests.cpu"])
def test_what_no_container_can_request_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="expected cpu, memory, ephemeral-storage, hugepages-<size> or domain/name"):
        requestable(name)


@pytest.mark.parametrize(
    ("shape", "utilization", "points"),
    [
        pytest.param([(20, 30), (80, 90)], 5, 30, id="before the first point"),
        pytest.param([(20, 30), (80, 90)], 95, 90, id="after the last point"),
        pytest.param([(0, 0), (100, 70)], 33, 23, id="rising, rounded down"),
        pytest.param([(0, 70), (100, 0)], 33, 47, id="falling, rounded up"),
        pytest.param([(50, 40)], 50, 40, id="one point"),
        pytest.param([(20, 30), (50, 60), (80, 0)], 100, 0, id="full"),
        pytest.param([(20, 30), (50, 60), (80, 0)], 60, 40, id="on the second line"),
    ],
)
def test_a_line_is_rounded_towards_the_earlier_point(
    shape: list[tuple[int, int]], utilization: int, points: int
) -> None:
    assert by_utilization(shape).of_row(utilization, 100) == points


def test_by_utilization_a_node_that_has_none_gets_no_points_and_does_not_count() -> None:
    scale = by_utilization([(0, 100), (100, 0)])
    assert (scale.of_row(0, 0), scale.of_row(3, 0)) == (0, 0)
    assert scale.of_rows(np.array([0, 3, 3]), np.array([0, 0, 4])).tolist() == [0, 0, 25]
    assert scale.of_used


def test_the_mean_is_rounded_down_or_over_what_has_points_to_the_nearest() -> None:
    assert mean([(33, 1), (50, 1)], of_used=False) == 41
    assert mean([(33, 1), (50, 1), (0, 5)], of_used=True) == 42
    assert mean([(0, 1)], of_used=True) == mean([], of_used=False) == 0


AMOUNT = st.one_of(st.integers(0, 12), st.integers(0, 2**53))


@given(
    name=st.sampled_from(list(SCALES)),
    rows=st.lists(st.tuples(AMOUNT, AMOUNT, AMOUNT, AMOUNT), min_size=1, max_size=5),
    weights=st.tuples(st.integers(1, 100), st.integers(1, 100)),
)
def test_one_row_and_many_rows_get_the_same_points(
    name: str, rows: list[tuple[int, int, int, int]], weights: tuple[int, int]
) -> None:
    one_by_one, scale = [], SCALES[name]()
    for first, of_first, second, of_second in rows:
        amounts = ((first, of_first, weights[0]), (second, of_second, weights[1]))
        points = [(scale.of_row(asked, there), weight) for asked, there, weight in amounts if there]
        one_by_one.append(mean(points, of_used=scale.of_used))
        assert 0 <= one_by_one[-1] <= 100
    columns = np.array(rows, dtype=np.int64).T
    shares = [
        (scale.of_rows(columns[asked], columns[there]), columns[there] > 0, weight)
        for asked, there, weight in ((0, 1, weights[0]), (2, 3, weights[1]))
    ]
    assert mean_over(shares, of_used=scale.of_used).tolist() == one_by_one
