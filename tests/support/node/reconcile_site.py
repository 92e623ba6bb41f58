"""A node around the reconcile loop: kubelet double, files on disk, an API server that accepts or rejects evictions."""

import base64
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from config.protocol import names
from config.protocol.inventory import Card
from config.settings.scheduler import Resources
from deviceplugin.allocation.assigned import AssignedCards
from deviceplugin.allocation.container_share import ContainerShare, DriverLimit
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.view import NodeRecords, OwnPods
from deviceplugin.cdi import spec
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.driver.cards import CardReading, DriverCard, MemoryLimits, Process, SourceFailed
from deviceplugin.health.states import CardStates
from deviceplugin.isolation.directories import ContainerDirectories
from deviceplugin.kubelet.client import PodResources
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire
from deviceplugin.reconcile.drift import DriftPolicy
from deviceplugin.reconcile.limit_reader import LimitReader
from deviceplugin.reconcile.reconciler import Reconciler
from deviceplugin.reconcile.settings import ReconcileSettings
from deviceplugin.report.metrics import NodeMetrics
from scheduler.kube.port import ApiError, Changed, Deleted, ListEnds, PodKey
from tests.support.node.drift_policy import drift_policy
from tests.support.node.kubelet_double import KubeletDouble
from tests.support.node.node_pods import CARDS, UNIT_MIB, node_pod, on, wire_pod
from tests.support.node.ports import Recorded

UID = "0a1b2c3d-0000-4000-8000-00000000000"
WARNING = drift_policy()
R = TypeVar("R", bound=Reconciler)


@dataclass
class Node:
    """Environment of the loop, to be changed between two rounds."""

    folder: Path
    double: KubeletDouble
    pods: OwnPods
    journal: Journal
    assigned: AssignedCards = field(default_factory=AssignedCards)
    cards: tuple[Card, ...] = CARDS
    states: CardStates = field(default_factory=lambda: CardStates(None))
    events: Recorded = field(default_factory=Recorded)
    evicted: list[PodKey] = field(default_factory=list)
    refusals: list[ApiError] = field(default_factory=list)
    outside: list[Mapping[str, int]] = field(default_factory=list)
    allocates: int = 0
    records: list[dict[str, object]] = field(default_factory=list)
    limits: dict[str, dict[str, MemoryLimits]] = field(default_factory=dict)
    limits_fail: SourceFailed | None = None
    limits_asked: list[str] = field(default_factory=list)

    @property
    def readings(self) -> dict[str, CardReading]:
        """UUID -> the last reading."""
        return self.states.readings

    async def evict(self, pod: PodKey) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.evicted.append(pod)

    @property
    def allocating(self) -> int:
        """Number of running Allocate calls: one for the first `allocates` polls."""
        self.allocates -= 1
        return int(self.allocates >= 0)

    def runs(
        self,
        name: str,
        units: int,
        *,
        card: Card = CARDS[0],
        ids: int | None = None,
        container_id: str = "",
        extra: Mapping[str, str] | None = None,
    ) -> str:
        """Add a pod on `card`, with as many kubelet IDs as it requests, or `ids`; return its UID.

        extra: more annotations.
        """
        uid = f"{UID}{len(self.pods)}"
        annotations = on(node_pod(name, [units], uid=uid), card).annotations if units else {}
        annotations = {**annotations, **(extra or {})}
        status = [{"name": "c0", "containerID": f"containerd://{container_id}" if container_id else ""}]
        wire = wire_pod(name, [units], uid=uid, annotations=annotations, containerStatuses=status)
        self.pods.apply([Changed(wire)])
        held = [f"{name}-{number}" for number in range(units if ids is None else ids)]
        self.double.pods["ns", name] = {"c0": {names.GPU_MEM: held}}
        self.record(uid, held)
        return uid

    def record(self, uid: str, ids: list[str], resource: str = names.GPU_MEM, device: str = "") -> None:
        """Record an entry. device: name of our CDI device in the Allocate answer; "" for an empty answer."""
        answer = wire.ContainerAllocateResponse(
            cdi_devices=[wire.CDIDevice(name=spec.qualified(device))] if device else []
        )
        of_container = {"PodUID": uid, "ContainerName": "c0", "ResourceName": resource}
        encoded = base64.b64encode(answer.SerializeToString()).decode()
        self.records.append({**of_container, "DeviceIDs": {"-1": ids}, "AllocResp": encoded})
        document = {"Data": {"PodDeviceEntries": self.records, "RegisteredDevices": {}}, "Checksum": 1}
        (self.folder / "checkpoint").write_text(json.dumps(document))

    def ends(self, name: str) -> None:
        """Remove the pod from everywhere except the checkpoint."""
        self.pods.apply([Deleted(wire) for wire in self.pods if wire.metadata.name == name])
        del self.double.pods["ns", name]

    def limited(self, *cards: Card) -> None:
        """Let the driver limit memory on these cards, and the host have cgroups, one of them of another pod."""
        self.states.cards = tuple(
            DriverCard(index=card.index, uuid=card.uuid, model="M", memory_mib=card.memory_mib, limits=True)
            for card in cards
        )
        other = self.folder / "cgroup" / "kubepods" / f"pod{UID}9" / ("9" * 64)
        other.mkdir(parents=True)
        (self.folder / "cgroup" / "cgroup.controllers").write_text("misc\n")

    def container_of(self, uid: str, container_id: str, limits: Mapping[str, MemoryLimits]) -> None:
        """Give the pod's container a cgroup with these limits by card."""
        cgroup = self.folder / "cgroup" / "kubepods" / f"pod{uid}" / container_id
        cgroup.mkdir(parents=True)
        for uuid, of_card in limits.items():
            self.limits.setdefault(uuid, {})[str(cgroup)] = of_card

    async def memory_limits(self, uuid: str, cgroups: Sequence[str]) -> dict[str, MemoryLimits]:
        self.limits_asked.append(uuid)
        if self.limits_fail is not None:
            raise self.limits_fail
        return {path: limits for path, limits in self.limits.get(uuid, {}).items() if path in cgroups}

    def limit(self, share: ContainerShare) -> DriverLimit | None:
        return share.driver_limit(self.cards) if self.states.cards else None

    def uses(self, uuid: str, *processes: tuple[int, int, str]) -> None:
        """Set the card's processes as (PID, MiB, UID of the pod, "" for none)."""
        for pid, _, uid in processes:
            (self.folder / "proc" / str(pid)).mkdir(parents=True, exist_ok=True)
            path = f"/kubepods/pod{uid}/{'c' * 64}" if uid else "/user.slice"
            (self.folder / "proc" / str(pid) / "cgroup").write_text(f"0::{path}\n")
        listed = tuple(Process(pid, mib) for pid, mib, _ in processes)
        self.readings[uuid] = CardReading(used_mib=sum(mib for _, mib, _ in processes), processes=listed)


