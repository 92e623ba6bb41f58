"""Asks a driver in threads of this process, for drivers that are simulated; otherwise as `process`."""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from deviceplugin.driver.calls import Call, WorkerDied
from deviceplugin.driver.cards import CardSource

T = TypeVar("T")


class Session(CardSource, Protocol):
    """A driver as one process has opened it."""

    def end(self) -> None:
        """End the session as the end of its process would: cards are released, pending calls return."""
        ...

    def on_end(self, told: Callable[[], None]) -> None:
        """Have this called, from whatever thread, when the session ends."""
        ...


class DriverThreads:
    """`calls.Worker`. Its threads are daemons: one that hangs does not keep the process from ending."""

    def __init__(self, session: Session) -> None:
        """Inside the event loop that asks."""
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._asked: set[asyncio.Future[Any]] = set()
        session.on_end(lambda: self._soon(self._end))

    @property
    def pid(self) -> int:
        """Process id."""
        return os.getpid()

    @property
    def alive(self) -> bool:
        """Whether the process still exists."""
        return not self._ended.is_set()

    async def ask(self, call: Call[T]) -> T:
        """Wait for the answer. Raises SourceFailed, WorkerDied among them."""
        if self._ended.is_set():
            raise _died()
        answered: asyncio.Future[T] = self._loop.create_future()
        self._asked.add(answered)
        threading.Thread(target=self._answer, args=(call, answered), name="driver", daemon=True).start()
        try:
            return await answered
        finally:
            self._asked.discard(answered)

    def kill(self) -> None:
        """End it at once; pending calls raise WorkerDied."""
        self._session.end()
        self._end()

    async def ended(self, within_s: float) -> bool:
        """Whether it has ended, after waiting for at most `within_s`."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), within_s)
        return not self.alive

    def _answer(self, call: Call[T], answered: "asyncio.Future[T]") -> None:
        try:
            result = call.of(self._session)
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            self._soon(_tell, answered, answered.set_exception, error)
        else:
            self._soon(_tell, answered, answered.set_result, result)

    def _soon(self, told: Callable[..., None], *arguments: object) -> None:
        # A closed loop has no waiter left.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(told, *arguments)

    def _end(self) -> None:
        self._ended.set()
        for answered in tuple(self._asked):
            _tell(answered, answered.set_exception, _died())


def _tell(answered: "asyncio.Future[Any]", how: Callable[[Any], None], said: object) -> None:
    if not answered.done():
        how(said)


def _died() -> WorkerDied:
    return WorkerDied("the simulated driver's process has ended")
