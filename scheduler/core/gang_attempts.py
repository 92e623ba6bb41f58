"""Attempts of gangs: pods that start together are placed in one transaction, which places enough of them or none. Pure.

    Attempts ── begin ─▶ place: largest request first, then smallest first ─┬─ enough ─▶ Bind for each; others go alone
                                        a step for each pod                 └─ undone ─▶ Unschedulable for each

Nothing else is decided while a transaction is open, because its bookings may be undone. Watch events may arrive between
two steps: a pod that has been placed must still stand at the end. After a transaction in vain, no other one begins for
as long as it took, so gangs that do not fit take at most half of the time.
Source of the order: kube-scheduler, schedule_one_podgroup.go, which also undoes everything.
"""

from collections.abc import Generator, Sequence
from dataclasses import replace
from math import inf
from typing import ClassVar, TypeAlias

from scheduler.core.agenda import FIRST, Rank, Work
from scheduler.core.effects import Bind, Effect, Nominate, Unschedulable
from scheduler.core.preemption_searches import Searches
from scheduler.core.scheduling_cycle import NoFit, Placement
from scheduler.core.shared import Shared
from scheduler.framework.diagnosis import Diagnosis
from scheduler.pods.gang import GangKey
from scheduler.pods.pod import Pod
from scheduler.queue.entry import Entry, PodState, QueuedPod
from scheduler.state.changes import ANYTHING

_Placed: TypeAlias = list[tuple[QueuedPod, Placement]]
_Steps: TypeAlias = Generator[Sequence[Effect], None, None]


