"""What has opened since which class of waiting pods was asked about: the questions, and the rows that they cover."""

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
    """A question: does the pod of `entry` fit on some of `rows` now? rows: None for all of them.

    signature: as `unschedulable` was told; stale when the pod now has another: see `reclassify`.
    of_signature: ask only whether the pod still has this signature.
    """

    signature: Hashable
    entry: Entry
    rows: SomeRows
    of_signature: bool = False

    @property
    def pod(self) -> Pod:
        """As it was seen last."""
        return self.entry.pod

    @property
    def stands(self) -> bool:
        """Whether the pod still waits in the class of this signature."""
        return bool(self.entry.signature == self.signature)


@dataclass(slots=True, eq=False, kw_only=True)
class PodClass:
    """Pods that every rule answers alike and that found no fit, at least one; they are UNSCHEDULABLE.

    slot: of `ClassTable`. best: the first of them in the order of the queue. several: all of them, once there were two:
    of ten thousand classes most have one pod.
    """

    key: Hashable
    slot: int
    best: Entry
    several: Heap[SortKey, Entry] | None = None

    def add(self, entry: Entry) -> None:
        """One more."""
        if self.several is None:
            self.several = Heap()
            self.several.push(self.best, self.best.sort_key)
        self.several.push(entry, entry.sort_key)
        self._choose()

    def discard(self, entry: Entry) -> bool:
        """One less, if it is here; whether any is left."""
        if self.several is None:
            return entry is not self.best
        self.several.discard(entry)
        return self._choose()

    def pods(self) -> Collection[Entry]:
        """All of them, in no order."""
        return (self.best,) if self.several is None else self.several

    def _choose(self) -> bool:
        first = None if self.several is None else self.several.first()
        if first is not None:
            self.best = first[1]
        return first is not None


class EventRows:
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
