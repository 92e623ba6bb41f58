"""Tries CUDA on each card: at start, when the card or driver has changed, soon after a failure, otherwise rarely.

A card takes no new pods until CUDA has been tried on it, or while CUDA fails there (`health.cuda`). Cards that are
split, lost, silent or released are not tried. While any card is released, none is tried: CUDA may open every card that
it finds.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from deviceplugin.driver.cards import Driver, NoAnswer
from deviceplugin.driver.cuda import CudaAnswer
from deviceplugin.health.cuda import USUAL, TrialPace
from deviceplugin.health.states import CardStates
from scheduler.process.clock import Clock

_LOOK_S: Final = 60.0
_BETWEEN_S: Final = 0.1
log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class CudaWatch:
    """CUDA trials over time. Owned by the event loop. on_change: called whenever the result of `states` may change."""

    driver: Driver
    states: CardStates
    on_change: Callable[[], None]
    clock: Clock
    pace: TrialPace = USUAL
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _trying: set[str] = field(default_factory=set)

    def look(self) -> None:
        """Check soon for cards to try."""
        self._wake.set()

    async def run(self) -> None:
        """Try forever."""
        async with asyncio.TaskGroup() as tasks:
            while self.states.tries_cuda:
                self._wake.clear()
                for uuid in self._due():
                    self._trying.add(uuid)
                    tasks.create_task(self._try(uuid))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_s()):
                        await self._wake.wait()

    async def _try(self, uuid: str) -> None:
        """Try one card; a card that hangs does not delay the others."""
        try:
            answer = await self.driver.cuda(uuid)
        except NoAnswer:
            await asyncio.sleep(_BETWEEN_S)  # A card was released during this: the result proves nothing.
            return
        finally:
            self._trying.discard(uuid)
            self._wake.set()
        if uuid in self.states.to_try():
            self._log(uuid, answer)
            self.states.tried(uuid, answer, self.clock.monotonic_s())
            self.on_change()

    def _log(self, uuid: str, answer: CudaAnswer) -> None:
        before = self.states.cuda.get(uuid)
        if before is None or before.answer != answer:
            say = log.info if answer.starts else log.warning
            say("card.cuda", uuid=uuid, code=answer.code, reason=answer.detail or answer.lacking)

    def _due(self) -> list[str]:
        now_s = self.clock.monotonic_s()
        return [uuid for uuid, at_s in self._next().items() if at_s <= now_s]

    def _pause_s(self) -> float:
        return max(_BETWEEN_S, min([_LOOK_S, *(at_s - self.clock.monotonic_s() for at_s in self._next().values())]))

    def _next(self) -> dict[str, float]:
        """Return UUID -> when to try CUDA, in monotonic seconds, for cards without a running trial."""
        return {uuid: at_s for uuid, at_s in self.states.to_try(self.pace).items() if uuid not in self._trying}
