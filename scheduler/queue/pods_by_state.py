"""Pods of the queue by state, and their moves between states. The inner part of the scheduling queue.

Owned by the event loop. No method awaits, so each one is atomic. now_s: monotonic seconds, never decreasing.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from scheduler.pods.gang import GangKey
from scheduler.pods.pod import Pod, TransitionError
from scheduler.queue.entry import Entry, PodState, QueuedPod, SortKey, by_priority
from scheduler.queue.gangs import Gangs, Standing
from scheduler.queue.gates import NO_GATES, Gate, gate_message
from scheduler.queue.heap import Heap
from scheduler.queue.homes import homes_are_right
from scheduler.queue.throttled_pods import FailedPods, ThrottledPods
from scheduler.queue.unschedulable_pods import UnschedulablePods
from scheduler.state.gang_members import GangMembers

# More than will ever arrive: pods with a nomination sort before the others.
_TRIED_ALREADY: Final = 1 << 48


class PodsByState:
    """All pods of the queue; see `SchedulingQueue` for the states."""

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
        self._gathered: dict[Entry, None] = {}
        self.gangs = Gangs(members or GangMembers())
        self._throttled = ThrottledPods()
        self._no_fit = UnschedulablePods(initial_backoff_s=initial_backoff_s, max_backoff_s=max_backoff_s)
        self.longest = self._no_fit.longest
        self._arrivals = 0

    def __contains__(self, uid: object) -> bool:
        """Whether the pod is in any state, including in flight."""
        return uid in self._entries

    def lengths(self) -> dict[str, int]:
        """Number of pods for each value of the label `queue` in kube-scheduler's metric scheduler_pending_pods."""
        return {
            "active": len(self._active) + len(self._throttled) - self._throttled.reported,
            "backoff": len(self._failed) + len(self._no_fit.backing_off) + self._throttled.reported,
            "unschedulable": len(self._no_fit.unschedulable) + len(self._gathered),
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
        return self._gate_message(entry.pod) or ". ".join(filter(None, self.gangs.gate(entry.pod))).removesuffix(".")

    def validate(self) -> None:
        """Recompute every cross-reference. Raises TransitionError for the first error."""
        self._no_fit.validate()
        self.gangs.validate()
        homes: tuple[tuple[PodState, Collection[Entry]], ...] = (
            (PodState.GATED, self._gated),
            (PodState.GATHERED, self._gathered),
            (PodState.ACTIVE, self._active),
            (PodState.THROTTLED, self._throttled),
            (PodState.BACKING_OFF, self._failed),
            (PodState.BACKING_OFF, self._no_fit.backing_off),
            (PodState.UNSCHEDULABLE, self._no_fit.unschedulable),
        )
        homes_are_right(self._entries, homes)

    # Gangs

    def settle_gangs(self, now_s: float) -> None:
        """Take over changes of gangs: some of their pods move to other states."""
        if self.gangs.settled:
            return
        for entry in self.gangs.take_misplaced(now_s):
            self._leave(entry)
            self._admit(entry, now_s)
        for entry in self.gangs.take_led(now_s):
            self._leave(entry)
            self._activate(entry, now_s)

    def leads(self, uid: str) -> bool:
        """Whether the next attempt for this pod is one for its gang."""
        entry = self._entries.get(uid)
        return entry is not None and self.gangs.is_led_by(entry)

    def regather(self, uid: str, now_s: float) -> None:
        """Move an ACTIVE pod to where its gang wants it."""
        entry = self._entries[uid]
        self._leave(entry)
        self._admit(entry, now_s)

    def give_back(self, uid: str, now_s: float) -> None:
        """Gather the pod in flight again, which was taken for an attempt of its gang that failed."""
        entry = self._in_flight(uid)
        if entry.gone:
            self._drop(entry)
        elif entry.changed or entry.pod.gang is None or self._gate_message(entry.pod):
            self._admit(entry, now_s)
        else:
            self.gangs.join(entry)
            self._gather(entry, now_s)

    def gang_tried(self, key: GangKey, now_s: float, took_s: float, *, failed: bool) -> None:
        """Record an attempt of a gang, which took `took_s`."""
        leader = self.gangs.tried(key, now_s, took_s, failed=failed)
        if leader is not None:
            self._leave(leader)
            self._gather(leader, now_s)

    def take(self, uid: str, key: GangKey) -> QueuedPod | None:
        """Take a pod of the gang for its attempt, now IN_FLIGHT; None if it no longer waits for that."""
        entry = self._entries.get(uid)
        if entry is None or entry.gang is None or entry.gang.key != key:
            return None
        if entry.state is not PodState.GATHERED and not self.gangs.is_led_by(entry):
            return None
        self._leave(entry)
        return self._taken(entry)

    def in_flight(self, uid: str) -> QueuedPod | None:
        """The pod in flight; None if it was deleted or changed in a way that may matter."""
        entry = self._entries.get(uid)
        if entry is None or entry.state is not PodState.IN_FLIGHT or entry.gone or entry.changed:
            return None
        return QueuedPod(entry.pod, entry.attempts, entry.first_queued_s)

    # Helpers of both parts

    def _taken(self, entry: Entry) -> QueuedPod:
        self._no_fit.popped()
        self.gangs.leave(entry)
        entry.state = PodState.IN_FLIGHT
        entry.attempts += 1
        entry.changed = entry.edited = False
        return QueuedPod(entry.pod, entry.attempts, entry.first_queued_s)

    def _drop(self, entry: Entry) -> None:
        self.gangs.leave(entry)
        self.gangs.change(entry.pod)
        del self._entries[entry.pod.key.uid]

    def _in_flight(self, uid: str) -> Entry:
        entry = self._entries.get(uid)
        if entry is None or entry.state is not PodState.IN_FLIGHT:
            raise TransitionError(f"pod {uid} is {'absent' if entry is None else entry.state.name}; expected IN_FLIGHT")
        return entry

    def _admit(self, entry: Entry, now_s: float) -> None:
        """Move a pod that is in no collection to GATED or ACTIVE."""
        message, standing = self._gate_message(entry.pod), Standing.ALONE
        if message:
            self.gangs.leave(entry)
        else:
            standing = self.gangs.join(entry)
            message = self.gangs.gate(entry.pod)[0] if standing is Standing.HELD else ""
        entry.gate = message
        if standing is not Standing.ALONE and entry.attempts:
            self.gangs.not_alone.append(entry.pod)
        if message:
            entry.state = PodState.GATED
            # Its arrival is when the gate opens.
            entry.sequence = 0
            self._gated[entry] = None
        elif standing is Standing.TOGETHER:
            self._gather(entry, now_s)
        else:
            self._activate(entry, now_s)

    def _activate(self, entry: Entry, now_s: float) -> None:
        self._ready(entry, PodState.ACTIVE, now_s)
        self._active.push(entry, entry.sort_key)

    def _gather(self, entry: Entry, now_s: float) -> None:
        self._ready(entry, PodState.GATHERED, now_s)
        self._gathered[entry] = None

    def _ready(self, entry: Entry, state: PodState, now_s: float) -> None:
        if not entry.sequence:
            self._arrivals += 1
            entry.sequence = self._arrivals - (_TRIED_ALREADY if entry.pod.nominated_node else 0)
        gang = entry.gang
        # A gang in part holds room that is of no use until its other pods have theirs.
        in_part = gang is not None and self.gangs.is_in_part(gang.key, self.gangs.minimum(gang.key))
        entry.sort_key = (self._queue_sort(entry.pod), entry.sequence - (_TRIED_ALREADY if in_part else 0))
        entry.state, entry.reported = state, ""
        entry.queued_s = now_s
        entry.first_queued_s = min(entry.first_queued_s, now_s)
        entry.waits_since_s = min(entry.waits_since_s, now_s)

    def _leave(self, entry: Entry) -> None:
        """Remove the pod from every collection except `_entries`."""
        self._gated.pop(entry, None)
        self._gathered.pop(entry, None)
        self._active.discard(entry)
        self._throttled.discard(entry)
        self._failed.discard(entry)
        self._no_fit.remove(entry)

    def _gate_message(self, pod: Pod) -> str:
        return gate_message(self._pre_enqueue, pod)
