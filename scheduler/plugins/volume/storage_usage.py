"""How full the storage of each node would be with a pod's volumes, by storage class.

Source: kube-scheduler, plugins/volumebinding/volume_binding.go, Score; scorer.go.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.plugins.utilization import FULL
from scheduler.state.columns.arrays import BoolArray, Int64Array

Float64Array: TypeAlias = NDArray[np.float64]


class _OfClass:
    """present: bool[rows], whether a claim of the class counts. requested, capacity: float64[rows], bytes."""

    def __init__(self, count: int) -> None:
        self.present: BoolArray = np.zeros(count, dtype=np.bool_)
        self.requested: Float64Array = np.zeros(count, dtype=np.float64)
        self.capacity: Float64Array = np.zeros(count, dtype=np.float64)

    def points(self, by_utilization: Int64Array) -> Int64Array:
        # In floats, because sums of the largest sizes overflow int64. They are exact up to 80 TiB.
        share = self.requested * FULL / np.maximum(self.capacity, 1)
        utilization = np.where(self.requested > self.capacity, FULL, share).astype(np.int64)
        utilization[self.capacity == 0] = FULL
        return by_utilization[utilization] * self.present


class StorageUsage:
    """Usage by the claims of one pod. Where one of them gets a volume that exists, volumes to create do not count."""

    def __init__(self, count: int) -> None:
        """count: number of rows."""
        self._count = count
        self._existing: dict[str, _OfClass] = {}
        self._new: dict[str, _OfClass] = {}

    def existing(self, class_name: str, on: BoolArray, requested: int, sizes: Int64Array | int) -> None:
        """Count an existing volume for a claim. on: bool[rows], where the claim gets one. sizes: int64[rows], bytes."""
        usage = self._existing.setdefault(class_name, _OfClass(self._count))
        usage.present |= on
        usage.requested += np.where(on, requested, 0)
        usage.capacity += np.where(on, sizes, 0)

    def new(self, class_name: str, on: BoolArray, requested: int, totals: Int64Array) -> None:
        """Count a volume to create. on: bool[rows], where. totals: int64[rows], capacity of the class there."""
        usage = self._new.setdefault(class_name, _OfClass(self._count))
        usage.present |= on
        usage.requested += np.where(on, requested, 0)
        # All claims of the class share one capacity.
        usage.capacity[on] = totals[on]

    def points(self, by_utilization: Int64Array) -> Int64Array:
        """Return int64[rows]: 0 to 100, rounded mean over the classes; 0 without any. by_utilization: int64[101]."""
        existing, new = (self._mean(of_class, by_utilization) for of_class in (self._existing, self._new))
        return np.where(existing[0] > 0, existing[1], new[1])

    def _mean(self, usages: dict[str, _OfClass], by_utilization: Int64Array) -> tuple[Int64Array, Int64Array]:
        classes, total = np.zeros((2, self._count), dtype=np.int64)
        for usage in usages.values():
            classes += usage.present
            total += usage.points(by_utilization)
        return classes, (2 * total + classes) // np.maximum(2 * classes, 1)
