"""Who may send the next bind request: at most so many at once, shared fairly among namespaces.

A slot is one request on the wire. A pod that waits between two attempts, for Permit or for PreBind has none.

    namespace:  WELL ──no definite answer──▶ FAILING ──a definite answer──▶ WELL
                │  ▲                          ▲   └─▲ no definite answer: the next pause is longer
                │  └──an answer──┐            │
                └──50 ms silent──▶ LATE ──1 s─┘

WELL:    up to three quarters of the slots, so that no namespace takes all of them before its first failure is known;
         of those, that is, which no silent namespace has: the next one that hangs leaves a quarter of them, too.
LATE:    it has all its slots, more of its pods ask for one, and there has been no answer. Its next pods wait in the
         queue, where those of others pass them; when an answer comes they are served in order, and nobody is told.
FAILING: after a pause one request at a time, which shows whether it works again; all failing namespaces together have
         a quarter of the slots. So a webhook that is down in one namespace costs no other a slot, and a server that
         sends everybody away hears little from us. Its next pods let others pass, too, and are told why they wait.

Free slots go round the namespaces that wait, one each; within a namespace in the order of asking.
Owned by the event loop.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf

from scheduler.kube.port import ApiError, ApiRefused, ApiThrottled

# RBAC's own words, and not those of an admission policy: nothing of this namespace can be bound.
_NO_RIGHT = 'cannot create resource "pods/binding"'
_UNAUTHORIZED = 401
# A namespace that has all the slots it may have, and no answer for so long, keeps others from being placed: a server
# that works answers sooner, and one that does not costs nobody anything if it was only late.
_LATE_S = 0.05
# After so long its webhook hangs.
_SILENT_S = 1.0


class HeldBack(Exception):
    """Nothing of this pod is sent for now: its namespace fails; the message says why."""


class Stopped(Exception):
    """The process ends: nothing more is sent. What has no definite answer yet is in the next process's list."""


@dataclass(slots=True, kw_only=True)
class _Namespace:
    """on_the_wire: requests. pods: being bound, with a slot or without. why: the last failure's message.

    first: those of `waiting` whose pod has not sent anything.
    failures: in a row, without a definite answer; above 0: FAILING. closed_until_s: end of the pause. heard_s: when the
    last definite answer came, or the first request after a time without any was sent. late: LATE.
    """

    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    first: set[asyncio.Future[None]] = field(default_factory=set)
    on_the_wire: int = 0
    pods: int = 0
    failures: int = 0
    late: bool = False
    closed_until_s: float = 0.0
    heard_s: float = 0.0
    why: str = ""

    @property
    def well(self) -> bool:
        """Neither LATE nor FAILING."""
        return not (self.late or self.failures)


