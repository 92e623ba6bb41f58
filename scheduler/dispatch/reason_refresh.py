"""Background re-evaluation of waiting pods, which keeps their messages true.

    rest ── a few milliseconds at a time ──▶ re-evaluate pod after pod ── other reasons ──▶ recorder
      ▲──────────── 19 times as long as that took ─────────────────┘

It has the lowest priority: it pauses while earlier messages wait to be written.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from scheduler.core.engine import Engine
from scheduler.dispatch.recorder import Recorder
from scheduler.metrics.observer import ServiceObserver

# Rest if no pod is due.
_IDLE_S: Final = 1.0
_SLICE_S: Final = 0.001
# Rest as a multiple of the work, which thus takes a twentieth of the loop; and the shortest rest.
_REST: Final = 19
_LEAST_REST_S: Final = 0.05
# Per slice: 80 pods per second, each with at most two writes.
_MOST_CORRECTED: Final = 4
_MOST_PENDING: Final = 8


class ReasonRefresh:
    """The background re-evaluation, which runs until cancelled."""

    def __init__(
        self,
        engine: Engine,
        recorder: Recorder,
        observer: ServiceObserver,
        *,
        now_s: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        """now_s: monotonic seconds. wake: called when there is something to decide."""
        self._engine = engine
        self._recorder = recorder
        self._observer = observer
        self._now_s = now_s
        self._wake = wake

    async def run(self) -> None:
        """Alternate between re-evaluating pods and resting."""
        while True:
            rest_s = self.slice()
            await asyncio.sleep(rest_s)

    def slice(self) -> float:
        """Re-evaluate pods for a few milliseconds. Returns how many seconds to rest afterwards."""
        began_s, corrected = self._now_s(), 0
        while self._recorder.pending_soon < _MOST_PENDING and corrected < _MOST_CORRECTED:
            reevaluated = self._engine.reevaluation.step(began_s)
            if reevaluated is None:
                return _IDLE_S
            if reevaluated.help is not None and self._engine.rescue(reevaluated, began_s):
                self._observer.lost_wakeup(reevaluated.pod)
                self._wake()
            if reevaluated.diagnosis is not None and self._recorder.update_reasons(
                reevaluated.pod, reevaluated.diagnosis
            ):
                self._observer.unschedulable(reevaluated.pod, reevaluated.diagnosis)
                corrected += 1
            if self._now_s() - began_s > _SLICE_S:
                break
        return max(_LEAST_REST_S, _REST * (self._now_s() - began_s))
