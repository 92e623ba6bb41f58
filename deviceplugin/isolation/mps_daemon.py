"""Keeps the MPS control daemon of one card running.

                 ┌──────────── answers ───────────▶ READY (adopted: not started by this plugin)
    WAITING ── look ── the card's compute mode ── start ── answers ──▶ READY (ours)
       ▲                                                      │           │
       └──────────── back-off ◀── does not answer in time ────┴───────────┘ ends, is silent three times, or is wedged:
                                                                            `changed`

Its clients fail when it ends. Owned by the event loop.
"""

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from deviceplugin.isolation.mps_control import ControlFailed, ControlSilent, MpsControl

_SILENT: Final = 3
# A daemon that ends sooner is restarted at growing intervals: each end is reported to its clients' pods.
_STEADY_S: Final = 60.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class MpsPace:
    """Intervals and limits in seconds.

    answer: for an answer. start: for a started daemon to answer. again: between two checks while it starts. look:
    between two checks of a ready daemon. quit: for it to end after quit was sent. drain: for a client's pending work.
    """

    answer_s: float = 5.0
    start_s: float = 20.0
    again_s: float = 0.2
    look_s: float = 10.0
    quit_s: float = 3.0
    drain_s: float = 15.0


class MpsDaemon:
    """The daemon of one card. ready: a client may start. problem: why not, or another message; "" if none.

    control: of this daemon.
    """

    def __init__(  # noqa: PLR0917 - each a different type: none can take another's place
        self,
        uuid: str,
        control: MpsControl,
        set_mode: Callable[[str], Awaitable[str]],
        changed: Callable[[str, str], None],
        backoff_s: Callable[[int], float],
        pace: MpsPace,
    ) -> None:
        """set_mode: sets the card's compute mode; returns why that failed.

        changed: called with the UUID, and with "" when it becomes ready, otherwise with the reason why it is no longer.
        """
        self._uuid, self.control = uuid, control
        self._set_mode, self._state_changed, self._backoff_s, self._pace = set_mode, changed, backoff_s, pace
        self._process: Process | None = None
        self._ready_at_s = 0.0
        self.ready = asyncio.Event()
        self.problem = "its MPS daemon has not answered yet"
        self._wedged: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Keep the daemon running forever."""
        failures, why = 0, ""
        while True:
            try:
                await self._serve()
            except (ControlFailed, OSError) as error:
                why = str(error)
            await self._end()
            if self.ready.is_set():
                if asyncio.get_running_loop().time() - self._ready_at_s >= _STEADY_S:
                    failures = 0
                self._unready(why)
            failures += 1
            self.problem = why
            log.warning("mps.failed", uuid=self._uuid, attempt=failures, reason=why)
            await asyncio.sleep(self._backoff_s(failures))

    async def stop(self, why: str) -> None:
        """End the daemon if it is ours; otherwise leave it running. why: the reason reported to `changed`."""
        goes_on = self.of_others
        await self._end()
        if self.ready.is_set() and not goes_on:
            self._unready(why)
        self.ready.clear()

    @property
    def of_others(self) -> bool:
        """Whether the daemon is not ours: it ran before, or this plugin starts none."""
        return not self.control.startable or (self.ready.is_set() and self._process is None)

    async def drain(self, pid: int) -> None:
        """Terminate a client after its pending work. If that does not end, replace the daemon, which fails the others.

        Raises ControlFailed: the client may have ended already.
        """
        wedged = self._wedged  # a daemon that has been replaced meanwhile is not to blame
        try:
            await self.control.terminate(pid, self._pace.drain_s)
        except ControlSilent:
            if not wedged.done():
                wedged.set_result(f"its MPS client {pid} did not end within {self._pace.drain_s:g} s")
            raise

    def _unready(self, why: str) -> None:
        self.ready.clear()
        self._state_changed(self._uuid, why)

    async def _serve(self) -> None:
        """Start or adopt the daemon and watch it. Raises ControlFailed, OSError."""
        if problem := await self._set_mode(self._uuid):
            raise ControlFailed(problem)
        try:
            await self._ask()
        except ControlFailed:
            if not self.control.startable:
                raise
            self._process = await self.control.start()
            await self._answers(self._process)
        self.problem = ""
        self._ready_at_s = asyncio.get_running_loop().time()
        self._wedged = asyncio.get_running_loop().create_future()
        self.ready.set()
        self._state_changed(self._uuid, "")
        log.info("mps.ready", uuid=self._uuid, adopted=self._process is None)
        await self._follow()

    async def _ask(self) -> None:
        """Query the daemon. A slow one must not count as missing, because its files would then be removed."""
        for last in (False,) * (_SILENT - 1) + (True,):
            try:
                await self.control.ask(self._pace.answer_s)
            except ControlSilent as error:
                self.problem = str(error)
                if last:
                    raise
            else:
                return

    async def _answers(self, process: Process) -> None:
        why = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.start_s):
                while process.returncode is None:
                    try:
                        await self.control.ask(self._pace.answer_s)
                    except ControlFailed as error:
                        why = str(error)
                    else:
                        return
                    await asyncio.sleep(self._pace.again_s)
        raise ControlFailed(_how(process) or why)

    async def _follow(self) -> None:
        while True:
            await self._pause()
            await self._ask()
            self.problem = await self._set_mode(self._uuid)

    async def _pause(self) -> None:
        """Wait until the next check. Raises ControlFailed as soon as it is wedged or our own daemon has ended."""
        ended = asyncio.create_task(self._process.wait()) if self._process is not None else None
        awaited: set[asyncio.Future[Any]] = {self._wedged} if ended is None else {self._wedged, ended}
        try:
            await asyncio.wait(awaited, timeout=self._pace.look_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if ended is not None:
                ended.cancel()
        if self._process is not None and self._process.returncode is not None:
            raise ControlFailed(_how(self._process))
        if self._wedged.done():
            raise ControlFailed(self._wedged.result())

    async def _end(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            await self.control.end(process, self._pace.quit_s)


def _how(process: Process) -> str:
    """Return how the process ended; "" while it runs."""
    code = process.returncode
    if code is None:
        return ""
    return f"its MPS daemon has ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
