"""Tells the owners of held pods that too few pods of their gang exist. Pure."""

from collections.abc import Sequence
from math import inf
from typing import ClassVar

from scheduler.core.agenda import BackgroundWork
from scheduler.core.effects import Effect, Unschedulable
from scheduler.core.shared import Shared
from scheduler.framework.diagnosis import Diagnosis


class HeldGangs(BackgroundWork):
    """Messages of gangs that have been held for some seconds: most are complete sooner."""

    rest: ClassVar[float] = 1.0

    def __init__(self, shared: Shared) -> None:
        self._tables, self._gangs = shared.tables, shared.queue.gangs

    def due_s(self) -> float:
        first = self._gangs.untold.first()
        return inf if first is None else first[0]

    def step(self, now_s: float) -> Sequence[Effect]:
        """Tell the owners of the pods of one gang."""
        first = self._gangs.untold.first()
        if first is None or first[0] > now_s:
            return ()
        self._gangs.untold.discard(first[1])
        nodes = len(self._tables.row_of)
        held = self._gangs.held(first[1])
        return [Unschedulable(one.pod, Diagnosis(nodes, rejected=self._gangs.lacks(one.pod))) for one in held]
