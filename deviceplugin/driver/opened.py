"""One process that has the driver open: what it was asked and has not answered, and which cards it knows.

Owned by the event loop.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from deviceplugin.driver import calls
from deviceplugin.driver.calls import Call, Worker, WorkerDied
from deviceplugin.driver.cards import CardFailed, CardKey, CardReading, DriverCard, NoAnswer, Opened

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class OpenedDriver:
    """The process, and where it stands.

    knows: UUIDs of the cards that it has described. asked_s: by who was asked, since when there is no answer; of a
    card its UUID. left_asking: who was being asked when the process died. listening: cards whose errors it waits for.
    """

    worker: Worker
    version: str = ""
    count: int = 0
    knows: set[str] = field(default_factory=set)
    asked_s: dict[str, float] = field(default_factory=dict)
    left_asking: set[str] = field(default_factory=set)
    listening: set[str] = field(default_factory=set)
    _calls: set["asyncio.Task[Any]"] = field(default_factory=set)

    async def open(self, within_s: float) -> None:
        """Raises SourceFailed."""
        opened: Opened = await self._ask("the driver", calls.OPEN, within_s)
        self.version, self.count = opened.version, opened.count

    async def described(self, key: CardKey, who: str, within_s: float) -> DriverCard:
        """who: as it is called while nothing is known of it."""
        card = await self._ask(who, calls.describe(key), within_s)
        self.knows.add(card.uuid)
        return card

    async def links(self, uuids: Sequence[str], within_s: float) -> dict[str, dict[str, str]]:
        """Raises SourceFailed."""
        return await self._ask("links", calls.links(uuids), within_s)

    async def reading(self, card: DriverCard, within_s: float) -> CardReading:
        """Reading of a card, described first if this process does not know it. Raises SourceFailed."""
        await self._meet(card, card.uuid, within_s)
        return await self._ask(card.uuid, calls.read(card.uuid), within_s)

    async def set_compute_mode(self, card: DriverCard, mode: str, within_s: float) -> None:
        """Set the mode; a reading of the card may be under way. Raises SourceFailed."""
        who = f"card {card.uuid}: setting its compute mode"
        await self._meet(card, who, within_s)
        await self._ask(who, calls.set_compute_mode(card.uuid, mode), within_s)

    async def _meet(self, card: DriverCard, who: str, within_s: float) -> None:
        if card.uuid not in self.knows:
            found = await self.described(card.pci or card.uuid, who, within_s)
            if found.uuid != card.uuid:
                raise CardFailed(f"card {card.uuid}: card {found.uuid} is in its place", lost=True)

    def silent_s(self, uuid: str, now_s: float) -> float:
        """For how long the card has owed an answer."""
        return now_s - self.asked_s.get(uuid, now_s)

    def first_silent(self, now_s: float, *, after_s: float) -> str:
        """The card that hung first, when all that it knows hang for so long, and they are several; "" else."""
        waiting = {uuid: since_s for uuid, since_s in self.asked_s.items() if uuid in self.knows}
        if len(waiting) < max(2, len(self.knows)) or now_s - min(waiting.values()) < after_s:
            return ""
        return min(waiting, key=lambda uuid: waiting[uuid])

    async def _ask(self, who: str, call: Call[T], within_s: float) -> T:
        """Raises NoAnswer when it takes longer, or an earlier call to the same still hangs; it is not asked twice."""
        if who in self.asked_s:
            raise NoAnswer(f"{who}: the driver still hangs in an earlier call")
        loop = asyncio.get_running_loop()
        self.asked_s[who] = loop.time()
        asking = asyncio.create_task(self.worker.ask(call))
        self._calls.add(asking)
        asking.add_done_callback(lambda _: self._answered(who, asking))
        done, _ = await asyncio.wait({asking}, timeout=within_s)
        if not done:
            raise NoAnswer(f"{who}: the driver did not answer within {within_s:g} s")
        return asking.result()

    def _answered(self, who: str, asking: "asyncio.Task[Any]") -> None:
        self._calls.discard(asking)
        self.asked_s.pop(who, None)
        # The result of an abandoned call is dropped; reading its exception keeps the loop from logging it.
        if not asking.cancelled() and isinstance(asking.exception(), WorkerDied):
            self.left_asking.add(who)
