"""The search for a history in which a rule fails, and for the smallest one. hypothesis draws and shrinks."""

import time
from dataclasses import dataclass
from typing import Final

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity

from scheduler.framework.answers import PluginError
from scheduler.framework.plugin import Plugin, PluginArgs
from scheduler.testkit.broken import RuleBroken, message
from scheduler.testkit.history import Failure, History, run
from scheduler.testkit.profiles import Company, profile_with
from scheduler.testkit.strategies import histories
from scheduler.testkit.suspects import suspect
from scheduler.testkit.values import Choices

_LONGEST_SHRINKING_S: Final = 30.0


@dataclass(slots=True)
class Best:
    """The smallest failing history so far. until_s: when looking for a smaller one ends."""

    history: History | None = None
    failure: Failure | None = None
    company: Company = Company.ALONE
    until_s: float = 0.0

    @property
    def size(self) -> tuple[int, int]:
        """Less is smaller."""
        if self.history is None or self.failure is None:
            return (1 << 30, 0)
        settings = [setting for probe in self.history.probes for setting in probe]
        return (len(self.failure.story), sum(map(len, map(str, self.failure.story))) + 10 * len(settings))


def search(rule: type[Plugin], args: PluginArgs, choices: Choices, *, steps: int, examples: int, seed: int) -> None:
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
        if best.history is not None and time.monotonic() > best.until_s:
            return
        for company in Company:
            failure = run(history, profile_with(rule, args, company))
            if failure is not None:
                _keep(best, history, failure, company)
                raise RuleBroken

    try:
        holds()
    except Exception:
        # Also when hypothesis finds that the last example fails no longer, since the time is over.
        if best.history is None or best.failure is None:
            raise
    if best.history is not None and best.failure is not None:
        raise _error(rule, args, best.history, best.failure, best.company, seed)


def _keep(best: Best, history: History, failure: Failure, company: Company) -> None:
    now_s = time.monotonic()
    candidate = Best(history, failure, company, best.until_s or now_s + _LONGEST_SHRINKING_S)
    if best.failure is None or candidate.size <= best.size:
        best.history, best.failure, best.company, best.until_s = history, failure, company, candidate.until_s


def _error(
    rule: type[Plugin], args: PluginArgs, history: History, failure: Failure, company: Company, seed: int
) -> Exception:
    cause = suspect(rule, args, history, failure, company)
    text = message(rule, failure, company, cause, seed)
    if isinstance(failure.error, PluginError):
        failure.error.add_note(text)
        return failure.error
    broken = RuleBroken(text)
    broken.__cause__ = failure.error
    return broken
