"""Circuit state and in-flight limit of each namespace, based on the answers to its recent requests.

    NEW ──an answer──▶ CLOSED ──silent for 50 ms──▶ SLOW ──an answer──▶ CLOSED
     │                    │                          │
     └────────────────────┴──no definite answer──────┴──▶ OPEN ──an answer──▶ CLOSED

    NEW:    no answer is known yet. One request shows whether the namespace gets answers.
    CLOSED: at most three times as many requests as are free. So a namespace always leaves some for the next one: the
            first has three quarters of the limit, the next has three quarters of the rest.
    SLOW:   all its requests are in flight, more of its pods ask for one, and no answer has come. Its next pods wait in
            the queue without a message; they are served in order when an answer comes.
    OPEN:   a failure, or no answer for a second. After a pause, one request at a time (half-open); all open namespaces
            together have a quarter of the limit. Its next pods also let others pass, and get a message.

Each namespace starts with a congestion window of one request, and each answer adds one. The window is reset after a
second without requests, and after a failure. So if many namespaces start at once and hang, each uses one request. Pods
beyond the window wait in the queue, where pods of other namespaces pass them.

Over all namespaces: a request counts as possibly unanswered if its namespace is not CLOSED, or is currently silent.
A SLOW or OPEN namespace sends only while such requests fill less than three quarters of the limit; a NEW one, less than
fifteen sixteenths. So a namespace that gets answers can always send, and a new one soon, however many others hang at
once.

Only decides; `in_flight_limit` does the waiting. now_s: monotonic seconds.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, auto
from math import inf
from typing import Final

from cachetools import LRUCache

from scheduler.kube.port import ApiError, ApiThrottled

# A namespace at its limit that gets no answer for this long is SLOW, because its pods would keep others from being
# placed. A healthy server answers sooner. A false alarm costs nothing, because the namespace was only late.
_SLOW_S: Final = 0.05
# After this silence, its webhook is assumed to hang.
_SILENT_S: Final = 1.0
# After this time without requests, a namespace starts again. Source: RFC 2861, the TCP congestion window after idle
# time.
_IDLE_S: Final = 1.0
NO_ANSWER: Final = "no answer"
# One pod that no server can bind must not block the others of its namespace.
_FEWEST_PODS_OPEN: Final = 4
_MOST_REMEMBERED: Final = 4096


class CircuitState(IntEnum):
    """State of a namespace's circuit; see the module. An IntEnum, because ints hash faster as keys of counters."""

    NEW = auto()
    CLOSED = auto()
    SLOW = auto()
    OPEN = auto()


@dataclass(slots=True, kw_only=True)
class NamespaceLimiter:
    """State of a namespace with pods that are being bound.

    in_flight: requests. waiting: requests that ask to be sent. pods: being bound, with or without a request in flight.
    window: maximum number of requests in flight; grows with each answer. failures: number of consecutive requests
    without a definite answer. why: message of the last failure. paused_until_s: end of the pause. silent_since_s: time
    of the last definite answer, or of the first request after an idle time.
    """

    name: str
    state: CircuitState
    in_flight: int = 0
    waiting: int = 0
    pods: int = 0
    window: int = 1
    failures: int = 0
    why: str = ""
    paused_until_s: float = 0.0
    silent_since_s: float = 0.0


