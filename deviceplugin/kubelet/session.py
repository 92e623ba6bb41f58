"""The plugin as the kubelet sees it: it registers in its first second, and can answer calls only later.

    session.json, checkpoint ──▶ devices ──▶ Register ──▶ …        devices listed before, and devices in use
    cards, pods, mode known  ──▶ take_over ──▶ Allocate, PreStartContainer are answered; devices as they are now

A kubelet re-admits its pods about a second after it starts. It fails pods whose containers are not running if no plugin
has listed their devices by then (pkg/kubelet/cm/devicemanager/manager.go). So this module imports little.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import msgspec

from deviceplugin.files import replace_file
from deviceplugin.kubelet import checkpoint
from deviceplugin.kubelet.checkpoint import CheckpointError
from deviceplugin.kubelet.client import KubeletSilent
from deviceplugin.kubelet.device_ids import Listed
from deviceplugin.kubelet.server import CallRejected, ContainerResponse, Devices, Registration, Say

FILE: Final = "session.json"
_VERSION: Final = 1


class _Document(msgspec.Struct, rename="camel"):
    version: int
    resource: str
    mode: str
    unasked: bool
    healthy: list[str]
    unhealthy: list[str]


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A saved session. mode: `cdi` or `environment`. unasked: the kubelet may have admitted pods without the plugin."""

    resource: str
    mode: str
    unasked: bool
    devices: Listed


class SessionFile:
    """Session file in the state directory; owned by one thread."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE
        self._saved: SessionRecord | None = None

    def load(self) -> SessionRecord | None:
        """Return the saved record; None if it is missing or cannot be read."""
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=_Document)
        except (OSError, msgspec.DecodeError, UnicodeError, RecursionError):
            return None
        if found.version != _VERSION:
            return None
        devices = [(name, True) for name in found.healthy] + [(name, False) for name in found.unhealthy]
        return SessionRecord(found.resource, found.mode, found.unasked, tuple(devices))

    def save(self, record: SessionRecord) -> None:
        """Save the record. Raises OSError."""
        if record == self._saved:
            return
        healthy, unhealthy = ([name for name, one in record.devices if one is state] for state in (True, False))
        document = _Document(_VERSION, record.resource, record.mode, record.unasked, healthy, unhealthy)
        replace_file(self._path, msgspec.json.encode(document))
        self._saved = record


class FakeDevices:
    """The list of fake devices, with any number of followers. Owned by the event loop."""

    def __init__(self) -> None:
        """Lists nothing before the first `show`: a follower waits for it."""
        self._devices: Devices | None = None
        self._moved = asyncio.Event()

    @property
    def now(self) -> Devices:
        """The current list."""
        return self._devices or ()

    def show(self, devices: Devices) -> None:
        """List these from now on; an equal list is not sent to followers again."""
        if devices != self._devices:
            self._devices = devices
            self._moved.set()
            self._moved = asyncio.Event()

    def again(self) -> None:
        """Send the list to followers again. The kubelet then writes its checkpoint from what it knows."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def shown(self) -> None:
        """Wait until a list exists."""
        while self._devices is None:
            await self._moved.wait()

    async def follow(self) -> AsyncIterator[Devices]:
        """Yield the current list, then each newer one; skip lists that were replaced before they could be sent."""
        while True:
            moved, devices = self._moved, self._devices
            if devices is not None:
                yield devices
            if moved is self._moved:
                await moved.wait()


CHECKPOINT: Final = "kubelet_internal_checkpoint"
# The kubelet handles no other pod while it waits for an Allocate, without a deadline (devicemanager/endpoint.go).
_ALLOCATE_WAIT_S: Final = 5.0
# PreStartContainer has 30 s there, and the kubelet retries.
_START_WAIT_S: Final = 10.0


class Answers(Protocol):
    """Port: answers the kubelet's calls, once cards and pods are known."""

    async def registering(self) -> None:
        """Prepare a registration: determine the pods that the kubelet admitted without calling the plugin.

        Raises KubeletSilent or CheckpointError if they cannot be determined; registering would then be too early.
        """
        ...

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """Answer Allocate, see `server.KubeletPlugin`."""
        ...

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Answer PreStartContainer, see `server.KubeletPlugin`."""
        ...


class Calls(Protocol):
    """Port: the kubelet's calls that are being answered."""

    @property
    def allocating(self) -> int:
        """Number of running Allocate calls."""
        ...


class Withholding(Protocol):
    """Port: the part of `cdi.mode.Injection` that may keep all cards from containers."""

    @property
    def withheld(self) -> str:
        """Why; "" if it does not."""
        ...


