"""The MPS control daemons of the node: one for each card that the driver names and that is neither split nor released.

    wanted ──▶ its compute mode, its daemon ──▶ clients may start
    no longer wanted, or the plugin stops ──▶ its daemon ends, its compute mode is restored

With protocol 2, it sets the compute mode of these cards to one process at a time, and restores it later.
Owned by the event loop.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog
from prometheus_client import CollectorRegistry

from config.settings.deviceplugin import Mps
from deviceplugin.events import EventRecorder, NodeEvent
from deviceplugin.isolation.compute_modes import ComputeModes
from deviceplugin.isolation.mps_control import ControlFailed, protocol_of
from deviceplugin.isolation.mps_daemon import MpsDaemon, MpsPace
from deviceplugin.isolation.mps_namespaces import MpsNamespace, NamespaceControl, control_of
from deviceplugin.report import series
from scheduler.kube.port import PodKey

log = structlog.get_logger()
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


class MpsNode(Protocol):
    """Port: the node, as far as its daemons depend on it."""

    @property
    def wanted(self) -> Collection[str]:
        """UUIDs of the cards to serve."""
        ...

    @property
    def driver(self) -> str:
        """The driver's version; "" while it is unknown."""
        ...

    @property
    def live(self) -> Collection[str] | None:
        """UIDs of the node's pods; None while they are unknown."""
        ...

    def clients(self, uuid: str) -> Sequence[PodKey]:
        """Return the pods that have the card."""
        ...


@dataclass(slots=True, kw_only=True)
class MpsCards:
    """All daemons. metrics: None if daemons are never wanted, and only modes are restored."""

    settings: Mps
    modes: ComputeModes
    node: MpsNode
    recorder: EventRecorder
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

    def serving(self) -> set[str]:
        """Return the UUIDs of the cards that programs share through MPS, now or soon."""
        return {*self._daemons, *self.node.wanted}

    def has_namespaces(self, uuid: str) -> bool:
        """Return whether the card's daemon has a namespace for each container, now or once it starts."""
        if daemon := self._daemons.get(uuid):
            return isinstance(daemon.control, NamespaceControl)
        return protocol_of(self.settings, self.node.driver) == NamespaceControl.protocol

    async def admit(self, uuid: str, namespace: MpsNamespace) -> str:
        """Ensure that the namespace of a container that starts exists. Return why it does not, or ""."""
        daemon = self._daemons.get(uuid)
        if daemon is None or not isinstance(daemon.control, NamespaceControl):
            return f"card {uuid}: its MPS daemon has no namespaces"
        try:
            await daemon.control.add(namespace, self.pace.answer_s)
        except ControlFailed as error:
            return f"card {uuid}: {error}"
        return ""

    async def drain(self, uuid: str, of_pod: Callable[[Sequence[int]], Awaitable[Sequence[int]]]) -> None:
        """Terminate clients of the card, each after its pending work. of_pod: returns which of these PIDs."""
        daemon = self._daemons.get(uuid)
        if daemon is None or not daemon.ready.is_set():
            return
        try:
            pids = await of_pod(await daemon.control.clients(self.pace.answer_s))
        except (ControlFailed, OSError) as error:
            log.warning("mps.not_drained", uuid=uuid, reason=str(error))
            return
        for pid in pids:
            try:
                await daemon.drain(pid)
            except ControlFailed as error:
                log.warning("mps.not_drained", uuid=uuid, pid=pid, reason=str(error))
            else:
                log.info("mps.drained", uuid=uuid, pid=pid)

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
        wanted = set(self.node.wanted)
        for uuid in self._daemons.keys() - wanted:
            await self._leave(uuid, "the card was taken out of use")
        for uuid in sorted(wanted - self._daemons.keys()) if not self._stopping else ():
            self._begin(uuid, tasks)
        for uuid in sorted(self.modes.before.keys() - self._daemons.keys()):
            await self._restore(uuid)
        await self._remove_namespaces()

    async def _remove_namespaces(self) -> None:
        """Delete the namespaces of pods that are gone. One with clients is tried again later."""
        if (live := self.node.live) is None:
            return
        for daemon in tuple(self._daemons.values()):
            if not isinstance(daemon.control, NamespaceControl):
                continue
            for name in [one.name for one in daemon.control.namespaces.values() if one.pod_uid not in live]:
                with contextlib.suppress(ControlFailed):
                    await daemon.control.remove(name, self.pace.answer_s)

    def _begin(self, uuid: str, tasks: asyncio.TaskGroup) -> None:
        try:
            control = control_of(self.settings, uuid, protocol_of(self.settings, self.node.driver))
        except ControlFailed as error:
            self._refused[uuid] = str(error)
            return
        # A namespace's client needs no compute mode of its card; an earlier plugin may have set one.
        set_mode = self.modes.restore if isinstance(control, NamespaceControl) else self.modes.exclusive
        daemon = MpsDaemon(uuid, control, set_mode, self._state_changed, self.backoff_s, self.pace)
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
        for pod in self.node.clients(uuid):
            note = f"card {uuid}: {why}; CUDA programs that were using the card fail: restart them"
            self.recorder.record(NodeEvent("GPUIsolationLost", note, pod))
