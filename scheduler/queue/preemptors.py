"""Waiting pods that may preempt others, by class: each class waits for a cluster event after which preemption may help.

    add ──▶ WAITING ──▶ due: a pod is `unanswered`, or events arrived ── take ──▶ the search

A class does not become due when a pod of lower priority leaves, because preemption could have evicted that pod anyway.
When a pod of the same or a higher priority leaves, or a node changes, a class becomes due if enough would then be
available there (`scheduler.state.available_after_preemption`). Each class gets one search for these rows; another one
follows only after a search that helped. kube-scheduler instead retries the pod after each event, and the attempt ends
with PostFilter. Owned by the event loop. No method awaits, so each one is atomic.

Also pods whose victims could not be deleted: they back off before the next deletion.

    (absent) ──note──▶ BACKING OFF ──take_ready: back-off ended──▶ MAY TRY ──note──▶ BACKING OFF, twice as long
                            └──────── forget: deleted, bound or gone ◀──┘

During the back-off the pod waits like any other: it is scheduled as soon as it fits. Owned by the searches. No method
awaits, so each one is atomic. now_s: monotonic seconds.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeAlias

import numpy as np

from scheduler.pods.pod import Pod
from scheduler.queue.backoff import backoff_s
from scheduler.queue.class_table import Available, ClassTable
from scheduler.queue.heap import Heap
from scheduler.state.changes import Change, ClusterEvents
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, resized
from scheduler.state.minimum_request import MinimumRequest

# Above this many rows, each class becomes due without a comparison of amounts.
_MOST_ROWS: Final = 64
_MOST_KEPT: Final = 256
_MEASURED_BY: Final = int(Change.EXISTENCE | Change.ALLOCATABLE | Change.INVENTORY | Change.PODS | Change.CARDS)
_NODE: Final = int(Change.NODE)
# None: all rows.
_SomeRows: TypeAlias = frozenset[int] | None
_NOTHING: Final[frozenset[int]] = frozenset()
# Amounts available on rows without pods of lower priority, in the view of the pod.
LeftFor: TypeAlias = Callable[[Pod], AbstractContextManager[Available]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DueSearch:
    """A due search: would preemption help the pod? rows: changed rows; None for all.

    unanswered: the pod's own attempt has no answer yet.
    """

    key: Hashable
    pod: Pod
    rows: _SomeRows
    unanswered: bool


@dataclass(slots=True, eq=False, kw_only=True)
class _Class:
    """Pods of one priority and namespace that every rule treats alike, by UID in order of arrival.

    unanswered: pods without an answer yet. rows: rows that changed since the last search.
    """

    key: Hashable
    slot: int
    pods: dict[str, Pod] = field(default_factory=dict)
    unanswered: dict[str, None] = field(default_factory=dict)
    rows: _SomeRows = _NOTHING

    @property
    def one(self) -> Pod:
        """The pod that represents the class."""
        return next(iter(self.pods.values()))

    @property
    def priority(self) -> int:
        """Priority of all its pods."""
        return self.one.priority

    @property
    def due(self) -> bool:
        return bool(self.unanswered) or self.rows is None or bool(self.rows)

    def add_rows(self, rows: _SomeRows) -> None:
        """Add changed rows."""
        both = None if self.rows is None or rows is None else self.rows | rows
        self.rows = None if both is None or len(both) > _MOST_KEPT else both


class Preemptors:
    """Classes of preempting pods; see the module."""

    def __init__(self) -> None:
        self._classes: dict[Hashable, _Class] = {}
        self._at: dict[int, _Class] = {}
        self._class_of: dict[str, _Class] = {}
        self._table = ClassTable(measured_by=_MEASURED_BY)
        self._noted = ClusterEvents()
        self._room_spent = False
        self._arrivals = 0
        # By slot: hash of the namespace.
        self._namespace: Int64Array = np.zeros(len(self._table.due), dtype=np.int64)

    def __len__(self) -> int:
        return len(self._class_of)

    def __contains__(self, uid: str) -> bool:
        return uid in self._class_of

    @property
    def any_due(self) -> bool:
        """Whether `take` may return a search after `settle`."""
        return bool(self._classes) and (bool(self._noted) or bool(self._table.due.any()))

    def add(self, key: Hashable, pod: Pod, *, wakes_on: int, minimum: MinimumRequest, unanswered: bool) -> None:
        """Add an unschedulable pod. key: equal for pods that every rule treats alike.

        wakes_on, minimum: see `SchedulingQueue.unschedulable`. unanswered: see DueSearch.
        """
        uid = pod.key.uid
        key = (key, pod.priority, pod.key.namespace)
        found = self._class_of.get(uid)
        if found is not None and found.key != key:
            self.discard(uid)
        found = self._classes.get(key) or self._make(key, pod)
        found.pods[uid] = pod
        self._class_of[uid] = found
        if unanswered:
            found.unanswered[uid] = None
        self._table.need(found.slot, minimum)
        self._table.wakes_on[found.slot] |= wakes_on | _MEASURED_BY
        self._mark(found)

    def update(self, pod: Pod) -> None:
        """Replace the pod with its latest version. No effect if it is absent."""
        found = self._class_of.get(pod.key.uid)
        if found is not None:
            found.pods[pod.key.uid] = pod

    def discard(self, uid: str) -> None:
        """Remove a pod that no longer waits or that has a nomination. No effect if it is absent."""
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

    def note(self, events: ClusterEvents) -> None:
        if self._classes:
            self._noted.add(events)

    def settle(self, left_for: LeftFor) -> None:
        """Make classes due according to the noted events. left_for: see LeftFor."""
        if self._room_spent:
            self._screen_again(left_for)
        noted, self._noted = self._noted, ClusterEvents()
        for kinds, up_to, rows in _alike(noted):
            if kinds & _NODE:
                self._table.allow(rows)
            slots = self._table.concerned(kinds) & (-self._table.order[0] <= up_to)
            if len(rows) > _MOST_ROWS:
                self._mark_slots_due(slots, None)
            else:
                self._screen(slots, rows, left_for)
        if noted.everywhere:
            self._table.allow_everywhere(noted.everywhere)
            self._mark_slots_due(self._table.concerned(noted.everywhere), None)

    def first_priority(self, closed: Mapping[str, float]) -> int | None:
        """Priority of the best pod that is due; None if none is known to be due. closed: see `take`."""
        found = self._first(closed)
        return None if found is None else found.priority

    def take(self, closed: Mapping[str, float]) -> DueSearch | None:
        """The next due search, for the best pod; None if no search is due.

        closed: highest priority that gets no nomination now, see `Nominations.closed`.
        """
        found = self._first(closed)
        if found is None:
            return None
        uid = next(iter(found.unanswered), "")
        unanswered = bool(uid)
        due = DueSearch(
            key=found.key,
            pod=found.pods[uid] if unanswered else found.one,
            rows=None if unanswered else found.rows,
            unanswered=unanswered,
        )
        found.unanswered.pop(uid, None)
        # Later events make another search due.
        found.rows = _NOTHING
        self._mark(found)
        return due

    def put_back(self, due: DueSearch) -> None:
        """Make the search due again, because it was not begun. No effect if the pod no longer waits."""
        found = self._classes.get(due.key)
        if found is None:
            return
        if not due.unanswered:
            found.add_rows(due.rows)
        elif due.pod.key.uid in found.pods:
            found.unanswered[due.pod.key.uid] = None
        self._mark(found)

    def again(self, due: DueSearch) -> None:
        """Make the class due again, because a search that helped this pod, or had no result, may help its others."""
        self.mark_due(due.key, due.rows)
        self._room_spent = True

    def mark_due(self, key: Hashable, rows: _SomeRows = None) -> None:
        """Make the class due if it exists. key: see DueSearch."""
        found = self._classes.get(key)
        if found is not None:
            found.add_rows(rows)
            self._mark(found)

    def mark_all_due(self) -> None:
        """Make every class due."""
        for found in self._classes.values():
            found.add_rows(None)
            self._mark(found)

    def learn(self, key: Hashable, wakes_on: int) -> None:
        """Add bits of Change to those that can help the class. key: see DueSearch."""
        found = self._classes.get(key)
        if found is not None:
            self._table.wakes_on[found.slot] |= wakes_on

    def key_of(self, uid: str) -> Hashable:
        """Key of the pod's class, see DueSearch; None if the pod is absent."""
        found = self._class_of.get(uid)
        return None if found is None else found.key

    def _make(self, key: Hashable, pod: Pod) -> _Class:
        slot = self._table.take()
        found = self._classes[key] = self._at[slot] = _Class(key=key, slot=slot)
        self._arrivals += 1
        self._table.order[:, slot] = -pod.priority, self._arrivals
        if slot >= len(self._namespace):
            self._namespace = resized(self._namespace, (len(self._table.due),), 0)
        self._namespace[slot] = hash(pod.key.namespace)
        return found

    def _first(self, closed: Mapping[str, float]) -> _Class | None:
        among: BoolArray | None = None
        if closed:
            highest = np.full(len(self._namespace), closed.get("", -inf))
            for namespace, priority in closed.items():
                highest[self._namespace == hash(namespace)] = priority
            among = -self._table.order[0] > highest
        slot = self._table.first_due(among)
        return None if slot is None else self._at[slot]

    def _mark(self, found: _Class) -> None:
        self._table.due[found.slot] = found.due

    def _mark_slots_due(self, slots: BoolArray, rows: _SomeRows) -> None:
        for slot in np.flatnonzero(slots).tolist():
            self._at[slot].add_rows(rows)
            self._mark(self._at[slot])

    def _screen(self, slots: BoolArray, rows: RowArray, left_for: LeftFor) -> None:
        """Make each of `slots` due for which some of `rows` would have enough available after preemption."""
        for priority in sorted(set(self._table.order[0, slots].tolist())):
            of_priority = slots & (self._table.order[0] == priority)
            one = self._at[int(of_priority.argmax())]
            with left_for(one.one) as left:
                self._mark_slots_due(self._table.rule_out(of_priority, rows, left), frozenset(rows.tolist()))

    def _screen_again(self, left_for: LeftFor) -> None:
        """Unmark due classes whose rows would no longer have enough available."""
        self._room_spent = False
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
                self._mark_slots_due(of_rows, rows)
            else:
                self._screen(of_rows, np.array(sorted(rows), dtype=np.intp), left_for)


