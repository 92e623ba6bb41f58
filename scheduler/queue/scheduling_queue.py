"""Pods that wait to be scheduled, by state, in scheduling order.

    absent ──▶ GATED ──PreEnqueue agrees──▶ ACTIVE ──pop──▶ IN_FLIGHT ──done──▶ absent
       │                                     ▲ ▲               │  │
       └────────────add_or_update────────────┘ │               │  ├─ failed (below) ──▶ BACKING_OFF ──┐
                                               │               └──┴─ unschedulable ──▶ UNSCHEDULABLE ─┤
                                               └────(back-off ended; woken, updated, left over)───────┘

    ACTIVE ◀──throttle──▶ THROTTLED
    delete: any state ─▶ absent; from IN_FLIGHT after the attempt has ended.

    GATED:         PreEnqueue rejected it; called again when the pod changes. Or too few pods of its gang exist.
    ACTIVE:        ready, by priority, then in order of arrival (for a gated pod: when its gate opened).
    THROTTLED:     ready, but the bindings of its namespace are slow or fail: pods of other namespaces go first.
    BACKING_OFF:   failed, was woken but not placed, or changed too often; always serves the back-off in full. The
                   back-off grows with consecutive errors, attempts without a fit, or updates that caused attempts.
    UNSCHEDULABLE: found no fit; waits for a hint that it fits, for an update, or for the leftover time (5 min).
    IN_FLIGHT:     popped: being decided, and then, if placed, being bound.

A pod keeps its position in order of arrival, however often it is tried. A pod with a nomination was tried before, by
another process: it sorts before the others of its priority. So does a pod of a gang of which too few have a node. An
unschedulable pod is not ACTIVE, so it blocks nothing.
Before the head of the active pods is popped, every class of waiting pods that sorts before it gets its hints
(`next_hint`): a new pod never takes the room that a better pod waits for.

kube-scheduler logs the events that arrive while a pod is in flight. Here nothing awaits from `pop` to `unschedulable`,
so no event can arrive in between. A placed pod in flight waits for no event: if its bind fails, it backs off.

Owned by the event loop. No method awaits, so each one is atomic. now_s: monotonic seconds, never decreasing.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from math import inf
from typing import Final

from scheduler.pods.gang import GangKey
from scheduler.pods.pod import Pod, TransitionError
from scheduler.queue.class_table import Available
from scheduler.queue.entry import Entry, PodState, QueuedPod, SortKey, by_priority, by_template
from scheduler.queue.gangs import Gangs
from scheduler.queue.gates import NO_GATES, Gate, gate_message
from scheduler.queue.heap import Heap
from scheduler.queue.homes import homes_are_right
from scheduler.queue.throttled_pods import FailedPods, ThrottledPods
from scheduler.queue.unschedulable_pods import UnschedulablePods
from scheduler.queue.waking import QueueingHint
from scheduler.state.changes import ClusterEvents
from scheduler.state.gang_members import GangMembers
from scheduler.state.minimum_request import NO_MINIMUM, MinimumRequest

# More than will ever arrive: pods with a nomination sort before the others.
_TRIED_ALREADY: Final = 1 << 48
_NOT_TAKEN: Final = frozenset({PodState.GATED, PodState.IN_FLIGHT})
_TRIED_AGAIN: Final = frozenset({PodState.ACTIVE, PodState.UNSCHEDULABLE, PodState.BACKING_OFF})


class SchedulingQueue:
    """The queue; see the module. A method that does not apply to the pod's state raises TransitionError."""

    def __init__(
        self,
        *,
        initial_backoff_s: float = 1.0,
        max_backoff_s: float = 10.0,
        pre_enqueue: Mapping[str, Sequence[Gate]] = NO_GATES,
        queue_sort: Callable[[Pod], int] = by_priority,
        members: GangMembers | None = None,
    ) -> None:
        """initial_backoff_s, max_backoff_s: see `backoff_s`, > 0. pre_enqueue: gates by scheduler name, in order.

        queue_sort: sort key, called once at activation; the lowest goes first, equal keys in order of arrival.
        members: pods of gangs that have a node; None if nothing places any.
        """
        self._queue_sort = queue_sort
        self._pre_enqueue = pre_enqueue
        self._entries: dict[str, Entry] = {}
        self._active: Heap[SortKey, Entry] = Heap()
        self._failed = FailedPods(initial_backoff_s=initial_backoff_s, max_backoff_s=max_backoff_s)
        self._gated: dict[Entry, None] = {}
        self._throttled = ThrottledPods()
        self._no_fit = UnschedulablePods(initial_backoff_s=initial_backoff_s, max_backoff_s=max_backoff_s)
        self.longest = self._no_fit.longest
        self.gangs = Gangs(members or GangMembers())
        self._arrivals = 0

    # Events of the pod itself

    def __contains__(self, uid: object) -> bool:
        """Whether the pod is in any state, including in flight."""
        return uid in self._entries

    def add_or_update(
        self, pod: Pod, now_s: float, signature_of: Callable[[Pod], Hashable] = by_template, since_s: float = inf
    ) -> None:
        """Add or update a waiting pod. If it is in flight, the next attempt uses this version.

        Only changes read by a rule (its signature differs), a gate or the queue order cause a new attempt; a status
        change does not. signature_of: as passed to `unschedulable`. since_s: when a pod that is new here, and not
        gated, began to wait; inf for now.
        """
        entry = self._entries.get(pod.key.uid)
        if entry is None:
            entry = self._entries[pod.key.uid] = Entry(pod=pod)
            self._admit(entry, now_s)
            if entry.state is PodState.ACTIVE:
                entry.waits_since_s = min(entry.waits_since_s, since_s)
            return
        matters = self._matters(entry.pod, pod, signature_of)
        if matters or (entry.pod.labels, entry.pod.annotations) != (pod.labels, pod.annotations):
            self._failed.shorten(entry, now_s)
        self._no_fit.update(entry, pod)
        if entry.gang is not None:
            self.gangs.join(entry)
        if entry.state is PodState.IN_FLIGHT:
            entry.gone = False
            entry.changed |= matters
        elif matters or entry.state is PodState.GATED:
            self._reconsider(entry, now_s)

    def delete(self, uid: str) -> None:
        """Remove a pod; no effect if it is absent. If it is in flight, it is removed when the attempt ends."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        if entry.state is PodState.IN_FLIGHT:
            entry.gone = True
        else:
            self._leave(entry)
            self._drop(entry)

    # Attempts

    def pop(self, now_s: float) -> QueuedPod | None:
        """The next pod to decide, now IN_FLIGHT; None if no pod is ready. Flushes first."""
        self.flush(now_s)
        entry = self._active.pop()
        if entry is None:
            return None
        return self._taken(entry)

    def first(self) -> Pod | None:
        """The pod that `pop` would return now, without a flush; None if no pod is ready."""
        first = self._active.first()
        return None if first is None else first[1].pod

    def ready(self, may_bind: Callable[[str], bool], now_s: float) -> Pod | None:
        """The pod that `pop` would return now; None if no pod is ready. Flushes first.

        Then the best THROTTLED pod of the namespaces that may bind becomes ACTIVE again, in its position.
        """
        self.flush(now_s)
        if self._throttled and (entry := self._throttled.take(may_bind)) is not None:
            entry.state = PodState.ACTIVE
            self._active.push(entry, entry.sort_key)
        return self.first()

    def throttle(self, may_bind: Callable[[str], bool]) -> bool:
        """Throttle the next pod if its namespace may not bind, so that others pass it. Returns whether it was."""
        first = self._active.first()
        if first is None or may_bind(first[1].pod.key.namespace):
            return False
        self._active.discard(first[1])
        first[1].state = PodState.THROTTLED
        self._throttled.add(first[1])
        return True

    def next_unreported(self, failing: Callable[[str], str]) -> Pod | None:
        """The best THROTTLED pod whose message does not name how its namespace fails; it counts as reported now."""
        entry = self._throttled.next_unreported(failing)
        return None if entry is None else entry.pod

    def done(self, uid: str) -> None:
        """Remove the pod in flight, which is bound or deleted."""
        self._drop(self._in_flight(uid))

    def unschedulable(
        self,
        uid: str,
        signature: Hashable,
        now_s: float,
        *,
        wakes_on: int,
        minimum: MinimumRequest = NO_MINIMUM,
        rejected: bool = False,
    ) -> None:
        """Record that the pod in flight is unschedulable. Do not call this after an await since `pop`: see the module.

        signature: equal for pods that every rule treats alike, not None. wakes_on: bits of changes that can help; 0 if
        no change of the cluster can. minimum: minimum request on a row. rejected: it fits, but was rejected for a
        reason outside the cluster's state.
        """
        entry = self._in_flight(uid)
        entry.no_fits += 1
        entry.errors = 0
        if entry.gone:
            self._drop(entry)
        elif entry.changed:
            self._admit(entry, now_s)
        elif rejected:
            self._no_fit.back_off(entry, now_s)
        else:
            self._no_fit.add(entry, signature if wakes_on else None, now_s, wakes_on, minimum)

    def preemption_failed(self, uid: str, now_s: float) -> None:
        """Back off an UNSCHEDULABLE pod for which preemption could make no room. No effect in other states."""
        entry = self._entries.get(uid)
        if entry is not None and entry.state is PodState.UNSCHEDULABLE:
            self._no_fit.remove(entry)
            self._no_fit.back_off(entry, now_s)

    def try_again(self, uid: str, now_s: float) -> None:
        """Make an UNSCHEDULABLE pod ACTIVE. No effect in other states."""
        entry = self._entries.get(uid)
        if entry is not None and entry.state is PodState.UNSCHEDULABLE:
            self._no_fit.remove(entry)
            self._activate(entry, now_s)

    def failed(self, uid: str, now_s: float, *, longest_s: float = 0.0) -> None:
        """Back off the pod in flight after a failed attempt, for example a rejected bind.

        longest_s: longest back-off, if above the default; such a back-off is cut short when the pod changes in fields
        that a policy may read.
        """
        entry = self._in_flight(uid)
        entry.errors += 1
        if entry.gone:
            self._drop(entry)
        elif entry.changed and self._gate_message(entry.pod):
            self._admit(entry, now_s)
        else:
            self._failed.add(entry, now_s, longest_s=longest_s)

    def flush(self, now_s: float) -> None:
        """Activate pods whose back-off has ended, and pods that have been UNSCHEDULABLE for 5 minutes.

        Pods of a gang that others have changed are held, or become ready.
        """
        for key in self.gangs.members.take_grown():
            self._open(key, now_s)
            self.try_gang_again(key, now_s)
        for key in self.gangs.members.take_shrunk():
            self._hold_gang(key, now_s)
        for entry in self._failed.take_ready(now_s):
            self._activate(entry, now_s)
        for entry in self._no_fit.take_ready(now_s):
            self._activate(entry, now_s)

    def next_ready_s(self) -> float | None:
        """Time when `flush` will next activate a pod, possibly in the past; None if never."""
        ends_s = (self._failed.next_ready_s(), self._no_fit.next_ready_s())
        return min((end_s for end_s in ends_s if end_s is not None), default=None)

    # Gangs

    def ready_of_gang(self, key: GangKey) -> int:
        """Number of pods that `take` would take now."""
        return sum(self._may_be_taken(entry) for entry in self.gangs.waiting(key))

    def take(self, uid: str) -> QueuedPod | None:
        """Take the pod of a gang, now IN_FLIGHT; None if it cannot be decided now: gated, after an error, or gone."""
        entry = self._entries.get(uid)
        if entry is None or not self._may_be_taken(entry):
            return None
        self._leave(entry)
        return self._taken(entry)

    def errors(self, uid: str) -> int:
        """Consecutive attempts of the pod that failed, other than for lack of room."""
        return 0 if (entry := self._entries.get(uid)) is None else entry.errors

    def is_as_taken(self, uid: str) -> bool:
        """Whether the pod in flight was neither deleted nor changed in a way that may matter."""
        entry = self._entries.get(uid)
        return entry is not None and not (entry.gone or entry.changed)

    def back_off_gang(self, uid: str, key: GangKey, ready_s: float) -> None:
        """Back off the ACTIVE pod, and with it others of its gang that are ACTIVE."""
        for entry in (self._entries[uid], *self.gangs.waiting(key)):
            if entry.state is PodState.ACTIVE:
                self._active.discard(entry)
                self._no_fit.back_off_until(entry, ready_s)

    def hold(self, uid: str, now_s: float) -> None:
        """Gate an ACTIVE pod again if too few pods of its gang exist now."""
        entry = self._entries[uid]
        self._active.discard(entry)
        self._admit(entry, now_s)

    def try_gang_again(self, key: GangKey, now_s: float) -> None:
        """Make the pods of the gang ACTIVE that are UNSCHEDULABLE or back off with it, in their new position."""
        for entry in self.gangs.waiting(key):
            if entry.state in _TRIED_AGAIN and entry not in self._failed:
                self._leave(entry)
                self._activate(entry, now_s)

    # Changes of the cluster

    def note_events(self, events: ClusterEvents) -> None:
        self._no_fit.note(events)

    @property
    def has_hints(self) -> bool:
        """Whether any noted event or due hint may help a waiting pod."""
        return self._no_fit.has_hints

    def next_hint(self, left: Available) -> QueueingHint | None:
        """The next hint to evaluate; None if the next pod may be popped.

        Answer it with `fits`, `fits_not` or `reclassify`; if it is `of_signature`, with `confirm` or `reclassify`. The
        class of the best waiting pod comes first. left: currently available amounts of rows.
        """
        if not self._no_fit.has_hints:
            return None
        head = self._active.first()
        return self._no_fit.next_hint(None if head is None else head[0], left)

    def awaits_hint(self, signature: Hashable) -> bool:
        """Whether a hint of this class is due. signature: as passed to `unschedulable`."""
        return self._no_fit.awaits_hint(signature)

    def fits(self, hint: QueueingHint, now_s: float) -> None:
        """Record that `hint.pod` fits, so that the best pod of its class is popped next."""
        entry = self._no_fit.wake(hint)
        if entry is not None:
            self._activate(entry, now_s)
            if self.gangs.starts_together(entry.pod):
                # Its attempt takes the others along.
                self._no_fit.sleep(hint, 0)

    def fits_not(self, hint: QueueingHint, *, wakes_on: int) -> None:
        """Record that `hint.pod` fits on none of `hint.rows`, until the next event. wakes_on: see `unschedulable`."""
        self._no_fit.sleep(hint, wakes_on)

    def confirm(self, hint: QueueingHint) -> None:
        """Record that `hint.pod` still has this signature."""
        self._no_fit.confirm(hint)

    def reclassify(
        self, hint: QueueingHint, signature: Hashable, minimum: MinimumRequest, *, retry_after_s: float | None = None
    ) -> None:
        """Record that `hint.pod` has another signature now, because rules may read other objects together with the pod.

        retry_after_s: retry it in any case, then or when its back-off has ended, so that its message stays true.
        """
        self._no_fit.reclassify(hint, signature, minimum, retry_after_s)

    def pass_over(self, uid: str, until_s: float) -> None:
        """Do not count the pod, or pods behind it in its group, as starving until `until_s`."""
        if (entry := self._entries.get(uid)) is not None:
            self.longest.pass_over(entry, entry.signature, until_s)

    def lengths(self) -> dict[str, int]:
        """Number of pods for each value of the label `queue` in kube-scheduler's metric scheduler_pending_pods."""
        return {
            "active": len(self._active) + len(self._throttled) - self._throttled.reported,
            "backoff": len(self._failed) + len(self._no_fit.backing_off) + self._throttled.reported,
            "unschedulable": len(self._no_fit.unschedulable),
            "gated": len(self._gated),
        }

    def state(self, uid: str) -> PodState | None:
        """State of the pod; None if it is absent."""
        return entry.state if (entry := self._entries.get(uid)) is not None else None

    def __iter__(self) -> Iterator[Entry]:
        """All pods in order of arrival; read-only."""
        return iter(self._entries.values())

    def gate(self, uid: str) -> str:
        """PreEnqueue's message for a GATED pod, otherwise ""."""
        entry = self._entries.get(uid)
        if entry is None or entry.state is not PodState.GATED:
            return ""
        return self._gate_message(entry.pod) or self.gangs.lacks(entry.pod)

    def validate(self) -> None:
        """Recompute every cross-reference. Raises TransitionError for the first error."""
        self._no_fit.validate()
        homes: tuple[tuple[PodState, Collection[Entry]], ...] = (
            (PodState.GATED, self._gated),
            (PodState.ACTIVE, self._active),
            (PodState.THROTTLED, self._throttled),
            (PodState.BACKING_OFF, self._failed),
            (PodState.BACKING_OFF, self._no_fit.backing_off),
            (PodState.UNSCHEDULABLE, self._no_fit.unschedulable),
        )
        homes_are_right(self._entries, homes)

    def _may_be_taken(self, entry: Entry) -> bool:
        return entry.state not in _NOT_TAKEN and entry not in self._failed

    def _taken(self, entry: Entry) -> QueuedPod:
        self._no_fit.popped()
        entry.state = PodState.IN_FLIGHT
        entry.attempts += 1
        entry.changed = entry.edited = False
        return QueuedPod(entry.pod, entry.attempts, entry.first_queued_s)

    def _drop(self, entry: Entry) -> None:
        if entry.gang is not None:
            self.gangs.members.note_gone(entry.gang.key)
            self.gangs.leave(entry)
        del self._entries[entry.pod.key.uid]

    def _hold_gang(self, key: GangKey, now_s: float) -> None:
        """Gate UNSCHEDULABLE pods of the gang, if too few exist now."""
        for entry in self.gangs.waiting(key):
            if entry.state is PodState.UNSCHEDULABLE and self.gangs.lacks(entry.pod):
                self._no_fit.remove(entry)
                self._admit(entry, now_s)
        if self.gangs.held(key):
            self.gangs.tell_later(key, now_s)

    def _open(self, key: GangKey, now_s: float) -> None:
        """Activate pods of the gang that were held, if enough exist now."""
        for entry in self.gangs.take_held(key):
            del self._gated[entry]
            entry.gate = ""
            self._activate(entry, now_s)

    def _in_flight(self, uid: str) -> Entry:
        entry = self._entries.get(uid)
        if entry is None or entry.state is not PodState.IN_FLIGHT:
            raise TransitionError(f"pod {uid} is {'absent' if entry is None else entry.state.name}; expected IN_FLIGHT")
        return entry

    def _admit(self, entry: Entry, now_s: float) -> None:
        """Move a pod that is in no collection to GATED or ACTIVE."""
        gang = entry.pod.gang
        entry.gate = self._gate_message(entry.pod)
        if entry.gate:
            self.gangs.leave(entry)
        elif gang is not None:
            self.gangs.join(entry)
            entry.gate = self.gangs.lacks(entry.pod)
        if entry.gate:
            entry.state = PodState.GATED
            # Its arrival is when the gate opens.
            entry.sequence = 0
            self._gated[entry] = None
            self.gangs.hold(entry, now_s)
        else:
            self._activate(entry, now_s)
            if gang is not None:
                self._open(gang.key, now_s)

    def _activate(self, entry: Entry, now_s: float) -> None:
        if not entry.sequence:
            self._arrivals += 1
            entry.sequence = self._arrivals - (_TRIED_ALREADY if entry.pod.nominated_node else 0)
        gang = entry.pod.gang
        # A gang in part holds room that is of no use until its other pods have theirs.
        ahead = _TRIED_ALREADY if gang is not None and self.gangs.is_in_part(gang.key) else 0
        entry.sort_key = (self._queue_sort(entry.pod), entry.sequence - ahead)
        entry.state, entry.reported = PodState.ACTIVE, ""
        entry.queued_s = now_s
        entry.first_queued_s = min(entry.first_queued_s, now_s)
        entry.waits_since_s = min(entry.waits_since_s, now_s)
        self._active.push(entry, entry.sort_key)

    def _reconsider(self, entry: Entry, now_s: float) -> None:
        """Requeue a pod after an update, if it is not in flight."""
        if entry in self._failed and not self._gate_message(entry.pod):
            return
        was_tried = entry.state in {PodState.UNSCHEDULABLE, PodState.BACKING_OFF}
        self._leave(entry)
        if was_tried and self._failed.changes_too_often(entry, now_s) and not self._gate_message(entry.pod):
            self._failed.add_changed(entry)
        else:
            self._admit(entry, now_s)

    def _leave(self, entry: Entry) -> None:
        """Remove the pod from every collection except `_entries`."""
        self._gated.pop(entry, None)
        self._active.discard(entry)
        self._throttled.discard(entry)
        self._failed.discard(entry)
        self._no_fit.remove(entry)

    def _matters(self, old: Pod, new: Pod, signature_of: Callable[[Pod], Hashable]) -> bool:
        return any(look(old) != look(new) for look in (signature_of, self._queue_sort, self._gate_message))

    def _gate_message(self, pod: Pod) -> str:
        return gate_message(self._pre_enqueue, pod)
