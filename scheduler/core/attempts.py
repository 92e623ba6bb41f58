"""Attempts: the best pod of the queue gets a node and cards, or waits. Pure.

    pop ─▶ cycle ─┬─ Placement ─▶ Bind (assumed; dispatch binds it, then reports bound or bind_failed)
                  └─ NoFit ─▶ queue, for an event that helps its class ─▶ PostFilter ─▶ Unschedulable, Evict, Nominate

Owned by the event loop; no method awaits.
"""

from collections.abc import Sequence
from typing import ClassVar

import msgspec

from scheduler.core.agenda import LAST, Rank, Work
from scheduler.core.effects import Bind, Delay, Effect
from scheduler.core.gang_attempts import GangAttempts
from scheduler.core.hints import Hints
from scheduler.core.preemption_searches import Searches
from scheduler.core.reservations import with_reservation
from scheduler.core.scheduling_cycle import NoFit, Outcome, Placement
from scheduler.core.shared import Shared
from scheduler.queue.entry import QueuedPod


class Decision(msgspec.Struct, frozen=True):
    """Outcome of one attempt. queued: the pod with its attempts and times."""

    queued: QueuedPod
    outcome: Outcome


class DelayedMessages(Work):
    """Messages of pods that are not placed, because Bindings of their namespace fail. After everything else."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    def rank(self, now_s: float) -> Rank | None:  # noqa: ARG002 - the same at any time
        """Return the last rank: only the step finds out whether there is a pod."""
        return LAST

    def step(self, now_s: float, now_ns: int) -> Sequence[Effect] | None:  # noqa: ARG002 - the same at any time
        """Delay the best pod whose message does not say so."""
        pod = self._shared.queue.next_unreported(self._shared.outlet.failing)
        return None if pod is None else (Delay(pod),)


class Attempts(Work):
    """The attempts of all pods of ours."""

    slice_s: ClassVar[float] = 0.005

    def __init__(self, shared: Shared, searches: Searches, hints: Hints, gangs: GangAttempts) -> None:
        self._gang_attempts = gangs
        self._shared = shared
        self._queue, self._nominations = shared.queue, shared.nominations
        self._searches = searches
        self._hints = hints

    def rank(self, now_s: float) -> Rank | None:
        """Return the priority of the next pod; None if no pod is ready."""
        first = self._queue.ready(self._shared.outlet.may_bind, now_s)
        return None if first is None else first.priority

    def step(self, now_s: float, now_ns: int) -> Sequence[Effect] | None:
        """Make one attempt for the next pod, with the first step of PostFilter if it does not fit.

        A pod that may not be bound now lets the others pass.
        """
        if self._queue.throttle(self._shared.outlet.may_bind):
            return ()
        first = self._queue.first()
        if first is not None and self._gang_attempts.begin(first, now_s):
            return ()
        decision = self.decide(now_s, now_ns)
        if decision is None:
            return None
        outcome = decision.outcome
        if isinstance(outcome, Placement):
            return (Bind(decision.queued, outcome),)
        return self._searches.post_filter(outcome, now_s, decision.queued.attempts)

    def decide(self, now_s: float, now_ns: int) -> Decision | None:
        """Make one attempt, without PostFilter and gangs; None if no pod is ready. now_ns: Unix nanoseconds."""
        queued = self._queue.pop(now_s)
        if queued is None:
            return None
        pod = queued.pod
        self._searches.left(pod.key.uid)
        cycle = self._shared.cycles[pod.scheduler_name]
        with self._nominations.seen_by(pod):
            kept = self._nominations.of(pod.key.uid)
            outcome = cycle.schedule(pod, now_ns, "" if kept is None else kept.node)
            if isinstance(outcome, Placement):
                self._nominations.remove(pod.key.uid)
            else:
                outcome = with_reservation(outcome, cycle, self._nominations)
        if isinstance(outcome, NoFit):
            self._wait(outcome, now_s)
        return Decision(queued, outcome)

    def _wait(self, no_fit: NoFit, now_s: float) -> None:
        pod, cycle = no_fit.pod, self._shared.cycles[no_fit.pod.scheduler_name]
        # Without this, a pod that a hint wakes and a rule then rejects would be retried forever.
        woken = self._hints.woke(pod)
        # Capacity that this attempt released when Permit rejected it must not wake the same pod.
        self._hints.note_cluster_events()
        key = self._shared.class_of(pod)
        minimum = cycle.minimum_of_class(pod, key[1])
        rejected = no_fit.by_permit or woken
        self._queue.unschedulable(pod.key.uid, key, now_s, wakes_on=no_fit.wakes_on, minimum=minimum, rejected=rejected)
