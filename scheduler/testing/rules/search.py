"""The search for a history in which a rule fails, and for the smallest one. hypothesis draws and shrinks."""

import sys
import time
from dataclasses import dataclass, field
from typing import Final

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity

from scheduler.framework.answers import PluginError
from scheduler.framework.plugin import Plugin, PluginArgs
from scheduler.testing.rules.broken import RuleBroken, message
from scheduler.testing.rules.history import Failure, History, reduced, run
from scheduler.testing.rules.profiles import Company, profile_with
from scheduler.testing.rules.strategies import histories
from scheduler.testing.rules.suspects import suspect
from scheduler.testing.rules.values import Choices

_REDUCING_S: Final = 5.0


class _TimeIsOver(BaseException):
    """hypothesis lets it through, and so stops to shrink."""


@dataclass(slots=True)
class Best:
    """The smallest failing history so far. until_s: end of the search for a smaller one."""

    history: History = field(default_factory=lambda: History(()))
    failure: Failure | None = None
    company: Company = Company.ALONE
    until_s: float = 0.0

    @property
    def size(self) -> tuple[int, int]:
        """Less is smaller."""
        if self.failure is None:
            return (sys.maxsize, 0)
        settings = [setting for probe in self.history.probes for setting in probe]
        return (len(self.failure.log), sum(map(len, map(str, self.failure.log))) + 10 * len(settings))


def search(
    rule: type[Plugin], args: PluginArgs, choices: Choices, *, steps: int, examples: int, seed: int, shrink_s: float
) -> None:
    """Raises RuleBroken or PluginError; see check_rule."""
    best = Best()

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @hypothesis.given(histories(choices, steps))
    def holds(history: History) -> None:
        if best.failure is not None and time.monotonic() > best.until_s:
            raise _TimeIsOver
        for company in Company if best.failure is None else (best.company,):
            failure = run(history, profile_with(rule, args, company))
            if failure is not None:
                _keep(best, history, failure, company, time.monotonic() + shrink_s)
                raise RuleBroken

    try:
        holds()
    except (_TimeIsOver, Exception):
        if best.failure is None:
            raise
    if best.failure is not None:
        raise _error(rule, args, best, _reduce(rule, args, best, best.failure), seed)


def _keep(best: Best, history: History, failure: Failure, company: Company, until_s: float) -> None:
    best.until_s = best.until_s or until_s
    if Best(history, failure).size <= best.size:
        best.history, best.failure, best.company = history, failure, company


def _reduce(rule: type[Plugin], args: PluginArgs, best: Best, failure: Failure) -> Failure:
    """Drop unnecessary parts: hypothesis gives up after a number of vain tries."""
    until_s = time.monotonic() + _REDUCING_S
    kind = failure.kind

    def fails(history: History) -> bool:
        nonlocal failure
        if time.monotonic() > until_s:
            return False
        found = run(history, profile_with(rule, args, best.company))
        failure = found if found is not None and found.kind is kind else failure
        return found is not None and found.kind is kind

    best.history = reduced(History(best.history.steps[: failure.step], best.history.probes), fails)
    return failure


def _error(rule: type[Plugin], args: PluginArgs, best: Best, failure: Failure, seed: int) -> Exception:
    cause = suspect(rule, args, best.history, failure, best.company)
    text = message(rule, failure, best.company, cause, seed)
    if isinstance(failure.error, PluginError):
        failure.error.add_note(text)
        return failure.error
    broken = RuleBroken(text)
    broken.__cause__ = failure.error
    return broken
