"""The processes that ask the driver: made, ended, and counted, since one that hangs in the kernel cannot be ended.

RUNNING --ended, or died--> gone
   └──────ended──────▶ ABANDONED: the kernel does not let it go --> gone
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import structlog

from deviceplugin.driver.calls import Worker
from deviceplugin.driver.cards import SourceFailed
from deviceplugin.driver.opened import OpenedDriver

MOST_PROCESSES: Final = 4
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """Seconds.

    open: for a process to start and open the driver. answer: until a call counts as not answered. patience: until the
    next card is asked while one does not answer. stuck: until the common process is ended because all of its
    cards hang. hung: until a card gets a process of its own. again, longest: between two of those, at first and at
    most. start, slowest: between two starts of the common process after it failed. end: for a process that was killed
    to be gone. listen: one wait for errors.
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


class Processes:
    """Owned by the event loop. starts: processes made. At most `MOST_PROCESSES` are there, abandoned ones included."""

    def __init__(self, start: Callable[[], Awaitable[Worker]], limits: DriverLimits) -> None:
        """start: makes a process; raises SourceFailed."""
        self.limits = limits
        self.starts = 0
        self._start = start
        self._workers: list[Worker] = []
        self._ending: list[Worker] = []

    def abandoned(self) -> tuple[int, ...]:
        """Ids of the processes that the kernel does not let go."""
        self._ending = [worker for worker in self._ending if worker.alive]
        return tuple(worker.pid for worker in self._ending)

    async def opened(self, *, spare: int = 0) -> OpenedDriver:
        """A new one, with the driver open. spare: how many must be left for others. Raises SourceFailed."""
        self._workers = [worker for worker in self._workers if worker.alive]
        if len(self._workers) + spare >= MOST_PROCESSES:
            raise SourceFailed(self.problem() or f"{len(self._workers)} processes ask the driver already")
        opened = OpenedDriver(await self._start())
        self._workers.append(opened.worker)
        self.starts += 1
        try:
            await opened.open(self.limits.open_s)
        except SourceFailed:
            await self.end(opened)
            raise
        return opened

    async def end(self, opened: OpenedDriver) -> None:
        """Kill it, and wait a moment for the kernel to take back what it holds."""
        opened.worker.kill()
        if not await opened.worker.ended(self.limits.end_s) and opened.worker not in self._ending:
            self._ending.append(opened.worker)
            log.warning("driver.process_abandoned", pid=opened.worker.pid)

    def problem(self) -> str:
        """Message about processes that the kernel does not end; "" when there are none."""
        pids = ", ".join(map(str, self.abandoned()))
        return f"processes that ask the driver hang in the kernel and cannot be ended: PID {pids}" if pids else ""

    async def close(self) -> None:
        """Kill all, and wait a moment for each."""
        for worker in self._workers:
            worker.kill()
        await asyncio.gather(*(worker.ended(self.limits.end_s) for worker in self._workers))
