"""Calls a driver, which blocks for as long as it likes, in a thread of its own; the event loop waits only so long."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from deviceplugin.cards import SourceFailed

T = TypeVar("T")
ANSWERS_WITHIN_S: Final = 10.0


class DriverThread:
    """One thread, one call at a time: a driver that hangs is asked nothing more until it has answered."""

    def __init__(self, name: str) -> None:
        """name: of the thread, for people who look at the process."""
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._turn = asyncio.Lock()
        self._last: asyncio.Future[Any] | None = None

    async def call(self, what: str, function: Callable[[], T], *, timeout_s: float = ANSWERS_WITHIN_S) -> T:
        """The function's result. what: for the message.

        Raises SourceFailed: its own, or because it has not answered within `timeout_s`, or an earlier call still hangs.
        """
        async with self._turn:
            if self._last is not None and not self._last.done():
                message = f"{what}: the driver still hangs in an earlier call"
                raise SourceFailed(message)
            answer = asyncio.get_running_loop().run_in_executor(self._executor, function)
            # Before the wait: a caller that is cancelled in it leaves the thread at work all the same.
            self._last = answer
            answer.add_done_callback(_heard)
            done, _ = await asyncio.wait({answer}, timeout=timeout_s)
            if not done:
                message = f"{what}: the driver did not answer within {timeout_s:g} s"
                raise SourceFailed(message)
            return answer.result()

    def close(self) -> None:
        """Wait for nothing: a thread that hangs in the driver ends with the process."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _heard(answer: "asyncio.Future[T]") -> None:
    # What a call that was given up says in the end interests nobody; looking at it keeps the loop from complaining.
    if not answer.cancelled():
        answer.exception()
