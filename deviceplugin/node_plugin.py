"""Builds the parts of one node's plugin, and runs them together: the only place that knows all of them.

driver ──▶ CardKeeper ──▶ NodeCards ──▶ NodePublisher ──▶ node object
                             │  └────▶ FakeDevices ─▶ kubelet ──Allocate, PreStartContainer──▶ allocators
node, pods (watch) ──────────┴───────────────────────────────────────────────────────────────────┘
kubelet's records, use of the cards ──▶ Reconciler ──▶ Events, metrics, status
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import structlog

from config.settings.deviceplugin import DevicePluginConfiguration
from deviceplugin.allocation.allocated import GivenCards, Marker
from deviceplugin.allocation.allocators import CdiAllocator, EnvironmentAllocator, Site
from deviceplugin.allocation.decision import allocated_units
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.own_pods import OwnPods
from deviceplugin.allocation.pods import NodePod
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.backends import edits_for
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.cdi.way_in import WayIn
from deviceplugin.driver.cards import CardSource
from deviceplugin.driver.simulated import SimulatedSource
from deviceplugin.health import rules
from deviceplugin.health.last_known import LastKnownFile
from deviceplugin.health.monitor import CardKeeper, Pace
from deviceplugin.health.record import HealthFile
from deviceplugin.health.states import CardStates
from deviceplugin.kubelet.client import PodResources
from deviceplugin.kubelet.device_list import FakeDevices
from deviceplugin.kubelet.registration import Listeners, Registration
from deviceplugin.node.api import NodeApi
from deviceplugin.node.cards import NodeCards
from deviceplugin.node.events import Notice, Notices
from deviceplugin.node.inventory import Terms
from deviceplugin.node.publisher import NodePublisher
from deviceplugin.node.watch import NodeWatch
from deviceplugin.reconcile.drift import DriftPolicy
from deviceplugin.reconcile.reconciler import Reconciler, ReconcileSettings
from deviceplugin.report.measured import MeasuredPlugin
from deviceplugin.report.metrics import NodeMetrics
from deviceplugin.report.shown import card_statuses, shown_cards
from deviceplugin.report.status import PluginStatus
from scheduler.kube import objects
from scheduler.kube.port import PodKey
from scheduler.kube.reflector import Backoff
from scheduler.kube.rest.client import KubeCluster

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_CHECKPOINT: Final = "kubelet_internal_checkpoint"
log = structlog.get_logger()


class NodePlugin:
    """Make it inside the event loop that runs it."""

    def __init__(
        self,
        configuration: DevicePluginConfiguration,
        cluster: KubeCluster,
        api: NodeApi,
        source: CardSource,
        rng: random.Random,
    ) -> None:
        c = self._configuration = configuration
        backoff = Backoff(rng)
        self.metrics = NodeMetrics(c.node_name, c.memory_unit_mib, dcgm=c.dcgm_metrics)
        self._api, self._source, self._backoff = api, source, backoff
        self._kubelet = PodResources(Path(c.kubelet.pod_resources_socket), c.resources.gpu_mem)
        self._notices = Notices(cluster, c.node_name, time.time)
        self._view = NodeRecords(
            resources=c.resources,
            pods=OwnPods(),
            journal=Journal(Path(c.state_dir)),
            kubelet=self._kubelet,
            checkpoint=Path(c.kubelet.device_plugin_dir) / _CHECKPOINT,
            changed=self._allocation_changed,
            cards=lambda: self._cards.whole,
            unit_mib=c.memory_unit_mib,
        )
        self._given, self._marker = GivenCards(), Marker(api, backoff.delay_s)
        self._cards, self._keeper = self._make_cards(source)
        self._edits = edits_for(c, source, self._keeper.states.named, lambda: self._cards.cards)
        self._way_in = WayIn(
            c.mode,
            self._edits,
            real=not isinstance(source, SimulatedSource),
            tell=lambda problem: self._notices.tell(Notice("GPUNotReady", problem)),
            state_dir=Path(c.state_dir),
        )
        self._watch = NodeWatch(cluster, c.node_name, backoff)
        self._registered, self._kubelet_problem = False, ""
        self._reconciler: Reconciler | None = None

    async def run(self) -> None:
        """Serve the node forever. Raises, in a group, device_ids.TooManyDevices, and whatever is a bug."""
        try:
            async with asyncio.TaskGroup() as tasks:
                for work in (
                    self._watch.pods(self._view.pods),
                    self._watch.node(self._node_seen),
                    self._keeper.run(),
                    self._cards.run(),
                    self._cards.follow_pods(),
                    self._cards.publisher.run(),
                    self._notices.run(),
                    self._marker.run(),
                    self._serve_kubelet(),
                ):
                    tasks.create_task(work)
        finally:
            await self._kubelet.close()

    def not_ready(self) -> str:
        """What is missing until pods can get their cards; "" when nothing is."""
        if not self._cards.latest:
            return self._keeper.problem or "the driver has not reported any card yet"
        if self._way_in.problem:
            return self._way_in.problem
        if not self._registered:
            return self._kubelet_problem or "not registered with the kubelet yet"
        return "" if self._cards.publisher.announced else "node object not updated yet"

    def status(self) -> PluginStatus:
        """The status, as `/status` shows it."""
        c, found = self._configuration, self._reconciler
        pods, cards = self._view.asking(), self._cards.cards
        return PluginStatus(
            node=c.node_name,
            mode=self._way_in.chosen or c.mode,
            driver=self._keeper.states.driver,
            unit_mib=c.memory_unit_mib,
            announced_units=sum(healthy for _, healthy in self._cards.devices.now),
            registered=self._registered,
            simulated=isinstance(self._source, SimulatedSource),
            toolkit_missing=bool(self._way_in.problem),
            nvidia_runtime=self._way_in.nvidia_runtime,
            runtime_class=self._runtime_class(),
            problems=tuple(filter(None, self._problems())),
            cards=card_statuses(cards, self._allocated(pods), self._keeper.states.readings),
            containers=found.result.containers if found else (),
            drift=found.result.drift if found else (),
        )

    def _problems(self) -> Sequence[str]:
        reconciled = self._reconciler.result.problems if self._reconciler else ()
        own = (self._keeper.problem, self._way_in.problem, self._kubelet_problem, self._cards.problem)
        return (*own, *self._edits.problems, *reconciled)

    def _make_cards(self, source: CardSource) -> tuple[NodeCards, CardKeeper]:
        c, boot_id = self._configuration, _BOOT_ID.read_text(encoding="ascii").strip()
        healths, last_known = HealthFile(Path(c.state_dir), boot_id), LastKnownFile(Path(c.state_dir), boot_id)
        known = last_known.load()
        states = CardStates(rules.classes(c.ignored_xids, c.hardware_xids) if c.health_check else None)
        states.remember(known.cards)
        states.healths.update(healths.load())
        for problem in filter(None, (known.problem, healths.problem, self._view.journal.problem)):
            log.warning("state.unreadable", reason=problem)
        cards = NodeCards(
            terms=Terms(c.memory_unit_mib, c.unified_memory_mib),
            gpu_core=c.announce_gpu_core,
            old_style_ids=c.old_style_ids,
            states=states,
            view=self._view,
            publisher=NodePublisher(self._api, self._backoff.delay_s),
            devices=FakeDevices(),
            healths=healths,
            last_known=last_known,
            wall_s=time.time,
            tell=self._notices.tell,
            changed=self._show_cards,
        )
        keeper = CardKeeper(
            source=source,
            states=states,
            forget=not known.same_boot,
            pace=Pace(reading_s=c.reading_interval_s),
            wall_s=time.time,
            on_news=cards.moved,
            on_xid=lambda xid: self.metrics.xid(xid.uuid, xid.number),
        )
        return cards, keeper

    def _node_seen(self, node: objects.Node | None) -> None:
        self._notices.node_uid = node.metadata.uid if node else ""
        self._cards.seen(node)

    def _show_cards(self) -> None:
        states, cards = self._keeper.states, self._cards.cards
        allocated = self._allocated(self._view.asking())
        self.metrics.show_cards(shown_cards(states.cards, cards, allocated, states.readings))
        self._way_in.cards_changed()

    def _allocated(self, pods: Sequence[NodePod]) -> dict[str, int]:
        return allocated_units(pods, self._cards.whole, self._configuration.memory_unit_mib)

    def _runtime_class(self) -> str:
        """`runtimeClassName` of the plugin's own pod; "" without one, or where its UID was not said."""
        own = self._view.pods.get(self._configuration.pod_uid)
        return own.spec.runtime_class_name if own else ""

    async def _serve_kubelet(self) -> None:
        """Serve the kubelet, and reconcile, once the mode and the devices are known."""
        c = self._configuration
        runtime = await self._watch.runtime_version()
        await self._cards.devices.shown()
        mode = await self._way_in.mode(runtime)
        log.info("mode", mode=mode, configured=c.mode, runtime=runtime)
        files = SpecFiles(Path(c.cdi_dir))
        site = Site(
            view=self._view,
            devices=self._cards.devices,
            cards=lambda: self._cards.whole,
            unit_mib=c.memory_unit_mib,
            node_labels=self._watch.labels,
            given=self._gave,
            files=files,
            card_edits=self._edits,
        )
        plugin, registering = self._allocator(site)
        measured = MeasuredPlugin(plugin, self.metrics, lambda: self._left(registration))
        self._reconciler = Reconciler(
            settings=_reconcile_settings(c),
            view=self._view,
            kubelet=self._kubelet,
            cards=lambda: self._cards.whole,
            readings=lambda: self._keeper.states.readings,
            given=self._given,
            files=files,
            tell=self._notices.tell,
            evictor=self._api,
            metrics=self.metrics,
            allocating=lambda: bool(measured.allocating),
            on_outside=self._cards.outside,
        )
        listeners = Listeners(registering, self._on_registered, self._on_unregistered, self._on_problem)
        registration = Registration(
            measured, Path(c.kubelet.device_plugin_dir), c.resources.gpu_mem, listeners, self._backoff.delay_s
        )
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(registration.run())
            tasks.create_task(self._reconciler.run())
            if mode == "cdi":
                tasks.create_task(self._way_in.follow())

    def _allocator(self, site: Site) -> tuple[CdiAllocator | EnvironmentAllocator, Callable[[], Awaitable[None]]]:
        if self._way_in.chosen == "environment":
            plugin = EnvironmentAllocator(site, self._configuration.allocate_wait_s, self._runtime_class)
            return plugin, plugin.registering
        return CdiAllocator(site), _at_once

    def _gave(self, pod: NodePod, containers: Sequence[str], uuids: frozenset[str]) -> None:
        self._given.note(pod, containers, uuids)
        if self._configuration.mark_assigned and self._given.complete(pod):
            self._marker.mark(pod)

    def _allocation_changed(self, pod: NodePod, keys: Sequence[str]) -> None:
        note = f"its allocation changed ({', '.join(keys)}): ignored, its containers keep the cards of the first one"
        self._notices.tell(Notice("GPUAllocationChanged", note, PodKey(pod.namespace, pod.name, pod.uid)))

    def _on_registered(self) -> None:
        self._registered = True
        self.metrics.registered()

    def _on_unregistered(self) -> None:
        self._registered = False
        self.metrics.unregistered()

    def _left(self, registration: Registration) -> None:
        self._on_unregistered()
        registration.dropped()

    def _on_problem(self, message: str) -> None:
        self._kubelet_problem = message


def _reconcile_settings(c: DevicePluginConfiguration) -> ReconcileSettings:
    return ReconcileSettings(
        policy=DriftPolicy(
            monitor=c.monitor,
            evict_unregistered=c.evict_unregistered,
            evict_mismatched=c.evict_mismatched,
            evict_unscheduled=c.evict_unscheduled,
            announce_outside_use=c.announce_outside_use,
        ),
        interval_s=c.reconcile_interval_s,
        unit_mib=c.memory_unit_mib,
        allowance_mib=c.monitor_allowance_mib,
        host_proc=Path(c.host_proc),
    )


async def _at_once() -> None:
    """In cdi mode nothing has to be known before registering."""
