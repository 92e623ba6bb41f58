"""What has opened since which class of waiting pods was asked about: the questions, and the rows that they cover."""

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from scheduler.pods.pod import Pod
from scheduler.queue.entry import Entry, SortKey
from scheduler.queue.heap import Heap

# None: all rows.
SomeRows: TypeAlias = frozenset[int] | None
EVERYWHERE: Final = -1
_LONGEST_LOG: Final = 4096


@dataclass(frozen=True, slots=True)
class Check:
    """A question: does `pod` fit on some of `rows` now? rows: None for all of them.

    signature: as `unschedulable` was told; stale when the pod now has another: see `reclassify`.
    """

    signature: Hashable
    pod: Pod
    rows: SomeRows


@dataclass(slots=True, eq=False, kw_only=True)
class PodClass:
    """Pods that every rule answers alike and that found no fit, at least one.

    slot: of `ClassTable`. best: of `waiting`, which are UNSCHEDULABLE.
    """

    key: Hashable
    slot: int
    best: Entry
    waiting: Heap[SortKey, Entry] = field(default_factory=Heap)


class OpenRows:
    """Rows in the order in which they opened, for as long as a class is to be asked about them."""

    def __init__(self) -> None:
        """None."""
        self._rows: list[int] = []
        self._forgotten = 0

    def add(self, rows: Iterable[int]) -> int:
        """These have opened. Returns the position of the first of them, >= 0."""
        if len(self._rows) > _LONGEST_LOG:
            self.clear()
        position = self._forgotten + len(self._rows)
        self._rows += rows
        return position

    def since(self, position: int) -> SomeRows:
        """What has opened from `position` on; None, all rows, when that is too long ago to say, or EVERYWHERE."""
        start = position - self._forgotten
        return None if start < 0 else frozenset(self._rows[start:])

    def clear(self) -> None:
        """Nobody is to be asked about them any more, or about all rows."""
        self._forgotten += len(self._rows)
        self._rows = []
