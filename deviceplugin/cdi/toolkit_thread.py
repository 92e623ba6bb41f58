"""The thread that reads CDI specs and has NVIDIA's toolkit write them: both block for as long as a disk likes."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

T = TypeVar("T")
_NAME: Final = "toolkit"

_Work: TypeAlias = tuple[Callable[[], Any], "asyncio.Future[Any]"] | None


class ToolkitSilent(Exception):
    """The call did not come back in time, or an earlier one has not yet; the message says which."""


class ToolkitThread:
    """One call at a time: while one hangs, further calls fail.

    A daemon: while a call hangs the process can end all the same, which an executor's thread would prevent.
    """

    def __init__(self) -> None:
        """Starts it."""
        self._work: SimpleQueue[_Work] = SimpleQueue()
        self._last: asyncio.Future[Any] | None = None
        threading.Thread(target=_serve, args=(self._work,), name=_NAME, daemon=True).start()

    async def call(self, function: Callable[[], T], *, timeout_s: float) -> T:
        """The function's result, or what it raises; ToolkitSilent."""
        if self._last is not None and not self._last.done():
            message = "an earlier call still hangs"
            raise ToolkitSilent(message)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # Before the wait: a caller that is cancelled in it leaves the thread at work all the same.
        self._last = answer
        answer.add_done_callback(_heard)
        self._work.put((function, answer))
        done, _ = await asyncio.wait({answer}, timeout=timeout_s)
        if not done:
            message = f"no answer within {timeout_s:g} s"
            raise ToolkitSilent(message)
        return answer.result()

    def close(self) -> None:
        """Wait for nothing: the thread ends when the call under way has come back, or with the process."""
        self._work.put(None)


def _serve(work: "SimpleQueue[_Work]") -> None:
    while (item := work.get()) is not None:
        function, answer = item
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - whoever called gets it, a bug too: else it would look like silence
            _tell(answer, answer.set_exception, error)
        else:
            _tell(answer, answer.set_result, result)


def _tell(answer: "asyncio.Future[Any]", how: Callable[[Any], None], said: object) -> None:
    def tell() -> None:
        if not answer.done():
            how(said)

    # A closed loop has no waiter left.
    with contextlib.suppress(RuntimeError):
        answer.get_loop().call_soon_threadsafe(tell)


def _heard(answer: "asyncio.Future[T]") -> None:
    # The result of an abandoned call is dropped; reading its exception keeps the loop from logging it.
    if not answer.cancelled():
        answer.exception()
