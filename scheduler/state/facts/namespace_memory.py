"""Requested GPU memory per namespace, for metrics only; and the lowest pod priority of each node."""

from typing import ClassVar, Final, TypeAlias

import numpy as np

from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import Int64Array, resized
from scheduler.state.facts.fact import CardFact, Columns, NodeFact

NOBODY: Final = int(np.iinfo(np.int64).max)


class Priorities(NodeFact[int]):
    """Lowest priority per node. lowest: int64[nodes], NOBODY if no pod can be evicted. Booked nominated pods count."""

    def __init__(self, tables: Columns) -> None:
        super().__init__(tables)
        self.lowest: Int64Array = np.full(tables.capacity, NOBODY, dtype=np.int64)
        self._on: dict[int, dict[int, int]] = {}

    def read(self, pod: Pod) -> int:
        """Priority of the pod; NOBODY for a mirror pod, which its kubelet keeps running."""
        return NOBODY if pod.mirror else pod.priority

    def book(self, row: int, read: int, sign: int) -> None:
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
        self.lowest = resized(self.lowest, (capacity,), NOBODY)


_MIB: Final = 2**20
# Namespace, units, and units of the limit that exceed them.
_Requested: TypeAlias = tuple[str, int, int]


class NamespaceMemory(CardFact[_Requested]):
    """Requested memory by namespace. requested: bytes, over the namespace's pods on existing nodes; no entries of 0.

    above: bytes of the limits beyond the requests, in the same way. Both are converted by the unit of each pod's node.
    Booked nominated pods count, as in every fact.
    """

    booking_change: ClassVar[Change] = Change(0)

    def __init__(self, tables: Columns) -> None:
        super().__init__(tables)
        self.requested: dict[str, int] = {}
        self.above: dict[str, int] = {}

    def read(self, pod: Pod) -> _Requested | None:
        """The pod's namespace and its units over all cards, and those above; None if it requests no GPU memory."""
        units, request = pod.template.gpu_units, pod.template.gpu_request
        limit = None if request is None else request.limit_units
        return (pod.key.namespace, units, 0 if limit is None else limit - units) if units else None

    def book(self, row: int, slots: tuple[int, ...], read: _Requested, sign: int) -> None:  # noqa: ARG002 - of whichever
        """Count or uncount one pod's cards."""
        namespace, units, above = read
        unit_bytes = sign * int(self.tables.cards.unit_mib[row]) * _MIB
        _add(self.requested, namespace, units * unit_bytes)
        if above:
            _add(self.above, namespace, above * unit_bytes)


def _add(to: dict[str, int], namespace: str, amount: int) -> None:
    left = to.get(namespace, 0) + amount
    if left:
        to[namespace] = left
    else:
        to.pop(namespace, None)
