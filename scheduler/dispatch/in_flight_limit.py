"""Limit of bind requests in flight, shared fairly among namespaces.

A request counts while it is in flight. A pod does not count while it waits between attempts, for Permit, or for
PreBind.
`namespace_limiters` sets how many requests a namespace may have in flight. So a failing webhook in one namespace does
not delay others, and a server that rejects everything gets few requests.

Free requests go to the waiting namespaces round-robin, one each; within a namespace, first come, first served. If
one idle namespace of a circuit state may send, all of that state may, so only one per state is examined:

    IDLE, by state and turn ──a request──▶ BUSY, at most as many as the limit ──its last answer──▶ IDLE
              ▲                                                          └──a failure──▶ PAUSED
              └──────────────────────────────────────────────────────────────────────────┘
Owned by the event loop.
"""

import asyncio
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from operator import attrgetter
from typing import Final

from scheduler.dispatch.namespace_limiters import CircuitState, NamespaceLimiter, NamespaceLimiters, failure_kind
from scheduler.kube.port import ApiError, ApiRejected, NotSent
from scheduler.queue.heap import Heap

# RBAC's own message, not that of an admission policy: every such request of this namespace would be rejected.
_NO_RIGHT: Final = re.compile(r'\bcannot [a-z]+ resource "')
_UNAUTHORIZED: Final = 401


class NamespacePaused(Exception):
    """The namespace is paused after failures; the message is that of the last failure."""


class Stopped(Exception):
    """The process ends and sends nothing more.

    The next process will list pods without a definite answer. in_doubt: whether a request may have taken effect.
    """

    in_doubt = False


@dataclass(slots=True, eq=False)
class _RequestQueue:
    """Waiting requests of one namespace. first: those that are the first request of their pod.

    turn: of two namespaces that may send, the one with the lower number goes first.
    """

    limiter: NamespaceLimiter
    turn: int
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    first: set[asyncio.Future[None]] = field(default_factory=set)


