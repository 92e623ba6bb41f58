"""Queue for queries of many steps: one at a time, with a share of the event loop's time; other work runs in between.

A viewer may have only a few queries in the queue, so that other viewers get answers, too.
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
    """Queue of queries. Owned by the event loop."""

    def __init__(self) -> None:
        """Create an empty queue."""
        self._turn = asyncio.Lock()
        self._asking: Counter[Hashable] = Counter()

    async def answer(self, steps: Generator[None, None, R], viewer: Hashable) -> R:
        """Return the answer of a query.

        viewer: its sender. Raises AccessDenied if too many are queued, in total or of this viewer.
        """
        if self._asking[viewer] >= _MOST_OF_ONE:
            raise AccessDenied(HTTPStatus.TOO_MANY_REQUESTS, "Your earlier queries are still being answered.")
        if self._asking.total() >= _MOST_ASKING:
            raise AccessDenied(HTTPStatus.TOO_MANY_REQUESTS, "The server is busy; try again in a moment.")
        self._asking[viewer] += 1
        try:
            async with self._turn:
                return await _answered(steps)
        finally:
            self._asking[viewer] -= 1
            self._asking += Counter()  # drops viewers without queries
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
