"""One card with a process of its own, because it hung or failed in the shared one.

no process --next try--> ASKED --fails for a minute, or the process ends--> no process
                           └── answers: the shared process may query it again
"""

import asyncio
from dataclasses import dataclass

from deviceplugin.driver.cards import CardFailed, CardReading, DriverCard, NoAnswer, SourceFailed
from deviceplugin.driver.processes import OpenedDriver, Processes


@dataclass(slots=True)
class CardApart:
    """State of a card. last_failure: None while it answers. failing_s: time of its first failure.

    next_s: when it may get a new process.
    """

    processes: Processes
    last_failure: SourceFailed | None
    failing_s: float = 0.0
    next_s: float = 0.0
    pause_s: float = 0.0
    opened: OpenedDriver | None = None
    left: bool = False

    async def reading(self, card: DriverCard) -> CardReading:
        """Return a reading. Raises only NoAnswer or CardFailed: one failing card says nothing about the driver."""
        limits = self.processes.limits
        try:
            opened = await self._opened()
            reading = await opened.reading(card, limits.answer_s)
        except SourceFailed as error:
            await self._failed(error)
            if isinstance(error, NoAnswer | CardFailed):
                raise
            raise NoAnswer(str(error)) from error
        self.last_failure, self.pause_s = None, 0.0
        return reading

    async def leave(self) -> None:
        """Stop querying the card permanently.

        Afterwards, none of its processes holds the card, unless the kernel fails to end one.
        """
        self.left = True
        await self._end()

    async def _end(self) -> None:
        if self.opened is not None:
            opened, self.opened = self.opened, None
            await self.processes.end(opened)

    async def _opened(self) -> OpenedDriver:
        if self.opened is None:
            now_s, limits = _now_s(), self.processes.limits
            if now_s < self.next_s and self.last_failure is not None:
                raise self.last_failure.with_traceback(None)
            self.pause_s = min(limits.longest_s, max(limits.again_s, 2 * self.pause_s))
            self.next_s, self.failing_s = now_s + self.pause_s, now_s
            # One for the other cards, one for the next card that hangs.
            self.opened = await self.processes.opened(spare=1)
        if self.left:
            await self._end()
            raise NoAnswer("the card is no longer queried")
        return self.opened

    async def _failed(self, error: SourceFailed) -> None:
        if self.last_failure is None:
            self.failing_s = _now_s()
        self.last_failure = error
        of_the_card = isinstance(error, NoAnswer | CardFailed)
        if not of_the_card or _now_s() - self.failing_s >= self.processes.limits.hung_s:
            await self._end()


def _now_s() -> float:
    return asyncio.get_running_loop().time()
