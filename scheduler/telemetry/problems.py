"""Objects that cannot be read as they are, and cards that fail: one log line, one Event, one count each."""

from collections.abc import Callable
from typing import Final

import structlog
from cachetools import LRUCache

from scheduler.event_handlers import Problem
from scheduler.telemetry.observer import ServiceObserver
from scheduler.telemetry.recorder import Recorder

_MOST_REPORTED: Final = 4096

log = structlog.get_logger()


class Problems:
    """leads: whether this replica speaks; the others see the same."""

    def __init__(self, observer: ServiceObserver, recorder: Recorder, leads: Callable[[], bool]) -> None:
        """Nothing reported."""
        self._observer = observer
        self._recorder = recorder
        self._leads = leads
        self._reported: LRUCache[Problem, bool] = LRUCache(maxsize=_MOST_REPORTED)

    def report(self, problem: Problem) -> None:
        """Tell it, once unless it is something that happens."""
        if not self._leads():
            return
        if problem.happened:
            log.warning("card.failed", pod=problem.name, problem=problem.message)
            self._recorder.about(problem.kind, problem.name, problem.uid, problem.reason, problem.message)
        elif problem not in self._reported:
            self._reported[problem] = True
            self.tell(problem)

    def tell(self, problem: Problem) -> None:
        """Tell it, however often."""
        self._observer.bad_object(problem.kind)
        log.warning("object.bad", kind=problem.kind, name=problem.name, problem=problem.message)
        if problem.on_object:
            self._recorder.about(problem.kind, problem.name, problem.uid, problem.reason, problem.message)
