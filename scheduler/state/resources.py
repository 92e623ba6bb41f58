"""Allocatable and requested amounts of every resource but gpu-mem, as one matrix row per resource."""

from typing import Final

import numpy as np

from scheduler.pods.effective_requests import CPU, EPHEMERAL_STORAGE, MEMORY, MOST, PODS, Amounts
from scheduler.state.arrays import FIRST_CAPACITY, Int64Array, resized

CPU_INDEX: Final = 0
MEMORY_INDEX: Final = 1
PODS_INDEX: Final = 3
_FIRST_NAMES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
# The first columns, of the resources that every node has.
NATIVE: Final = len(_FIRST_NAMES)


class ResourceColumns:
    """allocatable, requested: int64[resources, nodes]; cpu in millis, others in whole units.

    index: resource name -> matrix row. scoring_requested: int64[2, nodes], cpu and memory with the defaults for
    containers that name none. A resource gets a row when a node or a pod first names it.
    """

    def __init__(self) -> None:
        """The four resources that every node has."""
        self.index: dict[str, int] = {name: i for i, name in enumerate(_FIRST_NAMES)}
        self.allocatable: Int64Array = np.zeros((len(_FIRST_NAMES), FIRST_CAPACITY), dtype=np.int64)
        self.requested: Int64Array = np.zeros_like(self.allocatable)
        self.scoring_requested: Int64Array = np.zeros((2, FIRST_CAPACITY), dtype=np.int64)

    def set_allocatable(self, row: int, amounts: Amounts) -> None:
        """Replace what the node of `row` has to give, from 0 to less than MOST: an ask of MOST fits nowhere."""
        cells = [(self.index_of(name), amount) for name, amount in amounts.items()]
        self.allocatable[:, row] = 0
        for index, amount in cells:
            self.allocatable[index, row] = min(max(0, amount), MOST - 1)

    def add(self, row: int, requests: Amounts, scoring: tuple[int, int], sign: int) -> None:
        """Book (sign 1) or give back (sign -1) one pod's requests. scoring: (cpu millis, memory bytes)."""
        for name, amount in requests.items():
            index = self.index_of(name)
            self.requested[index, row] += sign * amount
        self.requested[PODS_INDEX, row] += sign
        self.scoring_requested[CPU_INDEX, row] += sign * scoring[0]
        self.scoring_requested[MEMORY_INDEX, row] += sign * scoring[1]

    def clear(self, row: int) -> None:
        """Zero a row that leaves."""
        self.allocatable[:, row] = 0
        self.requested[:, row] = 0
        self.scoring_requested[:, row] = 0

    def index_of(self, name: str) -> int:
        """The matrix row of a resource, made now if nobody named it before."""
        index = self.index.get(name)
        if index is None:
            index = self.index[name] = len(self.index)
            if index >= self.allocatable.shape[0]:
                shape = (2 * self.allocatable.shape[0], self.allocatable.shape[1])
                self.allocatable = resized(self.allocatable, shape, 0)
                self.requested = resized(self.requested, shape, 0)
        return index

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` nodes."""
        shape = (self.allocatable.shape[0], capacity)
        self.allocatable = resized(self.allocatable, shape, 0)
        self.requested = resized(self.requested, shape, 0)
        self.scoring_requested = resized(self.scoring_requested, (2, capacity), 0)
