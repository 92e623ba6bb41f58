"""Periodically compares the announced, decided, allocated and used memory, and acts on differences.

    CDI files ─▶ checkpoint ─▶ kubelet (List) ─▶ processes of the cards ─▶ pods at that time
                                                                              │
       journal, CDI files tidied ◀── metrics, status ◀── Events, evictions ◀──┴─ drift, once seen twice

An input that cannot be read is one of `result.problems`, and only the checks that need it are skipped: no failure of
the API server, the kubelet or the disk ends the loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

import structlog

from config.protocol.quantity import QuantityError
from deviceplugin.allocation.assigned import AssignedCards
from deviceplugin.allocation.decision import allocated_units
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.pods import NodePod, read_pod
from deviceplugin.allocation.recorded import device_names
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.driver.cards import CardReading
from deviceplugin.events import EventRecorder, NodeEvent
from deviceplugin.health.states import CardStates
from deviceplugin.isolation.directories import ContainerDirectories
from deviceplugin.kubelet.checkpoint import CheckpointEntry, CheckpointError, KubeletContainer
from deviceplugin.kubelet.client import KubeletSilent
from deviceplugin.kubelet.session import Calls
from deviceplugin.reconcile import usage
from deviceplugin.reconcile.cgroup_files import owners
from deviceplugin.reconcile.container_limits import not_enforced, with_limits
from deviceplugin.reconcile.drift import (
    Action,
    Compared,
    Drift,
    Followed,
    SeenPod,
    Use,
    actions,
    find_drift,
    follow,
)
from deviceplugin.reconcile.limit_reader import LimitReader
from deviceplugin.reconcile.pressure import pressure
from deviceplugin.reconcile.settings import ReconcileSettings
from deviceplugin.report.metrics import NodeMetrics
from deviceplugin.report.status import AllocationStatus, DriftStatus
from scheduler.kube.port import ApiConflict, ApiError, ApiNotFound, PodKey

_AT_ONCE: Final = 8
log = structlog.get_logger()


class _Evictor(Protocol):
    """Port: evicts pods from the node."""

    async def evict(self, pod: PodKey) -> None:
        """Request the eviction of exactly this pod. Raises ApiError; ApiThrottled if it is forbidden now."""
        ...


async def evict(evictor: _Evictor, leaving: Mapping[PodKey, str]) -> list[str]:
    """Evict each pod. Return why some are not evicted yet. leaving: pod -> the reason, for the log."""
    turn = asyncio.Semaphore(_AT_ONCE)

    async def one(pod: PodKey, reason: str) -> str:
        async with turn:
            return await _evict(evictor, pod, reason)

    answers = await asyncio.gather(*(one(pod, reason) for pod, reason in leaving.items()))
    return [problem for problem in answers if problem]


async def _evict(evictor: _Evictor, pod: PodKey, reason: str) -> str:
    try:
        await evictor.evict(pod)
    except (ApiNotFound, ApiConflict):
        log.info("pod.gone", pod=str(pod), uid=pod.uid)
    except ApiError as error:
        return f"pod {pod} is not evicted yet: {error.message}"
    else:
        log.warning("pod.evicted", pod=str(pod), uid=pod.uid, reason=reason)
    return ""


class LeftoversError(Exception):
    """Leftovers could not be listed or removed; the message says which."""


@dataclass(frozen=True, slots=True)
class Present:
    """Files that exist. specs: as in `SpecFiles.present`. pods: UIDs of the pods that have isolation directories."""

    specs: Mapping[str, int] = field(default_factory=dict)
    pods: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Leftovers:
    """Data that outlives a pod. files: our CDI specs. assigned, journal, directories: by pod UID."""

    files: SpecFiles
    assigned: AssignedCards
    journal: Journal
    directories: ContainerDirectories

    async def present(self) -> Present:
        """Return the files. Call before reading pods and checkpoint, to spare newer ones. Raises LeftoversError."""
        try:
            specs = await asyncio.to_thread(self.files.present)
            return Present(specs, await asyncio.to_thread(self.directories.present))
        except OSError as error:
            raise LeftoversError(f"cannot read the CDI directory or the isolation directories: {error}") from error

    def forget(self, live: Collection[str]) -> None:
        """Forget every pod except these. Raises LeftoversError."""
        self.assigned.keep(live)
        try:
            self.journal.keep(live)
        except OSError as error:
            raise LeftoversError(f"cannot write the journal: {error}") from error

    async def remove_directories(self, present: Present, live: Collection[str]) -> None:
        """Remove isolation directories of every pod except these. Raises LeftoversError."""
        try:
            removed = await asyncio.to_thread(self.directories.remove, set(present.pods) - set(live))
        except OSError as error:
            raise LeftoversError(f"cannot remove isolation directories: {error}") from error
        if removed:
            log.info("isolation.removed", pods=removed)

    async def remove(self, present: Present, entries: Sequence[CheckpointEntry], resource: str) -> None:
        """Remove the specs that no checkpoint entry uses. Raises LeftoversError."""
        of_ours = (device_names(entry) for entry in entries if entry.resource == resource)
        used = frozenset[str]().union(*of_ours)
        unused = {name: inode for name, inode in present.specs.items() if name not in used}
        try:
            removed = await asyncio.to_thread(self.files.remove, unused)
        except OSError as error:
            raise LeftoversError(f"cannot remove CDI specs: {error}") from error
        if removed:
            log.info("cdi.removed", devices=removed)


_LIST_WITHIN_S: Final = 10.0
# An Allocate is over within milliseconds, so a shorter poll would cost more than it saves.
_ALLOCATE_LOOK_S: Final = 0.1


class _Lister(Protocol):
    """Port: the part of `kubelet.client.PodResources` that lists every pod."""

    async def all(self, *, timeout_s: float) -> list[KubeletContainer]:
        """Return the containers of every pod. Raises KubeletSilent."""
        ...


@dataclass(frozen=True, slots=True)
class Result:
    """Result of the last round, for `/status`. allocated_units: card UUID -> units decided for live pods.

    drift: found in two consecutive rounds.
    """

    containers: tuple[AllocationStatus, ...] = ()
    drift: tuple[DriftStatus, ...] = ()
    allocated_units: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Reconciler:
    """The reconcile loop. Owned by the event loop; files are read in a thread.

    limits: reads the driver's memory limits. files: our CDI specs. directories: isolation directories. calls: of the
    kubelet. on_outside: called when `outside_mib` changes: UUID -> MiB used by unregistered processes, subtracted from
    the announcement.
    """

    settings: ReconcileSettings
    view: NodeRecords
    kubelet: _Lister
    states: CardStates
    limits: LimitReader
    assigned: AssignedCards
    files: SpecFiles
    directories: ContainerDirectories
    recorder: EventRecorder
    evictor: _Evictor
    metrics: NodeMetrics
    calls: Calls
    on_outside: Callable[[Mapping[str, int]], None]
    outside_mib: Mapping[str, int] = field(default_factory=dict)
    result: Result = field(default_factory=Result)
    _followed: Followed = field(default_factory=Followed)
    _problems: list[str] = field(default_factory=list)

    async def run(self) -> None:
        """Compare forever, once the pods of the node are known."""
        while not self.view.pods.complete:
            await self.view.pods.change()
        while True:
            await self.round()
            await asyncio.sleep(self.settings.interval_s)

    async def round(self) -> None:
        """Compare once. Call this at most every 30 s, because it queries the kubelet for all pods (List)."""
        self._problems = []
        if not self.view.pods.complete:
            self._end(Result(problems=("the pods of this node are not known yet",)))
            return
        leftovers = Leftovers(self.files, self.assigned, self.view.journal, self.directories)
        present = await self._present(leftovers)
        entries = await self._entries()
        allocated = await self._allocated()
        readings = dict(self.states.readings)  # The driver keeps measuring during these reads.
        traced = await self._uses(readings)
        seen = usage.seen(self._pods(), self.view.cards, self.settings.unit_mib)
        limits = await self.limits.read(seen, usage.uids_by_cgroup(self.view.pods))
        self._problems += limits.problems
        read = readings if traced is not None else ()
        found, by_id = with_limits(traced or (), limits), usage.containers_by_id(self.view.pods)
        drift = self._find_drift(seen, allocated, found)
        drift += not_enforced(seen, limits, by_id, self.limits.isolation.limit)
        drift += pressure(self.view.cards, seen, found, read, self.settings.unit_mib)
        await self._follow(drift, read)
        if entries is not None:
            await self._tidy(leftovers, present, entries)
        self._show(seen, usage.accounts(seen, found, read, by_id, unit_mib=self.settings.unit_mib))

    async def _present(self, leftovers: Leftovers) -> Present:
        try:
            return await leftovers.present()
        except LeftoversError as error:
            self._problem(str(error))
            return Present()

    async def _entries(self) -> Sequence[CheckpointEntry] | None:
        """Return the checkpoint's entries; None if they cannot be read."""
        try:
            return (await self.view.snapshot()).entries
        except CheckpointError as error:
            self._problem(str(error))
            return None

    async def _allocated(self) -> list[KubeletContainer]:
        """Return the containers that the kubelet lists; empty if it does not answer, which proves nothing."""
        while self.calls.allocating:  # noqa: ASYNC110  (nobody tells of its end, and it is mostly there at the first look)
            await asyncio.sleep(_ALLOCATE_LOOK_S)
        try:
            return await self.kubelet.all(timeout_s=_LIST_WITHIN_S)
        except KubeletSilent as error:
            self._problem(str(error))
            return []

    async def _uses(self, readings: Mapping[str, CardReading]) -> tuple[Use, ...] | None:
        """Return the processes on the cards; None if they cannot be traced."""
        pids = {process.pid for reading in readings.values() for process in reading.processes}
        if not pids:
            return ()
        try:
            owned = await asyncio.to_thread(owners, self.settings.host_proc, pids)
        except OSError as error:
            self._problem(f"cannot trace processes to their pods: {error}")
            return None
        return usage.uses(readings, owned, usage.uids_by_cgroup(self.view.pods))

    def _pods(self) -> list[NodePod]:
        """Return the node's pods. Those that request GPU memory have the values that were first seen."""
        asking = {pod.uid: pod for pod in self.view.asking()}
        resources, found = self.view.resources, []
        for wire in self.view.pods:
            meta = wire.metadata
            try:
                pod = read_pod(wire, gpu_mem=resources.gpu_mem, gpu_count=resources.gpu_count)
            except QuantityError as error:
                self._problem(f"pod {meta.namespace}/{meta.name} cannot be read: {error}")
                pod = NodePod(uid=meta.uid, namespace=meta.namespace, name=meta.name, containers=())
            found.append(asking.get(pod.uid, pod))
        return found

    def _find_drift(
        self, seen: Sequence[SeenPod], allocated: Sequence[KubeletContainer], found: Sequence[Use]
    ) -> list[Drift]:
        cards = self.view.cards
        if not cards:
            self._problem("no card is announced yet")
            return []
        compared = Compared(
            cards=cards,
            unit_mib=self.settings.unit_mib,
            pods=seen,
            allocated=allocated,
            assigned=self.assigned.by_container,
            uses=found,
        )
        return find_drift(compared, allowance_mib=self.settings.allowance_mib)

    async def _follow(self, found: Sequence[Drift], read: Collection[str]) -> None:
        self._followed = follow(self._followed, found)
        for news in self._followed.news:
            follows = actions(news, self.settings.policy)
            if Action.EVENT in follows:
                self.recorder.record(_node_event(news, evicted=Action.EVICT in follows))
        await self._evict()
        outside = usage.outside_mib(self.outside_mib, self._followed, read, self.settings.policy)
        if outside != self.outside_mib:
            self.outside_mib = outside
            self.on_outside(outside)

    async def _evict(self) -> None:
        """Evict all pods that have to leave; a rejected eviction is retried in the next round."""
        leaving = {
            one.pod.key: one.message
            for one in self._followed.lasting
            if one.pod is not None and Action.EVICT in actions(one, self.settings.policy)
        }
        self._problems += await evict(self.evictor, leaving)

    async def _tidy(self, leftovers: Leftovers, present: Present, entries: Sequence[CheckpointEntry]) -> None:
        """Remove leftovers. The kubelet keeps a dead pod's record for a while, and so do we."""
        live = {pod.metadata.uid for pod in self.view.pods} | {entry.pod_uid for entry in entries}
        try:
            leftovers.forget(live)
        except LeftoversError as error:
            self._problem(str(error))
        # Separately: if a container made its directory impossible to remove, the rest is still cleaned up.
        await self._tried(leftovers.remove_directories(present, live))
        await self._tried(leftovers.remove(present, entries, self.view.resources.gpu_mem))

    async def _tried(self, removing: Awaitable[None]) -> None:
        try:
            await removing
        except LeftoversError as error:
            self._problem(str(error))

    def _show(self, seen: Sequence[SeenPod], listed: Sequence[usage.Account]) -> None:
        cards, lasting = self.view.cards, self._followed.lasting
        self.metrics.show_drift(usage.counts(lasting, self.settings.policy))
        self.metrics.show_containers(usage.shown_containers(listed, cards))
        self._end(
            Result(
                usage.container_statuses(listed),
                usage.drift_statuses(lasting, self.settings.policy),
                allocated_units((one.pod for one in seen), cards, self.settings.unit_mib),
                tuple(self._problems),
            )
        )

    def _problem(self, message: str) -> None:
        self._problems.append(message)

    def _end(self, result: Result) -> None:
        for problem in set(result.problems) - set(self.result.problems):
            log.warning("reconcile.problem", reason=problem)
        self.result = replace(result, problems=tuple(sorted(result.problems)))


def _node_event(drift: Drift, *, evicted: bool) -> NodeEvent:
    reason = "GPU" + "".join(word.capitalize() for word in drift.kind.split("-"))
    note = drift.event or drift.message
    return NodeEvent(reason, f"{note}; evicting it" if evicted else note, drift.pod.key if drift.pod else None)