class NamespaceLimiters:
    """All namespaces; see the module. Owned by the event loop."""

    def __init__(self, most: int) -> None:
        """most: maximum number of requests in flight, >= 1."""
        self.in_flight = 0
        self._most = most
        self._most_open = max(1, most // 4)
        self._most_unanswered = {
            CircuitState.NEW: max(1, most - most // 16),
            CircuitState.SLOW: most - most // 4,
            CircuitState.OPEN: most - most // 4,
        }
        self._by_name: dict[str, NamespaceLimiter] = {}
        # Limiters with requests in flight.
        self._with_requests: dict[str, NamespaceLimiter] = {}
        self._open = 0  # number of OPEN namespaces
        self._sent_by: Counter[CircuitState] = Counter()
        self._waiting_by: Counter[CircuitState] = Counter()
        # By name: window, and time of the last answer.
        self._answered: LRUCache[str, tuple[int, float]] = LRUCache(_MOST_REMEMBERED)

    # Limits

    @property
    def free(self) -> int:
        """Number of further requests that may be in flight."""
        return self._most - self.in_flight

    @property
    def taken(self) -> int:
        """Number of requests in flight or waiting in CLOSED namespaces."""
        return self.in_flight + self.waiting(CircuitState.CLOSED)

    def waiting(self, state: CircuitState) -> int:
        """Number of requests that wait in namespaces of this state."""
        return self._waiting_by[state]

    def pause_reason(self, name: str) -> str:
        """Why no more pods of a namespace may be bound now; "" if they may.

        While a namespace fails, only a few of its pods try: each occupies room that other pods lack.
        """
        limiter = self._by_name.get(name)
        if limiter is None or limiter.state is not CircuitState.OPEN:
            return ""
        return limiter.why if limiter.pods >= self._most_pods_open else ""

    def has_room(self, name: str, now_s: float, starting: int = 0) -> bool:
        """Whether another pod of the namespace can send soon. starting: its pods that are about to be bound."""
        limiter = self._by_name.get(name) or self._new(name, now_s)
        match limiter.state:
            case CircuitState.NEW:
                return self._is_in_window(limiter) and self._may_stay_unanswered(limiter, now_s)
            case CircuitState.CLOSED:
                few = limiter.in_flight + limiter.waiting < max(1, self._share(limiter))
                return few and self._is_in_window(limiter)
            case CircuitState.SLOW:
                return False
            case CircuitState.OPEN:
                return limiter.pods + starting < self._most_pods_open

    def lets_pass(self, name: str, now_s: float) -> bool:
        """Whether pods of other namespaces go first, because this one cannot send another request now."""
        limiter = self._by_name.get(name)
        if limiter is not None and limiter.state is CircuitState.CLOSED:
            return not self._is_in_window(limiter)
        return not self.has_room(name, now_s)

    def may_send(self, limiter: NamespaceLimiter, now_s: float) -> bool:
        """Whether the namespace may send its next request now."""
        if not self.free:
            return False
        match limiter.state:
            case CircuitState.NEW:
                return not limiter.in_flight and self._may_stay_unanswered(limiter, now_s)
            case CircuitState.CLOSED:
                return limiter.in_flight < min(limiter.window, self._share(limiter))
            case CircuitState.SLOW:
                few = limiter.in_flight < min(limiter.window, self._share(limiter))
                return few and self._may_stay_unanswered(limiter, now_s)
            case CircuitState.OPEN:
                paused = now_s < limiter.paused_until_s or limiter.in_flight > 0
                few = self._sent_by[CircuitState.OPEN] < self._most_open
                return not paused and few and self._may_stay_unanswered(limiter, now_s)

    # Events

    def enter(self, name: str, now_s: float) -> NamespaceLimiter:
        """Record that the bind of a pod of the namespace begins. Returns the namespace's limiter."""
        limiter = self._by_name.get(name)
        if limiter is None:
            limiter = self._by_name[name] = self._new(name, now_s)
        limiter.pods += 1
        return limiter

    def limiter(self, name: str) -> NamespaceLimiter:
        """Return the limiter of a namespace between `enter` and `leave`."""
        return self._by_name[name]

    def leave(self, limiter: NamespaceLimiter) -> None:
        """Record that a pod is no longer being bound. Without pods, only the last answer and the window are kept."""
        limiter.pods -= 1
        if not limiter.pods:
            self._open -= limiter.state is CircuitState.OPEN
            del self._by_name[limiter.name]

    def waits(self, limiter: NamespaceLimiter, change: int) -> None:
        """Change the number of the namespace's waiting requests."""
        limiter.waiting += change
        self._waiting_by[limiter.state] += change

    def sends(self, limiter: NamespaceLimiter, now_s: float) -> None:
        """Record that a request is sent."""
        if not limiter.in_flight:
            if now_s - limiter.silent_since_s > _IDLE_S:
                limiter.window = 1
            limiter.silent_since_s = now_s
            self._with_requests[limiter.name] = limiter
        self._count_in_flight(limiter, 1)

    def ends(self, limiter: NamespaceLimiter) -> None:
        """Record that a request has ended."""
        self._count_in_flight(limiter, -1)
        if not limiter.in_flight:
            del self._with_requests[limiter.name]

    def answered(self, limiter: NamespaceLimiter, now_s: float) -> None:
        """Record a definite answer: the circuit is CLOSED."""
        limiter.window = min(limiter.window + 1, self._most)
        self._answered[limiter.name] = limiter.window, now_s
        self._set_state(limiter, CircuitState.CLOSED)
        limiter.failures, limiter.why, limiter.paused_until_s, limiter.silent_since_s = 0, "", 0.0, now_s

    def fails(self, limiter: NamespaceLimiter, why: str) -> None:
        """Record a request without a definite answer."""
        self._answered.pop(limiter.name, None)
        self._set_state(limiter, CircuitState.OPEN)
        limiter.window = 1
        limiter.failures += 1
        limiter.why = why

    def failed(self, limiter: NamespaceLimiter, error: ApiError, now_s: float, pause_s: Callable[[int], float]) -> None:
        """Record a failure and pause the namespace. pause_s: seconds, by number of consecutive failures."""
        self.fails(limiter, f"{error.status or NO_ANSWER}: {error.message}")
        at_least_s = error.retry_after_s if isinstance(error, ApiThrottled) else 0.0
        limiter.paused_until_s = now_s + max(at_least_s, pause_s(limiter.failures))

    def refresh(self, limiter: NamespaceLimiter, now_s: float) -> float:
        """Update the state of a silent namespace with waiting requests. Returns when to call again, inf for never."""
        if limiter.state is CircuitState.OPEN:
            return limiter.paused_until_s if limiter.paused_until_s > now_s else inf
        if not limiter.in_flight:
            return inf
        if limiter.state is CircuitState.CLOSED:
            if not _is_silent(limiter, now_s):
                return limiter.silent_since_s + _SLOW_S
            self._set_state(limiter, CircuitState.SLOW)
        if now_s < limiter.silent_since_s + _SILENT_S:
            return limiter.silent_since_s + _SILENT_S
        # The message of an earlier failure says more.
        self.fails(limiter, limiter.why or f"{NO_ANSWER} for {_SILENT_S:g} s")
        return inf

    # Helpers

    def _new(self, name: str, now_s: float) -> NamespaceLimiter:
        """Return a limiter for a namespace that had none, starting from its last known answer."""
        window, silent_since_s = self._answered.get(name, (0, -inf))
        state = CircuitState.CLOSED if window else CircuitState.NEW
        return NamespaceLimiter(
            name=name,
            state=state,
            window=window if now_s - silent_since_s <= _IDLE_S else 1,
            silent_since_s=silent_since_s,
        )

    @property
    def _most_pods_open(self) -> int:
        """Maximum number of pods of one failing namespace that may bind at once."""
        return max(_FEWEST_PODS_OPEN, self._most_open // max(1, self._open))

    def _share(self, limiter: NamespaceLimiter) -> int:
        """Three quarters of what others leave. Source: dynamic thresholds, Choudhury and Hahne, 1998, alpha = 3."""
        rest = limiter.in_flight + self.free
        return rest - rest // 4

    @staticmethod
    def _is_in_window(limiter: NamespaceLimiter) -> bool:
        """Whether the window has room for another pod. One request may wait beyond it, so that silence is noticed."""
        return limiter.in_flight + limiter.waiting <= limiter.window

    def _may_stay_unanswered(self, limiter: NamespaceLimiter, now_s: float) -> bool:
        unanswered = self.in_flight - self._sent_by[CircuitState.CLOSED]
        most = self._most_unanswered[limiter.state]
        if unanswered >= most or self.in_flight < most:
            return unanswered < most
        silent = (one.in_flight for one in self._with_requests.values() if _is_silent(one, now_s))
        return unanswered + sum(silent) < most

    def _set_state(self, limiter: NamespaceLimiter, state: CircuitState) -> None:
        if limiter.state is state:
            return
        for counts, number in ((self._sent_by, limiter.in_flight), (self._waiting_by, limiter.waiting)):
            counts[limiter.state] -= number
            counts[state] += number
        self._open += (state is CircuitState.OPEN) - (limiter.state is CircuitState.OPEN)
        limiter.state = state

    def _count_in_flight(self, limiter: NamespaceLimiter, change: int) -> None:
        limiter.in_flight += change
        self.in_flight += change
        self._sent_by[limiter.state] += change


def failure_kind(why: str) -> str:
    """Kind of failure, from the reason for a pause; "" if there is none."""
    return NO_ANSWER if why.startswith(NO_ANSWER) else "failures" if why else ""


def _is_silent(limiter: NamespaceLimiter, now_s: float) -> bool:
    """Whether the namespace is CLOSED and silent. Requests of other states count as possibly unanswered anyway."""
    return limiter.state is CircuitState.CLOSED and now_s >= limiter.silent_since_s + _SLOW_S
