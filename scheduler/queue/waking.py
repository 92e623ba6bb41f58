"""Which classes of waiting pods are to be asked for, about which rows, and in which order.

Rows of the tables change one by one; thousands of classes may wait. So a change is noted once, not per class, and
is offered in rounds: a round takes all rows that changed before it began and asks for each class in the order of
its best pod. Rows that change meanwhile are for the next round: every change is offered to the better pod first,
and a steady stream of changes keeps no class from being asked for.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final, TypeAlias

from scheduler.pods.pod import Pod
from scheduler.queue.entry import Entry, SortKey
from scheduler.queue.heap import Heap
from scheduler.state.changes import Openings

# None: all rows.
SomeRows: TypeAlias = frozenset[int] | None
NO_ROWS: Final[frozenset[int]] = frozenset()


@dataclass(frozen=True, slots=True)
class Check:
    """A question: how many pods like `pod` can `rows` take now? rows: None for all of them.

    signature: as `unschedulable` was told; stale when the pod now has another: see `reclassify`.
    """

    signature: Hashable
    pod: Pod
    rows: SomeRows


@dataclass(slots=True, eq=False, kw_only=True)
class PodClass:
    """Pods that every rule answers alike and that found no fit.

    waiting: UNSCHEDULABLE. woken: ACTIVE for a place that a check has shown, and not decided yet.
    open_rows: rows not found full since they changed; while there are any, a pod that finds no fit is `tried`:
    those rows were no use to it, so it backs off until they have been found full, or something changes again, or
    its back-off ends. Without open rows nothing is tried. wakes_on: bits of Change that can help it; they are never
    taken back, since a pod that one rule rejects may, once that is settled, be rejected by another.
    """

    key: Hashable
    waiting: Heap[SortKey, Entry] = field(default_factory=Heap)
    tried: Heap[SortKey, Entry] = field(default_factory=Heap)
    woken: dict[Entry, None] = field(default_factory=dict)
    open_rows: SomeRows = NO_ROWS
    wakes_on: int = 0

    @property
    def open(self) -> bool:
        """Whether some rows were not found full."""
        return self.open_rows is None or bool(self.open_rows)

    @property
    def empty(self) -> bool:
        """Whether the class has no pods."""
        return not (self.waiting or self.tried or self.woken)

    def best(self) -> Entry | None:
        """The pod to ask for; None when every pod of the class is active."""
        first = self.waiting.first() or self.tried.first()
        return None if first is None else first[1]


class Rounds:
    """The changes not offered yet, and the classes still to be asked for.

    changes: how often something was noted.
    """

    def __init__(self) -> None:
        """No change, nobody to ask for."""
        self.changes = 0
        self._noted = Openings()
        self._offered = Openings()
        self._offered_kinds = 0
        self._offered_rows: SomeRows = NO_ROWS
        # By the best pod's place, or by a better one that has left since.
        self._due: Heap[SortKey, PodClass] = Heap()

    def note(self, openings: Openings) -> None:
        """Something may have become possible there."""
        self.changes += 1
        for row, kinds in openings.rows.items():
            self._noted.note(row, kinds)
        self._noted.note_everywhere(openings.everywhere)

    def begin(self) -> bool:
        """Offer what has changed, unless the last round goes on. Whether a round began: ask for every class then."""
        if self._first() is not None or not self._noted:
            return False
        self._offered, self._noted = self._noted, Openings()
        self._offered_rows = frozenset(self._offered.rows)
        self._offered_kinds = reduce(or_, self._offered.rows.values(), self._offered.everywhere)
        return True

    def concerns(self, pod_class: PodClass) -> bool:
        """Whether what is offered can help the class."""
        return bool(pod_class.wakes_on & self._offered_kinds)

    def ask_for(self, pod_class: PodClass) -> None:
        """Make the class due, at its best pod's place; nothing when none of its pods waits."""
        best = pod_class.best()
        if best is not None:
            self._due.push(pod_class, best.sort_key)

    def reorder(self, pod_class: PodClass) -> None:
        """The class may have a better pod than before."""
        if pod_class in self._due:
            self.ask_for(pod_class)

    def drop(self, pod_class: PodClass) -> None:
        """The class need not be asked for."""
        self._due.discard(pod_class)

    def next_check(self) -> Check | None:
        """The question for the due class with the best pod."""
        first = self._first()
        if first is None:
            return None
        best, pod_class = first
        offered = None if pod_class.wakes_on & self._offered.everywhere else self._offered_rows
        return Check(pod_class.key, best.pod, union(pod_class.open_rows, offered))

    def best_due(self) -> SortKey | None:
        """The place of the best pod of the due classes; None when no class is due."""
        first = self._first()
        return None if first is None else first[0].sort_key

    def _first(self) -> tuple[Entry, PodClass] | None:
        while (first := self._due.first()) is not None:
            key, pod_class = first
            best = pod_class.best()
            if best is not None and best.sort_key == key:
                return best, pod_class
            self._due.discard(pod_class)
            self.ask_for(pod_class)
        return None


def union(left: SomeRows, right: SomeRows) -> SomeRows:
    """Rows that are in either; copied only when it has to be."""
    if left is None or right is None:
        return None
    return left | right if left and right and left is not right else left or right
