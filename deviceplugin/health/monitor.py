"""Polls the driver: which cards exist, the errors that they report, and a reading of each.

    cards ──▶ every few seconds a reading of each card that is not released ──▶ … ──▶ cards again, from time to time
      └ the driver fails: every card is trusted a little less; retry soon
      └ it cannot be opened for minutes: exits, so that the kubelet recreates the container

Errors may arrive at any time. The behavior of one card affects only that card (`driver.supervisor`).
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from deviceplugin.driver.cards import (
    CardFailed,
    CardReading,
    Driver,
    DriverCards,
    NoAnswer,
    NotOpened,
    SourceFailed,
    Xid,
)
from deviceplugin.health.cuda_watch import CudaWatch
from deviceplugin.health.rules import XidLog
from deviceplugin.health.states import CardStates
from scheduler.process.clock import Clock
from scheduler.process.terminal import typed

log = structlog.get_logger()


class NeedsNewContainer(Exception):
    """The driver could not be opened for so long that only a new container may help; the message says why."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Intervals in seconds. reading: between two readings of a card. cards: between two queries for the list of cards.

    again: before a retry after the driver failed. slow: before the list is queried again after a card did not answer,
    because its initialization may take seconds; constant for a few times, then growing. end: time after which an
    unopenable driver ends the process; 0 for no limit.
    """

    reading_s: float = 10.0
    cards_s: float = 300.0
    again_s: float = 5.0
    slow_s: float = 2.0
    end_s: float = 0.0


_SLOW_LOOKS: Final = 4
_MOST_DOUBLINGS: Final = 10
_NEVER: Final = float("-inf")


@dataclass(slots=True, kw_only=True)
class CardKeeper:
    """Keeps `states` up to date. Owned by the event loop.

    forget: the health in `states` is from before a reboot. on_change: called whenever the result of `states` may
    change. on_xid: called with each error of the driver. on_cuda: called after each CUDA trial of a card.
    problem: why the driver or a card does not answer; "" if all do.
    """

    driver: Driver
    states: CardStates
    forget: bool
    pace: Pace
    clock: Clock
    on_change: Callable[[], None]
    on_xid: Callable[[Xid], None]
    on_cuda: Callable[[], None]
    problem: str = ""
    _cuda: CudaWatch = field(init=False)
    _cards_at_s: float = _NEVER
    _readings_at_s: float = _NEVER
    _shut_since_s: float | None = None
    _slow_looks: int = 0
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _absent: set[tuple[str, str]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._cuda = CudaWatch(driver=self.driver, states=self.states, on_change=self._cuda_tried, clock=self.clock)

    async def run(self) -> None:
        """Query the driver forever. Raises an ExceptionGroup with NeedsNewContainer."""
        self.driver.remember(self.states.cards)
        try:
            await self.driver.release(frozenset(self.states.released()))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep())
                tasks.create_task(self._listen())
                tasks.create_task(self._cuda.run())
        finally:
            await self.driver.close()

    async def release(self, uuids: Iterable[str], until_s: float | None) -> str:
        """Release these cards until `until_s` (Unix seconds), or reclaim them if it is None.

        Return why a card may still be held, or "".
        """
        self.states.release(uuids, until_s)
        self.on_change()
        self._cards_at_s = self._readings_at_s = _NEVER
        self._wake.set()
        try:
            await self.driver.release(frozenset(self.states.released()))
        except SourceFailed as error:
            return str(error)
        return ""

    def problems(self, shared_in: str) -> tuple[str, ...]:
        """Return messages for operators. shared_in: the compute mode in which programs share a card here."""
        shared_not = (
            f"card {uuid}: compute mode is {reading.compute_mode}, which keeps programs from sharing it; "
            f"run {typed('nvidia-smi', '-i', uuid, '-c', 'DEFAULT')}"
            for uuid, reading in self.states.readings.items()
            if reading.compute_mode not in {"", shared_in}
        )
        own = (self.problem, *self.driver.problems(), *self.states.cuda_problems())
        return tuple(filter(None, (*own, *shared_not)))

    def _cuda_tried(self) -> None:
        self.on_change()
        self.on_cuda()

    async def _keep(self) -> None:
        while True:
            try:
                await self._step()
            except SourceFailed as error:
                self._failed(error)
                await self._pause(self.pace.again_s)

    async def _step(self) -> None:
        now_s = self.clock.wall_s()
        if over := [uuid for uuid, until_s in self.states.released().items() if until_s <= now_s]:
            log.info("card.taken_back", uuids=over, reason="the release period has expired")
            await self.release(over, None)
        if not self._all_released():
            if self.driver.grown() or self.clock.monotonic_s() >= self._cards_at_s + self.pace.cards_s:
                await self._list_cards()
            if self.clock.monotonic_s() >= self._readings_at_s + self.pace.reading_s:
                await self._read()
                if self.driver.grown():
                    await self._list_cards()
        next_s = min(self._readings_at_s + self.pace.reading_s, self._cards_at_s + self.pace.cards_s)
        left_s = next_s - self.clock.monotonic_s()
        await self._pause(self.pace.reading_s if self._all_released() else left_s)

    async def _pause(self, for_s: float) -> None:
        self._wake.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, for_s)):
                await self._wake.wait()

    def _all_released(self) -> bool:
        return bool(self.states.cards) and self.states.released().keys() >= {card.uuid for card in self.states.cards}

    async def _list_cards(self) -> None:
        # Before the query: a card that is reclaimed during it may be split by now and must be checked again.
        self._cards_at_s = self.clock.monotonic_s()
        found = await self.driver.cards()
        self._slow_looks = self._slow_looks + 1 if found.silent and not self._is_more(found) else 0
        if found.silent:
            pause_s = self.pace.slow_s * 2 ** min(_MOST_DOUBLINGS, max(0, self._slow_looks - _SLOW_LOOKS))
            self._cards_at_s = self.clock.monotonic_s() + min(0.0, pause_s - self.pace.cards_s)
        self.states.found(found, forget=self.forget)
        self.forget, self._shut_since_s = False, None
        self.on_change()

    def _is_more(self, found: DriverCards) -> bool:
        known = {card.uuid for card in self.states.cards}
        return any(card.uuid not in known for card in found.cards)

    async def _read(self) -> None:
        """Take one reading of each card. Raises SourceFailed if the driver fails, not a card."""
        self._readings_at_s = self.clock.monotonic_s()
        released = self.states.released()
        # The answer of a split card has those of its instances.
        asked = [card.uuid for card in self.states.cards if card.uuid not in released and not card.parent]
        answers = await self.driver.readings(asked)
        # A card released during the query was meant to be silent.
        answers = {uuid: answer for uuid, answer in answers.items() if uuid not in self.states.released()}
        failures = [answer for answer in answers.values() if isinstance(answer, SourceFailed)]
        if (
            failures
            and len(failures) == len(answers)
            and not any(isinstance(one, NoAnswer | CardFailed) for one in failures)
        ):
            raise failures[0]
        self._note_absent(answers)
        self.states.answered(answers, self.clock.wall_s())
        self.problem = "; ".join(dict.fromkeys(map(str, failures)))
        self._cuda.look()
        self.on_change()

    def _note_absent(self, answers: Mapping[str, CardReading | SourceFailed]) -> None:
        """Log each optional value that cannot be read, once."""
        for uuid, reading in answers.items():
            for what in reading.absent if isinstance(reading, CardReading) else ():
                if (uuid, what) not in self._absent:
                    self._absent.add((uuid, what))
                    log.warning("reading.absent", uuid=uuid, what=what)

    async def _listen(self) -> None:
        logged = XidLog()
        while True:
            for xid in await self.driver.events():
                if times := logged.times(xid, self.clock.monotonic_s()):
                    log.warning("card.xid", uuid=xid.uuid, number=xid.number, times=times)
                self.on_xid(xid)
                self.states.xid(xid, self.clock.wall_s())
            self.on_change()

    def _failed(self, error: SourceFailed) -> None:
        reason = str(error)
        if isinstance(error, NotOpened):
            reason += self._ends_in()
        else:
            self._shut_since_s = None
        if str(error) not in self.problem:
            log.warning("driver.failed", reason=reason)
        self.problem = reason
        self._cards_at_s = self._readings_at_s = _NEVER
        released = self.states.released()
        self.states.unanswered(
            [card.uuid for card in self.states.cards if card.uuid not in released], self.clock.wall_s()
        )
        self.on_change()

    def _ends_in(self) -> str:
        """Return a warning while the driver cannot be opened. Raises NeedsNewContainer if that lasts too long."""
        if not self.pace.end_s:
            return ""
        now_s = self.clock.monotonic_s()
        self._shut_since_s = now_s if self._shut_since_s is None else self._shut_since_s
        left_s = self._shut_since_s + self.pace.end_s - now_s
        if left_s <= 0:
            raise NeedsNewContainer(
                f"{self.problem}; this has lasted {self.pace.end_s:g} s: "
                "exiting so that the kubelet recreates the container"
            )
        return (
            f"; if this lasts {left_s / 60:.0f} more min, the plugin exits so that the kubelet recreates the container"
        )
