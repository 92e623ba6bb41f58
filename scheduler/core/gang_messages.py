"""Tells the owners of a gang's pods why they wait: too few exist, or one does not fit. Pure."""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from math import inf
from typing import ClassVar, Final

from scheduler.core.agenda import BackgroundWork
from scheduler.core.effects import Effect, Unschedulable
from scheduler.core.shared import Shared
from scheduler.framework.diagnosis import Diagnosis
from scheduler.pods.gang import GangKey
from scheduler.pods.pod import Pod
from scheduler.queue.entry import Entry, PodState

_AT_ONCE: Final = 32


class GangMessages(BackgroundWork):
    """Messages of gangs: at once after an attempt that failed, after some seconds if held; some pods in each step."""

    rest: ClassVar[float] = 1.0

    def __init__(self, shared: Shared) -> None:
        self._tables, self._queue, self._gangs = shared.tables, shared.queue, shared.queue.gangs
        self._failed: dict[GangKey, Diagnosis] = {}
        # Pods of one gang, and why its attempt failed; None if it is held.
        self._left: deque[Entry] = deque()
        self._why: Diagnosis | None = None

    def failed(self, key: GangKey, reason: Diagnosis) -> None:
        """Tell the owners of the gang's pods why its attempt failed."""
        self._failed[key] = reason

    def due_s(self) -> float:
        if self._left or self._failed:
            return -inf
        first = self._gangs.untold.first()
        return inf if first is None else first[0]

    def step(self, now_s: float) -> Sequence[Effect]:
        """Tell the owners of some pods."""
        if not self._left:
            self._begin(now_s)
        some = [self._left.popleft() for _ in range(min(_AT_ONCE, len(self._left)))]
        state = PodState.GATED if self._why is None else PodState.GATHERED
        waiting = [entry.pod for entry in some if self._queue.state(entry.pod.key.uid) is state]
        return [Unschedulable(pod, self._why or self._held(pod)) for pod in waiting]

    def _begin(self, now_s: float) -> None:
        """Take the pods of the next gang."""
        if self._failed:
            key = next(iter(self._failed))
            self._why = self._failed.pop(key)
            self._left.extend(self._gangs.gathered_of(key))
            return
        for key in islice(self._gangs.untold.pop_until(now_s), 1):
            self._why = None
            self._left.extend(self._gangs.held(key))

    def _held(self, pod: Pod) -> Diagnosis:
        why, numbers = self._gangs.gate(pod)
        return Diagnosis(len(self._tables.row_of), rejected=why, tail=numbers)
