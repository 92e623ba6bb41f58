"""The lowest priority of the pods on each node that preemption can remove."""

from typing import Final

import numpy as np

from scheduler.pods.pod import Pod
from scheduler.state.columns.arrays import Int64Array, resized
from scheduler.state.facts.fact import Columns, NodeFact

NOBODY: Final = int(np.iinfo(np.int64).max)


class Priorities(NodeFact[int]):
    """lowest: int64[nodes], NOBODY where no pod can be evicted. Nominated pods count while they are booked."""

    def __init__(self, tables: Columns) -> None:
        """No pods."""
        super().__init__(tables)
        self.lowest: Int64Array = np.full(tables.capacity, NOBODY, dtype=np.int64)
        self._on: dict[int, dict[int, int]] = {}

    def read(self, pod: Pod) -> int:
        """Its priority; NOBODY for a mirror pod, which its kubelet keeps running."""
        return NOBODY if pod.mirror else pod.priority

    def book(self, row: int, read: int, sign: int) -> None:
        """Count or uncount one pod."""
        counts = self._on.setdefault(row, {})
        pods = counts.get(read, 0) + sign
        if pods:
            counts[read] = pods
            if pods == 1 and read < self.lowest.item(row):
                self.lowest[row] = read
            return
        del counts[read]
        if not counts:
            del self._on[row]
        self.lowest[row] = min(counts, default=NOBODY)

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
        self.lowest = resized(self.lowest, (capacity,), NOBODY)
