"""Every pod of ours that has no place yet, and whose turn it is.

    absent ──▶ GATED ──PreEnqueue agrees──▶ ACTIVE ──pop──▶ IN_FLIGHT ──done──▶ absent
       │                                     ▲ ▲               │  │
       └────────────add_or_update────────────┘ │               │  ├─ failed, in vain ─▶ BACKING_OFF ──┐
                                               │               └──┴─ unschedulable ──▶ UNSCHEDULABLE ─┤
                                               └────(back-off ended; woken, updated, left over)───────┘

    ACTIVE ──hold_back──▶ HELD_BACK ──serve──▶ ACTIVE     IN_FLIGHT ──set_aside──▶ HELD_BACK
    delete: any state ─▶ absent; from IN_FLIGHT when the attempt has ended.

GATED:         PreEnqueue said no; asked again when the pod changes.
ACTIVE:        ready, by priority, then in the order of arrival (for a gated pod: of the gate's opening).
HELD_BACK:     ready, as ACTIVE, but its namespace's bindings get no answers, or fail: those of others go first.
BACKING_OFF:   failed, was shown a place in vain, or changed again and again; always served. Three counters: errors in
               a row, attempts without fit, changes of its own that were tried.
UNSCHEDULABLE: found no fit; waits for a check that shows a place, for an update, or for the leftover time (5 min).
IN_FLIGHT:     popped: being decided, then, with a place, being bound.

A pod keeps its place in the order of arrival, however often it is tried. One that comes with a nomination has been
tried already, by another process: it sorts before the others of its priority. One that cannot fit is not ACTIVE, so it
blocks nobody. Before the head of the active pods is popped, every class of waiting pods that sorts before it has been
asked whether what has opened can help it (`next_check`): a newcomer never takes what a better pod waits for.

kube-scheduler logs the events that arrive while a pod is in flight. Here nothing awaits from `pop` to `unschedulable`,
so no event can come between. A pod in flight with a place waits for none: if its bind fails, it backs off.

Owned by the event loop. No method awaits, so each one is atomic. now_s: monotonic seconds, never going back.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from math import inf
from typing import Final

from scheduler.pods.pod import Pod
from scheduler.pods.transitions import TransitionError
from scheduler.queue.class_table import Available
from scheduler.queue.entry import Entry, PodState, QueuedPod, SortKey, by_priority, by_template
from scheduler.queue.failed_pods import FailedPods
from scheduler.queue.gates import NO_GATES, Gate, gate_message
from scheduler.queue.heap import Heap
from scheduler.queue.held_back import HeldBackPods
from scheduler.queue.homes import homes_are_right
from scheduler.queue.unschedulable_pods import UnschedulablePods
from scheduler.queue.waking import Check
from scheduler.state.changes import Openings
from scheduler.state.minimum_request import NO_MINIMUM, MinimumRequest

# More than ever arrive: who comes with a nomination is in front.
_TRIED_ALREADY: Final = 1 << 48


class SchedulingQueue:
    """See the module. A verb in a state that does not have it raises TransitionError."""

    def __init__(
        self,
        *,
        initial_backoff_s: float = 1.0,
        max_backoff_s: float = 10.0,
        pre_enqueue: Mapping[str, Sequence[Gate]] = NO_GATES,
        queue_sort: Callable[[Pod], int] = by_priority,
    ) -> None:
        """Back-offs as in `backoff_s`, > 0. pre_enqueue: by scheduler name, asked in order.

        queue_sort: the least goes first, equals in the order of arrival; asked once, when a pod becomes active.
        """
        self._queue_sort = queue_sort
        self._pre_enqueue = pre_enqueue
        self._entries: dict[str, Entry] = {}
        self._active: Heap[SortKey, Entry] = Heap()
        self._failed = FailedPods(initial_backoff_s=initial_backoff_s, max_backoff_s=max_backoff_s)
        self._gated: dict[Entry, None] = {}
        self._held_back = HeldBackPods()
        self._no_fit = UnschedulablePods(initial_backoff_s=initial_backoff_s, max_backoff_s=max_backoff_s)
        self.judged, self.longest = self._no_fit.judged, self._no_fit.longest
        self._arrivals = 0

    # The pod's own events

    def __contains__(self, uid: str) -> bool:
        """Whether the pod is in any state, in flight included."""
        return uid in self._entries

    def add_or_update(
        self, pod: Pod, now_s: float, signature_of: Callable[[Pod], Hashable] = by_template, since_s: float = inf
    ) -> None:
        """A pod that waits for us was seen, with or without changes. In flight: the next attempt takes this version.

        A change matters that somebody looks at: a rule (its signature is another), a gate, or the order of the queue.
        signature_of: as `unschedulable` is told. A mere status change does not matter.
        since_s: when a pod that is new here, and not gated, began to wait; inf: now.
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
        if entry.state is PodState.IN_FLIGHT:
            entry.gone = False
            entry.changed |= matters
        elif matters or entry.state is PodState.GATED:
            self._reconsider(entry, now_s)

    def delete(self, uid: str) -> None:
        """The pod is gone or needs us no more; nothing when it is absent. In flight: forgotten when that ends."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        if entry.state is PodState.IN_FLIGHT:
            entry.gone = True
        else:
            self._leave(entry)
            del self._entries[uid]

    # Attempts

    def pop(self, now_s: float) -> QueuedPod | None:
        """The next pod to decide, now IN_FLIGHT; None when none is ready. Flushes first."""
        self.flush(now_s)
        entry = self._active.pop()
        if entry is None:
            return None
        self._no_fit.popped()
        entry.state = PodState.IN_FLIGHT
        entry.attempts += 1
        entry.changed = entry.edited = False
        return QueuedPod(entry.pod, entry.attempts, entry.first_queued_s)

    def first(self) -> Pod | None:
        """The pod that `pop` would give now, if nothing is flushed; None when none is ready."""
        first = self._active.first()
        return None if first is None else first[1].pod

    def hold_back(self, holds: Callable[[str], bool], now_s: float) -> bool:
        """Let others pass the next pod to decide, if `holds` its namespace; whether that was so."""
        self.flush(now_s)
        first = self._active.first()
        if first is None or not holds(first[1].pod.key.namespace):
            return False
        self._active.discard(first[1])
        self._hold(first[1])
        return True

    def serve(self, serves: Callable[[str], object], *, untold: bool = False) -> bool:
        """The best pod held back of the namespaces that `serves` is ACTIVE, in its old place; whether there is one.

        untold: of those alone that were not told yet what `serves` returns.
        """
        entry = self._held_back.take(serves, untold=untold) if self._held_back else None
        if entry is None:
            return False
        entry.state = PodState.ACTIVE
        self._active.push(entry, entry.sort_key)
        return True

    def done(self, uid: str) -> None:
        """The pod in flight is bound, or gone."""
        self._in_flight(uid)
        del self._entries[uid]

    def unschedulable(
        self,
        uid: str,
        signature: Hashable,
        now_s: float,
        *,
        wakes_on: int,
        minimum: MinimumRequest = NO_MINIMUM,
        in_vain: bool = False,
    ) -> None:
        """The pod in flight fits nowhere. Not to be called after an await since `pop`: see the module.

        signature: equal for pods that every rule answers alike, not None. wakes_on: bits of what can help; 0 when no
        change of the cluster can, only one of the pod. minimum: of a row that can help.
        in_vain: a place was there, and something other than the cluster's state refused it.
        """
        entry = self._in_flight(uid)
        entry.no_fits += 1
        entry.errors = 0
        if entry.gone:
            del self._entries[uid]
        elif entry.changed:
            self._admit(entry, now_s)
        elif in_vain:
            self._no_fit.back_off(entry, now_s)
        else:
            self._no_fit.add(entry, signature if wakes_on else None, now_s, wakes_on, minimum)

    def in_vain(self, uid: str, now_s: float) -> None:
        """A place was to be made for an UNSCHEDULABLE pod, and could not be: it backs off. Else nothing."""
        entry = self._entries.get(uid)
        if entry is not None and entry.state is PodState.UNSCHEDULABLE:
            self._no_fit.remove(entry)
            self._no_fit.back_off(entry, now_s)

    def try_again(self, uid: str, now_s: float) -> None:
        """An UNSCHEDULABLE pod is ACTIVE, whatever it waits for; else nothing."""
        entry = self._entries.get(uid)
        if entry is not None and entry.state is PodState.UNSCHEDULABLE:
            self._no_fit.remove(entry)
            self._activate(entry, now_s)

    def failed(self, uid: str, now_s: float, *, longest_s: float = 0.0) -> None:
        """The attempt in flight ended in an error, such as a refused bind. Backs off, whatever else happens.

        longest_s: how long the back-off may grow where that is longer than usual; such a one is cut short when the pod
        changes in what a policy may read.
        """
        entry = self._in_flight(uid)
        entry.errors += 1
        if not self._waits_no_longer(entry, now_s):
            self._failed.add(entry, now_s, longest_s=longest_s)

    def set_aside(self, uid: str, now_s: float, how: str) -> None:
        """The attempt in flight was not sent, for the bindings of its namespace fail: HELD_BACK, and told how."""
        entry = self._in_flight(uid)
        if not self._waits_no_longer(entry, now_s):
            entry.told = how
            self._hold(entry)

    # Time

    def flush(self, now_s: float) -> None:
        """Activate pods whose back-off ended, and those left UNSCHEDULABLE for 5 minutes."""
        for entry in self._failed.take_ready(now_s):
            self._activate(entry, now_s)
        for entry in self._no_fit.take_ready(now_s):
            self._activate(entry, now_s)

    def next_ready_s(self) -> float | None:
        """When `flush` will next activate a pod, past when it can already; None when no pod waits for time."""
        ends_s = (self._failed.next_ready_s(), self._no_fit.next_ready_s())
        return min((end_s for end_s in ends_s if end_s is not None), default=None)

    # Changes of the cluster

    def opened(self, openings: Openings) -> None:
        """Something may have become possible there."""
        self._no_fit.note(openings)

    @property
    def has_questions(self) -> bool:
        """Whether anything is noted or due that may help a waiting pod."""
        return self._no_fit.has_questions

    def next_check(self, left: Available) -> Check | None:
        """The next question; None when the next pod may be popped.

        The answer: `fits`, `fits_not` or `reclassify`; where it is `of_signature`, `confirm` or `reclassify`.
        Of the classes with something to ask, that of the best waiting pod comes first. left: what rows have left now.
        """
        if not self._no_fit.has_questions:
            return None
        head = self._active.first()
        return self._no_fit.next_check(None if head is None else head[0], left)

    def fits(self, check: Check, now_s: float) -> None:
        """`check.pod` fits: the best pod of its class is popped next."""
        entry = self._no_fit.wake(check)
        if entry is not None:
            self._activate(entry, now_s)

    def fits_not(self, check: Check, *, wakes_on: int) -> None:
        """Not on `check.rows`: the class is not asked again until something opens. wakes_on: as `unschedulable`."""
        self._no_fit.sleep(check, wakes_on)

    def confirm(self, check: Check) -> None:
        """`check.pod` still has this signature."""
        self._no_fit.confirm(check)

    def reclassify(
        self, check: Check, signature: Hashable, minimum: MinimumRequest, *, told_after_s: float | None = None
    ) -> None:
        """`check.pod` has another signature now: what a rule reads of a pod may depend on other objects.

        told_after_s: try it in any case, then or when its back-off has ended, so that its owner is told.
        """
        self._no_fit.reclassify(check, signature, minimum, told_after_s)

    def recheck(self, uid: str, now_s: float) -> None:
        """Check the signature of an UNSCHEDULABLE pod, then its class; try a pod that is in no class."""
        if not self._no_fit.recheck(self._entries.get(uid)):
            self.try_again(uid, now_s)

    def pass_over(self, uid: str, until_s: float) -> None:
        """The pod is not `starved` until then, nor are those of its class, priority and namespace behind it."""
        if (entry := self._entries.get(uid)) is not None:
            self.longest.pass_over(entry, entry.signature, until_s)

    # What is known

    def lengths(self) -> dict[str, int]:
        """Pods by the values that kube-scheduler's scheduler_pending_pods has for its label `queue`."""
        return {
            "active": len(self._active) + len(self._held_back) - self._held_back.told,
            "backoff": len(self._failed) + len(self._no_fit.backing_off) + self._held_back.told,
            "unschedulable": len(self._no_fit.unschedulable),
            "gated": len(self._gated),
        }

    def state(self, uid: str) -> PodState | None:
        """Where the pod is; None when absent."""
        return entry.state if (entry := self._entries.get(uid)) is not None else None

    def __iter__(self) -> Iterator[Entry]:
        """Every pod, as it came; read only."""
        return iter(self._entries.values())

    def gate(self, uid: str) -> str:
        """PreEnqueue's message for a GATED pod, else ""."""
        return entry.gate if (entry := self._entries.get(uid)) is not None else ""

    def validate(self) -> None:
        """Recompute every cross-reference; TransitionError names the first that is wrong."""
        self._no_fit.validate()
        homes: tuple[tuple[PodState, Collection[Entry]], ...] = (
            (PodState.GATED, self._gated),
            (PodState.ACTIVE, self._active),
            (PodState.HELD_BACK, self._held_back),
            (PodState.BACKING_OFF, self._failed),
            (PodState.BACKING_OFF, self._no_fit.backing_off),
            (PodState.UNSCHEDULABLE, self._no_fit.unschedulable),
        )
        homes_are_right(self._entries, homes)

    # The parts of the verbs

    def _in_flight(self, uid: str) -> Entry:
        entry = self._entries.get(uid)
        if entry is None or entry.state is not PodState.IN_FLIGHT:
            message = f"pod {uid} is {'absent' if entry is None else entry.state.name}; expected IN_FLIGHT"
            raise TransitionError(message)
        return entry

    def _waits_no_longer(self, entry: Entry, now_s: float) -> bool:
        """Whether a pod that is in no collection has gone, or is GATED now."""
        if entry.gone:
            del self._entries[entry.pod.key.uid]
        elif entry.changed and self._gate_message(entry.pod):
            self._admit(entry, now_s)
        else:
            return False
        return True

    def _hold(self, entry: Entry) -> None:
        entry.state = PodState.HELD_BACK
        self._held_back.add(entry)

    def _admit(self, entry: Entry, now_s: float) -> None:
        """Into GATED or ACTIVE, from no other collection."""
        message = self._gate_message(entry.pod)
        entry.gate = message
        if message:
            entry.state = PodState.GATED
            # Its place in the order of arrival is that of the gate's opening.
            entry.sequence = 0
            self._gated[entry] = None
        else:
            self._activate(entry, now_s)

    def _activate(self, entry: Entry, now_s: float) -> None:
        if not entry.sequence:
            self._arrivals += 1
            entry.sequence = self._arrivals - (_TRIED_ALREADY if entry.pod.nominated_node else 0)
        entry.sort_key = (self._queue_sort(entry.pod), entry.sequence)
        entry.state, entry.told = PodState.ACTIVE, ""
        entry.queued_s = now_s
        entry.first_queued_s = min(entry.first_queued_s, now_s)
        entry.waits_since_s = min(entry.waits_since_s, now_s)
        self._active.push(entry, entry.sort_key)

    def _reconsider(self, entry: Entry, now_s: float) -> None:
        """After an update outside of flight."""
        if entry in self._failed and not self._gate_message(entry.pod):
            return
        was_tried = entry.state in {PodState.UNSCHEDULABLE, PodState.BACKING_OFF}
        self._leave(entry)
        if was_tried and self._failed.changes_too_often(entry, now_s) and not self._gate_message(entry.pod):
            self._failed.add_changed(entry)
        else:
            self._admit(entry, now_s)

    def _leave(self, entry: Entry) -> None:
        """Out of every collection but `_entries`."""
        self._gated.pop(entry, None)
        self._active.discard(entry)
        self._held_back.discard(entry)
        self._failed.discard(entry)
        self._no_fit.remove(entry)

    def _matters(self, old: Pod, new: Pod, signature_of: Callable[[Pod], Hashable]) -> bool:
        return any(look(old) != look(new) for look in (signature_of, self._queue_sort, self._gate_message))

    def _gate_message(self, pod: Pod) -> str:
        return gate_message(self._pre_enqueue, pod)
