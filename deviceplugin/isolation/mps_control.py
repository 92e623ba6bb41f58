"""NVIDIA's MPS control program: starts, queries and ends the daemon of one card.

The program speaks two protocols. In 2, it passes commands from its input to the daemon of CUDA_MPS_PIPE_DIRECTORY. In 3,
from driver 615, commands are its arguments, and a namespace for each container limits that container's clients:

    <pipes>/mps/<namespace>/control    the socket of a namespace; a client uses the namespace whose directory it is given

With -f, a daemon stays in the foreground. A command exits with 0 if it succeeded.
Source: NVIDIA, Multi-Process Service, "Legacy MPS v2 Interface", "MPS v3 Interface" and "MPS v3 Namespaces".
"""

import asyncio
import contextlib
import hashlib
import os
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.settings.deviceplugin import Mps
from config.settings.isolation import MPS_LOGS, MPS_PIPES, MPS_SERVER
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
_LONGEST_DIRECTORY_WITH_3: Final = 22
_NAME_DIGITS: Final = 20


class ControlFailed(Exception):
    """The daemon is missing or does not answer; the message says which."""


class ControlSilent(ControlFailed):
    """The daemon did not answer in time, so its existence is unknown."""


def protocol_of(settings: Mps, driver: str) -> int:
    """Return the protocol of the node's daemons. driver: its version; 2 while it is unknown ("")."""
    if settings.protocol != "auto":
        return int(settings.protocol)
    major = driver.partition(".")[0]
    possible = settings.daemons == "plugin" and len(settings.directory) <= _LONGEST_DIRECTORY_WITH_3
    return 3 if possible and major.isdecimal() and int(major) >= _FIRST_WITH_3 else 2


def namespace_of(pod_uid: str, container: str) -> str:
    """Return the name of a container's namespace: letters and digits that the program allows, and few of them."""
    return hashlib.sha256(f"{pod_uid}/{container}".encode()).hexdigest()[:_NAME_DIGITS]


@dataclass(frozen=True, slots=True)
class Namespace:
    """A container's namespace. percent: of the card's processors. memory_mib: None if MPS does not limit its memory."""

    name: str
    percent: int
    memory_mib: int | None


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
        servers = _numbers(await self._shell("get_server_list", within_s))
        return [
            (server, client)
            for server in servers
            for client in _numbers(await self._shell(f"get_client_list {server}", within_s))
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


class NamespaceControl(MpsControl):
    """Control of one daemon by protocol 3, which has one server for clients of all users. names: its namespaces."""

    protocol = 3

    def __init__(self, settings: Mps, uuid: str) -> None:
        """Raises ControlFailed if the path of a namespace's socket would be invalid."""
        super().__init__(settings, uuid)
        if len(settings.directory) > _LONGEST_DIRECTORY_WITH_3:
            expected = f"expected mps.directory to have at most {_LONGEST_DIRECTORY_WITH_3} characters with protocol 3"
            raise ControlFailed(f"{expected}, found {settings.directory}")
        self.names: set[str] = set()
        self._served = False

    async def start(self) -> Process:
        """Start the daemon for this card alone. Raises OSError."""
        self._forget()
        # It reads commands from its input, and ends with it.
        return await self._start((*self._settings.arguments, "-p", "3", "-m"), PIPE)

    async def ask(self, within_s: float) -> None:
        """Wait until the daemon answers and has its server. Raises ControlFailed."""
        there = MPS_SERVER in await self._listed(("server", "list"), within_s)
        if self._served and not there:
            self._forget()
            raise ControlFailed("its MPS server has ended")
        if not there:
            await self._do(("server", "create", MPS_SERVER), within_s)
        self._served = True

    async def add(self, namespace: Namespace, within_s: float) -> None:
        """Ensure that the namespace exists with these limits, before its client starts. Raises ControlFailed."""
        if namespace.name in self.names:
            return
        socket = self.pipes / MPS_SERVER / namespace.name / "control"
        if not socket.exists():
            await self._do(("namespace", "create", namespace.name, f"--server={MPS_SERVER}"), within_s)
        memory = [f"--pinned-memory-limit={namespace.memory_mib}M"] if namespace.memory_mib is not None else []
        limits = [f"--active-thread-percentage={namespace.percent}", *memory]
        # Without limits of its own, a namespace has the whole card; the server's limits do not apply to it.
        await self._do(("namespace", "set", namespace.name, f"--server={MPS_SERVER}", *limits), within_s)
        if not socket.exists():
            # A client without a socket would run without MPS.
            raise ControlFailed(f"the MPS daemon has not created {socket}")
        self.names.add(namespace.name)

    async def remove(self, name: str, within_s: float) -> None:
        """Delete the namespace, which must not have clients. Raises ControlFailed."""
        await self._do(("namespace", "delete", name, f"--server={MPS_SERVER}"), within_s)
        self.names.discard(name)

    async def clients(self, within_s: float) -> list[int]:
        """Return the PIDs of the daemon's clients, as the daemon knows them. Raises ControlFailed."""
        return _numbers("\n".join(await self._listed(("client", "list", "--all"), within_s)))

    async def terminate(self, pid: int, within_s: float) -> None:
        """Terminate a client after its pending work on the card. Raises ControlFailed, ControlSilent."""
        await self._do(("client", "terminate", str(pid)), within_s)

    async def _quit(self, within_s: float) -> None:
        await self._do(("-q",), within_s)

    async def _listed(self, command: Sequence[str], within_s: float) -> list[str]:
        """Return the first field of each line. A table for people would cut long PIDs."""
        said = await self._do((*command, "--format=csv,noheader"), within_s)
        return [line.partition(",")[0].strip() for line in said.splitlines()]

    async def _do(self, command: Sequence[str], within_s: float) -> str:
        return await self._run(("-p", "3", *command), "", within_s)

    def _problem(self, arguments: Sequence[str]) -> str:
        return f"the MPS daemon is missing or has failed at {' '.join(arguments[2:5])}"

    def _forget(self) -> None:
        self.names.clear()
        self._served = False


def control_of(settings: Mps, uuid: str, protocol: int) -> MpsControl:
    """Return the control of the card's daemon. Raises ControlFailed."""
    return NamespaceControl(settings, uuid) if protocol == NamespaceControl.protocol else MpsControl(settings, uuid)


def _numbers(text: str) -> list[int]:
    return [int(line) for line in text.split("\n")[:_MOST_CLIENTS] if _PID.fullmatch(line.strip())]
