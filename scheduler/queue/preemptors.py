"""Pods that wait and for which others may go: by class, until something opens that preemption could use.

    add ──▶ WAITING ──▶ due: a pod is `unanswered`, or something has opened ── take ──▶ the search

What pods of lower priority hold makes no difference to whether preemption can help, so when one of them leaves, nobody
here is due. When a pod of the same or a higher priority leaves, or a node changes, the classes are due for which enough
would be left there (`scheduler.state.available_after_preemption`): one search for each class and what has opened, about
these rows only, and another one only after one that has helped. kube-scheduler: a plugin's events bring the pod to an
attempt, which ends with PostFilter.
Owned by the event loop. No method awaits, so each one is atomic.
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from scheduler.pods.pod import Pod
from scheduler.queue.class_table import Available, ClassTable
from scheduler.state.changes import Change, Openings
from scheduler.state.columns.arrays import BoolArray, RowArray
from scheduler.state.minimum_request import MinimumRequest

# Of more rows that have opened, each class is due, whatever is left on them.
_MOST_ROWS: Final = 64
_MOST_KEPT: Final = 256
_MEASURED_BY: Final = int(Change.EXISTENCE | Change.ALLOCATABLE | Change.INVENTORY | Change.PODS | Change.CARDS)
_NODE: Final = int(Change.NODE)
# None: all rows.
_SomeRows: TypeAlias = frozenset[int] | None
_NOTHING: Final[frozenset[int]] = frozenset()
# The tables as a pod sees them, and what rows have left then once all pods of lower priority are gone.
LeftFor: TypeAlias = Callable[[Pod], AbstractContextManager[Available]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Would it help the pod if others went? rows: that have opened; None: all. unanswered: it was not answered yet."""

    key: Hashable
    pod: Pod
    rows: _SomeRows
    unanswered: bool


@dataclass(slots=True, eq=False, kw_only=True)
class _Class:
    """Pods of one priority and namespace that every rule answers alike, by uid in the order in which they came.

    unanswered: those that were not answered yet. rows: what has opened since the class was asked about.
    """

    key: Hashable
    slot: int
    pods: dict[str, Pod] = field(default_factory=dict)
    unanswered: dict[str, None] = field(default_factory=dict)
    rows: _SomeRows = _NOTHING

    @property
    def one(self) -> Pod:
        """That stands for all."""
        return next(iter(self.pods.values()))

    @property
    def priority(self) -> int:
        """Of each."""
        return self.one.priority

    @property
    def due(self) -> bool:
        return bool(self.unanswered) or self.rows is None or bool(self.rows)

    def open(self, rows: _SomeRows) -> None:
        """These have opened."""
        both = None if self.rows is None or rows is None else self.rows | rows
        self.rows = None if both is None or len(both) > _MOST_KEPT else both


