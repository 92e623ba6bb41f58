"""Asks a driver in threads of this process, for drivers that are simulated; otherwise as `process`."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from deviceplugin import daemon_thread
from deviceplugin.driver.calls import Call, WorkerDied
from deviceplugin.driver.cards import CardSource

T = TypeVar("T")


class Session(CardSource, Protocol):
    """A driver as one process has opened it."""

    def end(self) -> None:
        """End the session as the end of its process would: cards are released, pending calls return."""
        ...

    def on_end(self, callback: Callable[[], None]) -> None:
        """Have this called, from whatever thread, when the session ends."""
        ...


class DriverThreads:
    """`calls.Worker`. Its threads are daemons: one that hangs does not keep the process from ending."""

    def __init__(self, session: Session) -> None:
        """Inside the event loop that asks."""
        self._session, self._loop = session, asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        session.on_end(self._end_soon)

    @property
    def pid(self) -> int:
        return os.getpid()

    @property
    def alive(self) -> bool:
        return not self._over.done()

    async def ask(self, call: Call[T]) -> T:
        """Wait for the answer. Raises SourceFailed, WorkerDied among them."""
        if self.alive:
            answer = daemon_thread.call(lambda: call.of(self._session), "driver")
            either: set[asyncio.Future[Any]] = {answer, self._over}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self.alive:
            raise WorkerDied("the simulated driver's process has ended")
        return answer.result()

    def kill(self) -> None:
        """End it at once; pending calls raise WorkerDied."""
        self._session.end()
        self._end()

    async def ended(self, within_s: float) -> bool:
        """Whether it has ended, after waiting for at most `within_s`."""
        await asyncio.wait({self._over}, timeout=within_s)
        return not self.alive

    def _end_soon(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: no call is left.
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self.alive:
            self._over.set_result(None)
