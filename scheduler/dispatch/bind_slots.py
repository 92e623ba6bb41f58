"""Who may send the next bind request: at most so many at once, shared fairly among namespaces.

A slot is one request on the wire. A pod that waits between two attempts, for Permit or for PreBind has none. How many
slots a namespace may have says `slot_shares`. So a webhook that is down in one namespace costs no other a slot, and a
server that sends everybody away hears little from us.

Free slots go round the namespaces that wait, one each; within a namespace in the order of asking. Of the namespaces
without a request on the wire, all of one standing may have a slot or none, so one of each standing is looked at,
however many wait:

    IDLE, by standing and turn ──a slot──▶ BUSY, at most as many as slots ──its last answer──▶ IDLE
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

from scheduler.dispatch.slot_shares import Sender, SlotShares, Standing, how
from scheduler.kube.port import ApiError, ApiRefused, NotSent
from scheduler.queue.heap import Heap

# RBAC's own words, and not those of an admission policy: no such request of this namespace is accepted.
_NO_RIGHT: Final = re.compile(r'\bcannot [a-z]+ resource "')
_UNAUTHORIZED: Final = 401


class HeldBack(Exception):
    """Nothing of this pod is sent for now: its namespace fails; the message says why."""


class Stopped(Exception):
    """The process ends: nothing more is sent.

    What has no definite answer yet is in the next process's list. in_doubt: a request may have taken effect.
    """

    in_doubt = False


@dataclass(slots=True, eq=False)
class _Line:
    """The requests of one namespace that wait for a slot. first: those of them whose pod has not sent anything.

    turn: of two that may have a slot, the one with the lower number gets it.
    """

    sender: Sender
    turn: int
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)
    first: set[asyncio.Future[None]] = field(default_factory=set)


class BindSlots:
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
        sender gets NotSent.
        """
        self._shares = SlotShares(most)
        self._now_s = now_s
        self._backoff_s = backoff_s
        self._on_free = on_free
        self._leads = leads
        self._starting: Counter[str] = Counter()
        # Those with waiting requests; each is in one of the other three, see the module.
        self._lines: dict[str, _Line] = {}
        self._idle: dict[Standing, Heap[float, _Line]] = {standing: Heap() for standing in Standing}
        self._busy: dict[str, _Line] = {}
        self._paused: Heap[float, _Line] = Heap()  # by the end of the pause
        self._turns = 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = asyncio.Event()

    @property
    def on_the_wire(self) -> int:
        """Requests."""
        return self._shares.on_the_wire

    @property
    def taken(self) -> int:
        """As `SlotShares.taken`."""
        return self._shares.taken

    def held_back(self, namespace: str) -> str:
        """As `SlotShares.held_back`."""
        return self._shares.held_back(namespace)

    def failing(self, namespace: str) -> str:
        """The same, by `slot_shares.how`."""
        return how(self._shares.held_back(namespace))

    def lets_pass(self, namespace: str) -> bool:
        """As `SlotShares.lets_pass`."""
        return self._shares.lets_pass(namespace, self._now_s())

    def has_room(self, namespace: str) -> bool:
        """As `SlotShares.has_room`."""
        return self._shares.has_room(namespace, self._now_s(), self._starting[namespace])

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
        sender = self._shares.enter(namespace, self._now_s())
        try:
            yield
        finally:
            self._shares.leave(sender)

    def slot(self, namespace: str, *, first: bool = False) -> "InFlightSlot":
        """One request, inside `binding`: the ApiError that it raises, or none, says how the namespace is.

        first: of this pod. Entering it raises Stopped; HeldBack for a first one, when the namespace fails while it
        waits.
        """
        return InFlightSlot(self, self._shares.sender(namespace), first=first)

    async def take(self, sender: Sender, *, first: bool) -> None:
        """Of `slot`: the beginning."""
        await self._turn_of(sender, first=first)
        if not self._leads():
            error = NotSent()
            self.give_back(sender, error)
            raise error

    def give_back(self, sender: Sender, error: BaseException | None) -> None:
        """Of `slot`: the end."""
        if error is None:
            self._shares.answered(sender, self._now_s())
        elif isinstance(error, ApiError):
            self._failed(sender, error)
        self._free(sender)

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
        for line in self._lines.values():
            for waiting in line.waiting:
                if not waiting.done():
                    waiting.set_exception(Stopped())

    def _free(self, sender: Sender) -> None:
        """Its slot is nobody's: whoever waits may have it."""
        self._shares.ends(sender)
        if line := self._lines.get(sender.name):
            self._place(line)
        self._serve()
        self._on_free()

    async def _turn_of(self, sender: Sender, *, first: bool) -> None:
        if self._stopped.is_set():
            raise Stopped
        now_s = self._now_s()
        if not self._lines and self._shares.may_send(sender, now_s):
            self._shares.sends(sender, now_s)  # as below, where nobody else waits
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.get(sender.name)
        if line is None:
            line = self._lines[sender.name] = _Line(sender, self._next_turn())
            self._place(line)
        line.waiting.append(mine)
        if first:
            line.first.add(mine)
        self._shares.waits(sender, 1)
        self._serve()
        try:
            await mine
        except BaseException:
            if mine in line.waiting:
                self._forget(line, mine)
            elif not mine.cancelled() and mine.exception() is None:
                self._free(sender)  # given, and not used
            raise

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def _place(self, line: _Line) -> None:
        """Where it belongs by now."""
        self._displace(line)
        sender = line.sender
        if sender.on_the_wire:
            self._busy[sender.name] = line
        elif sender.standing is Standing.FAILING and self._now_s() < sender.closed_until_s:
            self._paused.push(line, sender.closed_until_s)
        else:
            self._idle[sender.standing].push(line, line.turn)

    def _displace(self, line: _Line) -> None:
        self._busy.pop(line.sender.name, None)
        for heap in (self._paused, *self._idle.values()):
            heap.discard(line)

    def _forget(self, line: _Line, waiting: asyncio.Future[None]) -> None:
        """It waits no longer."""
        line.waiting.remove(waiting)
        line.first.discard(waiting)
        self._shares.waits(line.sender, -1)
        if not line.waiting:
            self._displace(line)
            del self._lines[line.sender.name]

    def _serve(self) -> None:
        """Give free slots, one to each in turn, and look again when time alone changes something."""
        if not self._lines and self._timer is None:
            return
        now_s = self._now_s()
        for resumed in self._paused.pop_until(now_s):
            self._place(resumed)
        while self._shares.free and (line := self._next(now_s)) is not None:
            self._give(line, now_s)
        paused = self._paused.first()
        opens_s = min((self._look(line, now_s) for line in tuple(self._busy.values())), default=inf)
        opens_s = opens_s if paused is None else min(opens_s, paused[0])
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if opens_s < inf and not self._stopped.is_set():
            self._timer = asyncio.get_running_loop().call_later(opens_s - now_s, self._serve)

    def _next(self, now_s: float) -> _Line | None:
        """Of those that may have a slot, the one whose turn it is."""
        firsts = (heap.first() for heap in self._idle.values())
        lines = [*(first[1] for first in firsts if first is not None), *self._busy.values()]
        may_send = (line for line in lines if self._shares.may_send(line.sender, now_s))
        return min(may_send, key=attrgetter("turn"), default=None)

    def _give(self, line: _Line, now_s: float) -> None:
        """A slot to the first that waits: the others' turn comes before its next."""
        waiting = line.waiting[0]
        line.turn = self._next_turn()
        self._forget(line, waiting)
        if not waiting.done():
            waiting.set_result(None)
            self._shares.sends(line.sender, now_s)
        if line.waiting:
            self._place(line)

    def _look(self, line: _Line, now_s: float) -> float:
        before = line.sender.standing
        opens_s = self._shares.look(line.sender, now_s)
        if line.sender.standing is not before:
            if line.sender.standing is Standing.FAILING:
                self._turn_away(line)
            self._on_free()
        return opens_s

    def _failed(self, sender: Sender, error: ApiError) -> None:
        if isinstance(error, ApiRefused) and not concerns_all(error):
            self._shares.answered(sender, self._now_s())
            return
        self._shares.failed(sender, error, self._now_s(), self._backoff_s)
        if line := self._lines.get(sender.name):
            self._turn_away(line)

    def _turn_away(self, line: _Line) -> None:
        """Those that have sent nothing are told so, and hold no place; the one that has failed tries again."""
        for waiting in [one for one in line.waiting if one in line.first]:
            self._forget(line, waiting)
            if not waiting.done():
                waiting.set_exception(HeldBack(line.sender.why))


class InFlightSlot:
    """A slot for the block inside it. A class, since a generator costs as much as what is done here."""

    __slots__ = ("_first", "_sender", "_slots")

    def __init__(self, slots: BindSlots, sender: Sender, *, first: bool) -> None:
        """As `BindSlots.slot`."""
        self._slots = slots
        self._sender = sender
        self._first = first

    async def __aenter__(self) -> None:
        """Wait for it."""
        await self._slots.take(self._sender, first=self._first)

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        """Give it back."""
        self._slots.give_back(self._sender, error)


def concerns_all(refused: ApiRefused) -> bool:
    """Whether the refusal is of the scheduler itself, not of this pod: credentials, or a missing right."""
    return refused.status == _UNAUTHORIZED or bool(_NO_RIGHT.search(refused.message))
