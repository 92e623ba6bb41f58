"""Attempts of gangs: pods that start together are placed in one transaction, which places enough of them or none. Pure.

    the leader is next ── begin ─▶ place: largest request first, then in reverse ─┬─ enough ─▶ Bind for each
                                               a step for each pod                └─ undone: all wait again

Nothing else is decided while a transaction is open, because its bookings may be undone. Watch events may arrive between
two steps: a pod that has been placed must still stand at the end.

A Binding that is rejected while other pods of the gang are bound is sent again, up to three times: until then the pod
keeps its place. Source of the order: kube-scheduler, schedule_one_podgroup.go, which also undoes everything.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from math import inf
from typing import ClassVar, Final, TypeAlias

from scheduler.core.agenda import FIRST, Rank, Work
from scheduler.core.effects import Bind, Effect, Unschedulable
from scheduler.core.gang_messages import GangMessages
from scheduler.core.preemption_searches import Searches
from scheduler.core.scheduling_cycle import NoFit, Placement
from scheduler.core.shared import Shared
from scheduler.framework.diagnosis import Diagnosis
from scheduler.pods.gang import GangKey
from scheduler.pods.pod import Pod
from scheduler.queue.backoff import backoff_s
from scheduler.queue.entry import Entry, QueuedPod
from scheduler.queue.gangs import Standing
from scheduler.queue.heap import Heap

_Placed: TypeAlias = list[tuple[QueuedPod, Placement]]
_Steps: TypeAlias = Generator[Sequence[Effect], None, None]
_MOST_SENT_AGAIN: Final = 3


class GangAttempts(Work):
    """The transaction of one gang at a time, and Bindings of gangs that are sent again."""

    slice_s: ClassVar[float] = 0.005

    def __init__(self, shared: Shared, searches: Searches, messages: GangMessages) -> None:
        self._shared = shared
        self._tables, self._queue, self._nominations = shared.tables, shared.queue, shared.nominations
        self._gangs = shared.queue.gangs
        self._searches = searches
        self._messages = messages
        self._open: _Steps | None = None
        # By UID: rejected Bindings, by the time when they are sent again, and how often they were.
        self._rejected: dict[str, Placement] = {}
        self._again: Heap[float, str] = Heap()
        self._sent_again: dict[str, int] = {}
        # Time of the current step.
        self._now_s = -inf
        self._now_ns = 0

    def rank(self, now_s: float) -> Rank | None:
        """Return the first rank while a transaction is open or a Binding is due."""
        due_s = self.next_ready_s()
        return FIRST if self._open is not None or (due_s is not None and due_s <= now_s) else None

    def next_ready_s(self) -> float | None:
        """Return the time from which a Binding is sent again; None if never."""
        first = self._again.first()
        return None if first is None else first[0]

    def begin(self, pod: Pod, now_s: float) -> bool:
        """Open the transaction of the next pod's gang, or let the pod wait; False if the pod may be placed alone."""
        if pod.gang is None or self._gangs.standing(pod) is Standing.ALONE:
            return False
        if self._queue.leads(pod.key.uid):
            self._open = self._transaction(pod.gang.key, self._gangs.begin(pod.gang.key), now_s)
        else:
            self._queue.regather(pod.key.uid, now_s)
        return True

    def step(self, now_s: float, now_ns: int) -> Sequence[Effect] | None:
        """Place the next pod of the gang, or end the transaction, a pod at a time; or send a Binding again."""
        self._now_s, self._now_ns = now_s, now_ns
        if self._open is None:
            return self._send_again()
        effects = next(self._open, None)
        if effects is None:
            self._open = None
        return effects or ()

    def keeps(self, placement: Placement, now_s: float) -> bool:
        """Keep the place of a pod whose Binding was rejected, if others of its gang are bound and wait for it."""
        pod, uid = placement.pod, placement.pod.key.uid
        tries = self._sent_again.pop(uid, 0)
        if pod.gang is None or tries == _MOST_SENT_AGAIN or not self._stands(placement):
            return False
        others, minimum = self._gangs.members.placed(pod.gang.key) - 1, self._minimum(pod)
        if not 0 < others < minimum or self._gangs.members.runs(pod.gang.key):
            return False
        self._rejected[uid], self._sent_again[uid] = placement, tries + 1
        self._again.push(uid, now_s + backoff_s(tries + 1, initial_s=1.0, max_s=10.0))
        return True

    def bound(self, uid: str) -> None:
        """Forget a pod that is bound."""
        self._sent_again.pop(uid, None)

    def _send_again(self) -> Sequence[Effect] | None:
        uid = next(self._again.pop_until(self._now_s), None)
        if uid is None:
            return None
        placement = self._rejected.pop(uid)
        queued = self._queue.in_flight(uid)
        if queued is not None and self._stands(placement):
            return (Bind(queued, placement),)
        self._sent_again.pop(uid, None)
        self._shared.give_up(placement.pod, self._now_s)
        return ()

    def _minimum(self, pod: Pod) -> int:
        """Return what the pod's gang needs, even if none of its pods waits."""
        return 0 if pod.gang is None else max(pod.gang.minimum, self._gangs.minimum(pod.gang.key))

    def _transaction(self, key: GangKey, pods: Sequence[Entry], began_s: float) -> _Steps:
        pods = sorted(pods, key=_size, reverse=True)  # equal ones keep their order
        minimum, told = self._gangs.minimum(key), None
        alike = len({id(entry.pod.template) for entry in pods}) <= 1
        for order in (pods,) if alike else (pods, pods[::-1]):
            placed: _Placed = []
            no_fit = yield from self._place(key, minimum, order, placed)
            stand = all(self._stands(placement) for _, placement in placed)
            if stand and self._lacks(key, minimum) <= 0:
                self._queue.gang_tried(key, self._now_s, 0.0, failed=False)
                yield from self._bind(placed)
                return
            if no_fit is not None:
                told = told or (no_fit[0], _reason(key, minimum, no_fit[1], len(placed)))
            yield from self._undo(placed)
        self._queue.gang_tried(key, self._now_s, self._now_s - began_s, failed=True)
        if told is not None:
            self._messages.failed(key, told[1])
            yield (Unschedulable(told[0].pod, told[1], told[0].attempts),)

    def _lacks(self, key: GangKey, minimum: int) -> int:
        return minimum - self._gangs.members.placed(key)

    def _place(
        self, key: GangKey, minimum: int, order: Sequence[Entry], placed: _Placed
    ) -> Generator[Sequence[Effect], None, tuple[QueuedPod, NoFit] | None]:
        """Place pods until the gang has enough or cannot have enough. Return the first one that does not fit."""
        first: tuple[QueuedPod, NoFit] | None = None
        for number, entry in enumerate(order):
            lacks = self._lacks(key, minimum)
            if lacks <= 0 or len(order) - number < lacks:
                break
            if (queued := self._queue.take(entry.pod.key.uid, key)) is None:
                continue
            outcome = self._schedule(queued.pod)
            if isinstance(outcome, Placement):
                placed.append((queued, outcome))
            else:
                first = first or (queued, outcome)
                self._queue.give_back(queued.pod.key.uid, self._now_s)
            yield ()
        return first

    def _schedule(self, pod: Pod) -> Placement | NoFit:
        self._searches.left(pod.key.uid)
        with self._nominations.seen_by(pod), self._gangs.members.unnoted():
            return self._shared.cycles[pod.scheduler_name].schedule(pod, self._now_ns)

    def _stands(self, placement: Placement) -> bool:
        """Return whether the pod and its node are still as they were when it was placed."""
        uid = placement.pod.key.uid
        record = self._tables.record(uid)
        assumed = record is not None and record.assumed and record.rivals is None
        return assumed and placement.node in self._tables.row_of and self._queue.in_flight(uid) is not None

    def _bind(self, placed: _Placed) -> _Steps:
        for queued, placement in placed:
            if self._stands(placement):
                yield (Bind(queued, placement),)
            else:
                self._release(placement.pod)
                yield ()

    def _undo(self, placed: _Placed) -> _Steps:
        for _, placement in reversed(placed):
            self._release(placement.pod)
            yield ()

    def _release(self, pod: Pod) -> None:
        """Undo a placement. What is released here was taken here, so nobody needs to hear of it."""
        uid = pod.key.uid
        before = self._tables.take_cluster_events()
        with self._gangs.members.unnoted():
            self._shared.cycles[pod.scheduler_name].unreserve(pod)
        self._tables.take_cluster_events()
        self._tables.cluster_events.add(before)
        if self._tables.record(uid) is not None:
            # Another scheduler bound it.
            self._queue.done(uid)
        else:
            self._queue.give_back(uid, self._now_s)


def _size(entry: Entry) -> tuple[int, int]:
    """Return the sort key: units per card, then cards."""
    request = entry.pod.template.gpu_request
    return (0, 0) if request is None else (request.units_per_card, request.cards)


def _reason(key: GangKey, minimum: int, no_fit: NoFit, placed: int) -> Diagnosis:
    """Return the message of all pods of a gang. placed: pods that fit before this one did not."""
    others = f"{placed} fit, then " if placed else ""
    tail = f"{key} needs {minimum} pods at once: {others}pod {no_fit.pod.key.name} does not fit."
    return replace(no_fit.diagnosis, tail=tail[0].upper() + tail[1:], tail_reasons=(str(key),))
