"""Points for what is allocated: for one row and for many they are the same, and as kube-scheduler computes them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.plugins.resource_allocation import (
    LEAST_ALLOCATED,
    MOST_ALLOCATED,
    Scale,
    by_utilization,
    least_allocated,
    mean,
    mean_over,
    most_allocated,
)

FALLING = by_utilization([(0, 100), (100, 0)])
SCALES = {
    "least": LEAST_ALLOCATED,
    "most": MOST_ALLOCATED,
    "line": FALLING,
    "steep": by_utilization([(30, 0), (37, 70)]),
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


@pytest.mark.parametrize(
    ("shape", "utilization", "points"),
    [
        pytest.param([(20, 30), (80, 90)], 5, 30, id="before the first point"),
        pytest.param([(20, 30), (80, 90)], 95, 90, id="after the last point"),
        pytest.param([(0, 0), (100, 70)], 33, 23, id="rising, rounded down"),
        pytest.param([(0, 70), (100, 0)], 33, 47, id="falling, rounded up"),
        pytest.param([(50, 40)], 50, 40, id="one point"),
    ],
)
def test_a_line_is_rounded_towards_the_earlier_point(
    shape: list[tuple[int, int]], utilization: int, points: int
) -> None:
    assert by_utilization(shape).of_row(utilization, 100) == points


def test_the_mean_is_rounded_down_or_over_what_has_points_to_the_nearest() -> None:
    assert mean([(33, 1), (50, 1)], of_used=False) == 41
    assert mean([(33, 1), (50, 1), (0, 5)], of_used=True) == 42
    assert mean([(0, 1)], of_used=True) == mean([], of_used=False) == 0


AMOUNT = st.one_of(st.integers(0, 12), st.integers(0, 2**53))


@given(
    scale=st.sampled_from(list(SCALES.values())),
    rows=st.lists(st.tuples(AMOUNT, AMOUNT, AMOUNT, AMOUNT), min_size=1, max_size=5),
    weights=st.tuples(st.integers(1, 100), st.integers(1, 100)),
)
def test_one_row_and_many_rows_get_the_same_points(
    scale: Scale, rows: list[tuple[int, int, int, int]], weights: tuple[int, int]
) -> None:
    one_by_one = []
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
