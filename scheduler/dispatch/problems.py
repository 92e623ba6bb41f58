"""Reports of invalid objects and failed cards: one log line, one Event and one count each."""

from collections.abc import Callable
from typing import Final

import structlog
from cachetools import LRUCache, TTLCache

from scheduler.dispatch.event_outbox import EventOutbox
from scheduler.kube.problem import Problem
from scheduler.metrics.observer import ServiceObserver

_MOST_REPORTED: Final = 4096
# A previous leader may not have reported problems this recent; it has reported older ones.
_UNREPORTED_S: Final = 120.0

log = structlog.get_logger()


class Problems:
    """Reports of problems. Only the leader reports; the other replicas see the same problems."""

    def __init__(self, observer: ServiceObserver, events: EventOutbox, now_s: Callable[[], float]) -> None:
        """now_s: monotonic seconds."""
        self._observer = observer
        self._events = events
        self._leads = False
        # By hash, because new mistakes keep coming and each text is long.
        self._reported: LRUCache[int, bool] = LRUCache(maxsize=_MOST_REPORTED)
        self._unreported: TTLCache[Problem, bool] = TTLCache(_MOST_REPORTED, _UNREPORTED_S, timer=now_s)

    def begin(self) -> None:
        """Start to report, because this replica leads now."""
        self._leads = True
        for problem in list(self._unreported):
            self.report(problem)
        self._unreported.clear()

    def report(self, problem: Problem) -> None:
        """Report a problem. A lasting problem is reported only once, an occurrence each time."""
        if not self._leads:
            self._unreported[problem] = True
        elif problem.happened:
            log.warning(problem.happened, pod=problem.name, problem=problem.message)
            self._events.about(problem.kind, problem.name, problem.uid, problem.reason, problem.message)
        elif (known := hash(problem)) not in self._reported:
            self._reported[known] = True
            self.report_each_time(problem)

    def report_each_time(self, problem: Problem) -> None:
        """Report a problem each time."""
        self._observer.bad_object(problem.kind)
        log.warning("object.bad", kind=problem.kind, name=problem.name, problem=problem.message)
        if problem.on_object:
            self._events.about(problem.kind, problem.name, problem.uid, problem.reason, problem.message)
