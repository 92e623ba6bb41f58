"""Queueing hints for classes of waiting pods, and the rows that have changed since their last hint."""

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from scheduler.pods.pod import Pod
from scheduler.queue.entry import Entry, SortKey
from scheduler.queue.heap import Heap

# None: all rows.
SomeRows: TypeAlias = frozenset[int] | None
EVERYWHERE: Final = -1
_LONGEST_LOG: Final = 4096


@dataclass(frozen=True, slots=True)
class QueueingHint:
    """A hint to evaluate: does the pod of `entry` fit on any of `rows` now? rows: None for all.

    signature: as passed to `unschedulable`; if the pod has another one now, see `reclassify`. of_signature: whether
    only to verify that the pod still has this signature.
    """

    signature: Hashable
    entry: Entry
    rows: SomeRows
    of_signature: bool = False

    @property
    def pod(self) -> Pod:
        """The latest version of the pod."""
        return self.entry.pod

    @property
    def stands(self) -> bool:
        """Whether the pod is still waiting in the class of this signature."""
        return bool(self.entry.signature == self.signature)


@dataclass(slots=True, eq=False, kw_only=True)
class PodClass:
    """Unschedulable pods that every rule treats alike, at least one.

    slot: in `ClassTable`. best: the first pod in queue order. several: all pods, used only once there have been two,
    because most classes have only one.
    """

    key: Hashable
    slot: int
    best: Entry
    several: Heap[SortKey, Entry] | None = None

    def add(self, entry: Entry) -> None:
        if self.several is None:
            self.several = Heap()
            self.several.push(self.best, self.best.sort_key)
        self.several.push(entry, entry.sort_key)
        self._choose()

    def discard(self, entry: Entry) -> bool:
        """Remove the pod, if present. Returns whether any is left."""
        if self.several is None:
            return entry is not self.best
        self.several.discard(entry)
        return self._choose()

    def pods(self) -> Collection[Entry]:
        """All pods, in any order."""
        return (self.best,) if self.several is None else self.several

    def _choose(self) -> bool:
        first = None if self.several is None else self.several.first()
        if first is not None:
            self.best = first[1]
        return first is not None


class EventRows:
    """Rows of cluster events in order, kept while a class needs hints about them."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._forgotten = 0

    def add(self, rows: Iterable[int]) -> int:
        """Add rows. Returns the position of the first one, >= 0."""
        if len(self._rows) > _LONGEST_LOG:
            self.clear()
        position = self._forgotten + len(self._rows)
        self._rows += rows
        return position

    def since(self, position: int) -> SomeRows:
        """Rows from `position` on; None (all rows) if that is too long ago or EVERYWHERE."""
        start = position - self._forgotten
        return None if start < 0 else frozenset(self._rows[start:])

    def clear(self) -> None:
        """Drop all rows: no class needs hints about them, or the due hints cover all rows."""
        self._forgotten += len(self._rows)
        self._rows = []
