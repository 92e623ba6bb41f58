"""What waiting pods were told is looked at again, in the background: where it holds no longer, it is corrected.

    rest ── a few milliseconds at a time ──▶ judge pod after pod ── other reasons ──▶ recorder
      ▲──────────── 19 times as long as that has taken ────────────┘

It comes after everything else: nothing is corrected while what was said before waits to be written.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from scheduler.core.engine import Engine
from scheduler.dispatch.recorder import Recorder
from scheduler.metrics.observer import ServiceObserver

# When nobody is due.
_IDLE_S: Final = 1.0
_SLICE_S: Final = 0.001
# So many times as long as was reevaluated: a twentieth of the time is spent on it. And for so long at least.
_REST: Final = 19
_LEAST_REST_S: Final = 0.05
# In one slice: 80 in a second, each two writes at most.
_MOST_CORRECTED: Final = 4
_MOST_PENDING: Final = 8


class ReasonRefresh:
    """Runs until cancelled."""

    def __init__(
        self,
        engine: Engine,
        recorder: Recorder,
        observer: ServiceObserver,
        *,
        now_s: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        """now_s: monotonic seconds. wake: there is something to decide."""
        self._engine = engine
        self._recorder = recorder
        self._observer = observer
        self._now_s = now_s
        self._wake = wake

    async def run(self) -> None:
        """A slice, and a rest."""
        while True:
            rest_s = self.slice()
            await asyncio.sleep(rest_s)

    def slice(self) -> float:
        """Judge for a moment; how long to rest then."""
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
