"""Keeps the MPS control daemon of one card running.

                 ┌──────────── answers ───────────▶ READY (adopted: not started by this plugin)
    WAITING ── look ── the card for one process ── start ── answers ──▶ READY (ours)
       ▲                                                      │           │
       └──────────── back-off ◀── does not answer in time ────┴───────────┘ ends, or is silent three times: `changed`

Its clients fail when it ends. Owned by the event loop.

Also wraps NVIDIA's MPS control program, which starts, queries and ends the daemon of one card.
Source: NVIDIA, Multi-Process Service, "nvidia-cuda-mps-control", and its manual page. With -f it stays in the
foreground; without arguments it passes commands from its input to the daemon of CUDA_MPS_PIPE_DIRECTORY, and exits with
0 if it has reached one.
"""

import asyncio
import contextlib
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from config.settings.deviceplugin import Mps
from config.settings.isolation import MPS_LOGS, MPS_PIPES
from deviceplugin.isolation.directories import remove_tree

_LOGS: Final = "log"
_ASK: Final = "get_default_active_thread_percentage"
_QUIT: Final = "quit"
_OPEN: Final = 0o755
# A server runs as its clients' user, and writes its log.
_OPEN_TO_ALL: Final = 0o1777
_UUID: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z]{3,63}", re.ASCII)
_LONGEST_SAID: Final = 200


class ControlFailed(Exception):
    """The daemon is missing or does not answer; the message says which."""


class ControlSilent(ControlFailed):
    """The daemon did not answer in time, so its existence is unknown."""


class MpsControl:
    """Control of one daemon. pipes, logs: its directories, at the same path here, on the node and in its clients."""

    def __init__(self, settings: Mps, uuid: str) -> None:
        """Raises ControlFailed for a UUID that cannot be the name of a directory."""
        if not _UUID.fullmatch(uuid):
            raise ControlFailed(f"{uuid[:64]!r} cannot be the name of a directory")
        self._settings = settings
        self._uuid = uuid
        self.pipes = Path(settings.directory) / uuid
        self.logs = Path(settings.directory) / _LOGS / uuid

    @property
    def startable(self) -> bool:
        """Whether a daemon may be started here if none answers."""
        return self._settings.daemons == "plugin"

    async def start(self) -> Process:
        """Start the daemon for this card alone. Raises OSError."""
        await asyncio.to_thread(self._make_directories)
        own = {"CUDA_VISIBLE_DEVICES": self._uuid, MPS_LOGS: str(self.logs)}
        return await asyncio.create_subprocess_exec(
            self._settings.control,
            *self._settings.arguments,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env=self._environment() | own,
            # Its servers end with it, and signals from a terminal do not reach it.
            start_new_session=True,
        )

    async def ask(self, within_s: float) -> None:
        """Wait until the daemon answers. Raises ControlFailed."""
        await self._command(_ASK, within_s)

    async def end(self, process: Process, within_s: float) -> None:
        """Send quit, then kill the daemon with its servers if it does not end. Also ends a dead daemon's servers."""
        with contextlib.suppress(ControlFailed, TimeoutError):
            if process.returncode is None:
                await self._command(_QUIT, within_s)
                async with asyncio.timeout(within_s):
                    await process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def _command(self, command: str, within_s: float) -> None:
        program = self._settings.control
        try:
            asking = await asyncio.create_subprocess_exec(
                program, stdin=PIPE, stdout=PIPE, stderr=STDOUT, env=self._environment()
            )
        except OSError as error:
            raise ControlFailed(f"{program} cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(within_s):
                said, _ = await asking.communicate(f"{command}\n".encode())
        except TimeoutError:
            raise ControlSilent(f"the MPS daemon did not answer within {within_s:g} s") from None
        finally:
            if asking.returncode is None:
                asking.kill()
                await asking.wait()
        if asking.returncode:
            raise ControlFailed(f"no MPS daemon answers: {said.decode(errors='replace').strip()[:_LONGEST_SAID]}")

    def _environment(self) -> dict[str, str]:
        return {**os.environ, MPS_PIPES: str(self.pipes)}

    def _make_directories(self) -> None:
        """Create the directories, without a previous daemon's files. Containers have mounted them."""
        for directory, mode in ((self.pipes, _OPEN), (self.logs, _OPEN_TO_ALL)):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(mode)
            for left in directory.iterdir():
                if left.is_dir() and not left.is_symlink():
                    remove_tree(left)
                else:
                    left.unlink(missing_ok=True)


_SILENT: Final = 3
# A daemon that ends sooner is restarted at growing intervals: each end is reported to its clients' pods.
_STEADY_S: Final = 60.0
log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class MpsPace:
    """Intervals and limits in seconds.

    answer: for an answer. start: for a started daemon to answer. again: between two checks while it starts. look:
    between two checks of a ready daemon. quit: for it to end after quit was sent.
    """

    answer_s: float = 5.0
    start_s: float = 20.0
    again_s: float = 0.2
    look_s: float = 10.0
    quit_s: float = 3.0


class MpsDaemon:
    """The daemon of one card. ready: a client may start. problem: why not, or another message; "" if none."""

    def __init__(  # noqa: PLR0917 - each a different type: none can take another's place
        self,
        uuid: str,
        control: MpsControl,
        exclusive: Callable[[str], Awaitable[str]],
        changed: Callable[[str, str], None],
        backoff_s: Callable[[int], float],
        pace: MpsPace,
    ) -> None:
        """exclusive: sets the card's compute mode; returns why that failed.

        changed: called with the UUID, and with "" when it becomes ready, otherwise with the reason why it is no longer.
        """
        self._uuid, self._control = uuid, control
        self._exclusive, self._state_changed, self._backoff_s, self._pace = exclusive, changed, backoff_s, pace
        self._process: Process | None = None
        self._ready_at_s = 0.0
        self.ready = asyncio.Event()
        self.problem = "its MPS daemon has not answered yet"

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
        return not self._control.startable or (self.ready.is_set() and self._process is None)

    def _unready(self, why: str) -> None:
        self.ready.clear()
        self._state_changed(self._uuid, why)

    async def _serve(self) -> None:
        """Start or adopt the daemon and watch it. Raises ControlFailed, OSError."""
        if problem := await self._exclusive(self._uuid):
            raise ControlFailed(problem)
        try:
            await self._ask()
        except ControlFailed:
            if not self._control.startable:
                raise
            self._process = await self._control.start()
            await self._answers(self._process)
        self.problem = ""
        self._ready_at_s = asyncio.get_running_loop().time()
        self.ready.set()
        self._state_changed(self._uuid, "")
        log.info("mps.ready", uuid=self._uuid, adopted=self._process is None)
        await self._follow()

    async def _ask(self) -> None:
        """Query the daemon. A slow one must not count as missing, because its files would then be removed."""
        for last in (False,) * (_SILENT - 1) + (True,):
            try:
                await self._control.ask(self._pace.answer_s)
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
                        await self._control.ask(self._pace.answer_s)
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
            self.problem = await self._exclusive(self._uuid)

    async def _pause(self) -> None:
        """Wait until the next check. Raises ControlFailed as soon as our own daemon has ended."""
        if self._process is None:
            await asyncio.sleep(self._pace.look_s)
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._pace.look_s):
                await self._process.wait()
            raise ControlFailed(_how(self._process))

    async def _end(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            await self._control.end(process, self._pace.quit_s)


def _how(process: Process) -> str:
    """Return how the process ended; "" while it runs."""
    code = process.returncode
    if code is None:
        return ""
    return f"its MPS daemon has ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}"
