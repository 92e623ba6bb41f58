"""Re-evaluation of waiting pods in the background.

It keeps the messages of unschedulable pods true. It is not an attempt: the pod keeps its state, and nothing is counted
or booked. A round over all waiting pods begins every minute; in it, pods of one class share a result. Pure. Owned by
the event loop; no method awaits. now_s: monotonic seconds.
"""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from math import inf
from typing import ClassVar, Final, TypeAlias

import msgspec
from cachetools import LRUCache

from scheduler.core.agenda import BackgroundWork
from scheduler.core.effects import Effect, LostWakeup, Reevaluated
from scheduler.core.hints import Hints
from scheduler.core.preemption_searches import Help, Searches
from scheduler.core.shared import Shared
from scheduler.framework.diagnosis import Diagnosis
from scheduler.pods.pod import Pod
from scheduler.queue.entry import Entry, PodState

# Between the beginnings of two rounds.
EVERY_S: Final = 60.0
_MOST_KNOWN: Final = 4096
# Pods without a step of their own, such as those of a class that is known.
_AT_ONCE: Final = 64

_Version: TypeAlias = tuple[int, int, int, int]


class _Evaluation(msgspec.Struct, frozen=True):
    pod: Pod
    key: Hashable
    steps: Iterator[Diagnosis | Help | None]


class Reevaluation(BackgroundWork):
    """Background evaluation of waiting pods in rounds, one step at a time. A round without changes is left out."""

    rest: ClassVar[float] = 19.0

    def __init__(self, shared: Shared, searches: Searches, hints: Hints) -> None:
        self._shared = shared
        self._hints = hints
        self._tables, self._queue, self._nominations = shared.tables, shared.queue, shared.nominations
        self._searches = searches
        # Pods that are left in this round.
        self._round: deque[Entry] = deque()
        self._began_s = -inf
        # At the beginning of the round; None if the next round is not to be left out.
        self._version: _Version | None = None
        # Results of this round.
        self._known: LRUCache[Hashable, Diagnosis | None] = LRUCache(_MOST_KNOWN)
        self._evaluation: _Evaluation | None = None

    def due_s(self) -> float:
        if self._round:
            return -inf
        return inf if self._current_version == self._version else self._began_s + EVERY_S

    def step(self, now_s: float) -> Sequence[Effect]:
        """Begin a round, evaluate its next pods, or continue the current evaluation."""
        if not self._round:
            self._began_s, self._version = now_s, self._current_version
            self._known.clear()
            self._round = deque(self._queue)
        for _ in range(min(_AT_ONCE, len(self._round))):
            entry = self._round[0]
            effects = self._evaluate(entry, now_s)
            if self._evaluation is not None:
                break
            self._round.popleft()
            if effects:
                return effects
        return ()

    def _evaluate(self, entry: Entry, now_s: float) -> Sequence[Effect]:
        pod = entry.pod
        if self._queue.state(pod.key.uid) is not PodState.UNSCHEDULABLE or entry.queued_s > self._began_s:
            self._evaluation = None
            return ()  # an attempt in this round is news enough
        if self._evaluation is None:
            key = self._key(pod)
            if key in self._known:
                found = self._known[key]
                return () if found is None else (Reevaluated(pod, found),)
            self._evaluation = _Evaluation(pod, key, self._searches.evaluate(pod))
        return self._continue(self._evaluation, now_s)

    @property
    def _current_version(self) -> _Version:
        """Version that stays equal as long as every result is valid.

        Does not count changes made only to show the tables as one pod sees them.
        """
        tables, nominations = self._tables, self._nominations
        version = tables.changes.version - nominations.views
        return version, nominations.version, tables.budgets.version, tables.references

    def _key(self, pod: Pod) -> Hashable:
        """Return a key that is equal for pods that get the same message."""
        its_own = pod.key.uid if self._nominations.of(pod.key.uid) is not None else ""
        shares = pod.key.namespace if self._nominations.closed() else ""
        return self._shared.class_of(pod), pod.priority, pod.preempts, shares, its_own

    def _continue(self, evaluation: _Evaluation, now_s: float) -> Sequence[Effect]:
        pod, self._evaluation = evaluation.pod, None
        found: Diagnosis | Help | None = None
        with self._nominations.seen_by(pod):
            for found in evaluation.steps:
                if found is None:
                    self._evaluation = evaluation
                break
        if isinstance(found, Help):
            # Not cached: the attempt that follows changes the tables.
            self._version = None
            return (LostWakeup(pod),) if self._rescue(pod, found, now_s) else ()
        if self._evaluation is None:
            self._known[evaluation.key] = found
        return () if found is None else (Reevaluated(pod, found),)

    def _rescue(self, pod: Pod, helps: Help, now_s: float) -> bool:
        """Retry a waiting pod that an attempt would help. Returns whether its wake-up was lost.

        A wake-up does not count as lost while a hint or search that may help the pod is still due.
        """
        if self._hints.due or (helps is Help.PREEMPTION and not self._searches.overlooks(pod)):
            return False
        self._queue.try_again(pod.key.uid, now_s)
        return True
