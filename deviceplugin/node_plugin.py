"""Builds the parts of one node's plugin and runs them together: the only module that knows all of them.

driver ──▶ CardKeeper ──▶ NodeCards ──▶ NodePublisher ──▶ node object
                             │  └────▶ KubeletSession ─▶ kubelet ──Allocate, PreStartContainer──▶ allocators
node, pods (watch) ──────────┴───────────────────────────────────────────────────────────────────┘
kubelet's records, use of the cards ──▶ Reconciler ──▶ Events, metrics, status
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin import line_socket
from deviceplugin.allocation.allocators import (
    AllocationContext,
    CdiAllocator,
    EnvironmentAllocator,
    ModeAllocator,
)
from deviceplugin.allocation.assigned import AssignedCards, Marker
from deviceplugin.allocation.decision import allocated_units
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.pods import NodePod
from deviceplugin.allocation.view import NodeRecords, OwnPods
from deviceplugin.backends import CardBackend, edits_for
from deviceplugin.cdi.injection import InjectionListeners, InjectionMode
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.health import rules
from deviceplugin.health.monitor import CardKeeper, Pace
from deviceplugin.health.record import HealthFile, LastKnownFile
from deviceplugin.health.releases import Releases, socket_path
from deviceplugin.health.states import CardStates
from deviceplugin.isolation.make import IsolationParts, isolation_for, node_kind, shared_in
from deviceplugin.isolation.mps_drain import MpsDrain
from deviceplugin.isolation.node_isolation import NodeIsolation
from deviceplugin.kubelet.client import PodResources
from deviceplugin.kubelet.session import CHECKPOINT, KubeletSession
from deviceplugin.node.cards import NodeCards
from deviceplugin.node.devices import NodeDevices
from deviceplugin.node.events import NodeEvent, NodeEventRecorder
from deviceplugin.node.inventory import Terms
from deviceplugin.node.publisher import NodeApi, NodePublisher
from deviceplugin.node.starts import StartsFile
from deviceplugin.node.watch import NodeWatch
from deviceplugin.reconcile.limit_reader import LimitReader
from deviceplugin.reconcile.process_owners import pods_of
from deviceplugin.reconcile.reconciler import Reconciler
from deviceplugin.reconcile.settings import reconcile_settings
from deviceplugin.report import series
from deviceplugin.report.metrics import MeasuredPlugin, NodeMetrics
from deviceplugin.report.status import DevicePluginStatus, card_statuses, shown_cards
from scheduler.kube import objects, versions
from scheduler.kube.port import ApiError
from scheduler.kube.reflector import Backoff
from scheduler.kube.rest.client import KubeCluster
from scheduler.kube.rest.version import log_notice
from scheduler.process.contact import ContactCollector

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_HELD_WITHIN_S: Final = 1.0
_ISOLATION_ENDS_WITHIN_S: Final = 8.0  # less than the DaemonSet's terminationGracePeriodSeconds
log = structlog.get_logger()


class NodePlugin:
    """The plugin of one node. Create it inside the event loop that runs it."""

    def __init__(  # noqa: PLR0917  (each a different type: none can take another's place)
        self,
        configuration: DevicePluginConfiguration,
        cluster: KubeCluster,
        api: NodeApi,
        backend: CardBackend,
        session: KubeletSession,
        rng: random.Random,
    ) -> None:
        c = self._configuration = configuration
        backoff = Backoff(rng)
        self._backoff_s = backoff.delay_s
        self.metrics = NodeMetrics(c.node_name, c.memory_unit_mib, dcgm=c.dcgm_metrics)
        self._api, self._backend, self._session = api, backend, session
        self._kubelet = PodResources(Path(c.kubelet.pod_resources_socket), c.resources.gpu_mem)
        self._recorder = NodeEventRecorder(cluster, c.node_name, time.time)
        self._view = NodeRecords(
            resources=c.resources,
            pods=OwnPods(),
            journal=Journal(Path(c.state_dir)),
            kubelet=self._kubelet,
            checkpoint=Path(c.kubelet.device_plugin_dir) / CHECKPOINT,
            changed=self._allocation_changed,
            cards=lambda: self._cards.whole,
            unit_mib=c.memory_unit_mib,
        )
        self._kind = node_kind(c)
        self._boot_id = _BOOT_ID.read_text(encoding="ascii").strip()
        self._starts = StartsFile(Path(c.state_dir), self._boot_id)
        self._assigned, self._marker = AssignedCards(), Marker(api, backoff.delay_s)
        self._cards, self._keeper = self._make_cards(backend)
        self._edits = edits_for(c, backend, self._keeper.states.named, lambda: self._cards.cards)
        self._isolation = self._make_isolation(backend)
        self._drain = self._make_drain()
        record = self._recorder.record
        listeners = InjectionListeners(
            not_ready=lambda problem: record(NodeEvent("GPUNotReady", problem)),
            switched=lambda note: record(NodeEvent("GPUInjectionMode", note, warning=False)),
            changed=self._cards.moved,
        )
        real, last = backend.simulated is None, session.last_mode
        self._injection = InjectionMode(c.mode, self._edits, listeners, real=real, last=last)
        self._releases = Releases(keeper=self._keeper, allocated=self._allocated_units, wall_s=time.time)
        self._watch = NodeWatch(cluster, c.node_name, rng, time.monotonic)
        self.metrics.registry.register(ContactCollector(series.PREFIX, self._watch.contact))
        self._reconciler: Reconciler | None = None
        self._environment: EnvironmentAllocator | None = None
        self._registered: bool | None = None
        session.changed, session.missing = self._session_changed, lambda: self._injection.withheld
        self._session_changed()

    async def run(self) -> None:
        """Serve the node forever. Raises a group with device_ids.TooManyDevices and any unexpected error."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (
                    self._watch.pods(self._view.pods),
                    self._watch.node(self._node_seen),
                    self._keeper.run(),
                    self._serve_orders(),
                    self._isolation.mps.run(),
                    self._drain.run(),
                    self._cards.run(),
                    self._cards.follow_pods(),
                    self._cards.publisher.run(),
                    self._recorder.run(),
                    self._marker.run(),
                    self._serve_kubelet(),
                ):
                    tasks.create_task(work)
        finally:
            await self._kubelet.close()

    async def stopping(self) -> None:
        """Ask the scheduler to wait for the next plugin and stop MPS, each for a limited time; then record the stop."""
        self._cards.registered(now=False)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HELD_WITHIN_S):
                await self._cards.publisher.settled()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ISOLATION_ENDS_WITHIN_S):
                await self._isolation.mps.stop()
        with contextlib.suppress(OSError):
            self._starts.told_to_stop()

    async def failing(self) -> None:
        """Ask the scheduler to wait, by a separate write: the usual writer may be the part that has failed."""
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(_HELD_WITHIN_S):
                await self._api.annotate(self._cards.asking_to_wait())

    def not_ready(self) -> str:
        """Return why pods cannot get their cards yet; "" if they can."""
        if not self._cards.latest:
            return self._keeper.problem or "the driver has not reported any card yet"
        if problem := self._injection.problem or self._keeper.states.cuda_problem():
            return problem
        if self._keeper.states.untried():
            return "CUDA is still being tested on the cards"
        if not self._session.registered:
            return self._session.problem or "not registered with the kubelet yet"
        if problem := self._watch.contact.problem(self._configuration.not_ready_after_s):
            return problem
        publisher = self._cards.publisher
        return "" if publisher.announced else publisher.problem or "node object not updated yet"

    def status(self) -> DevicePluginStatus:
        """Return the status, as `/status` shows it."""
        c, found, states = self._configuration, self._reconciler, self._keeper.states
        cards = self._cards.cards
        return DevicePluginStatus(
            node=c.node_name,
            mode=self._injection.chosen or c.mode,
            driver=states.driver,
            unit_mib=c.memory_unit_mib,
            announced_units=sum(healthy for _, healthy in self._session.devices_now.now),
            registered=self._session.registered,
            on_node=self._cards.publisher.announced,
            simulated=self._backend.simulated is not None,
            toolkit_missing=bool(self._injection.problem),
            nvidia_runtime=self._injection.nvidia_runtime,
            runtime_class=self._runtime_class(),
            problems=tuple(filter(None, self._problems())),
            cards=card_statuses(cards, self._allocated_units(), states.readings, states.absent()),
            isolation=self._kind.now,
            containers=self._isolation.shown(found.result.containers) if found else (),
            drift=found.result.drift if found else (),
        )

    def _problems(self) -> Sequence[str]:
        reconciled = self._reconciler.result.problems if self._reconciler else ()
        own = (*self._keeper.problems(), *self._injection.problems(), self._session.problem, self._cards.problem)
        isolation = (self._kind.problem, *self._isolation.mps.problems())
        return (*own, *self._cards.problems(), *self._edits.problems, *isolation, *reconciled)

    def _make_cards(self, backend: CardBackend) -> tuple[NodeCards, CardKeeper]:
        c, boot_id = self._configuration, self._boot_id
        healths, last_known = HealthFile(Path(c.state_dir), boot_id), LastKnownFile(Path(c.state_dir), boot_id)
        known = last_known.load()
        states = CardStates(rules.classes(c.ignored_xids, c.hardware_xids) if c.health_check else None)
        states.tries_cuda = c.health_check and backend.driver.tries_cuda
        states.remember(known.cards, healths.load(card.uuid for card in known.cards))
        for problem in filter(None, (known.problem, healths.problem, self._view.journal.problem)):
            log.warning("state.unreadable", reason=problem)
        cards = NodeCards(
            terms=Terms(c.memory_unit_mib, c.unified_memory_mib, c.count_reserved_memory),
            gpu_core=c.announce_gpu_core,
            states=states,
            view=self._view,
            publisher=NodePublisher(self._api, self._backoff_s),
            devices=NodeDevices(
                view=self._view,
                shown=self._session.devices_now,
                old_style=c.old_style_ids,
                withheld=lambda: bool(self._injection.withheld or states.cuda_problem()),
            ),
            healths=healths,
            last_known=last_known,
            wall_s=time.time,
            record=self._recorder.record,
            changed=self._show_cards,
            release=lambda text: self._releases.follow(text),  # noqa: PLW0108 - not built yet
            uncovered=lambda: self._injection.uncovered,
            isolation=lambda: self._isolation.for_inventory(),  # noqa: PLW0108 - not built yet
            untrusted_until_s=self._starts.untrusted_until_s(),
        )
        keeper = CardKeeper(
            driver=backend.driver,
            states=states,
            forget=not known.same_boot,
            pace=Pace(reading_s=c.reading_interval_s, end_s=c.driver_exit_after_s),
            wall_s=time.time,
            on_change=cards.moved,
            on_xid=lambda xid: self.metrics.xid(xid.uuid, xid.number, xid.times),
            on_cuda=self._view.pods.wake,
            shared_in=lambda: shared_in(self._kind.mechanism),
        )
        return cards, keeper

    def _make_drain(self) -> MpsDrain:
        owners = partial(pods_of, Path(self._configuration.host_proc), self._view.pods)
        return MpsDrain(cards=self._isolation.mps, view=self._view, pods_of=owners, wall_s=time.time)

    def _make_isolation(self, backend: CardBackend) -> NodeIsolation:
        parts = IsolationParts(
            kind=self._kind,
            driver=backend.driver,
            states=self._keeper.states,
            view=self._view,
            edits=self._edits,
            cdi=lambda: self._injection.chosen != "environment",
            record=self._recorder.record,
            registry=self.metrics.registry,
            backoff_s=self._backoff_s,
        )
        return isolation_for(self._configuration, parts)

    def _node_seen(self, node: objects.Node | None) -> None:
        self._recorder.node_uid = node.metadata.uid if node else ""
        self._cards.seen(node)

    def _show_cards(self) -> None:
        states, cards = self._keeper.states, self._cards.cards
        self.metrics.show_cards(shown_cards(states.cards, cards, self._allocated_units(), states.readings))
        processes = self._backend.driver.processes
        self.metrics.show_driver(processes.starts, len(processes.abandoned()))
        self._injection.cards_changed()
        self._isolation.mps.cards_changed()
        self._remember()

    def _allocated_units(self) -> dict[str, int]:
        return allocated_units(self._view.asking(), self._cards.whole, self._configuration.memory_unit_mib)

    def _runtime_class(self) -> str:
        """Return `runtimeClassName` of the plugin's own pod; "" if it has none or its UID was not given."""
        own = self._view.pods.get(self._configuration.pod_uid)
        return own.spec.runtime_class_name if own else ""

    async def _serve_orders(self) -> None:
        """Serve operators' requests on the node's socket; without one, the annotation still works."""
        path = socket_path(Path(self._configuration.state_dir))
        try:
            async with line_socket.serve(path, self._releases.serve_line):
                await asyncio.Event().wait()
        except OSError as error:
            log.warning("orders.unavailable", path=str(path), reason=str(error))

    async def _serve_kubelet(self) -> None:
        """Serve the kubelet, and reconcile, once the mode and the devices are known."""
        c = self._configuration
        info = await self._watch.node_info()
        for line in versions.of_kubelet(info.kubelet_version):
            log_notice(line)
        await self._cards.listed()
        mode = await self._injection.mode(self._watch.runtime_version)
        log.info("mode", mode=mode, configured=c.mode, runtime=self._watch.runtime_version())
        files = SpecFiles(Path(c.cdi_dir))
        context = AllocationContext(
            view=self._view,
            cards=lambda: self._cards.whole,
            unit_mib=c.memory_unit_mib,
            node_labels=self._watch.labels,
            on_assigned=self._note_assigned,
            files=files,
            card_edits=self._edits,
            isolation=self._isolation,
            volume_mounts=self._injection.volume_mounts,
            start_problem=self._keeper.states.start_problem,
            unrecorded=self._session.devices_now.again,
        )
        measured = MeasuredPlugin(self._allocator(context), self.metrics)
        self._reconciler = self._make_reconciler(files, measured)
        await self._isolation.decided()
        await self._session.take_over(measured, mode)
        self._remember()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reconciler.run())
            tasks.create_task(self._isolation.follow(lambda: bool(measured.allocating), self._cards.moved))
            if c.mode != "environment":
                tasks.create_task(self._injection.follow(self._watch.runtime_version, lambda: self._idle(measured)))

    def _make_reconciler(self, files: SpecFiles, measured: MeasuredPlugin) -> Reconciler:
        c, states = self._configuration, self._keeper.states
        return Reconciler(
            settings=reconcile_settings(c),
            view=self._view,
            kubelet=self._kubelet,
            cards=lambda: self._cards.whole,
            readings=lambda: states.readings,
            limits=LimitReader(
                host_cgroup=Path(c.host_cgroup),
                cards=lambda: states.cards,
                ask=self._backend.driver.memory_limits,
                expected=self._isolation.limit,
            ),
            assigned=self._assigned,
            files=files,
            directories=self._isolation.directories,
            record=self._recorder.record,
            evictor=self._api,
            metrics=self.metrics,
            allocating=lambda: bool(measured.allocating),
            on_outside=self._cards.outside,
        )

    def _idle(self, measured: MeasuredPlugin) -> bool:
        """Return whether no pod of the node requests cards, and the kubelet waits for no Allocate."""
        return self._view.pods.complete and not self._view.asking() and not measured.allocating

    def _allocator(self, context: AllocationContext) -> ModeAllocator:
        environment = EnvironmentAllocator(context, self._configuration.allocate_wait_s, self._runtime_class)
        self._environment = environment
        return ModeAllocator(CdiAllocator(context), environment, lambda: self._injection.chosen)

    def _note_assigned(self, pod: NodePod, containers: Sequence[str], uuids: frozenset[str]) -> None:
        self._assigned.note(pod, containers, uuids)
        if self._configuration.mark_assigned and self._assigned.complete(pod):
            self._marker.mark(pod)

    def _allocation_changed(self, pod: NodePod, keys: Sequence[str]) -> None:
        note = f"its allocation changed ({', '.join(keys)}); the change is ignored, and its containers keep their cards"
        self._recorder.record(NodeEvent("GPUAllocationChanged", note, pod.key))

    def _session_changed(self) -> None:
        if self._session.registered == self._registered:
            return
        self._registered = self._session.registered
        self._cards.registered(now=self._registered)
        if self._registered:
            self.metrics.registered()
            self._remember()
        else:
            self.metrics.unregistered()

    def _remember(self) -> None:
        """Save the list of devices, so that the next process can list them before it knows anything else."""
        mode = self._injection.chosen
        if not mode:
            return
        unasked = bool(self._environment and self._environment.passed)
        try:
            self._session.remember(mode, tuple(self._session.devices_now.now), unasked=unasked)
        except OSError as error:
            log.warning("state.write_failed", reason=str(error))
