"""Protocol 3 of NVIDIA's MPS control program: a namespace for each container.

A namespace has limits of its own; those of its server do not apply to it. They can be set only while it has no client.
Source: NVIDIA, Multi-Process Service, "MPS v3 Interface" and "MPS v3 Namespaces".
"""

import hashlib
from asyncio.subprocess import PIPE, Process
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from config.settings.deviceplugin import Mps
from config.settings.isolation import MPS_SERVER
from deviceplugin.isolation.mps_control import LONGEST_DIRECTORY_WITH_3, ControlFailed, MpsControl, numbers

_NAME_DIGITS: Final = 20


def namespace_of(pod_uid: str, container: str) -> str:
    """Return the name of a container's namespace: letters and digits that the program allows, and few of them."""
    return hashlib.sha256(f"{pod_uid}/{container}".encode()).hexdigest()[:_NAME_DIGITS]


@dataclass(frozen=True, slots=True)
class MpsNamespace:
    """A container's namespace. percent: of the card's processors. memory_mib: None if MPS does not limit its memory."""

    name: str
    pod_uid: str
    percent: int
    memory_mib: int | None


class NamespaceControl(MpsControl):
    """Control of one daemon by protocol 3, with one server for clients of all users.

    namespaces: those that have their limits, by name.
    """

    protocol = 3

    def __init__(self, settings: Mps, uuid: str) -> None:
        """Raises ControlFailed if the path of a namespace's socket would be invalid."""
        super().__init__(settings, uuid)
        if len(settings.directory) > LONGEST_DIRECTORY_WITH_3:
            expected = f"expected mps.directory to have at most {LONGEST_DIRECTORY_WITH_3} characters with protocol 3"
            raise ControlFailed(f"{expected}, found {settings.directory}")
        self.namespaces: dict[str, MpsNamespace] = {}
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

    async def add(self, namespace: MpsNamespace, within_s: float) -> None:
        """Ensure that the namespace exists with these limits, before its client starts. Raises ControlFailed."""
        if self.namespaces.get(namespace.name) == namespace:
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
        self.namespaces[namespace.name] = namespace

    async def remove(self, name: str, within_s: float) -> None:
        """Delete the namespace, which must not have clients. Raises ControlFailed."""
        await self._do(("namespace", "delete", name, f"--server={MPS_SERVER}"), within_s)
        self.namespaces.pop(name, None)

    async def clients(self, within_s: float) -> list[int]:
        """Return the PIDs of the daemon's clients, as the daemon knows them. Raises ControlFailed."""
        return numbers("\n".join(await self._listed(("client", "list", "--all"), within_s)))

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
        self.namespaces.clear()
        self._served = False


def control_of(settings: Mps, uuid: str, protocol: int) -> MpsControl:
    """Return the control of the card's daemon. Raises ControlFailed."""
    return NamespaceControl(settings, uuid) if protocol == NamespaceControl.protocol else MpsControl(settings, uuid)
