"""Allocatable and requested amounts of every resource except gpu-mem: one matrix row per resource that a node offers.

A requested name that no node offers gets no matrix row: otherwise one pod could create thousands of them for all nodes.
Such requests are stored outside the matrix, and move into it when a node offers the resource.
"""

from collections import Counter
from typing import Final

import numpy as np

from scheduler.pods.effective_requests import CPU, EPHEMERAL_STORAGE, MEMORY, MOST, PODS, Amounts
from scheduler.state.columns.arrays import FIRST_CAPACITY, Int64Array, resized

CPU_INDEX: Final = 0
MEMORY_INDEX: Final = 1
PODS_INDEX: Final = 3
_ALWAYS: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
# These resources have the first matrix rows.
NATIVE: Final = len(_ALWAYS)


class ResourceColumns:
    """Amounts per resource and node.

    allocatable, requested: int64[resources, nodes]; cpu in millis, others in whole units.
    index: resource name -> matrix row, for the resources that some node offers and the four that every node has.
    version: changes when `index` does; a matrix row may then belong to another resource.
    scoring_requested: int64[2, nodes], cpu and memory; a container without a request counts as the default.
    """

    def __init__(self) -> None:
        """Create the matrix rows of the four resources that every node has."""
        self.index: dict[str, int] = {name: i for i, name in enumerate(_ALWAYS)}
        self.version = 0
        self.allocatable: Int64Array = np.zeros((len(_ALWAYS), FIRST_CAPACITY), dtype=np.int64)
        self.requested: Int64Array = np.zeros_like(self.allocatable)
        self.scoring_requested: Int64Array = np.zeros((2, FIRST_CAPACITY), dtype=np.int64)
        self._offers: dict[int, frozenset[str]] = {}
        self._offering: Counter[str] = Counter(_ALWAYS)
        self._free: list[int] = []
        self._beside: dict[int, Amounts] = {}

    def set_allocatable(self, row: int, amounts: Amounts) -> None:
        """Replace the allocatable amounts of `row`, limited to 0 … MOST - 1: a request of MOST never fits."""
        self._offer(row, frozenset(amounts))
        self.allocatable[:, row] = 0
        for name, amount in amounts.items():
            self.allocatable[self.index[name], row] = min(max(0, amount), MOST - 1)

    def add(self, row: int, requests: Amounts, scoring: tuple[int, int], sign: int) -> None:
        """Book (sign 1) or release (sign -1) one pod's requests. scoring: (cpu millis, memory bytes)."""
        for name, amount in requests.items():
            index = self.index.get(name)
            if index is None:
                self._add_beside(row, name, sign * amount)
            else:
                self.requested[index, row] += sign * amount
        self.requested[PODS_INDEX, row] += sign
        self.scoring_requested[CPU_INDEX, row] += sign * scoring[0]
        self.scoring_requested[MEMORY_INDEX, row] += sign * scoring[1]

    def requested_on(self, row: int) -> Amounts:
        """Sum of the requests of the pods on `row`, for every resource; no zero amounts."""
        columns = ((name, int(self.requested[index, row])) for name, index in self.index.items())
        return {name: amount for name, amount in columns if amount} | self._beside.get(row, {})

    def clear(self, row: int) -> None:
        """Zero a row that is released."""
        self._beside.pop(row, None)
        self.requested[:, row] = 0
        self.scoring_requested[:, row] = 0
        self._offer(row, frozenset())
        self.allocatable[:, row] = 0

    def grow(self, capacity: int) -> None:
        shape = (self.allocatable.shape[0], capacity)
        self.allocatable = resized(self.allocatable, shape, 0)
        self.requested = resized(self.requested, shape, 0)
        self.scoring_requested = resized(self.scoring_requested, (2, capacity), 0)

    def _offer(self, row: int, names: frozenset[str]) -> None:
        """Set the resources that the node of `row` offers."""
        before = self._offers.get(row, frozenset())
        if names == before:
            return
        if names:
            self._offers[row] = names
        else:
            del self._offers[row]
        self._offering.update(names - before)
        self._comes(sorted(name for name in names if name not in self.index))
        for name in before - names:
            self._offering[name] -= 1
            if not self._offering[name]:
                self._goes(name)

    def _comes(self, names: list[str]) -> None:
        """Give each of these resources a matrix row, filled with the existing requests."""
        for name in names:
            index = self._free.pop() if self._free else len(self.index)
            self.index[name] = index
            self.version += 1
            if index >= self.allocatable.shape[0]:
                shape = (2 * self.allocatable.shape[0], self.allocatable.shape[1])
                self.allocatable = resized(self.allocatable, shape, 0)
                self.requested = resized(self.requested, shape, 0)
        for row, beside in list(self._beside.items() if names else ()):
            for name in names:
                if amount := beside.get(name, 0):
                    self.requested[self.index[name], row] = amount
                    self._add_beside(row, name, -amount)

    def _goes(self, name: str) -> None:
        """Free the matrix row of a resource that no node offers any more; its requests move outside the matrix."""
        del self._offering[name]
        index = self.index.pop(name)
        self.version += 1
        for row in np.flatnonzero(self.requested[index]).tolist():
            self._add_beside(row, name, int(self.requested[index, row]))
        self.requested[index] = self.allocatable[index] = 0
        self._free.append(index)

    def _add_beside(self, row: int, name: str, amount: int) -> None:
        amounts = self._beside.setdefault(row, {})
        total = amounts.get(name, 0) + amount
        if total:
            amounts[name] = total
            return
        del amounts[name]
        if not amounts:
            del self._beside[row]