class KubeletSession:
    """`server.RegisteredPlugin` and its registration. Owned by the event loop; create it inside the loop.

    devices: the listed devices. registered: a kubelet follows them. problem: why none does; "" if no problem is known.
    changed: called whenever `registered` or `problem` may have changed. last_mode: from the records, "" if there is
    none. injection: set once it exists; until then, an answer is only a matter of time.
    """

    def __init__(
        self,
        device_plugin_dir: Path,
        resource: str,
        file: SessionFile,
        backoff_s: Callable[[int], float],
        say: Say,
    ) -> None:
        """Takes the arguments of `Registration`. file: the previous plugin's list."""
        self.devices_now = FakeDevices()
        self.registered, self.problem = False, ""
        self.changed: Callable[[], None] = lambda: None
        self.last_mode = ""
        self.injection: Withholding | None = None
        self._resource, self._file, self._backoff_s = resource, file, backoff_s
        self._checkpoint = device_plugin_dir / CHECKPOINT
        self._record: SessionRecord | None = None
        # Whether pods admitted without a call of the plugin have been determined, or cannot exist.
        self._unasked_known = False
        self._answers: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self._first = asyncio.Event()
        self._following = 0
        self._registration = Registration(self, device_plugin_dir, resource, backoff_s, say)

    def resume(self) -> bool:
        """List the devices that the kubelet knew and those in use. Return False if these are unknown or incomplete.

        Without CDI, does not list them if the kubelet may have admitted pods without calling the plugin: those must be
        known first.
        """
        record = self._file.load()
        self.last_mode = record.mode if record else ""
        if record is None or record.resource != self._resource:
            return False
        try:
            text = self._checkpoint.read_bytes()
            held = [entry.ids for entry in checkpoint.parse(text) if entry.resource == self._resource]
            asked = self._resource in checkpoint.registered(text)
        except (OSError, CheckpointError):
            return False
        if record.mode != "cdi" and (record.unasked or not asked):
            return False
        held_only = sorted(frozenset[str]().union(*held) - {name for name, _ in record.devices})
        self._record, self._unasked_known = record, record.mode != "cdi"
        self.devices_now.show((*record.devices, *((name, True) for name in held_only)))
        return True

    async def run(self) -> None:
        """Serve and register forever. Raises a group with the errors of serving."""
        await self._registration.run()

    async def registered_within(self, wait_s: float) -> bool:
        """Wait for the first registration. Return whether it has happened by then."""
        try:
            async with asyncio.timeout(wait_s):
                await self._first.wait()
        except TimeoutError:
            return False
        return True

    async def take_over(self, answers: Answers, mode: str) -> None:
        """Answer the kubelet's calls from now on."""
        # Registered based on records of the other mode: the facts that they omit are determined now.
        failures = 0
        while self._record is not None and self._record.mode != mode:
            try:
                await answers.registering()
            except (KubeletSilent, CheckpointError) as error:
                failures += 1
                self.on_problem(str(error))
                await asyncio.sleep(self._backoff_s(failures))
            else:
                self._unasked_known = True
                break
        self._answers.set_result(answers)

    def remember(self, mode: str, devices: Listed, *, unasked: bool) -> None:
        """Save the facts that the kubelet was given, for the next process. Raises OSError.

        unasked: as known by now. While it is unknown, there may be such pods.
        """
        self._file.save(SessionRecord(self._resource, mode, unasked or not self._unasked_known, devices))

    async def devices(self) -> AsyncIterator[Devices]:
        """Yield the list of devices, now and whenever it changes."""
        self._following += 1
        try:
            async for devices in self.devices_now.follow():
                yield devices
        finally:
            self._following -= 1
            # Two follow while one kubelet takes over from another.
            if not self._following:
                self.on_unregistered()
                self._registration.dropped()

    async def allocate(self, ids: frozenset[str]) -> ContainerResponse:
        """Answer once cards and pods are known."""
        return await (await self._ready(_ALLOCATE_WAIT_S)).allocate(ids)

    async def pre_start(self, ids: frozenset[str]) -> None:
        """Answer once cards and pods are known."""
        await (await self._ready(_START_WAIT_S)).pre_start(ids)

    async def _ready(self, wait_s: float) -> Answers:
        done, _ = await asyncio.wait({self._answers}, timeout=wait_s)
        if not done:
            starting = f"the device plugin has just started: after {wait_s:g} s it does not know its cards and pods yet"
            withheld = self.injection.withheld if self.injection else ""
            raise CallRejected(withheld or starting, "Starting")
        return self._answers.result()

    async def registering(self) -> None:
        """Wait until devices are listed, and determine pods that were admitted without a call of the plugin."""
        await self.devices_now.shown()
        if self._record is None or self._answers.done():
            await (await asyncio.shield(self._answers)).registering()
            self._unasked_known = True

    def on_registered(self) -> None:
        """Record that the kubelet follows the devices."""
        self.registered = True
        self._first.set()
        self.changed()

    def on_unregistered(self) -> None:
        """Record that no kubelet follows them."""
        self.registered = False
        self.changed()

    def on_problem(self, message: str) -> None:
        """Record why a registration failed; "" after success."""
        self.problem = message
        self.changed()
