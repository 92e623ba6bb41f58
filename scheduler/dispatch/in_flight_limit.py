"""Who may send the next bind request: at most so many at once, shared fairly among namespaces.

A slot is one request on the wire. A pod that waits between two attempts, for Permit or for PreBind has none. How many
slots a namespace may have says `namespace_limiters`. So a webhook that is down in one namespace costs no other a slot, and a
server that sends everybody away hears little from us.

Free slots go round the namespaces that wait, one each; within a namespace in the order of asking. Of the namespaces
without a request on the wire, all of one state may have a slot or none, so one of each state is looked at,
however many wait:

    IDLE, by state and turn ──a slot──▶ BUSY, at most as many as slots ──its last answer──▶ IDLE
              ▲                                                                   └──a failure──▶ PAUSED
              └───────────────────────────────────────────────────────────────────────────────────┘
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
from scheduler.kube.port import ApiError, ApiRefused, NotSent
from scheduler.queue.heap import Heap

# RBAC's own words, and not those of an admission policy: no such request of this namespace is accepted.
_NO_RIGHT: Final = re.compile(r'\bcannot [a-z]+ resource "')
_UNAUTHORIZED: Final = 401


class NamespacePaused(Exception):
    """Nothing of this pod is sent for now: its namespace fails; the message says why."""


class Stopped(Exception):
    """The process ends: nothing more is sent.

    What has no definite answer yet is in the next process's list. in_doubt: a request may have taken effect.
    """

    in_doubt = False


@dataclass(slots=True, eq=False)
class _RequestQueue:
    """The requests of one namespace that wait for a slot. first: those of them whose pod has not sent anything.

    turn: of two that may have a slot, the one with the lower number gets it.
    """

    limiter: NamespaceLimiter
    turn: int
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    first: set[asyncio.Future[None]] = field(default_factory=set)


class InFlightLimit:
    """See the module. Make it inside the event loop that uses it."""

    def __init__(
        self,
        most: int,
        now_s: Callable[[], float],
        backoff_s: Callable[[int], float],
        on_free: Callable[[], None] = lambda: None,
        *,
        leads: Callable[[], bool] = lambda: True,
    ) -> None:
        """most: slots, >= 1. now_s: monotonic seconds. backoff_s: the pause after so many failures in a row.

        on_free: called when `taken` may have become less. leads: asked before each request; where it says no, the
        limiter gets NotSent.
        """
        self._limiters = NamespaceLimiters(most)
        self._now_s = now_s
        self._backoff_s = backoff_s
        self._on_free = on_free
        self._leads = leads
        self._starting: Counter[str] = Counter()
        # Those with waiting requests; each is in one of the other three, see the module.
        self._queues: dict[str, _RequestQueue] = {}
        self._idle: dict[CircuitState, Heap[float, _RequestQueue]] = {state: Heap() for state in CircuitState}
        self._busy: dict[str, _RequestQueue] = {}
        self._paused: Heap[float, _RequestQueue] = Heap()  # by the end of the pause
        self._turns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """Requests."""
        return self._limiters.in_flight

    @property
    def taken(self) -> int:
        """As `NamespaceLimiters.taken`."""
        return self._limiters.taken

    def pause_reason(self, namespace: str) -> str:
        """As `NamespaceLimiters.held_back`."""
        return self._limiters.pause_reason(namespace)

    def pause_kind(self, namespace: str) -> str:
        """The same, by `namespace_limiters.how`."""
        return failure_kind(self._limiters.pause_reason(namespace))

    def lets_pass(self, namespace: str) -> bool:
        """As `NamespaceLimiters.lets_pass`."""
        return self._limiters.lets_pass(namespace, self._now_s())

    def has_room(self, namespace: str) -> bool:
        """As `NamespaceLimiters.has_room`."""
        return self._limiters.has_room(namespace, self._now_s(), self._starting[namespace])

    def starts(self, namespace: str) -> None:
        """A pod of the namespace was placed: it will be bound."""
        self._starting[namespace] += 1

    def started(self, namespace: str) -> None:
        """Its task has begun."""
        self._starting[namespace] -= 1
        if not self._starting[namespace]:
            del self._starting[namespace]

    @contextmanager
    def binding(self, namespace: str) -> Iterator[None]:
        """A pod of the namespace is being bound, with a slot or without."""
        limiter = self._limiters.enter(namespace, self._now_s())
        try:
            yield
        finally:
            self._limiters.leave(limiter)

    def request(self, namespace: str, *, first: bool = False) -> "InFlightRequest":
        """One request, inside `binding`: the ApiError that it raises, or none, says how the namespace is.

        first: of this pod. Entering it raises Stopped; NamespacePaused for a first one, when the namespace fails while it
        waits.
        """
        return InFlightRequest(self, self._limiters.limiter(namespace), first=first)

    async def acquire(self, limiter: NamespaceLimiter, *, first: bool) -> None:
        """Of `slot`: the beginning."""
        await self._turn_of(limiter, first=first)
        if not self._leads():
            error = NotSent()
            self.release(limiter, error)
            raise error

    def release(self, limiter: NamespaceLimiter, error: BaseException | None) -> None:
        """Of `slot`: the end."""
        if error is None:
            self._limiters.answered(limiter, self._now_s())
        elif isinstance(error, ApiError):
            self._failed(limiter, error)
        self._free(limiter)

    async def pause(self, seconds: float) -> None:
        """Wait without a slot. Raises Stopped."""
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            return
        raise Stopped

    def stop(self) -> None:
        """Nothing more is sent: who waits gets Stopped. Requests on the wire are answered."""
        self._stopped.set()
        for queue in self._queues.values():
            for waiting in queue.waiting:
                if not waiting.done():
                    waiting.set_exception(Stopped())

    def _free(self, limiter: NamespaceLimiter) -> None:
        """Its slot is nobody's: whoever waits may have it."""
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
            self._limiters.sends(limiter, now_s)  # as below, where nobody else waits
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
                self._free(limiter)  # given, and not used
            raise

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _file(self, queue: _RequestQueue) -> None:
        """Where it belongs by now."""
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
        """It waits no longer."""
        queue.waiting.remove(waiting)
        queue.first.discard(waiting)
        self._limiters.waits(queue.limiter, -1)
        if not queue.waiting:
            self._unfile(queue)
            del self._queues[queue.limiter.name]

    def _serve(self) -> None:
        """Give free slots, one to each in turn, and look again when time alone changes something."""
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
        """Of those that may have a slot, the one whose turn it is."""
        firsts = (heap.first() for heap in self._idle.values())
        queues = [*(first[1] for first in firsts if first is not None), *self._busy.values()]
        may_send = (queue for queue in queues if self._limiters.may_send(queue.limiter, now_s))
        return min(may_send, key=attrgetter("turn"), default=None)

    def _give(self, queue: _RequestQueue, now_s: float) -> None:
        """A slot to the first that waits: the others' turn comes before its next."""
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
        if isinstance(error, ApiRefused) and not concerns_all(error):
            self._limiters.answered(limiter, self._now_s())
            return
        self._limiters.failed(limiter, error, self._now_s(), self._backoff_s)
        if queue := self._queues.get(limiter.name):
            self._turn_away(queue)

    def _turn_away(self, queue: _RequestQueue) -> None:
        """Those that have sent nothing are told so, and hold no place; the one that has failed tries again."""
        for waiting in [one for one in queue.waiting if one in queue.first]:
            self._forget(queue, waiting)
            if not waiting.done():
                waiting.set_exception(NamespacePaused(queue.limiter.why))


class InFlightRequest:
    """A slot for the block inside it. A class, since a generator costs as much as what is done here."""

    __slots__ = ("_first", "_limit", "_limiter")

    def __init__(self, limit: InFlightLimit, limiter: NamespaceLimiter, *, first: bool) -> None:
        """As `InFlightLimit.slot`."""
        self._limit = limit
        self._limiter = limiter
        self._first = first

    async def __aenter__(self) -> None:
        """Wait for it."""
        await self._limit.acquire(self._limiter, first=self._first)

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Give it back."""
        self._limit.release(self._limiter, error)


def concerns_all(rejected: ApiRefused) -> bool:
    """Whether the refusal is of the scheduler itself, not of this pod: credentials, or a missing right."""
    return rejected.status == _UNAUTHORIZED or bool(_NO_RIGHT.search(rejected.message))
