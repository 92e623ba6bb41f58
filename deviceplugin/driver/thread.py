"""Calls a driver, which blocks for as long as it likes, in a thread of its own; the event loop waits only so long."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

from deviceplugin.driver.cards import SourceFailed

T = TypeVar("T")
ANSWERS_WITHIN_S: Final = 10.0

_Work: TypeAlias = tuple[Callable[[], Any], "asyncio.Future[Any]"] | Callable[[], object]


class DriverThread:
    """One thread, one call at a time: a driver that hangs is asked nothing more until it has answered.

    The thread is a daemon: one that hangs in the driver does not keep the process from ending, as an executor's would.
    """

    def __init__(self, name: str) -> None:
        """name: of the thread, for people who look at the process."""
        self._work: SimpleQueue[_Work] = SimpleQueue()
        self._turn = asyncio.Lock()
        self._last: asyncio.Future[Any] | None = None
        threading.Thread(target=_serve, args=(self._work,), name=name, daemon=True).start()

    async def call(self, what: str, function: Callable[[], T], *, timeout_s: float = ANSWERS_WITHIN_S) -> T:
        """The function's result. what: for the message.

        Raises SourceFailed: its own, or because it has not answered within `timeout_s`, or an earlier call still hangs.
        """
        async with self._turn:
            if self._last is not None and not self._last.done():
                message = f"{what}: the driver still hangs in an earlier call"
                raise SourceFailed(message)
            answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
            # Before the wait: a caller that is cancelled in it leaves the thread at work all the same.
            self._last = answer
            answer.add_done_callback(_heard)
            self._work.put((function, answer))
            done, _ = await asyncio.wait({answer}, timeout=timeout_s)
            if not done:
                message = f"{what}: the driver did not answer within {timeout_s:g} s"
                raise SourceFailed(message)
            return answer.result()

    def close(self, last: Callable[[], object] = lambda: None) -> None:
        """Wait for nothing: the thread ends when the driver has answered, or with the process. last: called before."""
        self._work.put(last)


def _serve(work: "SimpleQueue[_Work]") -> None:
    while isinstance(item := work.get(), tuple):
        function, answer = item
        try:
            result = function()
        except Exception as error:  # noqa: BLE001 - whoever called gets it
            _tell(answer, answer.set_exception, error)
        else:
            _tell(answer, answer.set_result, result)
    item()


def _tell(answer: "asyncio.Future[Any]", how: Callable[[Any], None], said: object) -> None:
    def tell() -> None:
        if not answer.done():
            how(said)

    # A loop that is closed has nobody left who waits.
    with contextlib.suppress(RuntimeError):
        answer.get_loop().call_soon_threadsafe(tell)


def _heard(answer: "asyncio.Future[T]") -> None:
    # What a call that was given up says in the end interests nobody; looking at it keeps the loop from complaining.
    if not answer.cancelled():
        answer.exception()
