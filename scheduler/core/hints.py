"""Queueing hints: which of the waiting pods fits after a change of the cluster. Pure.

    cluster events ─▶ queue: classes that they may help ─▶ hint: a pod of the class fits ─▶ its best pod is decided next

Also passes the events to the searches for victims and to the nomination checks. Owned by the event loop; no method
awaits.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from scheduler.core.agenda import Rank, Work
from scheduler.core.effects import Effect, Nominate
from scheduler.core.nomination_checks import NominationChecks
from scheduler.core.preemption_searches import Searches
from scheduler.core.shared import Shared
from scheduler.framework.runtime import Signature
from scheduler.pods.pod import Pod
from scheduler.queue.waking import QueueingHint
from scheduler.state.amounts import AvailableOnRows

T = TypeVar("T")


class Hints(Work):
    """The hints of all waiting pods."""

    def __init__(self, shared: Shared, searches: Searches, checks: NominationChecks) -> None:
        self._shared = shared
        self._tables, self._queue = shared.tables, shared.queue
        self._searches = searches
        self._checks = checks
        self._left = AvailableOnRows(shared.tables)
        # The pod that a hint woke last, and the version of the tables at that time.
        self._woken = ("", -1)

    def rank(self, now_s: float) -> Rank | None:  # noqa: ARG002 - the same at any time
        """Return a rank: only the step finds out whether there is a hint."""
        return 0

    def step(self, now_s: float, now_ns: int) -> Sequence[Effect] | None:  # noqa: ARG002 - writes no annotation
        """Evaluate one hint for pods that sort before the next pod to decide."""
        if self._shared.pending:
            return _taken(self._shared.pending)
        self._tables.rejections.expire(now_s)
        self.note_cluster_events()
        self._queue.settle_gangs(now_s)
        for pod in _taken(self._queue.gangs.not_alone):
            self._forget_nomination(pod)
        for uid in self._searches.take_ready(now_s):
            self._queue.try_again(uid, now_s)
        for pod in _taken(self._shared.retries):
            self._queue.try_again(pod.key.uid, now_s)
        if self._checks.step():
            return ()
        hint = self._queue.next_hint(self._left)
        if hint is None:
            return None
        key = self._shared.class_of(hint.pod)
        if key != hint.signature:
            self._reclassify(hint, key, now_s)
        elif hint.of_signature:
            self._queue.confirm(hint)
        else:
            self._answer(hint, now_s)
        return ()

    @property
    def due(self) -> bool:
        """Whether a hint or an event that may help a waiting pod is still to be looked at."""
        return bool(self._tables.cluster_events or self._checks or self._shared.retries or self._queue.has_hints)

    def woke(self, pod: Pod) -> bool:
        """Return whether a hint woke the pod last, and the tables have not changed since."""
        return self._woken == (pod.key.uid, self._tables.changes.version)

    def note_cluster_events(self) -> None:
        """Pass new cluster events to the queue, the searches and the nomination checks."""
        if self._tables.cluster_events:
            events = self._tables.take_cluster_events()
            self._queue.note_events(events)
            self._searches.note_events(events)
            self._checks.note_events(events)

    def _forget_nomination(self, pod: Pod) -> None:
        """Drop what belongs to a pod that was placed alone and waits with its gang now."""
        self._searches.left(pod.key.uid)
        if self._shared.nominations.remove(pod.key.uid) is not None and pod.nominated_node:
            self._shared.pending.append(Nominate(pod))

    def _reclassify(self, hint: QueueingHint, key: tuple[str, Signature], now_s: float) -> None:
        pod, cycle = hint.pod, self._shared.cycles[hint.pod.scheduler_name]
        minimum = cycle.minimum_of_class(pod, key[1])
        # The state of the pod's claims changed, but still no node can take it, so its message is stale.
        stale = bool(pod.volumes.claims) and cycle.fits_nowhere(pod)
        self._queue.reclassify(hint, key, minimum, retry_after_s=now_s if stale else None)
        self._searches.reclassified(pod, key, minimum)

    def _answer(self, hint: QueueingHint, now_s: float) -> None:
        pod, cycle = hint.pod, self._shared.cycles[hint.pod.scheduler_name]
        rows = None if hint.rows is None else np.array(sorted(hint.rows), dtype=np.intp)
        with self._shared.nominations.seen_by(pod):
            fits, wakes_on = cycle.fits_on(pod, rows)
        if fits:
            self._woken = (pod.key.uid, self._tables.changes.version)
            self._queue.fits(hint, now_s)
        else:
            self._queue.fits_not(hint, wakes_on=wakes_on)


def _taken(found: list[T]) -> list[T]:
    taken = list(found)
    found.clear()
    return taken
