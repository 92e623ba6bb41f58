"""Keeps asking the driver: which cards there are, what happened to them, and a reading of each.

    cards ──▶ wait for events ──▶ … ──▶ every few seconds a reading of each card ──▶ … ──▶ now and then cards again
      └ fails at any step: nobody answered, so every card is a little less trusted; again, soon

Nothing that the driver does or does not do ends this: a driver may be installed, or come back, at any time.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from deviceplugin.driver.cards import Back, CardEvent, CardSource, DriverCard, Lost, SourceFailed, Xid
from deviceplugin.driver.thread import ANSWERS_WITHIN_S, DriverThread
from deviceplugin.health.states import CardStates

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds. reading: between two readings of a card. cards: between two looks at which cards there are.

    again: before the driver is asked once more after it failed.
    """

    reading_s: float = 10.0
    cards_s: float = 300.0
    again_s: float = 5.0


_NEVER: Final = float("-inf")


@dataclass(slots=True, kw_only=True)
class CardKeeper:
    """Owned by the event loop; the driver is asked in a thread of its own.

    forget: what `states` remembers is from before a reboot. wall_s: Unix seconds. on_news: called
    whenever `states` may say something else. on_xid: told of each error of the driver. problem: why the driver does not
    answer; "" while it does.
    """

    source: CardSource
    states: CardStates
    forget: bool
    pace: Pace
    wall_s: Callable[[], float]
    on_news: Callable[[], None]
    on_xid: Callable[[Xid], None]
    problem: str = ""
    _thread: DriverThread = field(default_factory=lambda: DriverThread("driver"))
    _cards_at_s: float = _NEVER
    _readings_at_s: float = _NEVER

    async def run(self) -> None:
        """Ask forever."""
        try:
            while True:
                try:
                    await self._turn()
                except SourceFailed as error:
                    self._failed(str(error))
                    await asyncio.sleep(self.pace.again_s)
        finally:
            self._thread.close(self.source.close)

    async def _turn(self) -> None:
        if time.monotonic() >= self._cards_at_s + self.pace.cards_s:
            await self._look()
        if time.monotonic() >= self._readings_at_s + self.pace.reading_s:
            await self._read()
        left_s = max(0.0, self._readings_at_s + self.pace.reading_s - time.monotonic())
        events = await self._thread.call(
            "events of the cards", lambda: self.source.wait(left_s), timeout_s=left_s + ANSWERS_WITHIN_S
        )
        for event in events:
            self._take(event)
        if events:
            self.on_news()

    async def _look(self) -> None:
        found = await self._thread.call("the cards", self.source.cards)
        self.states.found(found, self.wall_s(), forget=self.forget)
        self.forget, self._cards_at_s = False, time.monotonic()
        self.on_news()

    async def _read(self) -> None:
        """Raises SourceFailed when no card answers: then it is the driver."""
        cards = self.states.cards
        failed = {card.uuid: reason for card in cards if (reason := await self._read_one(card))}
        if cards and len(failed) == len(cards):
            raise SourceFailed(next(iter(failed.values())))
        self.states.unanswered(failed, self.wall_s())
        self._readings_at_s = time.monotonic()
        self.problem = "; ".join(failed.values())
        self.on_news()

    async def _read_one(self, card: DriverCard) -> str:
        """Why it did not answer; "" when it did."""
        try:
            reading = await self._thread.call(f"card {card.uuid}", lambda: self.source.reading(card.uuid))
        except SourceFailed as error:
            return str(error)
        self.states.reading(card.uuid, reading, self.wall_s())
        return ""

    def _take(self, event: CardEvent) -> None:
        log.warning(
            "card.event", card_event=type(event).__name__, uuid=event.uuid, number=getattr(event, "number", None)
        )
        if isinstance(event, Xid):
            self.on_xid(event)
        self.states.event(event, self.wall_s())
        if isinstance(event, Lost | Back):
            self._cards_at_s = _NEVER

    def _failed(self, reason: str) -> None:
        if reason != self.problem:
            log.warning("driver.failed", reason=reason)
        self.problem = reason
        self._cards_at_s = self._readings_at_s = _NEVER
        self.states.unanswered([card.uuid for card in self.states.cards], self.wall_s())
        self.on_news()