class Preemptors:
    """See the module. version: moves when a class is due, or no longer."""

    def __init__(self) -> None:
        """None."""
        self._classes: dict[Hashable, _Class] = {}
        self._at: dict[int, _Class] = {}
        self._class_of: dict[str, _Class] = {}
        self._table = ClassTable(measured_by=_MEASURED_BY)
        self._noted = Openings()
        self._places_spent = False
        self._arrivals = 0
        self.version = 0

    def __len__(self) -> int:
        """How many pods."""
        return len(self._class_of)

    def __contains__(self, uid: str) -> bool:
        """Whether the pod is one of them."""
        return uid in self._class_of

    @property
    def any_noted(self) -> bool:
        """Whether `settle` may find classes that are due."""
        return bool(self._classes) and bool(self._noted)

    @property
    def any_due(self) -> bool:
        """Whether `take` may have something, once what was noted is settled."""
        return bool(self._classes) and (bool(self._noted) or bool(self._table.due.any()))

    def add(self, key: Hashable, pod: Pod, *, wakes_on: int, minimum: MinimumRequest, unanswered: bool) -> None:
        """A pod fits nowhere. key: equal for pods that every rule answers alike. The rest: as `SchedulingQueue`."""
        uid = pod.key.uid
        key = (key, pod.priority, pod.key.namespace)
        found = self._class_of.get(uid)
        if found is not None and found.key != key:
            self.discard(uid)
        found = self._classes.get(key) or self._make(key, pod.priority)
        found.pods[uid] = pod
        self._class_of[uid] = found
        if unanswered:
            found.unanswered[uid] = None
        self._table.need(found.slot, minimum)
        self._table.wakes_on[found.slot] |= wakes_on | _MEASURED_BY
        self._mark(found)

    def update(self, pod: Pod) -> None:
        """The pod as it was seen last; nothing when it is none of them."""
        found = self._class_of.get(pod.key.uid)
        if found is not None:
            found.pods[pod.key.uid] = pod

    def discard(self, uid: str) -> None:
        """The pod waits no longer, or has a place that is kept for it; nothing when it is none of them."""
        found = self._class_of.pop(uid, None)
        if found is None:
            return
        del found.pods[uid]
        found.unanswered.pop(uid, None)
        if found.pods:
            self._mark(found)
        else:
            del self._classes[found.key]
            del self._at[found.slot]
            self._table.release(found.slot)
            self.version += 1

    def note(self, openings: Openings) -> None:
        """Something may have become possible there."""
        if self._classes:
            self._noted.add(openings)

    def settle(self, left_for: LeftFor) -> None:
        """Find the classes for which something has opened. left_for: for a pod of each priority."""
        if self._places_spent:
            self._screen_again(left_for)
        noted, self._noted = self._noted, Openings()
        for kinds, up_to, rows in _alike(noted):
            if kinds & _NODE:
                self._table.allow(rows)
            slots = self._table.concerned(kinds) & (-self._table.order[0] <= up_to)
            if len(rows) > _MOST_ROWS:
                self._open(slots, None)
            else:
                self._screen(slots, rows, left_for)
        if noted.everywhere:
            self._table.allow_everywhere(noted.everywhere)
            self._open(self._table.concerned(noted.everywhere), None)

    def first_priority(self, turned_away: Callable[[Pod], bool]) -> int | None:
        """Of the best pod that is due; None where none is known to be. turned_away: as `take`."""
        found = self._first(turned_away)
        return None if found is None else found.priority

    def take(self, turned_away: Callable[[Pod], bool]) -> Question | None:
        """The next question, about the best pod that is due; None without one.

        turned_away: whether no place can be kept for the pod now, whose answer is that of its class.
        """
        found = self._first(turned_away)
        if found is None:
            return None
        uid = next(iter(found.unanswered), "")
        unanswered = bool(uid)
        question = Question(
            key=found.key,
            pod=found.pods[uid] if unanswered else found.one,
            rows=None if unanswered else found.rows,
            unanswered=unanswered,
        )
        found.unanswered.pop(uid, None)
        # What opens from now on is another question.
        found.rows = _NOTHING
        self._mark(found)
        return question

    def again(self, question: Question) -> None:
        """What has helped the pod, or has not been found out, may help others of its class."""
        self.open(question.key, question.rows)
        self._places_spent = True

    def open(self, key: Hashable, rows: _SomeRows = None) -> None:
        """The class, if there is one, is due. key: as of a Question."""
        found = self._classes.get(key)
        if found is not None:
            found.open(rows)
            self._mark(found)

    def open_all(self) -> None:
        """Each class is due."""
        for found in self._classes.values():
            found.open(None)
            self._mark(found)

    def learn(self, key: Hashable, wakes_on: int) -> None:
        """These bits of Change can help the class, too. key: as of a Question."""
        found = self._classes.get(key)
        if found is not None:
            self._table.wakes_on[found.slot] |= wakes_on

    def key_of(self, uid: str) -> Hashable:
        """As of a Question; None when the pod is none of them."""
        found = self._class_of.get(uid)
        return None if found is None else found.key

    def _make(self, key: Hashable, priority: int) -> _Class:
        slot = self._table.take()
        found = self._classes[key] = self._at[slot] = _Class(key=key, slot=slot)
        self._arrivals += 1
        self._table.order[:, slot] = -priority, self._arrivals
        return found

    def _first(self, turned_away: Callable[[Pod], bool]) -> _Class | None:
        slot = self._table.first_due()
        if slot is None or not turned_away(self._at[slot].one):
            return None if slot is None else self._at[slot]
        others = (self._at[other] for other in self._table.all_due())
        return next((other for other in others if not turned_away(other.one)), None)

    def _mark(self, found: _Class) -> None:
        if self._table.due[found.slot] != found.due:
            self._table.due[found.slot] = found.due
            self.version += 1

    def _open(self, slots: BoolArray, rows: _SomeRows) -> None:
        for slot in np.flatnonzero(slots).tolist():
            self._at[slot].open(rows)
            self._mark(self._at[slot])

    def _screen(self, slots: BoolArray, rows: RowArray, left_for: LeftFor) -> None:
        """Those of `slots` are due for which enough would be left on some of `rows`."""
        for priority in sorted(set(self._table.order[0, slots].tolist())):
            of_priority = slots & (self._table.order[0] == priority)
            one = self._at[int(of_priority.argmax())]
            with left_for(one.one) as left:
                self._open(self._table.rule_out(of_priority, rows, left), frozenset(rows.tolist()))

    def _screen_again(self, left_for: LeftFor) -> None:
        """Of what had opened, too little may be left for some."""
        self._places_spent = False
        found: dict[frozenset[int], list[int]] = {}
        for slot in np.flatnonzero(self._table.due).tolist():
            one = self._at[slot]
            if one.rows and not one.unanswered:
                found.setdefault(one.rows, []).append(slot)
                one.rows = _NOTHING
                self._mark(one)
        for rows, slots in found.items():
            of_rows = np.zeros_like(self._table.due)
            of_rows[slots] = True
            if len(rows) > _MOST_ROWS:
                self._open(of_rows, rows)
            else:
                self._screen(of_rows, np.array(sorted(rows), dtype=np.intp), left_for)


def _alike(noted: Openings) -> Iterator[tuple[int, int, RowArray]]:
    """(bits of Change, up to which priority, the rows of exactly these)."""
    rows_of: dict[tuple[int, int], list[int]] = {}
    for row, kinds in noted.rows.items():
        rows_of.setdefault((kinds, noted.up_to[row]), []).append(row)
    for (kinds, up_to), rows in rows_of.items():
        yield kinds, up_to, np.array(rows, dtype=np.intp)
