"""Faults between a client and the API server.

A `Rule` selects the requests that a `RequestFault` hits: by verb, number, probability or predicate. `Faults` holds the
rules; the first one that applies to a request decides.

    fault           the client gets                  the request
    Throttle        429, Retry-After                 is not executed
    Refuse          403, 404, 409, other 4xx; 410    is not executed
    Fail            500, 503, ...                    depends on `effect`
    Silence         nothing (ApiSilent)              depends on `effect`
    Stranger        a foreign answer (ApiSilent)     depends on `effect`
    Slow            the true answer, late            is executed in between
    Overtaken       the true answer                  is executed just after another scheduler has bound the pod
    WatchBreaks     its events up to a number, then the break
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final, TypeAlias

from scheduler.kube.port import ApiConflict, ApiError, ApiForbidden, ApiNotFound, ApiRejected, Binding, WatchExpired


class Verb(Enum):
    """Verbs, one per method of `port.Cluster` that sends a request."""

    WATCH = "watch"
    BIND = "bind"
    READ_POD = "read pod"
    BIND_VOLUME = "bind volume"
    SELECT_NODE = "select node"
    SET_CONDITION = "set condition"
    NOMINATE = "nominate"
    DELETE_POD = "delete pod"
    CREATE_EVENT = "create event"
    UPDATE_EVENT = "update event"
    LAST_CHANGE = "last change"
    LAST_SCHEDULED = "last scheduled"
    WRITE_LEASE = "write lease"


@dataclass(frozen=True, slots=True)
class Request:
    """A request, as the predicate of a rule sees it. about: a watch's kind, otherwise the object's "namespace/name"."""

    verb: Verb
    about: str
    binding: Binding | None = None


class Effect(Enum):
    """Effect that a request has although its answer does not show it."""

    NONE = "never executed"
    AT_ONCE = "executed before the client gets the answer"
    LATER = "executed after the client has given up, if it is still valid then"


class Break(Enum):
    """Ways in which a watch stops delivering."""

    ENDED = "the server closes it normally"
    LOST = "the connection is reset: ApiSilent"
    EXPIRED = "410 in the stream: WatchExpired"
    STALLED = "silent until resumed; ApiSilent once the client's silence limit has passed"


@dataclass(frozen=True, slots=True)
class Throttle:
    """A 429 answer. retry_after_s: 0 if the server gives no time."""

    retry_after_s: float = 1.0


@dataclass(frozen=True, slots=True)
class Refuse:
    """A definite rejection. status: 4xx."""

    status: int = 403
    message: str = "refused by an injected fault"


@dataclass(frozen=True, slots=True)
class Fail:
    """A 5xx answer.

    late_s: with Effect.LATER, seconds until the request takes effect; None means at `MemoryCluster.deliver_late()`.
    """

    status: int = 500
    effect: Effect = Effect.NONE
    late_s: float | None = None


@dataclass(frozen=True, slots=True)
class Silence:
    """No answer.

    after_s: seconds until the client notices; None for its whole time-out; 0 if the connection is reset at once.
    late_s: as in `Fail`, counted from when the client notices.
    """

    effect: Effect = Effect.NONE
    after_s: float | None = None
    late_s: float | None = None


@dataclass(frozen=True, slots=True)
class Stranger:
    """Another server answers: a load balancer's page, a 2xx without the object.

    status: the answer's HTTP status. late_s: as in `Fail`.
    """

    status: int = 404
    effect: Effect = Effect.NONE
    late_s: float | None = None


@dataclass(frozen=True, slots=True)
class Slow:
    """Executed after `before_s` seconds, answered `after_s` seconds later: a watch may show it first."""

    before_s: float = 0.0
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Overtaken:
    """Another scheduler binds the pod just before our request. node: None for the node that we chose."""

    node: str | None = None
    annotations: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WatchBreaks:
    """A watch that breaks after a number of delivered events, including those of its list."""

    how: Break
    after_events: int = 0


RequestFault: TypeAlias = Throttle | Refuse | Fail | Silence | Stranger | Slow | Overtaken | WatchBreaks

_ONLY_FOR: Final[dict[type[RequestFault], Verb]] = {Overtaken: Verb.BIND, WatchBreaks: Verb.WATCH}


def _always(_: Request) -> bool:
    return True


@dataclass(slots=True, kw_only=True)
class Rule:
    """A fault and the requests that it hits.

    count: requests still to hit, None for no limit. probability: of hitting a matching request, 0 to 1.
    hits: requests hit so far.
    """

    verb: Verb
    fault: RequestFault
    count: int | None = None
    probability: float = 1.0
    when: Callable[[Request], bool] = _always
    hits: int = 0

    def applies(self, request: Request, chance: Random) -> bool:
        """Return whether the rule hits this request; count it if so."""
        if request.verb is not self.verb or self.count == 0 or not self.when(request):
            return False
        if self.probability < 1.0 and chance.random() >= self.probability:
            return False
        self.hits += 1
        if self.count is not None:
            self.count -= 1
        return True


class Faults:
    """The active rules, applied in the order in which they were added. seed: for every random choice here."""

    def __init__(self, seed: int = 0) -> None:
        self._rules: list[Rule] = []
        self._chance = Random(seed)  # noqa: S311 - repeatable

    def add(
        self,
        verb: Verb,
        fault: RequestFault,
        *,
        count: int | None = None,
        probability: float = 1.0,
        when: Callable[[Request], bool] = _always,
    ) -> Rule:
        """Activate a rule. Raises ValueError for a fault that cannot happen to that verb."""
        if _ONLY_FOR.get(type(fault), verb) is not verb:
            raise ValueError(f"{type(fault).__name__} cannot happen to {verb.value}")
        rule = Rule(verb=verb, fault=fault, count=count, probability=probability, when=when)
        self._rules.append(rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """Deactivate one rule. Raises ValueError if it is not active."""
        self._rules.remove(rule)

    def clear(self) -> None:
        """Deactivate every rule."""
        self._rules.clear()

    def hitting(self, request: Request) -> RequestFault | None:
        """Return the fault of this request; None if there is none."""
        for rule in self._rules:
            if rule.applies(request, self._chance):
                return rule.fault
        return None


def refusal(fault: Refuse) -> ApiError:
    """Return the error that a client creates from this status."""
    errors: dict[int, type[ApiError]] = {
        401: ApiForbidden,
        403: ApiForbidden,
        404: ApiNotFound,
        409: ApiConflict,
        410: WatchExpired,
    }
    return errors.get(fault.status, ApiRejected)(fault.message, fault.status)
