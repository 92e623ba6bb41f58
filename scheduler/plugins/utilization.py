"""Lines from utilization to points, as several rules of kube-scheduler take them in their arguments.

Source: kube-scheduler, plugins/helper/shape_score.go, BuildBrokenLinearFunction.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final

import numpy as np
from pydantic import AfterValidator, Field

from scheduler.framework.plugin import PluginArgs
from scheduler.state.columns.arrays import Int64Array

# Utilization in percent, and points.
FULL: Final = 100
# Like kube-scheduler's MaxCustomPriorityScore.
_MOST_SCORE: Final = 10


class UtilizationShapePoint(PluginArgs):
    """A point of the line that turns utilization into a score."""

    utilization: int = Field(ge=0, le=FULL, description="Requested amount, in percent of allocatable.")
    score: int = Field(ge=0, le=_MOST_SCORE, description="Score at this utilization.")


def _rising(shape: tuple[UtilizationShapePoint, ...]) -> tuple[UtilizationShapePoint, ...]:
    found = [point.utilization for point in shape]
    if found != sorted(set(found)):
        raise ValueError(f"expected points with rising utilization, found {', '.join(map(str, found))}")
    return shape


UtilizationShape = Annotated[tuple[UtilizationShapePoint, ...], AfterValidator(_rising)]


def line_of(shape: Sequence[UtilizationShapePoint]) -> list[tuple[int, int]]:
    """Return the points as (utilization in percent, 0 to 100 points)."""
    return [(point.utilization, point.score * FULL // _MOST_SCORE) for point in shape]


def points_on(line: Sequence[tuple[int, int]]) -> Int64Array:
    """Return int64[101]: points by utilization in percent. line: at least one (utilization, points), rising."""
    return np.array([_point(line, utilization) for utilization in range(FULL + 1)], dtype=np.int64)


def _point(line: Sequence[tuple[int, int]], utilization: int) -> int:
    """Interpolate linearly between the points; constant outside them. Rounds towards the earlier point."""
    if utilization <= line[0][0]:
        return line[0][1]
    for (left, low), (right, high) in pairwise(line):
        if utilization <= right:
            steps = abs(high - low) * (utilization - left) // (right - left)
            return low + steps if high >= low else low - steps
    return line[-1][1]
