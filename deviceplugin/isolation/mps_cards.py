"""The MPS control daemons of the node: one for each card that the driver names and that is neither split nor released.

    wanted ──▶ its compute mode, its daemon ──▶ clients may start
    no longer wanted, or the plugin stops ──▶ its daemon ends, its compute mode is restored

Sets the compute mode of these cards to one process at a time, and restores it later. The earlier mode is kept in a
file, so that a killed or reconfigured plugin restores it too.
Owned by the event loop.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from config.settings.deviceplugin import Mps
from deviceplugin.driver.cards import EXCLUSIVE_PROCESS, CardReading, SourceFailed
from deviceplugin.files import replace_file
from deviceplugin.isolation.mps_daemon import ControlFailed, MpsControl, MpsDaemon, MpsPace
from deviceplugin.node.events import NodeEvent
from deviceplugin.report import series
from scheduler.kube.port import PodKey

FILE: Final = "compute-modes.json"
_VERSION: Final = 1
log = structlog.get_logger()


class _Document(msgspec.Struct, frozen=True):
    version: int
    before: dict[str, str]


class ModeSetter(Protocol):
    """Port: the part of `driver.cards.Driver` that sets the compute mode."""

    async def set_compute_mode(self, uuid: str, mode: str) -> None:
        """Set the mode. mode: as in `CardReading`. Raises SourceFailed."""
        ...


class ComputeModes:
    """Compute modes set by the plugin. before: UUID -> the card's earlier mode."""

    def __init__(self, state: Path, driver: ModeSetter, readings: Callable[[], Mapping[str, CardReading]]) -> None:
        """readings: UUID -> the last reading, if any."""
        self._path = state / FILE
        self._driver = driver
        self._readings = readings
        self.before = load(self._path)

    async def exclusive(self, uuid: str) -> str:
        """Let only one process, the MPS server, use the card. Return why that failed, or ""."""
        reading = self._readings().get(uuid)
        if reading is None:
            return "the driver has not reported this card's state yet"
        if reading.compute_mode == EXCLUSIVE_PROCESS:
            return ""
        try:
            if uuid not in self.before:
                self._save({**self.before, uuid: reading.compute_mode})
            await self._driver.set_compute_mode(uuid, EXCLUSIVE_PROCESS)
        except (SourceFailed, OSError) as error:
            return f"its compute mode cannot be set: {error}"
        log.info("compute_mode.set", uuid=uuid, before=reading.compute_mode or "DEFAULT")
        return ""

    async def restore(self, uuid: str) -> str:
        """Restore the earlier mode, if the plugin changed it. Return why that failed, or ""."""
        if uuid not in self.before:
            return ""
        try:
            await self._driver.set_compute_mode(uuid, self.before[uuid])
            self._save({other: mode for other, mode in self.before.items() if other != uuid})
        except (SourceFailed, OSError) as error:
            return f"card {uuid}: its compute mode cannot be restored: {error}"
        log.info("compute_mode.given_back", uuid=uuid)
        return ""

    def _save(self, before: dict[str, str]) -> None:
        replace_file(self._path, msgspec.json.encode(_Document(_VERSION, before)))
        self.before = before


def load(path: Path) -> dict[str, str]:
    """Return UUID -> the mode to restore; empty if the file is missing or unreadable."""
    try:
        document = msgspec.json.decode(path.read_bytes(), type=_Document)
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeError, RecursionError) as error:
        log.warning("state.unreadable", reason=f"{path.name} cannot be read: {error}; starting with an empty record")
        return {}
    return document.before


_LOOK_S: Final = 5.0
_KNOWN_S: Final = 0.1


class MpsMetrics:
    """Metrics of the daemons, if there are any."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """registry: the plugin's."""
        self.ready = series.MPS_READY.gauge(registry)
        self.ends = series.MPS_ENDS.counter(registry)

    def forget(self, uuid: str) -> None:
        """Remove the series of a card that no longer gets a daemon."""
        with contextlib.suppress(KeyError):
            self.ready.remove(uuid)