class InFlightLimit:
    """The limit; see the module. Create it inside the event loop that uses it."""

    def __init__(
        self,
        most: int,
        now_s: Callable[[], float],
        backoff_s: Callable[[int], float],
        on_free: Callable[[], None] = lambda: None,
        *,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """most: maximum in flight, >= 1. now_s: monotonic seconds. backoff_s: pause, by number of consecutive failures.

        on_free: called when `taken` may have decreased. leads: called before each request; if it returns False, the
        caller gets NotSent.
        """
        self._limiters = NamespaceLimiters(most)
        self._now_s = now_s
        self._backoff_s = backoff_s
        self._on_free = on_free
        self._leads = leads
        self._starting: Counter[str] = Counter()
        # Namespaces with waiting requests; each is in one of the other three collections, see the module.
        self._queues: dict[str, _RequestQueue] = {}
        self._idle: dict[CircuitState, Heap[float, _RequestQueue]] = {state: Heap() for state in CircuitState}
        self._busy: dict[str, _RequestQueue] = {}
        self._paused: Heap[float, _RequestQueue] = Heap()  # by the end of the pause
        self._turns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Number of requests in flight."""
        return self._limiters.in_flight

    @property
    def taken(self) -> int:
        """See `NamespaceLimiters.taken`."""
        return self._limiters.taken

    def pause_reason(self, namespace: str) -> str:
        """See `NamespaceLimiters.pause_reason`."""
        return self._limiters.pause_reason(namespace)

    def pause_kind(self, namespace: str) -> str:
        """Return the `failure_kind` of the namespace's `pause_reason`."""
        return failure_kind(self._limiters.pause_reason(namespace))

    def lets_pass(self, namespace: str) -> bool:
        """See `NamespaceLimiters.lets_pass`."""
        return self._limiters.lets_pass(namespace, self._now_s())

    def has_room(self, namespace: str) -> bool:
        """See `NamespaceLimiters.has_room`."""
        return self._limiters.has_room(namespace, self._now_s(), self._starting[namespace])

    def starts(self, namespace: str) -> None:
        """Record that a pod of the namespace was placed and will be bound."""
        self._starting[namespace] += 1

    def started(self, namespace: str) -> None:
        """Record that the task of a pod counted by `starts` has begun."""
        self._starting[namespace] -= 1
        if not self._starting[namespace]:
            del self._starting[namespace]

    @contextmanager
    def binding(self, namespace: str) -> Iterator[None]:
        """Count a pod of the namespace as being bound, with or without a request in flight."""
        limiter = self._limiters.enter(namespace, self._now_s())
        try:
            yield
        finally:
            self._limiters.leave(limiter)

    def request(self, namespace: str, *, first: bool = False) -> "InFlightRequest":
        """Return a context for one request, to enter inside `binding`. The outcome updates the namespace's circuit.

        first: whether it is the first request of its pod. Entering raises Stopped; for a first request also
        NamespacePaused, if the namespace fails while the request waits.
        """
        return InFlightRequest(self, self._limiters.limiter(namespace), first=first)

    async def acquire(self, limiter: NamespaceLimiter, *, first: bool) -> None:
        """Wait until the request may be sent; see `request`."""
        await self._turn_of(limiter, first=first)
        if not self._leads():
            error = NotSent()
            self.release(limiter, error)
            raise error

    def release(self, limiter: NamespaceLimiter, error: BaseException | None) -> None:
        """End the request; see `request`."""
        if error is None:
            self._limiters.answered(limiter, self._now_s())
        elif isinstance(error, ApiError):
            self._failed(limiter, error)
        self._free(limiter)

    async def pause(self, seconds: float) -> None:
        """Wait without a request in flight. Raises Stopped."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return
        raise Stopped

    def stop(self) -> None:
        """Send nothing more: waiting requests raise Stopped. Requests in flight still get their answers."""
        self._stopped.set()
        for queue in self._queues.values():
            for waiting in queue.waiting:
                if not waiting.done():
                    waiting.set_exception(Stopped())

    def _free(self, limiter: NamespaceLimiter) -> None:
        """End a request, and let waiting ones start."""
        self._limiters.ends(limiter)
        if queue := self._queues.get(limiter.name):
            self._file(queue)
        self._serve()
        self._on_free()

    async def _turn_of(self, limiter: NamespaceLimiter, *, first: bool) -> None:
        if self._stopped.is_set():
            raise Stopped
        now_s = self._now_s()
        if not self._queues and self._limiters.may_send(limiter, now_s):
            self._limiters.sends(limiter, now_s)  # as below, but no other request waits
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue = self._queues.get(limiter.name)
        if queue is None:
            queue = self._queues[limiter.name] = _RequestQueue(limiter, self._next_turn())
            self._file(queue)
        queue.waiting.append(mine)
        if first:
            queue.first.add(mine)
        self._limiters.waits(limiter, 1)
        self._serve()
        try:
            await mine
        except BaseException:
            if mine in queue.waiting:
                self._forget(queue, mine)
            elif not mine.cancelled() and mine.exception() is None:
                self._free(limiter)  # granted, but unused
            raise

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _file(self, queue: _RequestQueue) -> None:
        """Move the queue to the collection for its current state: idle, busy or paused."""
        self._unfile(queue)
        limiter = queue.limiter
        if limiter.in_flight:
            self._busy[limiter.name] = queue
        elif limiter.state is CircuitState.OPEN and self._now_s() < limiter.paused_until_s:
            self._paused.push(queue, limiter.paused_until_s)
        else:
            self._idle[limiter.state].push(queue, queue.turn)

    def _unfile(self, queue: _RequestQueue) -> None:
        self._busy.pop(queue.limiter.name, None)
        for heap in (self._paused, *self._idle.values()):
            heap.discard(queue)

    def _forget(self, queue: _RequestQueue, waiting: asyncio.Future[None]) -> None:
        """Remove a request that no longer waits."""
        queue.waiting.remove(waiting)
        queue.first.discard(waiting)
        self._limiters.waits(queue.limiter, -1)
        if not queue.waiting:
            self._unfile(queue)
            del self._queues[queue.limiter.name]

    def _serve(self) -> None:
        """Start waiting requests in turn. Sets a timer if the next start depends on time alone."""
        if not self._queues and self._timer is None:
            return
        now_s = self._now_s()
        for resumed in self._paused.pop_until(now_s):
            self._file(resumed)
        while self._limiters.free and (queue := self._next(now_s)) is not None:
            self._give(queue, now_s)
        paused = self._paused.first()
        next_s = min((self._refresh(queue, now_s) for queue in tuple(self._busy.values())), default=inf)
        next_s = next_s if paused is None else min(next_s, paused[0])
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if next_s < inf and not self._stopped.is_set():
            self._timer = asyncio.get_running_loop().call_later(next_s - now_s, self._serve)

    def _next(self, now_s: float) -> _RequestQueue | None:
        """Return the queue that may send and has the next turn; None if none may send."""
        firsts = (heap.first() for heap in self._idle.values())
        queues = [*(first[1] for first in firsts if first is not None), *self._busy.values()]
        may_send = (queue for queue in queues if self._limiters.may_send(queue.limiter, now_s))
        return min(may_send, key=attrgetter("turn"), default=None)

    def _give(self, queue: _RequestQueue, now_s: float) -> None:
        """Start the first waiting request. Other namespaces take their turns before the next one of this queue."""
        waiting = queue.waiting[0]
        queue.turn = self._next_turn()
        self._forget(queue, waiting)
        if not waiting.done():
            waiting.set_result(None)
            self._limiters.sends(queue.limiter, now_s)
        if queue.waiting:
            self._file(queue)

    def _refresh(self, queue: _RequestQueue, now_s: float) -> float:
        before = queue.limiter.state
        next_s = self._limiters.refresh(queue.limiter, now_s)
        if queue.limiter.state is not before:
            if queue.limiter.state is CircuitState.OPEN:
                self._turn_away(queue)
            self._on_free()
        return next_s

    def _failed(self, limiter: NamespaceLimiter, error: ApiError) -> None:
        if isinstance(error, ApiRejected) and not concerns_all(error):
            self._limiters.answered(limiter, self._now_s())
            return
        self._limiters.failed(limiter, error, self._now_s(), self._backoff_s)
        if queue := self._queues.get(limiter.name):
            self._turn_away(queue)

    def _turn_away(self, queue: _RequestQueue) -> None:
        """Fail requests of pods that have sent nothing, so that they release their node; other requests retry."""
        for waiting in [one for one in queue.waiting if one in queue.first]:
            self._forget(queue, waiting)
            if not waiting.done():
                waiting.set_exception(NamespacePaused(queue.limiter.why))


class InFlightRequest:
    """A request in flight for the duration of a `with` block. A class, because a generator would double the cost."""

    __slots__ = ("_first", "_limit", "_limiter")

    def __init__(self, limit: InFlightLimit, limiter: NamespaceLimiter, *, first: bool) -> None:
        """See `InFlightLimit.request`."""
        self._limit = limit
        self._limiter = limiter
        self._first = first

    async def __aenter__(self) -> None:
        await self._limit.acquire(self._limiter, first=self._first)

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._limit.release(self._limiter, error)


def concerns_all(rejected: ApiRejected) -> bool:
    """Whether the rejection concerns the scheduler itself, not this pod: credentials, or a missing permission."""
    return rejected.status == _UNAUTHORIZED or bool(_NO_RIGHT.search(rejected.message))
