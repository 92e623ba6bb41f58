"""The parent's end of one process that queries a driver; threads replace it for a simulated driver.

    RUNNING --killed or exited--> ENDED
       └──────kill─────▶ HELD: the kernel has not ended it yet; it counts as alive

Owned by the event loop.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

import msgspec

from deviceplugin import daemon_thread
from deviceplugin.driver.calls import LONGEST_LINE, Call, CallAnswer, CallRequest, WorkerDied, error_of
from deviceplugin.driver.cards import CardSource, SourceFailed

T = TypeVar("T")
_LOOK_S: Final = 0.01
# How long a process that has closed its output may take to end.
_EXIT_S: Final = 1.0
NVML: Final = (sys.executable, "-m", "deviceplugin.driver.child")
_CUDA: Final = (sys.executable, "-m", "deviceplugin.driver.cuda_child")


class DriverProcess:
    """`calls.Worker` in a process; created by `start`."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process, self._writer = process, writer
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Future[CallAnswer]] = {}
        self._killed = False  # by us
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def start(
        cls, command: Sequence[str] = NVML, environment: Mapping[str, str] | None = None
    ) -> "DriverProcess":
        """Start the process. command: this process's ID is appended. environment: None for that of this process.

        Raises SourceFailed.
        """
        ours, its = socket.socketpair()
        with its:
            try:
                # Not asyncio's: only the loop closes its pipes, and this one must close when the process is killed.
                process = subprocess.Popen(  # noqa: ASYNC220, S603
                    [*command, str(os.getpid())], stdin=its.fileno(), stdout=its.fileno(), env=environment
                )
            except OSError as error:
                ours.close()
                raise SourceFailed(f"the driver's process cannot be started: {error}") from error
        return cls(process, *await asyncio.open_connection(sock=ours, limit=LONGEST_LINE))

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def ask(self, call: Call[T]) -> T:
        """Wait for the answer. Raises SourceFailed or its subclass WorkerDied."""
        if self._reading.done():
            raise self._died()
        number = next(self._numbers)
        answered: asyncio.Future[CallAnswer] = asyncio.get_running_loop().create_future()
        self._asked[number] = answered
        try:
            self._send(CallRequest(number, call.name, call.arguments))
            answer = await answered
        finally:
            self._asked.pop(number, None)
        if answer.failure is not None:
            raise error_of(answer.failure)
        result: Any = msgspec.json.decode(answer.result, type=call.answer)
        return result  # type: ignore[no-any-return]

    def kill(self) -> None:
        """Kill the process at once; pending calls raise WorkerDied."""
        self._kill()
        self._reading.cancel()

    async def ended(self, within_s: float) -> bool:
        """Return whether it has ended after at most `within_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.alive:  # noqa: ASYNC110 - there is no event of that without a thread or a signal handler
                    await asyncio.sleep(_LOOK_S)
        return not self.alive

    def _send(self, ask: CallRequest) -> None:
        # Not drained: a line is short, and each caller waits for its answer before it sends the next call.
        self._writer.write(msgspec.json.encode(ask) + b"\n")

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Deliver the answers until the stream ends."""
        try:
            with contextlib.suppress(ConnectionError):
                while line := await reader.readline():
                    answer = msgspec.json.decode(line, type=CallAnswer)
                    waiting = self._asked.get(answer.number)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(answer)
            # The kernel closes the files of a process before it reports how the process ended.
            await self.ended(_EXIT_S)
        except (ValueError, msgspec.DecodeError, RecursionError):
            pass  # Its output is not an answer, or never ends: the process is no longer usable.
        finally:
            self._kill()
            for waiting in self._asked.values():
                if not waiting.done():
                    waiting.set_exception(self._died())

    def _kill(self) -> None:
        self._killed = self._killed or self.alive
        self._process.kill()
        self._writer.close()

    def _died(self) -> WorkerDied:
        code = self._process.poll()
        how = "" if code is None else f" with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
        return WorkerDied(
            f"the driver's process {self.pid} has ended{how}", killed=code == -signal.SIGKILL and not self._killed
        )


async def start_cuda(root: str, uuid: str) -> DriverProcess:
    """Start a process that sees only this card and answers `calls.start_cuda`. Raises SourceFailed.

    root: where the driver is installed; "" for `/`.
    """
    # Without the cache of compiled code it writes nothing; its container's root file system is read-only.
    own = {"CUDA_VISIBLE_DEVICES": uuid, "CUDA_CACHE_DISABLE": "1"}
    return await DriverProcess.start((*_CUDA, *filter(None, [root])), {**os.environ, **own})


class Session(CardSource, Protocol):
    """A driver session of one process."""

    def end(self) -> None:
        """End the session as the end of its process would: release cards, and make pending calls return."""
        ...

    def on_end(self, callback: Callable[[], None]) -> None:
        """Register a callback for the end of the session; it may be called from any thread."""
        ...


class DriverThreads:
    """`calls.Worker` in daemon threads: a thread that hangs does not keep the process from ending."""

    def __init__(self, session: Session) -> None:
        """Create it inside the event loop that makes the calls."""
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
        """Wait for the answer. Raises SourceFailed or its subclass WorkerDied."""
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
        """Return whether it has ended after at most `within_s`."""
        await asyncio.wait({self._over}, timeout=within_s)
        return not self.alive

    def _end_soon(self) -> None:
        with contextlib.suppress(RuntimeError):  # The loop is closed: no call is left.
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if self.alive:
            self._over.set_result(None)
