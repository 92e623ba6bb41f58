"""Questions that take many steps: one at a time, with a share of the event loop's time; others run meanwhile."""

import asyncio
import time
from collections.abc import Generator
from http import HTTPStatus
from typing import Final, TypeVar

from scheduler.page.access import Refused

R = TypeVar("R")
_SHARE: Final = 0.2
_MOST_ASKING: Final = 8


class Steps:
    """Owned by the event loop."""

    def __init__(self) -> None:
        """Nobody asks."""
        self._turn = asyncio.Lock()
        self._asking = 0

    async def answer(self, steps: Generator[None, None, R]) -> R:
        """What comes of a question. Raises Refused while many others are being asked."""
        if self._asking >= _MOST_ASKING:
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, "Many are asking at the moment; try again in a while.")
        self._asking += 1
        try:
            async with self._turn:
                return await _answered(steps)
        finally:
            self._asking -= 1
            steps.close()


async def _answered(steps: Generator[None, None, R]) -> R:
    while True:
        began_s = time.monotonic()
        try:
            next(steps)
        except StopIteration as ended:
            answer: R = ended.value
            return answer
        await asyncio.sleep((time.monotonic() - began_s) * (1 / _SHARE - 1))