def _alike(noted: ClusterEvents) -> Iterator[tuple[int, int, RowArray]]:
    """Yield (bits of Change, highest priority, rows with exactly these bits)."""
    rows_of: dict[tuple[int, int], list[int]] = {}
    for row, kinds in noted.rows.items():
        rows_of.setdefault((kinds, noted.up_to[row]), []).append(row)
    for (kinds, up_to), rows in rows_of.items():
        yield kinds, up_to, np.array(rows, dtype=np.intp)


_INITIAL_S: Final = 1.0
# Same as for a Binding that a policy rejects: the same request will probably fail again.
_MAX_S: Final = 300.0


class FailedDeletions:
    """Failed deletions of victims, by UID of the preempting pod."""

    def __init__(self) -> None:
        self._failures: dict[str, int] = {}  # consecutive failed deletions
        self._backing_off: Heap[float, str] = Heap()

    def __contains__(self, uid: str) -> bool:
        """Whether the last deletion for the pod failed, even if the back-off has ended."""
        return uid in self._failures

    def is_backing_off(self, uid: str) -> bool:
        """Whether victims may not be deleted for the pod now."""
        return uid in self._backing_off

    def note(self, uid: str, now_s: float) -> None:
        """Record that a victim could not be deleted for the pod."""
        failures = self._failures[uid] = self._failures.get(uid, 0) + 1
        self._backing_off.push(uid, now_s + backoff_s(failures, initial_s=_INITIAL_S, max_s=_MAX_S))

    def forget(self, uid: str) -> None:
        """Drop a pod whose victims are being deleted, or that no longer needs any. No effect if it is absent."""
        self._failures.pop(uid, None)
        self._backing_off.discard(uid)

    def take_ready(self, now_s: float) -> list[str]:
        """Pods whose back-off has ended."""
        return list(self._backing_off.pop_until(now_s)) if self._backing_off else []

    def next_ready_s(self) -> float | None:
        """Time when the next back-off ends; None if never."""
        first = self._backing_off.first()
        return None if first is None else first[0]
