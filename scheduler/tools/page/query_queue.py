"""Questions that take many steps: one at a time, with a share of the event loop's time; others run meanwhile.

Who asks much leaves room for others to ask, and keeps each of them for a few questions at most.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Generator, Hashable
from http import HTTPStatus
from typing import Final, TypeVar

from scheduler.tools.page.access import AccessDenied

R = TypeVar("R")
_SHARE: Final = 0.2
_MOST_ASKING: Final = 8
_MOST_OF_ONE: Final = 4


class QueryQueue:
    """Owned by the event loop."""

    def __init__(self) -> None:
        """Nobody asks."""
        self._turn = asyncio.Lock()
        self._asking: Counter[Hashable] = Counter()

    async def answer(self, steps: Generator[None, None, R], viewer: Hashable) -> R:
        """Answer of a question. viewer: who asks. Raises AccessDenied while many are asked, by all or by this one."""
        if self._asking[viewer] >= _MOST_OF_ONE:
            raise AccessDenied(HTTPStatus.TOO_MANY_REQUESTS, "Your earlier questions are still being answered.")
        if self._asking.total() >= _MOST_ASKING:
            raise AccessDenied(HTTPStatus.TOO_MANY_REQUESTS, "Many are asking at the moment; try again in a while.")
        self._asking[viewer] += 1
        try:
            async with self._turn:
                return await _answered(steps)
        finally:
            self._asking[viewer] -= 1
            self._asking += Counter()  # forgets who asks nothing any more
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