@dataclass(slots=True, kw_only=True)
class MpsCards:
    """All daemons. wanted: UUIDs of the cards to serve. clients: the pods that have a card. record: receives an event.

    metrics: None if daemons are never wanted, and only modes are restored.
    """

    settings: Mps
    modes: ComputeModes
    wanted: Callable[[], Collection[str]]
    clients: Callable[[str], Sequence[PodKey]]
    record: Callable[[NodeEvent], None]
    backoff_s: Callable[[int], float]
    metrics: MpsMetrics | None = None
    pace: MpsPace = field(default_factory=MpsPace)
    _daemons: dict[str, MpsDaemon] = field(default_factory=dict)
    _running: dict[str, "asyncio.Task[None]"] = field(default_factory=dict)
    _refused: dict[str, str] = field(default_factory=dict)
    _not_restored: dict[str, str] = field(default_factory=dict)
    _stopping: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def cards_changed(self) -> None:
        """Check soon which cards are wanted."""
        self._changed.set()

    def has(self, uuid: str) -> bool:
        """Return whether the card has a daemon, ready or not."""
        return uuid in self._daemons

    async def ready(self, uuid: str, within_s: float) -> str:
        """Wait at most `within_s` until a client of the card may start. Return why it may not, or ""."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                # Just after its start, the plugin does not know its cards yet.
                while (waited_for := self._daemons.get(uuid)) is None:  # noqa: ASYNC110 - cards come from elsewhere
                    await asyncio.sleep(_KNOWN_S)
                await waited_for.ready.wait()
        daemon = self._daemons.get(uuid)
        if daemon is None:
            return f"card {uuid}: {self._refused.get(uuid, 'it has no MPS daemon')}"
        return "" if daemon.ready.is_set() else f"card {uuid}: {daemon.problem}"

    def problems(self) -> tuple[str, ...]:
        own = {uuid: daemon.problem for uuid, daemon in self._daemons.items() if daemon.problem}
        told = tuple(f"card {uuid}: {problem}" for uuid, problem in (own | self._refused).items())
        return (*told, *self._not_restored.values())

    async def run(self) -> None:
        """Follow the cards forever."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._changed.clear()
                if not self._stopping:
                    await self._follow(tasks)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._changed.wait()

    async def stop(self) -> None:
        """End our own daemons and restore their cards; daemons of others keep running."""
        self._stopping = True
        ours = [uuid for uuid, daemon in self._daemons.items() if not daemon.of_others]
        await asyncio.gather(*(self._leave(uuid, "the device plugin is stopping") for uuid in ours))

    async def _follow(self, tasks: asyncio.TaskGroup) -> None:
        wanted = set(self.wanted())
        for uuid in self._daemons.keys() - wanted:
            await self._leave(uuid, "the card was taken out of use")
        for uuid in sorted(wanted - self._daemons.keys()) if not self._stopping else ():
            self._begin(uuid, tasks)
        for uuid in sorted(self.modes.before.keys() - self._daemons.keys()):
            await self._restore(uuid)

    def _begin(self, uuid: str, tasks: asyncio.TaskGroup) -> None:
        try:
            control = MpsControl(self.settings, uuid)
        except ControlFailed as error:
            self._refused[uuid] = str(error)
            return
        daemon = MpsDaemon(uuid, control, self.modes.exclusive, self._state_changed, self.backoff_s, self.pace)
        self._daemons[uuid] = daemon
        self._running[uuid] = tasks.create_task(daemon.run())

    async def _leave(self, uuid: str, why: str) -> None:
        if uuid not in self._daemons:
            return  # `stop` and a check of the cards may run at the same time.
        task, daemon = self._running.pop(uuid), self._daemons.pop(uuid)
        task.cancel()
        await asyncio.wait({task})
        await daemon.stop(why)
        if self.metrics is not None:
            self.metrics.forget(uuid)
        await self._restore(uuid)

    async def _restore(self, uuid: str) -> None:
        if problem := await self.modes.restore(uuid):
            self._not_restored[uuid] = problem
        else:
            self._not_restored.pop(uuid, None)

    def _state_changed(self, uuid: str, why: str) -> None:
        """Report that a daemon answers (why is ""), or has ended and its clients have failed."""
        if self.metrics is not None:
            self.metrics.ready.labels(uuid).set(not why)
        if not why:
            return
        if self.metrics is not None:
            self.metrics.ends.labels(uuid).inc()
        log.warning("mps.ended", uuid=uuid, reason=why)
        for pod in self.clients(uuid):
            note = f"card {uuid}: {why}; CUDA programs that were using the card fail: restart them"
            self.record(NodeEvent("GPUIsolationLost", note, pod))
