"""Calls that read CDI specs or have NVIDIA's toolkit write them: both block for as long as a disk takes."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from deviceplugin import daemon_thread

T = TypeVar("T")


class ToolkitSilent(Exception):
    """The call did not come back in time, or an earlier one has not yet; the message says which."""


class ToolkitThread:
    """One call at a time: while one hangs, further calls fail."""

    def __init__(self) -> None:
        self._last: asyncio.Future[Any] | None = None

    async def call(self, function: Callable[[], T], *, timeout_s: float) -> T:
        """The function's result, or what it raises; ToolkitSilent."""
        if self._last is not None and not self._last.done():
            raise ToolkitSilent("an earlier call still hangs")
        # Before the wait: a caller that is cancelled in it leaves the thread at work all the same.
        answer = daemon_thread.call(function, "toolkit")
        self._last = answer
        done, _ = await asyncio.wait({answer}, timeout=timeout_s)
        if not done:
            raise ToolkitSilent(f"no answer within {timeout_s:g} s")
        return answer.result()