class GangAttempts(Work):
    """The transaction of one gang at a time."""

    slice_s: ClassVar[float] = 0.005

    def __init__(self, shared: Shared, searches: Searches) -> None:
        self._shared = shared
        self._tables, self._queue, self._nominations = shared.tables, shared.queue, shared.nominations
        self._gangs = shared.queue.gangs
        self._searches = searches
        self._open: _Steps | None = None
        self._rests_until_s = -inf
        # Time of the current step.
        self._now_s = -inf
        self._now_ns = 0

    def rank(self, now_s: float) -> Rank | None:  # noqa: ARG002 - the same at any time
        """Return the first rank while a transaction is open."""
        return None if self._open is None else FIRST

    def begin(self, pod: Pod, now_s: float) -> bool:
        """Open the transaction of the next pod's gang, or let the pod wait; False if the pod may be placed alone."""
        if pod.gang is None or not self._gangs.starts_together(pod):
            return False
        key = pod.gang.key
        if self._gangs.lacks(pod):
            self._nominations.remove(pod.key.uid)
            self._queue.hold(pod.key.uid, now_s)
        elif now_s < max(self._rests_until_s, self._gangs.ready_s(key)) or self._too_few_are_ready(key):
            self._queue.back_off_gang(pod.key.uid, key, self._gangs.back_off(key, now_s))
        else:
            self._open = self._transaction(key, now_s)
        return True

    def _too_few_are_ready(self, key: GangKey) -> bool:
        """Return whether others of the gang back off after errors, which does not last."""
        return self._queue.ready_of_gang(key) < self._gangs.needs(key)

    def step(self, now_s: float, now_ns: int) -> Sequence[Effect] | None:
        """Place the next pod of the gang, or end the transaction, a pod at a time."""
        if self._open is None:
            return None
        self._now_s, self._now_ns = now_s, now_ns
        effects = next(self._open, None)
        if effects is None:
            self._open = None
        return effects or ()

    def _transaction(self, key: GangKey, began_s: float) -> _Steps:
        pods = sorted(self._gangs.waiting(key), key=_size, reverse=True)  # equal ones keep their order
        reason = Diagnosis(0)
        for order in (pods, pods[::-1]) if _size(pods[0]) != _size(pods[-1]) else (pods,):
            placed: _Placed = []
            no_fit = yield from self._place(key, order, placed)
            if all(map(self._stands, placed)) and self._gangs.needs(key) <= 0:
                self._gangs.tried(key, self._now_s, in_vain=False)
                yield from self._bind(placed)
                self._queue.try_gang_again(key, self._now_s)
                return
            reason = self._reason(key, no_fit)
            yield from self._undo(placed)
        self._rests_until_s = self._now_s + (self._now_s - began_s)
        self._gangs.tried(key, self._now_s, in_vain=True)
        yield from self._tell(pods, reason)

    def _place(
        self, key: GangKey, order: Sequence[Entry], placed: _Placed
    ) -> Generator[Sequence[Effect], None, NoFit | None]:
        """Place pods until the gang has enough or cannot have enough. Return the first one that does not fit."""
        first: NoFit | None = None
        for number, entry in enumerate(order):
            needs = self._gangs.needs(key)
            if needs <= 0 or len(order) - number < needs:
                break
            if (queued := self._queue.take(entry.pod.key.uid)) is None:
                continue
            outcome = self._schedule(queued.pod)
            if isinstance(outcome, Placement):
                placed.append((queued, outcome))
            else:
                first = first or outcome
                self._wait(queued.pod)
            yield ()
        return first

    def _schedule(self, pod: Pod) -> Placement | NoFit:
        """Place the pod, where its place was kept after an error if that fits; no nomination stays."""
        uid = pod.key.uid
        self._searches.left(uid)
        with self._nominations.seen_by(pod):
            kept = self._nominations.of(uid)
            outcome = self._shared.cycles[pod.scheduler_name].schedule(pod, self._now_ns, kept.node if kept else "")
            self._nominations.remove(uid)
        if pod.nominated_node:
            self._shared.pending.append(Nominate(pod))
        return outcome

    def _stands(self, placed: tuple[QueuedPod, Placement]) -> bool:
        """Return whether the pod and its node are still as they were when it was placed."""
        placement = placed[1]
        uid = placement.pod.key.uid
        record = self._tables.record(uid)
        assumed = record is not None and record.assumed and record.rivals is None
        return assumed and placement.node in self._tables.row_of and self._queue.is_as_taken(uid)

    def _bind(self, placed: _Placed) -> _Steps:
        for one in placed:
            if self._stands(one):
                yield (Bind(*one),)
            else:
                self._release(one[1].pod)
                yield ()

    def _undo(self, placed: _Placed) -> _Steps:
        for _, placement in reversed(placed):
            self._release(placement.pod)
            yield ()

    def _release(self, pod: Pod) -> None:
        """Undo a placement. What is released here was taken here, so it wakes no pod."""
        before = self._tables.take_cluster_events()
        self._shared.cycles[pod.scheduler_name].unreserve(pod)
        self._tables.take_cluster_events()
        self._tables.cluster_events.add(before)
        self._wait(pod)

    def _wait(self, pod: Pod) -> None:
        """Let a taken pod wait for its gang's next attempt: room for any of them may let another one fit."""
        uid = pod.key.uid
        if self._tables.record(uid) is not None:
            # Another scheduler bound it.
            self._queue.done(uid)
            return
        key = self._shared.class_of(pod)
        minimum = self._shared.cycles[pod.scheduler_name].minimum_of_class(pod, key[1])
        self._queue.unschedulable(uid, key, self._now_s, wakes_on=ANYTHING, minimum=minimum)

    def _tell(self, pods: Sequence[Entry], reason: Diagnosis) -> _Steps:
        """Let all pods wait, and tell their owners why."""
        for entry in pods:
            uid = entry.pod.key.uid
            self._nominations.remove(uid)
            if self._queue.state(uid) is not PodState.UNSCHEDULABLE and self._queue.take(uid) is not None:
                self._wait(entry.pod)
            if self._queue.state(uid) is PodState.UNSCHEDULABLE:
                yield (Unschedulable(entry.pod, reason, entry.attempts),)

    def _reason(self, key: GangKey, no_fit: NoFit | None) -> Diagnosis:
        minimum, of_gang = self._gangs.minimum(key), str(key)
        if no_fit is None:
            reason = f"some of the {minimum} pods that {of_gang} needs are not ready"
            return Diagnosis(len(self._tables.row_of), rejected=reason)
        fit = self._gangs.members.placed(key)
        tail = (
            f"Only {fit} of the {minimum} pods that {of_gang} needs fit together; pod {no_fit.pod.key.name} does not."
        )
        return replace(no_fit.diagnosis, tail=tail, tail_reasons=(of_gang,))


def _size(entry: Entry) -> tuple[int, int]:
    """Return the sort key: units per card, then cards."""
    request = entry.pod.template.gpu_request
    return (0, 0) if request is None else (request.units_per_card, request.cards)
