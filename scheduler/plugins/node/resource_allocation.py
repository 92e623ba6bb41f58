"""Points for the allocated share of a node's resources with the pod on it; NodeResourcesFit ranks nodes by them.

A resource gives 0..100 whole points. The counted resources give their weighted mean, rounded as in kube-scheduler. Each
scale exists twice: for one row with Python's numbers, and for many rows with arrays. The usual query is
about one changed row, for which arrays cost several times as much.
Source: kube-scheduler, plugins/noderesources: resource_allocation.go, least_allocated.go, most_allocated.go,
requested_to_capacity_ratio.go.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

from config.settings.scheduler import extended_resource
from scheduler.plugins.utilization import FULL, points_on
from scheduler.pods.effective_requests import CPU, EPHEMERAL_STORAGE, MEMORY
from scheduler.pods.pod import Template
from scheduler.state.columns.arrays import BoolArray, Int64Array, Rows
from scheduler.state.columns.resources import CPU_INDEX, MEMORY_INDEX, ResourceColumns

SCORE_GPU_PODS: Final = (
    "Also score nodes for pods that request GPU memory. If false, only GpuShare ranks nodes for those pods."
)
_EXACT: Final = 2**46
_NATIVE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)
_HUGE_PAGES: Final = re.compile(r"hugepages-[1-9][0-9]*[KMGT]i")


def requestable(name: str) -> str:
    """Return `name` unchanged. Raises ValueError if no container can request it."""
    if name in _NATIVE or _HUGE_PAGES.fullmatch(name):
        return name
    try:
        return extended_resource(name)
    except ValueError:
        known = ", ".join(_NATIVE)
        raise ValueError(f"expected {known}, hugepages-<size> or domain/name, found {name[:80]!r}") from None


class Scale(NamedTuple):
    """A function from usage to points. of_row, of_rows: (requested with the pod, allocatable) -> points, 0..100.

    of_used: whether the mean leaves out resources with 0 points; if so, it is rounded to the nearest number.
    """

    of_row: Callable[[int, int], int]
    of_rows: Callable[[Int64Array, Int64Array], Int64Array]
    of_used: bool = False


def least_allocated(requested: int, allocatable: int) -> int:
    """Return the points for the unused share; 0 if nothing is allocatable or too much is requested."""
    return (allocatable - requested) * FULL // allocatable if 0 < allocatable > requested else 0


def most_allocated(requested: int, allocatable: int) -> int:
    """Return the points for the requested share; 0 if nothing is allocatable, 100 if too much is requested."""
    return min(requested, allocatable) * FULL // allocatable if allocatable > 0 else 0


def _least_allocated_over(requested: Int64Array, allocatable: Int64Array) -> Int64Array:
    return _points(np.maximum(allocatable - requested, 0), np.maximum(allocatable, 1))


def _most_allocated_over(requested: Int64Array, allocatable: Int64Array) -> Int64Array:
    return _points(np.minimum(requested, allocatable), np.maximum(allocatable, 1))


def _points(part: Int64Array, whole: Int64Array) -> Int64Array:
    """Return 100 · part / whole, rounded down. 0 <= part <= whole, except that a whole of 1 may stand for 0.

    Below `_EXACT`, floats give the same result in a tenth of the time: 100 · part is exact, and no quotient is close
    enough to round up to the next whole number.
    """
    if whole.size and whole.max() < _EXACT:
        return (part * float(FULL) / whole).astype(np.int64)
    return part * FULL // whole


LEAST_ALLOCATED: Final = Scale(least_allocated, _least_allocated_over)
MOST_ALLOCATED: Final = Scale(most_allocated, _most_allocated_over)


def by_utilization(line: Sequence[tuple[int, int]]) -> Scale:
    """Return the scale of RequestedToCapacityRatio. line: (utilization in percent, points), utilization rising."""
    column = points_on(line)
    points = tuple(column.tolist())

    def of_row(requested: int, allocatable: int) -> int:
        return points[most_allocated(requested, allocatable)] if allocatable > 0 else 0

    def of_rows(requested: Int64Array, allocatable: Int64Array) -> Int64Array:
        found: Int64Array = column[_most_allocated_over(requested, allocatable)] * (allocatable > 0)
        return found

    return Scale(of_row, of_rows, of_used=True)


def mean(points: Sequence[tuple[int, int]], *, of_used: bool) -> int:
    """Return the weighted mean as Scale defines it; 0 if `points` is empty.

    points: (points, weight) of each resource that the node has.
    """
    if of_used:
        points = [pair for pair in points if pair[0] > 0]
    total, weight = sum(own * weight for own, weight in points), sum(weight for _, weight in points)
    if not weight:
        return 0
    return (2 * total + weight) // (2 * weight) if of_used else total // weight


def mean_over(points: Iterable[tuple[Int64Array, BoolArray, int]], *, of_used: bool) -> Int64Array:
    """Compute `mean` as int64[rows]. points: (points, node has the resource, weight), at least one; arrays [rows].

    Handles one resource at a time: arrays for several are so large that the allocator takes them from the system.
    """
    total: Int64Array | int = 0
    weights: Int64Array | int = 0
    for own, there, weight in points:
        total = total + (own if weight == 1 else own * weight)
        weights = weights + (own > 0 if of_used else there) * np.int64(weight)
    weights = np.maximum(weights, 1)
    # See `_points`: the numbers are small.
    divided: Int64Array = ((2 * total + weights) / (2 * weights) if of_used else total / weights).astype(np.int64)
    return divided


class Column(NamedTuple):
    """Usage of a counted resource for a class of pods.

    place: the resource's index in `requested`. own: amount that one pod of the class adds.
    requested: int64[resources, nodes].
    """

    place: int
    own: int
    requested: Int64Array

    def on(self, row: int, resources: ResourceColumns) -> tuple[int, int]:
        """Return (requested with the pod, allocatable)."""
        return self.requested.item(self.place, row) + self.own, resources.allocatable.item(self.place, row)

    def over(self, rows: Rows, resources: ResourceColumns) -> tuple[Int64Array, Int64Array]:
        """Return (requested with the pod, allocatable) for many rows, int64[rows] each."""
        return self.requested[self.place][rows] + self.own, resources.allocatable[self.place][rows]


def column(resources: ResourceColumns, template: Template, name: str, *, assumed: bool) -> Column | None:
    """Return the column; None if no node has the resource, or it is extended and the pod does not request it.

    assumed: whether a container without a cpu or memory request counts with a small default.
    """
    if assumed and name == CPU:
        return Column(CPU_INDEX, template.scoring_cpu_millis, resources.scoring_requested)
    if assumed and name == MEMORY:
        return Column(MEMORY_INDEX, template.scoring_memory_bytes, resources.scoring_requested)
    index, own = resources.index.get(name), template.requests.get(name, 0)
    if index is None or (own == 0 and name not in _NATIVE):
        return None
    return Column(index, own, resources.requested)
