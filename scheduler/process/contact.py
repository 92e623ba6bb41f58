"""Time since which the API server does not serve a request: for readiness, metrics and the log of both programs.

    WORKS --failed--> FAILS since then, for a reason --recovered--> WORKS

Owned by the event loop; values that another thread reads are replaced, never changed.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from scheduler.process.series import Label, Series

# The requests that bind, which a `Contact` shows alongside the watches.
BINDINGS: Final = "bindings"
_MOST_REASONS: Final = 16


@dataclass(frozen=True, slots=True)
class _State:
    """answered_s: of the last answer, or of the start. failing_since_s: None while it works."""

    answered_s: float
    failing_since_s: float | None = None
    reason: str = ""

    def failing_s(self, now_s: float) -> float:
        """Duration of the failure, 0 while it works."""
        return 0.0 if self.failing_since_s is None else now_s - self.failing_since_s


class Contact:
    """API connectivity by request: a watch, by the name of its kind, or another request that may fail."""

    def __init__(self, watches: Iterable[str], now_s: Callable[[], float]) -> None:
        """now_s: monotonic seconds."""
        self._now_s = now_s
        self._watches = frozenset(watches)
        self._states = {request: _State(now_s()) for request in sorted(self._watches)}
        self._told: dict[str, set[str]] = {}

    def answered(self, request: str) -> None:
        """Note an answer. A failure may continue: a list has to be complete."""
        self._states[request] = replace(self._state(request), answered_s=self._now_s())

    def recovered(self, request: str) -> None:
        """Note that it works again, or for the first time."""
        if request in self._watches:
            self._states[request] = _State(self._now_s())
        else:
            self._states.pop(request, None)
        self._told.pop(request, None)

    def failed(self, request: str, reason: str) -> bool:
        """Note a failure. True for a reason that is new since the last recovery."""
        now_s, before = self._now_s(), self._state(request)
        since_s = now_s if before.failing_since_s is None else before.failing_since_s
        self._states[request] = replace(before, failing_since_s=since_s, reason=reason)
        told = self._told.setdefault(request, set())
        is_new = reason not in told and len(told) < _MOST_REASONS
        if is_new:
            told.add(reason)
        return is_new

    def problem(self, longer_than_s: float) -> str:
        """The request that has failed longer than that, for how long, and why; "" for none."""
        now_s = self._now_s()
        late = {r: state for r, state in self._states.items() if state.failing_s(now_s) > longer_than_s}
        if not late:
            return ""
        longest_s = max(state.failing_s(now_s) for state in late.values())
        reasons = "; ".join(dict.fromkeys(state.reason for state in late.values()))
        return f"the API server has not served {', '.join(sorted(late))} for {longest_s:.0f} s: {reasons}"

    def ages_s(self) -> list[tuple[str, float, float]]:
        """(request, seconds since the last answer, seconds for which it has failed)."""
        now_s = self._now_s()
        return [(r, now_s - state.answered_s, state.failing_s(now_s)) for r, state in list(self._states.items())]

    def _state(self, request: str) -> _State:
        return self._states.get(request) or _State(self._now_s())


def contact_series(prefix: str) -> tuple[Series, Series]:
    """Age of the last answer, and for how long requests fail. prefix: of the names of the program's metrics."""
    labels = (Label("request", "watches, and the few other requests that are failing"),)
    return (
        Series(
            name=f"{prefix}api_last_answer_age_seconds",
            kind="gauge",
            says="Time since the API server last sent something; a quiet watch has a bookmark about every minute.",
            labels=labels,
        ),
        Series(
            name=f"{prefix}api_failing_seconds",
            kind="gauge",
            says="How long the API server has not answered, or has rejected requests; 0 while it answers.",
            labels=labels,
        ),
    )


class ContactCollector(Collector):
    """The metrics of a Contact."""

    def __init__(self, prefix: str, contact: Contact) -> None:
        """prefix: as `contact_series`."""
        self._series = contact_series(prefix)
        self._contact = contact

    def describe(self) -> list[Metric]:
        """No names: they are not checked for duplicates."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Two gauges, by request."""
        answered, failing = (one.gauges() for one in self._series)
        for request, age_s, failing_s in self._contact.ages_s():
            answered.add_metric([request], age_s)
            failing.add_metric([request], failing_s)
        yield from (answered, failing)
