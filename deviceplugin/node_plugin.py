"""Builds the parts of one node's plugin and runs them together: the only module that knows all of them.

driver ──▶ CardKeeper ──▶ NodeCards ──▶ NodePublisher ──▶ node object
                             │  └────▶ KubeletSession ─▶ kubelet ──Allocate, PreStartContainer──▶ allocators
node, pods (watch) ──────────┴───────────────────────────────────────────────────────────────────┘
kubelet's records, use of the cards ──▶ Reconciler ──▶ Events, metrics, status
"""

import asyncio
import contextlib
import random
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
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.pods import NodePod
from deviceplugin.allocation.view import NodeRecords, OwnPods
from deviceplugin.backends import CardBackend, edits_for
from deviceplugin.cdi.injection import InjectionMode
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.health import rules
from deviceplugin.health.monitor import CardKeeper, Pace
from deviceplugin.health.record import HealthFile, LastKnown, LastKnownFile
from deviceplugin.health.releases import Releases, socket_path
from deviceplugin.health.states import CardStates
from deviceplugin.isolation.make import IsolationParts, isolation_for, node_kind, shared_in
from deviceplugin.isolation.mps_drain import MpsDrain
from deviceplugin.isolation.node_isolation import NodeIsolation
from deviceplugin.kubelet.client import PodResources
from deviceplugin.kubelet.session import CHECKPOINT, KubeletSession
from deviceplugin.node.cards import NodeCards
from deviceplugin.node.devices import NodeDevices
from deviceplugin.node.events import NodeEventRecorder
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
from scheduler.process.clock import Clock
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
        self._api, self._backend, self._session = api, backend, session
        self._clock, self._backoff_s, self._moved = Clock(), Backoff(rng).delay_s, asyncio.Event()
        self.metrics = NodeMetrics(c.node_name, c.memory_unit_mib, dcgm=c.dcgm_metrics)
        self._watch = NodeWatch(cluster, c.node_name, rng, self._clock)
        self.metrics.registry.register(ContactCollector(series.PREFIX, self._watch.contact))
        self._recorder = NodeEventRecorder(cluster, c.node_name, self._clock)
        self._kubelet = PodResources(Path(c.kubelet.pod_resources_socket), c.resources.gpu_mem)
        self._view = self._make_view()
        state, boot_id = Path(c.state_dir), _BOOT_ID.read_text(encoding="ascii").strip()
        self._starts = StartsFile(state, boot_id)
        self._healths, self._last_known = HealthFile(state, boot_id), LastKnownFile(state, boot_id)
        known = self._last_known.load()
        self._states = self._make_states(known)
        self._keeper = self._make_keeper(forget=not known.same_boot)
        self._releases = Releases(keeper=self._keeper, allocations=self._view, clock=self._clock)
        self._edits = edits_for(c, backend, self._states.named, self._view, self._clock)
        real, last = backend.simulated is None, session.last_mode
        self._injection = InjectionMode(c.mode, self._edits, self._recorder, self._moved.set, real=real, last=last)
        self._kind = node_kind(c)
        self._isolation = self._make_isolation()
        self._drain = self._make_drain()
        self._cards = self._make_cards()
        self._files = SpecFiles(Path(c.cdi_dir))
        self._assigned, self._marker = AssignedCards(), Marker(api, self._backoff_s)
        context = self._make_context()
        self._environment = EnvironmentAllocator(context, c.allocate_wait_s, c.pod_uid)
        answers = ModeAllocator(CdiAllocator(context), self._environment, self._injection)
        self._answers = MeasuredPlugin(answers, self.metrics)
        self._reconciler = self._make_reconciler()
        self._registered: bool | None = None
        session.changed, session.injection = self._session_changed, self._injection
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
        if problem := self._injection.problem or self._states.cuda_problem():
            return problem
        if self._states.untried():
            return "CUDA is still being tested on the cards"
        if not self._session.registered:
            return self._session.problem or "not registered with the kubelet yet"
        if problem := self._watch.contact.problem(self._configuration.not_ready_after_s):
            return problem
        publisher = self._cards.publisher
        return "" if publisher.announced else publisher.problem or "node object not updated yet"

    def status(self) -> DevicePluginStatus:
        """Return the status, as `/status` shows it."""
        c, found, states = self._configuration, self._reconciler.result, self._states
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
            runtime_class=self._view.pods.runtime_class(c.pod_uid),
            problems=tuple(filter(None, self._problems())),
            cards=card_statuses(self._cards.cards, self._view.allocated_units(), states.readings, states.absent()),
            isolation=self._kind.now,
            containers=self._isolation.shown(found.containers),
            drift=found.drift,
        )

    def _problems(self) -> Sequence[str]:
        cards = self._keeper.problems(shared_in(self._kind.mechanism))
        own = (*cards, *self._injection.problems(), self._session.problem, self._cards.problem)
        isolation = (self._kind.problem, *self._isolation.mps.problems())
        reconciled = self._reconciler.result.problems
        return (*own, *self._cards.problems(), *self._edits.problems, *isolation, *reconciled)

    def _make_view(self) -> NodeRecords:
        c = self._configuration
        return NodeRecords(
            resources=c.resources,
            pods=OwnPods(),
            journal=Journal(Path(c.state_dir)),
            kubelet=self._kubelet,
            checkpoint=Path(c.kubelet.device_plugin_dir) / CHECKPOINT,
            recorder=self._recorder,
            unit_mib=c.memory_unit_mib,
        )

    def _make_states(self, known: LastKnown) -> CardStates:
        c = self._configuration
        states = CardStates(rules.classes(c.ignored_xids, c.hardware_xids) if c.health_check else None)
        states.tries_cuda = c.health_check and self._backend.driver.tries_cuda
        states.remember(known.cards, self._healths.load(card.uuid for card in known.cards))
        for problem in filter(None, (known.problem, self._healths.problem, self._view.journal.problem)):
            log.warning("state.unreadable", reason=problem)
        return states

    def _make_keeper(self, *, forget: bool) -> CardKeeper:
        c = self._configuration
        return CardKeeper(
            driver=self._backend.driver,
            states=self._states,
            forget=forget,
            pace=Pace(reading_s=c.reading_interval_s, end_s=c.driver_exit_after_s),
            clock=self._clock,
            on_change=self._moved.set,
            on_xid=self.metrics.xid,
            on_cuda=self._view.pods.wake,
        )

    def _make_isolation(self) -> NodeIsolation:
        parts = IsolationParts(
            kind=self._kind,
            driver=self._backend.driver,
            states=self._states,
            view=self._view,
            edits=self._edits,
            injection=self._injection,
            recorder=self._recorder,
            registry=self.metrics.registry,
            backoff_s=self._backoff_s,
        )
        return isolation_for(self._configuration, parts)

    def _make_drain(self) -> MpsDrain:
        owners = partial(pods_of, Path(self._configuration.host_proc), self._view.pods)
        return MpsDrain(cards=self._isolation.mps, view=self._view, pods_of=owners, clock=self._clock)

    def _make_cards(self) -> NodeCards:
        c = self._configuration
        shown = self._session.devices_now
        return NodeCards(
            terms=Terms(c.memory_unit_mib, c.unified_memory_mib, c.count_reserved_memory),
            gpu_core=c.announce_gpu_core,
            states=self._states,
            view=self._view,
            publisher=NodePublisher(self._api, self._backoff_s),
            devices=NodeDevices(view=self._view, shown=shown, old_style=c.old_style_ids, clock=self._clock),
            healths=self._healths,
            last_known=self._last_known,
            clock=self._clock,
            recorder=self._recorder,
            releases=self._releases,
            injection=self._injection,
            isolation=self._isolation,
            moved=self._moved,
            changed=self._show_cards,
            untrusted_until_s=self._starts.untrusted_until_s(),
        )

    def _make_context(self) -> AllocationContext:
        return AllocationContext(
            view=self._view,
            node_labels=self._watch.labels,
            on_assigned=self._note_assigned,
            files=self._files,
            card_edits=self._edits,
            start_problem=self._states.start_problem,
            devices=self._session.devices_now,
            isolation=self._isolation,
            volume_mounts=self._injection.volume_mounts,
        )

    def _make_reconciler(self) -> Reconciler:
        c = self._configuration
        return Reconciler(
            settings=reconcile_settings(c),
            view=self._view,
            kubelet=self._kubelet,
            states=self._states,
            limits=LimitReader(
                host_cgroup=Path(c.host_cgroup),
                states=self._states,
                driver=self._backend.driver,
                isolation=self._isolation,
            ),
            assigned=self._assigned,
            files=self._files,
            directories=self._isolation.directories,
            recorder=self._recorder,
            evictor=self._api,
            metrics=self.metrics,
            calls=self._answers,
            on_outside=self._cards.outside,
        )

    def _node_seen(self, node: objects.Node | None) -> None:
        self._recorder.node_uid = node.metadata.uid if node else ""
        self._cards.seen(node)

    def _show_cards(self) -> None:
        states, allocated = self._states, self._view.allocated_units()
        self.metrics.show_cards(shown_cards(states.cards, self._cards.cards, allocated, states.readings))
        processes = self._backend.driver.processes
        self.metrics.show_driver(processes.starts, len(processes.abandoned()))
        self._injection.cards_changed()
        self._isolation.mps.cards_changed()
        self._remember()

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
        await self._isolation.decided()
        await self._session.take_over(self._answers, mode)
        self._remember()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reconciler.run())
            tasks.create_task(self._isolation.follow(self._answers, self._moved.set))
            if c.mode != "environment":
                tasks.create_task(self._injection.follow(self._watch.runtime_version, self._idle))

    def _idle(self) -> bool:
        """Return whether no pod of the node requests cards, and the kubelet waits for no Allocate."""
        return self._view.pods.complete and not self._view.asking() and not self._answers.allocating

    def _note_assigned(self, pod: NodePod, containers: Sequence[str], uuids: frozenset[str]) -> None:
        self._assigned.note(pod, containers, uuids)
        if self._configuration.mark_assigned and self._assigned.complete(pod):
            self._marker.mark(pod)

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
        unasked = bool(self._environment.passed)
        try:
            self._session.remember(mode, tuple(self._session.devices_now.now), unasked=unasked)
        except OSError as error:
            log.warning("state.write_failed", reason=str(error))
