"""Objects that cannot be read as they are, and cards that fail: one log line, one Event, one count each."""

from collections.abc import Callable
from typing import Final

import structlog
from cachetools import LRUCache, TTLCache

from scheduler.dispatch.recorder import Recorder
from scheduler.kube.problem import Problem
from scheduler.metrics.observer import ServiceObserver

_MOST_REPORTED: Final = 4096
# What a standby has seen for so long before it is elected, perhaps no leader has told; the older is told already.
_UNTOLD_S: Final = 120.0

log = structlog.get_logger()


class Problems:
    """Of all replicas the one that schedules tells them; the others see the same."""

    def __init__(self, observer: ServiceObserver, recorder: Recorder, now_s: Callable[[], float]) -> None:
        """now_s: monotonic seconds."""
        self._observer = observer
        self._recorder = recorder
        self._speaks = False
        # By hash: whoever makes mistakes makes ever new ones, and each is long.
        self._reported: LRUCache[int, bool] = LRUCache(maxsize=_MOST_REPORTED)
        self._untold: TTLCache[Problem, bool] = TTLCache(_MOST_REPORTED, _UNTOLD_S, timer=now_s)

    def begin(self) -> None:
        """From now on this replica tells them."""
        self._speaks = True
        for problem in list(self._untold):
            self.report(problem)
        self._untold.clear()

    def report(self, problem: Problem) -> None:
        """Tell it, once unless it is something that happens."""
        if not self._speaks:
            self._untold[problem] = True
        elif problem.happened:
            log.warning(problem.happened, pod=problem.name, problem=problem.message)
            self._recorder.about(problem.kind, problem.name, problem.uid, problem.reason, problem.message)
        elif (known := hash(problem)) not in self._reported:
            self._reported[known] = True
            self.tell(problem)

    def tell(self, problem: Problem) -> None:
        """Tell it, however often."""
        self._observer.bad_object(problem.kind)
        log.warning("object.bad", kind=problem.kind, name=problem.name, problem=problem.message)
        if problem.on_object:
            self._recorder.about(problem.kind, problem.name, problem.uid, problem.reason, problem.message)
