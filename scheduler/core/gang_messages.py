"""Tells the owners of a gang's pods why they wait: too few exist, or one does not fit. Pure."""

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, ClassVar, Final

from scheduler.core.agenda import BackgroundWork
from scheduler.core.effects import Effect, Unschedulable
from scheduler.core.shared import Shared
from scheduler.framework.diagnosis import Diagnosis
from scheduler.pods.gang import GangKey
from scheduler.queue.entry import PodState

if TYPE_CHECKING:
    from scheduler.pods.pod import Pod

_AT_ONCE: Final = 32


class GangMessages(BackgroundWork):
    """Messages of gangs: after an attempt in vain at once, of held gangs after some seconds; some pods in each step."""

    rest: ClassVar[float] = 1.0

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._queue, self._gangs = shared.queue, shared.queue.gangs
        self._failed: dict[GangKey, Diagnosis] = {}
        self._left: deque[tuple[Pod, Diagnosis]] = deque()

    def failed(self, key: GangKey, reason: Diagnosis) -> None:
        """Tell the owners of the gang's pods the reason of the attempt in vain."""
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
        told = [self._left.popleft() for _ in range(min(_AT_ONCE, len(self._left)))]
        waits = {PodState.GATED, PodState.GATHERED}
        return [Unschedulable(pod, why) for pod, why in told if self._queue.state(pod.key.uid) in waits]

    def _begin(self, now_s: float) -> None:
        """Take the pods of the next gang."""
        if self._failed:
            key = next(iter(self._failed))
            reason = self._failed.pop(key)
            self._left.extend((entry.pod, reason) for entry in self._gangs.gathered_of(key))
            return
        for key in self._gangs.untold.pop_until(now_s):
            nodes = len(self._shared.tables.row_of)
            for entry in self._gangs.held(key):
                why, numbers = self._gangs.gate(entry.pod)
                self._left.append((entry.pod, Diagnosis(nodes, rejected=why, tail=numbers)))
            return
