"""Processes that query the driver, and their pending calls. Limits their number: the kernel may fail to end some.

RUNNING --ended, or died--> gone
   └──────ended──────▶ ABANDONED: the kernel has not ended it yet --> gone
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import structlog

from deviceplugin.driver import calls
from deviceplugin.driver.calls import Call, Worker, WorkerDied
from deviceplugin.driver.cards import (
    CardFailed,
    CardKey,
    CardReading,
    DriverCard,
    MemoryLimits,
    NoAnswer,
    Opened,
    SourceFailed,
)

T = TypeVar("T")
# A longer answer than `calls.LONGEST_LINE` ends the process. A path has at most 4096 characters.
_CGROUPS_AT_ONCE: Final = 200


@dataclass(slots=True, eq=False)
class OpenedDriver:
    """A process with the driver open, and its state.

    knows: UUIDs of the cards that it has described. asked_s: subject of each pending call (the UUID, if it is about a
    card) -> time of the call. left_asking: subjects of the calls that were pending when the process died. listening:
    cards whose errors it waits for.
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
        """Open the driver. Raises SourceFailed."""
        opened: Opened = await self._ask("the driver", calls.OPEN, within_s)
        self.version, self.count = opened.version, opened.count

    async def described(self, key: CardKey, who: str, within_s: float) -> DriverCard:
        """Describe the card. who: the subject of the call while the card is unknown."""
        card = await self._ask(who, calls.describe(key), within_s)
        self.knows.add(card.uuid)
        return card

    async def links(self, uuids: Sequence[str], within_s: float) -> dict[str, dict[str, str]]:
        """Return the cards' links. Raises SourceFailed."""
        return await self._ask("links", calls.links(uuids), within_s)

    async def reading(self, card: DriverCard, within_s: float) -> CardReading:
        """Return a reading of the card, described first if this process does not know it. Raises SourceFailed."""
        await self._meet(card, card.uuid, within_s)
        return await self._ask(card.uuid, calls.read(card.uuid), within_s)

    async def set_compute_mode(self, card: DriverCard, mode: str, within_s: float) -> None:
        """Set the mode, even during a reading of the card. Raises SourceFailed."""
        who = f"card {card.uuid}: setting its compute mode"
        await self._meet(card, who, within_s)
        await self._ask(who, calls.set_compute_mode(card.uuid, mode), within_s)

    async def memory_limits(self, card: DriverCard, cgroups: Sequence[str], within_s: float) -> dict[str, MemoryLimits]:
        """Return the cgroups' limits on the card, even during a reading of the card. Raises SourceFailed."""
        who = f"card {card.uuid}: its memory limits"
        await self._meet(card, who, within_s)
        found: dict[str, MemoryLimits] = {}
        for first in range(0, len(cgroups), _CGROUPS_AT_ONCE):
            call = calls.memory_limits(card.uuid, cgroups[first : first + _CGROUPS_AT_ONCE])
            answer = await self._ask(who, call, within_s)
            found |= answer
        return found

    async def _meet(self, card: DriverCard, who: str, within_s: float) -> None:
        if card.uuid not in self.knows:
            found = await self.described(card.pci or card.uuid, who, within_s)
            if found.uuid != card.uuid:
                raise CardFailed(f"card {card.uuid}: card {found.uuid} is now at its PCI address", lost=True)

    def silent_s(self, uuid: str, now_s: float) -> float:
        """Return for how many seconds the card has owed an answer."""
        return now_s - self.asked_s.get(uuid, now_s)

    def first_silent(self, now_s: float, *, after_s: float) -> str:
        """If all known cards, at least two, hang and one has for `after_s`, return the one that hung first; else ""."""
        waiting = {uuid: since_s for uuid, since_s in self.asked_s.items() if uuid in self.knows}
        if len(waiting) < max(2, len(self.knows)) or now_s - min(waiting.values()) < after_s:
            return ""
        return min(waiting, key=lambda uuid: waiting[uuid])

    async def _ask(self, who: str, call: Call[T], within_s: float) -> T:
        """Call once. Raises NoAnswer after `within_s`, or if an earlier call with this subject still hangs."""
        if who in self.asked_s:
            raise NoAnswer(f"{who}: the driver has not answered an earlier call yet")
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


MOST_PROCESSES: Final = 4
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """Limits in seconds.

    open: time for a process to start and open the driver. answer: time until a call counts as unanswered. patience:
    time until the next card is queried while one does not answer. stuck: time until the shared process is ended because
    all of its cards hang. hung: time until a card gets a process of its own. again, longest: first and longest interval
    between two such processes. start, slowest: first and longest interval between two starts of the shared process
    after failures. end: time for a killed process to disappear. listen: length of one wait for errors. recount:
    interval between two counts of the cards by a separate process.
    """

    open_s: float = 30.0
    answer_s: float = 10.0
    patience_s: float = 1.0
    stuck_s: float = 15.0
    hung_s: float = 60.0
    again_s: float = 60.0
    longest_s: float = 600.0
    start_s: float = 1.0
    slowest_s: float = 30.0
    end_s: float = 2.0
    listen_s: float = 60.0
    recount_s: float = 240.0


class Processes:
    """All driver processes, at most `MOST_PROCESSES` including abandoned ones. Owned by the event loop.

    starts: number of long-lived processes started.
    """

    def __init__(self, start: Callable[[], Awaitable[Worker]], limits: DriverLimits) -> None:
        """start: creates a process; raises SourceFailed."""
        self.limits = limits
        self.starts = 0
        self._start = start
        self._workers: list[Worker] = []
        self._ending: list[Worker] = []

    def abandoned(self) -> tuple[int, ...]:
        """IDs of the processes that the kernel does not end."""
        self._ending = [worker for worker in self._ending if worker.alive]
        return tuple(worker.pid for worker in self._ending)

    async def opened(self, *, spare: int = 0, passing: bool = False) -> OpenedDriver:
        """Start a new process with the driver open. Raises SourceFailed.

        spare: how many processes to leave for others. passing: the process is short-lived and not counted in `starts`.
        """
        self._workers = [worker for worker in self._workers if worker.alive]
        if len(self._workers) + spare >= MOST_PROCESSES:
            raise SourceFailed(self.problem() or f"{len(self._workers)} processes are already querying the driver")
        opened = OpenedDriver(await self._start())
        self._workers.append(opened.worker)
        self.starts += not passing
        try:
            await opened.open(self.limits.open_s)
        except SourceFailed:
            await self.end(opened)
            raise
        return opened

    async def end(self, opened: OpenedDriver) -> None:
        """Kill the process, and wait briefly for the kernel to release its resources."""
        opened.worker.kill()
        if not await opened.worker.ended(self.limits.end_s) and opened.worker not in self._ending:
            self._ending.append(opened.worker)
            log.warning("driver.process_abandoned", pid=opened.worker.pid)

    def problem(self) -> str:
        """Return a message about processes that the kernel does not end; "" if there are none."""
        pids = ", ".join(map(str, self.abandoned()))
        return f"processes that query the driver hang in the kernel and cannot be killed: PID {pids}" if pids else ""

    async def close(self) -> None:
        """Kill all processes, and wait briefly for each."""
        for worker in self._workers:
            worker.kill()
        await asyncio.gather(*(worker.ended(self.limits.end_s) for worker in self._workers))