def settings(proc: Path, policy: DriftPolicy = WARNING, allowance_mib: int = 512) -> ReconcileSettings:
    return ReconcileSettings(policy=policy, interval_s=60, unit_mib=1024, allowance_mib=allowance_mib, host_proc=proc)


def reconciler_of(node: Node, kubelet: PodResources, chosen: ReconcileSettings, kind: type[R]) -> R:
    """Return the loop over this node, of this class."""
    return kind(
        settings=chosen,
        view=NodeRecords(
            resources=Resources(),
            pods=node.pods,
            journal=node.journal,
            kubelet=kubelet,
            checkpoint=node.folder / "checkpoint",
            recorder=Recorded(),
            unit_mib=UNIT_MIB,
            cards=node.cards,
        ),
        kubelet=kubelet,
        states=node.states,
        limits=LimitReader(
            host_cgroup=node.folder / "cgroup",
            states=node.states,
            driver=node,
            isolation=node,
        ),
        assigned=node.assigned,
        files=SpecFiles(node.folder / "cdi"),
        directories=ContainerDirectories(node.folder / "isolation"),
        recorder=node.events,
        evictor=node,
        metrics=NodeMetrics("n", UNIT_MIB, dcgm=False),
        calls=node,
        on_outside=node.outside.append,
    )


@asynccontextmanager
async def rig(
    folder: Path, policy: DriftPolicy = WARNING, *, allowance_mib: int = 512, host_proc: str = "proc"
) -> AsyncIterator[tuple[Node, Reconciler]]:
    (folder / "proc").mkdir()
    async with KubeletDouble(folder).running() as double:
        kubelet = PodResources(folder / "pod-resources.sock", names.GPU_MEM)
        node = Node(folder, double, OwnPods(), Journal(folder / "state"))
        node.pods.apply([ListEnds("1")])
        yield node, reconciler_of(node, kubelet, settings(folder / host_proc, policy, allowance_mib), Reconciler)
        await kubelet.close()


def metric(loop: Reconciler, name: str, **labels: str) -> float | None:
    """Return the sum over all series with these labels; None if there is none."""
    found = [
        sample.value
        for family in loop.metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"gpushare_device_plugin_{name}" and labels.items() <= sample.labels.items()
    ]
    return sum(found) if found else None
