"""A node for the allocators: a kubelet double, its checkpoint, the watch of pods, and a plugin behind a real socket."""

import base64
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from config.protocol import allocation, names
from config.protocol.allocation import Allocation, LegacyFields
from config.protocol.inventory import Card
from config.settings.scheduler import Resources
from deviceplugin.allocation.allocators import AllocationContext, EnvironmentAllocator
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.pods import NodePod
from deviceplugin.allocation.recorded import device_names
from deviceplugin.allocation.view import NodeRecords, OwnPods
from deviceplugin.cdi import spec
from deviceplugin.cdi.edits import Edits, combined
from deviceplugin.cdi.spec_files import SpecFiles
from deviceplugin.kubelet import checkpoint, client, server
from deviceplugin.kubelet.client import PodResources
from deviceplugin.kubelet.session import Answers, FakeDevices
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire
from scheduler.kube.port import Changed
from tests.support.builders import wire_pod
from tests.support.node.kubelet_double import KubeletDouble
from tests.support.node.ports import Recorded

CARDS = tuple(Card(index=index, uuid=f"GPU-{index}", model="T4", memory_mib=15360, units=15) for index in range(2))


class Mounted:
    """Cards that are files by CDI, and device nodes without it."""

    limits_by_hook = False

    def edits(self, uuids: Sequence[str]) -> Edits:
        return combined(spec.simulated_card(uuid, f"/host/{uuid}") for uuid in uuids)

    def device_nodes(self, uuids: Sequence[str]) -> dict[str, str]:
        return {f"/dev/{uuid}": f"/host/dev/{uuid}" for uuid in uuids}


@dataclass
class Listing:
    """A plugin that lists nothing."""

    answers: Answers

    def devices(self) -> AsyncIterator[server.Devices]:
        return FakeDevices().follow()

    async def allocate(self, ids: frozenset[str]) -> server.ContainerResponse:
        return await self.answers.allocate(ids)

    async def pre_start(self, ids: frozenset[str]) -> None:
        await self.answers.pre_start(ids)


@dataclass
class Rig:
    """A node: kubelet double, checkpoint, pods of the watch, and the plugin behind its socket."""

    folder: Path
    double: KubeletDouble
    pods: OwnPods
    context: AllocationContext
    assigned: list[tuple[str, list[str], frozenset[str]]]
    events: Recorded
    plugin: Answers
    records: list[dict[str, object]] = field(default_factory=list)

    def bound(self, name: str, units: int, card: int) -> None:
        """The watch shows a pod that the scheduler has bound."""
        written = Allocation({0: {card: units}}, {}, {card: f"GPU-{card}"}, 1024)
        annotations = allocation.encode(written, LegacyFields(units, 15, 1))
        self.show(name, units, annotations)

    def show(self, name: str, units: int, annotations: dict[str, str]) -> None:
        self.pods.apply([Changed(wire_pod(name, units, uid=f"uid-{name}", annotations=annotations, node="n"))])

    def admitted(self, name: str, ids: list[str] | None = None) -> None:
        """The kubelet knows the pod; with ids they are its container's."""
        self.double.pods["default", name] = {"c0": {names.GPU_MEM: ids or []}}

    def record(self, name: str, ids: list[str], answer: wire.ContainerAllocateResponse) -> None:
        """The kubelet writes the assignment into its checkpoint."""
        self.admitted(name, ids)
        self.records.append(
            {
                "PodUID": f"uid-{name}",
                "ContainerName": "c0",
                "ResourceName": names.GPU_MEM,
                "DeviceIDs": {"-1": ids},
                "AllocResp": base64.b64encode(answer.SerializeToString()).decode(),
            }
        )
        document = {"Data": {"PodDeviceEntries": self.records, "RegisteredDevices": {}}, "Checksum": 1}
        (self.folder / "checkpoint").write_text(json.dumps(document))

    async def allocated(self, name: str, *ids: str) -> None:
        """The kubelet allocates these ids, or u0, for the pod's container, and records the answer."""
        held = list(ids) or ["u0"]
        self.record(name, held, await self.double.allocate(held))

    async def card_of(self, *ids: str) -> str:
        """The container with these ids, or u0, starts; the UUIDs of the cards that its spec names."""
        held = list(ids) or ["u0"]
        await self.double.pre_start(held)
        said = dict(str(one).split("=", 1) for one in self.spec_edits(held)["env"])
        return said["GPUSHARE_CARD_UUIDS"]

    def spec_edits(self, ids: list[str]) -> dict[str, Any]:
        """The containerEdits that a container with these ids gets: the last one that the kubelet has recorded."""
        edits: dict[str, Any] = json.loads(self.spec_path(ids).read_text())["devices"][0]["containerEdits"]
        return edits

    def spec_path(self, ids: list[str]) -> Path:
        """The spec of the container with these ids."""
        entries = checkpoint.parse((self.folder / "checkpoint").read_bytes())
        (name,) = next(device_names(entry) for entry in reversed(entries) if entry.ids == set(ids))
        return self.folder / "cdi" / f"gpushare-{name}.json"


def cuda_starts(_: Sequence[str]) -> str:
    return ""


@asynccontextmanager
async def rig(folder: Path, plugin: Callable[[AllocationContext], Answers]) -> AsyncIterator[Rig]:
    assigned: list[tuple[str, list[str], frozenset[str]]] = []
    events = Recorded()

    def on_assigned(pod: NodePod, containers: Sequence[str], uuids: frozenset[str]) -> None:
        assigned.append((pod.name, list(containers), uuids))

    pods, resources = OwnPods(), PodResources(folder / "pod-resources.sock", names.GPU_MEM)
    view = NodeRecords(
        resources=Resources(),
        pods=pods,
        journal=Journal(folder / "state"),
        kubelet=resources,
        checkpoint=folder / "checkpoint",
        recorder=events,
        unit_mib=1024,
        cards=CARDS,
    )
    context = AllocationContext(
        view=view,
        node_labels=dict,
        on_assigned=on_assigned,
        files=SpecFiles(folder / "cdi"),
        card_edits=Mounted(),
        start_problem=cuda_starts,
        devices=FakeDevices(),
        start_wait_s=1.0,
    )
    served = plugin(context)
    async with KubeletDouble(folder).running() as double, server.serving(Listing(served), folder / "p.sock"):
        await client.register(folder, "p.sock", names.GPU_MEM)
        made = Rig(folder, double, pods, context, assigned, events, served)
        yield made
        await resources.close()


def without_cdi(context: AllocationContext) -> EnvironmentAllocator:
    return EnvironmentAllocator(context, wait_s=0.5)


def refused(message: str) -> "pytest.RaisesExc[grpc.aio.AioRpcError]":
    """Expect that the plugin fails a call with this message."""
    return pytest.raises(grpc.aio.AioRpcError, match=message)
