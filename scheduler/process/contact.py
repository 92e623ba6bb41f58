"""API connectivity: how long each kind of request has been failing, for readiness, metrics and logs of both programs.

    WORKS --failed--> FAILS since then, for a reason --recovered--> WORKS

Owned by the event loop; values that another thread reads are replaced, never changed.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from scheduler.process.series import Label, Series

# The bind requests, which a `Contact` reports alongside the watches.
BINDINGS: Final = "bindings"
_MOST_REASONS: Final = 16


@dataclass(frozen=True, slots=True)
class _State:
    """State of one kind of request. answered_s: time of the last answer, or of the start.

    failing_since_s: None while requests work.
    """

    answered_s: float
    failing_since_s: float | None = None
    reason: str = ""

    def failing_s(self, now_s: float) -> float:
        """Return for how long requests have failed; 0 while they work."""
        return 0.0 if self.failing_since_s is None else now_s - self.failing_since_s


class Contact:
    """API connectivity by kind of request: each watch, under the name of its kind, and other requests that may fail."""

    def __init__(self, watches: Iterable[str], now_s: Callable[[], float]) -> None:
        """now_s: monotonic seconds."""
        self._now_s = now_s
        self._watches = frozenset(watches)
        self._states = {request: _State(now_s()) for request in sorted(self._watches)}
        self._told: dict[str, set[str]] = {}

    def answered(self, request: str) -> None:
        """Record an answer. This does not end a failure: a list has to be complete."""
        self._states[request] = replace(self._state(request), answered_s=self._now_s())

    def recovered(self, request: str) -> None:
        """Record that requests work again, or for the first time."""
        if request in self._watches:
            self._states[request] = _State(self._now_s())
        else:
            self._states.pop(request, None)
        self._told.pop(request, None)

    def failed(self, request: str, reason: str) -> bool:
        """Record a failure. Returns True if the reason is new since the last recovery."""
        now_s, before = self._now_s(), self._state(request)
        since_s = now_s if before.failing_since_s is None else before.failing_since_s
        self._states[request] = replace(before, failing_since_s=since_s, reason=reason)
        told = self._told.setdefault(request, set())
        is_new = reason not in told and len(told) < _MOST_REASONS
        if is_new:
            told.add(reason)
        return is_new

    def problem(self, longer_than_s: float) -> str:
        """Return which request has failed for longer than this, for how long, and why; "" if none has."""
        now_s = self._now_s()
        late = {r: state for r, state in self._states.items() if state.failing_s(now_s) > longer_than_s}
        if not late:
            return ""
        longest_s = max(state.failing_s(now_s) for state in late.values())
        reasons = "; ".join(dict.fromkeys(state.reason for state in late.values()))
        return f"the API server has not served {', '.join(sorted(late))} for {longest_s:.0f} s: {reasons}"

    def ages_s(self) -> list[tuple[str, float, float]]:
        """Return (request, seconds since the last answer, seconds for which it has failed) for each kind."""
        now_s = self._now_s()
        return [(r, now_s - state.answered_s, state.failing_s(now_s)) for r, state in list(self._states.items())]

    def _state(self, request: str) -> _State:
        return self._states.get(request) or _State(self._now_s())


def contact_series(prefix: str) -> tuple[Series, Series]:
    """Return two metrics: age of the last answer, and how long requests have failed. prefix: of their names."""
    labels = (Label("request", "watches, and failing requests"),)
    return (
        Series(
            name=f"{prefix}api_last_answer_age_seconds",
            kind="gauge",
            says="Time since the API server last sent data; for a quiet watch, about a minute at most.",
            labels=labels,
        ),
        Series(
            name=f"{prefix}api_failing_seconds",
            kind="gauge",
            says="How long the API server has not answered or has rejected requests; 0 while it answers.",
            labels=labels,
        ),
    )


class ContactCollector(Collector):
    """Collector of the metrics of a Contact."""

    def __init__(self, prefix: str, contact: Contact) -> None:
        """prefix: as in `contact_series`."""
        self._series = contact_series(prefix)
        self._contact = contact

    def describe(self) -> list[Metric]:
        """Return no names, so that they are not checked for duplicates."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield two gauges, each with one value per request."""
        answered, failing = (one.gauges() for one in self._series)
        for request, age_s, failing_s in self._contact.ages_s():
            answered.add_metric([request], age_s)
            failing.add_metric([request], failing_s)
        yield from (answered, failing)
