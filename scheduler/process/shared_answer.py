"""A slow answer: made once for all concurrent callers, and kept for a moment."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

R = TypeVar("R")


class SharedAnswer(Generic[R]):
    """Owned by the event loop."""

    def __init__(self, make: Callable[[], Awaitable[R]], kept_s: float) -> None:
        """kept_s: for which it serves, from when it is made."""
        self._make = make
        self._kept_s = kept_s
        self._kept: tuple[R, float] | None = None
        self._making: asyncio.Task[R] | None = None

    async def get(self) -> R:
        """The answer, as old as it is kept, or as old as its making takes."""
        if self._kept is not None and asyncio.get_running_loop().time() < self._kept[1]:
            return self._kept[0]
        if self._making is None:
            self._making = asyncio.create_task(self._made())
        # A caller that leaves does not end it for the others.
        return await asyncio.shield(self._making)

    async def _made(self) -> R:
        try:
            answer = await self._make()
            self._kept = (answer, asyncio.get_running_loop().time() + self._kept_s)
        finally:
            self._making = None
        return answer
