"""Pods that wait to be scheduled, by state, in scheduling order.

    absent ──▶ GATED ──PreEnqueue agrees──▶ ACTIVE ──pop──▶ IN_FLIGHT ──done──▶ absent
       │                                     ▲ ▲               │  │
       └────────────add_or_update────────────┘ │               │  ├─ failed (below) ──▶ BACKING_OFF ──┐
                                               │               └──┴─ unschedulable ──▶ UNSCHEDULABLE ─┤
                                               └────(back-off ended; woken, updated, left over)───────┘

    ACTIVE ◀──throttle──▶ THROTTLED
    GATED, GATHERED, or any state of a waiting pod: as its gang wants it (`gangs`).
    delete: any state ─▶ absent; from IN_FLIGHT after the attempt has ended.

    GATED:         PreEnqueue rejected it; called again when the pod changes. Or its gang is held.
    GATHERED:      waits for the attempt of its gang, whose leader is ACTIVE when it is ready.
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

from collections.abc import Callable, Hashable
from math import inf

from scheduler.pods.pod import Pod
from scheduler.queue.class_table import Available
from scheduler.queue.entry import Entry, PodState, QueuedPod, by_template
from scheduler.queue.gangs import Standing
from scheduler.queue.pods_by_state import PodsByState
from scheduler.queue.waking import QueueingHint
from scheduler.state.changes import ClusterEvents
from scheduler.state.minimum_request import NO_MINIMUM, MinimumRequest


class SchedulingQueue(PodsByState):
    """The queue; see the module. A method that does not apply to the pod's state raises TransitionError."""

    # Events of the pod itself

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
            self.gangs.change(pod)
            self._admit(entry, now_s)
            if entry.state is not PodState.GATED:
                entry.waits_since_s = min(entry.waits_since_s, since_s)
            return
        matters = self._matters(entry.pod, pod, signature_of)
        if entry.pod.gang != pod.gang or matters:
            self.gangs.change(entry.pod)
            self.gangs.change(pod)
        if matters or (entry.pod.labels, entry.pod.annotations) != (pod.labels, pod.annotations):
            self._failed.shorten(entry, now_s)
        self._no_fit.update(entry, pod)
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
        self.gangs.throttled(first[1])
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
        elif entry.changed or self.gangs.join(entry) is not Standing.ALONE:
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
            self.gangs.join(entry)
            self.gangs.change(entry.pod)
            self._failed.add(entry, now_s, longest_s=longest_s)

    def flush(self, now_s: float) -> None:
        """Activate pods whose back-off has ended, and pods that have been UNSCHEDULABLE for 5 minutes."""
        self.settle_gangs(now_s)
        for entry in self._failed.take_ready(now_s):
            self.gangs.change(entry.pod)
            self._admit(entry, now_s)
        for entry in self._no_fit.take_ready(now_s):
            self._activate(entry, now_s)

    def next_ready_s(self) -> float | None:
        """Time when `flush` will next activate a pod, possibly in the past; None if never."""
        ends_s = (self._failed.next_ready_s(), self._no_fit.next_ready_s(), self.gangs.next_ready_s())
        return min((end_s for end_s in ends_s if end_s is not None), default=None)

    # Changes of the cluster

    def note_events(self, events: ClusterEvents) -> None:
        self._no_fit.note(events)
        if self.gangs.asleep:
            self.gangs.note_events()

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

    def _reconsider(self, entry: Entry, now_s: float) -> None:
        """Requeue a pod after an update, if it is not in flight."""
        self.gangs.join(entry)
        if entry in self._failed and not self._gate_message(entry.pod):
            return
        was_tried = entry.state in {PodState.UNSCHEDULABLE, PodState.BACKING_OFF}
        self._leave(entry)
        if was_tried and self._failed.changes_too_often(entry, now_s) and not self._gate_message(entry.pod):
            self._failed.add_changed(entry)
        else:
            self._admit(entry, now_s)

    def _matters(self, old: Pod, new: Pod, signature_of: Callable[[Pod], Hashable]) -> bool:
        looks = (signature_of, self._queue_sort, self._gate_message)
        return old.gang != new.gang or any(look(old) != look(new) for look in looks)
