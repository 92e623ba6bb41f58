"""NVIDIA's MPS control program: starts, queries and ends the daemon of one card.

The program speaks two protocols. In 2, it passes commands from its input to the daemon of CUDA_MPS_PIPE_DIRECTORY. In
3, from driver 615, commands are its arguments, and a namespace for each container limits that container's clients:

    <pipes>/mps/<namespace>/control    a namespace's socket; a client gets the directory of its namespace

With -f, a daemon stays in the foreground. A command exits with 0 if it succeeded.
Source: NVIDIA, Multi-Process Service, "Legacy MPS v2 Interface", "MPS v3 Interface" and "MPS v3 Namespaces".
"""

import asyncio
import contextlib
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from config.settings.deviceplugin import Mps
from config.settings.isolation import MPS_LOGS, MPS_PIPES
from deviceplugin.isolation.directories import remove_tree

_LOGS: Final = "log"
_OPEN: Final = 0o755
# A server runs as its clients' user, and writes its log.
_OPEN_TO_ALL: Final = 0o1777
_UUID: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z]{3,63}", re.ASCII)
_LONGEST_SAID: Final = 200
# A line with anything else may come from a client's own command line.
_PID: Final = re.compile(r"[0-9]{1,10}", re.ASCII)
# A server takes 60 clients at most.
_MOST_CLIENTS: Final = 1024
_FIRST_WITH_3: Final = 615
# The path of a namespace's socket has at most 107 characters (unix(7)).
LONGEST_DIRECTORY_WITH_3: Final = 22


class ControlFailed(Exception):
    """The daemon is missing or does not answer; the message says which."""


class ControlSilent(ControlFailed):
    """The daemon did not answer in time, so its existence is unknown."""


def protocol_of(settings: Mps, driver: str) -> int:
    """Return the protocol of the node's daemons. driver: its version; 2 while it is unknown ("")."""
    if settings.protocol != "auto":
        return settings.protocol
    major = driver.partition(".")[0]
    possible = settings.daemons == "plugin" and len(settings.directory) <= LONGEST_DIRECTORY_WITH_3
    return 3 if possible and major.isdecimal() and int(major) >= _FIRST_WITH_3 else 2


class MpsControl:
    """Control of one daemon by protocol 2. pipes, logs: its directories, at the same path here and on the node."""

    protocol = 2

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
        return await self._start(self._settings.arguments, DEVNULL)

    async def ask(self, within_s: float) -> None:
        """Wait until the daemon answers. Raises ControlFailed."""
        await self._shell("get_default_active_thread_percentage", within_s)

    async def clients(self, within_s: float) -> list[int]:
        """Return the PIDs of the daemon's clients, as the daemon knows them. Raises ControlFailed."""
        return [client for _, client in await self._clients(within_s)]

    async def terminate(self, pid: int, within_s: float) -> None:
        """Terminate a client after its pending work on the card. Raises ControlFailed, ControlSilent."""
        for server, client in await self._clients(within_s):
            if client == pid:
                await self._shell(f"terminate_client {server} {client}", within_s)

    async def end(self, process: Process, within_s: float) -> None:
        """Quit, then kill the daemon with its servers if it does not end. Also ends a dead daemon's servers."""
        with contextlib.suppress(ControlFailed, TimeoutError):
            if process.returncode is None:
                await self._quit(within_s)
                async with asyncio.timeout(within_s):
                    await process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def _quit(self, within_s: float) -> None:
        await self._shell("quit", within_s)

    async def _clients(self, within_s: float) -> list[tuple[int, int]]:
        """Return (PID of the server, PID of the client) for each client."""
        servers = numbers(await self._shell("get_server_list", within_s))
        return [
            (server, client)
            for server in servers
            for client in numbers(await self._shell(f"get_client_list {server}", within_s))
        ]

    async def _shell(self, command: str, within_s: float) -> str:
        return await self._run((), f"{command}\n", within_s)

    async def _start(self, arguments: Sequence[str], stdin: int) -> Process:
        await asyncio.to_thread(self._make_directories)
        own = {"CUDA_VISIBLE_DEVICES": self._uuid, MPS_LOGS: str(self.logs)}
        return await asyncio.create_subprocess_exec(
            self._settings.control,
            *arguments,
            stdin=stdin,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env=self._environment() | own,
            # Its servers end with it, and signals from a terminal do not reach it.
            start_new_session=True,
        )

    async def _run(self, arguments: Sequence[str], text: str, within_s: float) -> str:
        """Return what the program prints. text: its input. Raises ControlFailed."""
        program = self._settings.control
        try:
            asking = await asyncio.create_subprocess_exec(
                program, *arguments, stdin=PIPE, stdout=PIPE, stderr=STDOUT, env=self._environment()
            )
        except OSError as error:
            raise ControlFailed(f"{program} cannot be run: {error.strerror}") from error
        try:
            async with asyncio.timeout(within_s):
                output, _ = await asking.communicate(text.encode())
        except TimeoutError:
            raise ControlSilent(f"the MPS daemon did not answer within {within_s:g} s") from None
        finally:
            if asking.returncode is None:
                asking.kill()
                await asking.wait()
        said = output.decode(errors="replace").strip()
        if asking.returncode:
            raise ControlFailed(f"{self._problem(arguments)}: {said[:_LONGEST_SAID]}")
        return said

    def _problem(self, _: Sequence[str]) -> str:
        return "no MPS daemon answers"

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


def numbers(text: str) -> list[int]:
    """Return the PIDs among the lines."""
    return [int(line) for line in text.split("\n")[:_MOST_CLIENTS] if _PID.fullmatch(line.strip())]
