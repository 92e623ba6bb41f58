"""Sends all writes to the API server, so that those without an answer delay no others.

    send ──▶ lane (kind, namespace) ── its turn, its circuit is not OPEN ──▶ in flight ── outcome ──▶ breaker.py

- Bulkhead: each kind has places of its own. A lane sends while it has fewer requests in flight than it leaves places
  free, so one namespace gets half of them, and the next one half of the rest.
- Circuit breaker: a lane that gets no definite answer waits for a back-off, then sends one request at a time. At most
  a quarter of the places are for such trials.
- Namespaces take turns; within one, first come, first served.
- While bindings use a quarter of their places or more, conditions and Events use a quarter of theirs.

Whether this replica leads is asked as the bytes leave (`scheduler/kube/rest/client.py`). Owned by the event loop.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from typing import Final, ParamSpec, TypeVar

from scheduler.dispatch.breaker import Circuit
from scheduler.dispatch.places import Lane, Places
from scheduler.kube.port import ApiError, ApiRejected, ApiThrottled
from scheduler.kube.reflector import Backoff

# For each kind but BIND.
_PLACES: Final = 16
_TRIES: Final = 4
# Writes of volumes that wait while their namespace fails: each pod occupies room that other pods lack.
_VOLUMES_WAITING: Final = 4
# How long the state of a lane without requests is remembered.
_ANSWER_REMEMBERED_S: Final = 1.0
_FAILURE_REMEMBERED_S: Final = 60.0

P = ParamSpec("P")
T = TypeVar("T")


class Write(Enum):
    """Kind of a write. STATUS: conditions and nominations."""

    BIND = auto()
    EVICT = auto()
    VOLUME = auto()
    STATUS = auto()
    EVENT = auto()


class Stopped(Exception):
    """The process ends and sends nothing more.

    The next process will list pods without a definite answer. in_doubt: whether a request may have taken effect.
    """

    in_doubt = False


class Sender:
    """The sender; see the module. Create it inside the event loop that uses it."""

    def __init__(self, most_binds: int, backoff: Backoff, freed: asyncio.Event) -> None:
        """most_binds: maximum number of Bindings in flight, >= 1. freed: set when a request has ended."""
        self._backoff = backoff
        self._freed = freed
        bindings = Places(most_binds)
        self._after_bindings = Places(_PLACES, bindings), Places(_PLACES, bindings)
        self._places = {
            Write.BIND: bindings,
            Write.EVICT: Places(_PLACES),
            Write.VOLUME: Places(_PLACES, most_waiting=_VOLUMES_WAITING),
            Write.STATUS: self._after_bindings[0],
            Write.EVENT: self._after_bindings[1],
        }
        self._stopped = asyncio.Event()

    def in_flight(self, write: Write) -> int:
        """Number of requests in flight."""
        return self._places[write].in_flight

    def free(self, write: Write) -> int:
        """Number of further requests that may be in flight."""
        return self._places[write].free

    def share(self, write: Write, namespace: str) -> int:
        """How many requests of the namespace may be in flight; 0 if it is not known that it gets answers."""
        lane = self._places[write].lanes.get(namespace)
        if lane is None or lane.breaker.state is not Circuit.CLOSED:
            return 0
        return lane.in_flight + self._places[write].room(lane)

    def failure(self, write: Write, namespace: str) -> str:
        """Message of the namespace's last failure, if the request after a back-off failed, too; otherwise ""."""
        lane = self._places[write].lanes.get(namespace)
        return lane.breaker.why if lane is not None and lane.breaker.has_failed_again else ""

    async def send(
        self, write: Write, namespace: str, request: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Send one request when its turn has come, and return its answer. Raises its ApiError; Stopped."""
        places = self._places[write]
        lane = places.lane(namespace)
        await self._turn(places, lane)
        try:
            answer = await request(*args, **kwargs)
        except BaseException as error:
            self._ended(places, lane, error)
            raise
        self._ended(places, lane, None)
        return answer

    async def deliver(
        self, write: Write, namespace: str, request: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Like `send`, for an idempotent request: retried a few times while it has no definite answer."""
        for attempt in range(1, _TRIES):
            try:
                return await self.send(write, namespace, request, *args, **kwargs)
            except ApiRejected:
                raise
            except ApiError as error:
                await self.back_off(attempt, _retry_after_s(error))
        return await self.send(write, namespace, request, *args, **kwargs)

    async def back_off(self, attempt: int, at_least_s: float) -> None:
        """Wait after that many attempts without a definite answer. at_least_s: Retry-After. Raises Stopped."""
        try:
            async with asyncio.timeout(max(at_least_s, self._backoff.delay_s(attempt))):
                await self._stopped.wait()
        except TimeoutError:
            return
        raise Stopped

    def stop(self) -> None:
        """Send nothing more: waiting requests raise Stopped. Requests in flight still get their answers."""
        self._stopped.set()
        for places in self._places.values():
            for lane in places.lanes.values():
                for waiting in lane.waiting:
                    if not waiting.done():
                        waiting.set_exception(Stopped())

    async def _turn(self, places: Places, lane: Lane) -> None:
        """Wait for a place, and take it."""
        if self._stopped.is_set():
            raise Stopped
        if not places.turns and not lane.breaker.failures and places.room(lane):
            places.take(lane)
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        lane.waiting.append(mine)
        places.queue(lane)
        places.serve()
        places.turn_away(lane)
        try:
            await mine
        except BaseException as error:
            if mine in lane.waiting:
                lane.waiting.remove(mine)
                self._keep(places, lane)
            elif not mine.cancelled() and mine.exception() is None:
                self._ended(places, lane, error)  # it has a place, and does not use it
            raise

    def _ended(self, places: Places, lane: Lane, error: BaseException | None) -> None:
        """Free the place of a request. error: its outcome, see `Breaker.ended`."""
        places.free_one(lane)
        if lane.breaker.ended(error):
            pause_s = max(_retry_after_s(error), self._backoff.delay_s(lane.breaker.failures))
            self._set_timer(places, lane, pause_s, self._try_again)
            places.turn_away(lane)
        self._keep(places, lane)
        places.queue(lane)
        for one in (places, *self._after_bindings):
            one.serve()
        self._freed.set()

    def _try_again(self, places: Places, lane: Lane) -> None:
        lane.timer = None
        self._keep(places, lane)
        lane.breaker.try_again()
        places.queue(lane)
        places.serve()
        self._freed.set()

    def _keep(self, places: Places, lane: Lane) -> None:
        """Remember the lane for some time without requests."""
        if lane.timer is None:
            lane.used = False
            kept_s = _FAILURE_REMEMBERED_S if lane.breaker.failures else _ANSWER_REMEMBERED_S
            self._set_timer(places, lane, kept_s, self._forget)

    def _forget(self, places: Places, lane: Lane) -> None:
        lane.timer = None
        if lane.in_flight or lane.waiting or lane.used:
            self._keep(places, lane)
        else:
            del places.lanes[lane.namespace]

    @staticmethod
    def _set_timer(places: Places, lane: Lane, delay_s: float, act: Callable[[Places, Lane], None]) -> None:
        if lane.timer is not None:
            lane.timer.cancel()
        lane.timer = asyncio.get_running_loop().call_later(delay_s, act, places, lane)


def _retry_after_s(error: BaseException | None) -> float:
    return error.retry_after_s if isinstance(error, ApiThrottled) else 0.0
