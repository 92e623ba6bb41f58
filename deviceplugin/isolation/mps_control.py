"""NVIDIA's control program of MPS, for the daemon of one card: started, asked, told to quit.

Source: NVIDIA, Multi-Process Service, "nvidia-cuda-mps-control", and its manual page. With -f it stays in the
foreground; without arguments it passes commands from its input to the daemon of CUDA_MPS_PIPE_DIRECTORY, and exits with
0 where it has reached one.
"""

import asyncio
import contextlib
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from pathlib import Path
from typing import Final

from config.settings.deviceplugin import Mps
from config.settings.isolation import MPS_LOGS, MPS_PIPES
from deviceplugin.isolation.trees import remove_tree

_LOGS: Final = "log"
_ASK: Final = "get_default_active_thread_percentage"
_QUIT: Final = "quit"
_OPEN: Final = 0o755
# A server runs as its clients' user, and writes its log.
_OPEN_TO_ALL: Final = 0o1777
_UUID: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z]{3,63}", re.ASCII)
_LONGEST_SAID: Final = 200


class ControlFailed(Exception):
    """The daemon is not there, or does not answer; the message says which."""


class ControlSilent(ControlFailed):
    """Whether it is there is not known: it did not answer in time."""


class MpsControl:
    """pipes, logs: its directories, under the same path here, on the node and in its clients."""

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
        """Whether a daemon may be started here, where none answers."""
        return self._settings.daemons == "plugin"

    async def start(self) -> Process:
        """The daemon, with this card alone. Raises OSError."""
        await asyncio.to_thread(self._make_directories)
        own = {"CUDA_VISIBLE_DEVICES": self._uuid, MPS_LOGS: str(self.logs)}
        return await asyncio.create_subprocess_exec(
            self._settings.control,
            *self._settings.arguments,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env=self._environment() | own,
            # Its servers go with it, and nothing that a terminal sends reaches it.
            start_new_session=True,
        )

    async def ask(self, within_s: float) -> None:
        """Return when it answers. Raises ControlFailed."""
        await self._command(_ASK, within_s)

    async def end(self, process: Process, within_s: float) -> None:
        """Tell it to quit, and kill it with its servers where it does not. Servers go with one that has ended, too."""
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
        """Emptied of what a daemon of before has left: nobody answers there. Containers have mounted the directory."""
        for directory, mode in ((self.pipes, _OPEN), (self.logs, _OPEN_TO_ALL)):
            directory.mkdir(parents=True, exist_ok=True)
            directory.chmod(mode)
            for left in directory.iterdir():
                if left.is_dir() and not left.is_symlink():
                    remove_tree(left)
                else:
                    left.unlink(missing_ok=True)
