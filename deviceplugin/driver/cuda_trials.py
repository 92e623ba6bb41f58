"""Trials of CUDA, each of one card in its own process, two at a time: a card that hangs does not stop the others.

IDLE --answer--> TRYING --answered, died, or killed after a while--> IDLE
                    └── killed, but the kernel does not end it --> HELD: no trial of this card until it ends
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from deviceplugin.driver import calls
from deviceplugin.driver.calls import Worker, WorkerDied
from deviceplugin.driver.cards import NoAnswer, SourceFailed
from deviceplugin.driver.cuda import NO_MEMORY, CudaAnswer

# cuInit may initialize every card that it finds, as without persistence mode: 8 cards for 3 s each.
ANSWERS_WITHIN_S: Final = 30.0
_ENDS_WITHIN_S: Final = 2.0
_AT_ONCE: Final = 2
log = structlog.get_logger()


class CudaTrials:
    """Trials of the node's cards. Owned by the event loop."""

    def __init__(self, start: Callable[[str], Awaitable[Worker]], within_s: float = ANSWERS_WITHIN_S) -> None:
        """start: creates a process that sees only the card with this UUID; raises SourceFailed."""
        self._start, self._within_s = start, within_s
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._trying: dict[str, Worker] = {}
        self._held: dict[str, Worker] = {}
        self._stops = 0

    async def answer(self, uuid: str) -> CudaAnswer:
        """Try CUDA on this card, for at most `within_s`. Raises NoAnswer if the trial was stopped.

        A card has one trial at a time.
        """
        stops = self._stops
        async with self._turns:
            held = self._held.get(uuid)
            if held is not None and held.alive:
                return CudaAnswer(detail=f"process {held.pid} hangs in the kernel and cannot be killed")
            try:
                found = await self._tried(uuid, stops)
            finally:
                await self._end(uuid)
        self._check_stop(stops)
        return found

    async def stop(self) -> None:
        """End the running trials. Afterwards, their processes hold no card, unless the kernel fails to end one."""
        self._stops += 1
        await asyncio.gather(*map(self._end, tuple(self._trying)))

    def problem(self) -> str:
        """Return a message about processes that the kernel does not end; "" if there are none."""
        pids = ", ".join(str(worker.pid) for worker in self._held.values() if worker.alive)
        return f"processes that test CUDA hang in the kernel and cannot be killed: PID {pids}" if pids else ""

    async def _tried(self, uuid: str, stops: int) -> CudaAnswer:
        try:
            self._check_stop(stops)
            self._trying[uuid] = worker = await self._start(uuid)
            self._check_stop(stops)
            async with asyncio.timeout(self._within_s):
                return await worker.ask(calls.start_cuda(uuid))
        except TimeoutError:
            return CudaAnswer(detail=f"cuInit did not return within {self._within_s:g} s")
        except NoAnswer:
            raise
        except WorkerDied as error:
            return CudaAnswer(lacking=f"{NO_MEMORY}: {error}") if error.killed else CudaAnswer(detail=str(error))
        except SourceFailed as error:
            return CudaAnswer(detail=str(error))

    def _check_stop(self, stops: int) -> None:
        if stops != self._stops:
            raise NoAnswer("the CUDA test was stopped")

    async def _end(self, uuid: str) -> None:
        worker = self._trying.pop(uuid, None)
        if worker is None:
            return
        worker.kill()
        if not await worker.ended(_ENDS_WITHIN_S):
            self._held[uuid] = worker
            log.warning("cuda.process_abandoned", pid=worker.pid, uuid=uuid)