class BindSlots:
    """See the module. Make it inside the event loop that uses it."""

    def __init__(
        self,
        most: int,
        now_s: Callable[[], float],
        backoff_s: Callable[[int], float],
        on_free: Callable[[], None] = lambda: None,
    ) -> None:
        """most: slots, >= 1. now_s: monotonic seconds. backoff_s: the pause after so many failures in a row.

        on_free: called when `taken` may have become less.
        """
        self.on_the_wire = 0
        self._most = most
        self._most_failing = max(1, most // 4)
        self._now_s = now_s
        self._backoff_s = backoff_s
        self._on_free = on_free
        self._namespaces: dict[str, _Namespace] = {}
        # Those with waiting requests, the next to be served first.
        self._turn: deque[str] = deque()
        # LATE or FAILING.
        self._unwell: set[str] = set()
        self._late_on_the_wire = 0
        self._failing_on_the_wire = 0
        self._well_waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = asyncio.Event()

    @property
    def taken(self) -> int:
        """Requests on the wire, and those that wait for a slot in namespaces that are well."""
        return self.on_the_wire + self._well_waiting

    def held_back(self, namespace: str) -> str:
        """Why no more pods of a namespace are to be bound for now; "" when nothing is against it.

        While it fails, as many pods try as failing namespaces have slots: each of them holds a place that others lack.
        """
        state = self._namespaces.get(namespace)
        return state.why if state is not None and state.failures and state.pods >= self._most_failing else ""

    @property
    def all_well(self) -> bool:
        """Whether no namespace is to let others pass."""
        return not self._unwell

    def lets_pass(self, namespace: str) -> bool:
        """Whether pods of others go first: for now there is no slot for another pod of this one."""
        return namespace in self._unwell and not self.has_room(namespace)

    def has_room(self, namespace: str) -> bool:
        """Whether another pod of the namespace gets a slot soon."""
        state = self._namespaces.get(namespace)
        if state is None:
            return True
        if state.failures:
            return state.pods < self._most_failing
        return not state.late and state.on_the_wire + len(state.waiting) < self._share(state)

    @asynccontextmanager
    async def binding(self, namespace: str) -> AsyncIterator[None]:
        """A pod of the namespace is being bound, with a slot or without. A namespace without any is WELL."""
        state = self._namespaces.setdefault(namespace, _Namespace())
        state.pods += 1
        try:
            yield
        finally:
            state.pods -= 1
            if not state.pods:
                self._becomes_well(namespace, state)
                del self._namespaces[namespace]

    @asynccontextmanager
    async def slot(self, namespace: str, *, first: bool = False) -> AsyncIterator[None]:
        """One request, inside `binding`: the ApiError that it raises, or none, says how the namespace is.

        first: of this pod. Raises Stopped; HeldBack for a first one, when the namespace fails while it waits.
        """
        state = self._namespaces[namespace]
        await self._turn_of(namespace, state, first=first)
        try:
            yield
        except ApiError as error:
            self._judge(namespace, state, error)
            raise
        else:
            self._becomes_well(namespace, state)
        finally:
            self._count_on_the_wire(state, -1)
            self._serve()
            self._on_free()

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
        for state in self._namespaces.values():
            for waiting in state.waiting:
                if not waiting.done():
                    waiting.set_exception(Stopped())

    async def _turn_of(self, namespace: str, state: _Namespace, *, first: bool) -> None:
        if self._stopped.is_set():
            raise Stopped
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not state.waiting and namespace not in self._turn:
            self._turn.append(namespace)
        state.waiting.append(mine)
        if first:
            state.first.add(mine)
        self._well_waiting += state.well
        self._serve()
        try:
            await mine
        except BaseException:
            if mine in state.waiting:
                state.waiting.remove(mine)
                self._well_waiting -= state.well
            elif not mine.cancelled() and mine.exception() is None:
                self._count_on_the_wire(state, -1)  # given, and not used
            raise
        finally:
            state.first.discard(mine)

    def _serve(self) -> None:
        """Give free slots to those whose turn it is, and look again when the first pause ends."""
        now_s, opens_s, passed = self._now_s(), inf, 0
        while passed < len(self._turn) and self.on_the_wire < self._most:
            namespace = self._turn.popleft()
            state = self._namespaces.get(namespace)
            if state is None or not state.waiting:
                continue
            if self._may_send(state, now_s):
                passed = 0
                self._give(state)
            else:
                passed += 1
                opens_s = min(opens_s, self._next_look_s(namespace, state, now_s))
            if state.waiting:
                self._turn.append(namespace)
        self._look_again_at(opens_s, now_s)

    def _may_send(self, state: _Namespace, now_s: float) -> bool:
        if not state.failures:
            return state.on_the_wire < self._share(state)
        paused = now_s < state.closed_until_s or state.on_the_wire > 0
        return not paused and self._failing_on_the_wire < self._most_failing

    def _share(self, state: _Namespace) -> int:
        """How many slots a namespace may have that does not fail."""
        silent = self._failing_on_the_wire + self._late_on_the_wire - (state.on_the_wire if state.late else 0)
        rest = self._most - silent
        return max(1, rest - rest // 4)

    def _next_look_s(self, namespace: str, state: _Namespace, now_s: float) -> float:
        """When time alone changes whether it may send, or what becomes of it; infinity: never."""
        if state.failures:
            return state.closed_until_s if state.closed_until_s > now_s else inf
        if now_s < state.heard_s + _LATE_S:
            return state.heard_s + _LATE_S
        if not state.late:
            self._becomes_late(namespace, state)
        if now_s < state.heard_s + _SILENT_S:
            return state.heard_s + _SILENT_S
        self._fails(namespace, state, f"no answer for {_SILENT_S:g} s")
        return inf

    def _give(self, state: _Namespace) -> None:
        waiting = state.waiting.popleft()
        self._well_waiting -= state.well
        if not waiting.done():
            waiting.set_result(None)
            if not state.on_the_wire:
                state.heard_s = self._now_s()
            self._count_on_the_wire(state, 1)

    def _look_again_at(self, opens_s: float, now_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if opens_s < inf and not self._stopped.is_set():
            self._timer = asyncio.get_running_loop().call_later(opens_s - now_s, self._serve)

    def _judge(self, namespace: str, state: _Namespace, error: ApiError) -> None:
        if isinstance(error, ApiRefused) and not concerns_all(error):
            self._becomes_well(namespace, state)
            return
        self._fails(namespace, state, f"{error.status or 'no answer'}: {error.message}")
        at_least_s = error.retry_after_s if isinstance(error, ApiThrottled) else 0.0
        state.closed_until_s = self._now_s() + max(at_least_s, self._backoff_s(state.failures))

    def _fails(self, namespace: str, state: _Namespace, why: str) -> None:
        if not state.failures:
            self._becomes_well(namespace, state)
            self._unwell.add(namespace)
            self._failing_on_the_wire += state.on_the_wire
            self._well_waiting -= len(state.waiting)
            self._on_free()
        state.failures += 1
        state.why = why
        self._turn_away(state)

    @staticmethod
    def _turn_away(state: _Namespace) -> None:
        """Those that have sent nothing are told so, and hold no place; the one that has failed tries again."""
        for waiting in [one for one in state.waiting if one in state.first]:
            state.waiting.remove(waiting)
            if not waiting.done():
                waiting.set_exception(HeldBack(state.why))

    def _becomes_late(self, namespace: str, state: _Namespace) -> None:
        state.late = True
        self._unwell.add(namespace)
        self._late_on_the_wire += state.on_the_wire
        self._well_waiting -= len(state.waiting)
        self._on_free()

    def _becomes_well(self, namespace: str, state: _Namespace) -> None:
        if not state.well:
            self._well_waiting += len(state.waiting)
        if state.failures:
            self._failing_on_the_wire -= state.on_the_wire
        if state.late:
            self._late_on_the_wire -= state.on_the_wire
        self._unwell.discard(namespace)
        state.failures, state.late, state.closed_until_s, state.why = 0, False, 0.0, ""
        state.heard_s = self._now_s()

    def _count_on_the_wire(self, state: _Namespace, change: int) -> None:
        state.on_the_wire += change
        self.on_the_wire += change
        if state.failures:
            self._failing_on_the_wire += change
        elif state.late:
            self._late_on_the_wire += change


def concerns_all(refused: ApiRefused) -> bool:
    """Whether the refusal is of the scheduler itself, not of this pod: credentials, or the right to bind."""
    return refused.status == _UNAUTHORIZED or _NO_RIGHT in refused.message
