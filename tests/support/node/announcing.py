"""A node's cards, announced to an API server and a kubelet in memory: the starting point of NodeCards tests."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from config.protocol import allocation, inventory, names
from config.protocol.allocation import Allocation, LegacyFields
from config.settings.scheduler import Resources
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.view import NodeRecords, OwnPods
from deviceplugin.driver.cards import DriverCard, DriverCards, Xid
from deviceplugin.health.record import HealthFile, LastKnownFile
from deviceplugin.health.rules import classes
from deviceplugin.health.states import CardStates
from deviceplugin.kubelet.client import PodResources
from deviceplugin.kubelet.session import FakeDevices
from deviceplugin.node.cards import NodeCards
from deviceplugin.node.devices import NodeDevices
from deviceplugin.node.inventory import Terms
from deviceplugin.node.publisher import NodePublisher
from scheduler.kube import objects
from scheduler.kube.port import ApiConflict, Changed, ListEnds
from scheduler.process.clock import Clock
from tests.support.builders import wire_pod
from tests.support.node.ports import FixedInjection, FixedIsolation, Followed, Recorded

A, B = (
    DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=4096),
    DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=4096),
)
BROKEN = Xid("GPU-a", 79)


class NodeObject:
    """The node on the API server; the plugin sees every change of it."""

    def __init__(self) -> None:
        self.annotations: dict[str, str] = {}
        self.capacity: objects.Quantities = {}
        self.version = 0
        self.seen: Callable[[objects.Node], None] = lambda _: None

    async def annotate(self, annotations: Mapping[str, str | None], version: str) -> None:
        if version != str(self.version):
            message = "the object has been modified"
            raise ApiConflict(message, 409)
        both = {**self.annotations, **annotations}
        self.annotations = {key: text for key, text in both.items() if text is not None}
        self.show()

    async def set_capacity(self, capacity: Mapping[str, int]) -> None:
        self.capacity = {**self.capacity, **{name: str(amount) for name, amount in capacity.items()}}
        self.show()

    def show(self, **said: str) -> None:
        self.annotations |= said
        self.version += 1
        meta = objects.ObjectMeta("n", annotations=dict(self.annotations), resource_version=str(self.version))
        self.seen(objects.Node(meta, status=objects.NodeStatus(capacity=dict(self.capacity))))

    def withheld(self) -> str:
        return inventory.decode(self.annotations[names.INVENTORY]).withheld

    def cards(self) -> tuple[inventory.Card, ...]:
        text = self.annotations.get(names.INVENTORY)
        return inventory.decode(text).cards if text else ()


@dataclass
class Rig:
    """A node whose cards are being announced."""

    folder: Path
    node: NodeObject
    cards: NodeCards
    changed: asyncio.Event
    notices: Recorded
    pods: OwnPods
    injection: FixedInjection
    isolation: FixedIsolation
    releases: Followed
    records: list[dict[str, object]] = field(default_factory=list)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds():
                await self.changed.wait()
                self.changed.clear()
                # The announcement is written by then.
                await asyncio.sleep(0.01)

    def happened(self, *xids: Xid) -> None:
        for xid in xids:
            self.cards.states.xid(xid, 0.0)
        self.cards.moved.set()

    def running(self, name: str, ids: list[str], card: int) -> None:
        """Add a pod on a card that holds these IDs."""
        written = Allocation({0: {card: len(ids)}}, {}, {card: f"GPU-{'ab'[card]}"})
        annotations = allocation.encode(written, LegacyFields(len(ids), 4, 1))
        self.records.append(
            {
                "PodUID": f"uid-{name}",
                "ContainerName": "c0",
                "ResourceName": names.GPU_MEM,
                "DeviceIDs": {"-1": ids},
                "AllocResp": None,
            }
        )
        document = {"Data": {"PodDeviceEntries": self.records, "RegisteredDevices": {}}, "Checksum": 1}
        (self.folder / "checkpoint").write_text(json.dumps(document))
        self.pods.apply([Changed(wire_pod(name, len(ids), uid=f"uid-{name}", annotations=annotations, node="n"))])

    def unhealthy(self) -> set[str]:
        return {name for name, healthy in self.cards.devices.shown.now if not healthy}


@asynccontextmanager
async def announcing(
    folder: Path, *, found: bool = True, unit_mib: int = 1024, gpu_core: bool = False
) -> AsyncIterator[Rig]:
    node, pods, changed, notices = NodeObject(), OwnPods(), asyncio.Event(), Recorded()
    kubelet = PodResources(folder / "pod-resources.sock", names.GPU_MEM)
    publisher = NodePublisher(node, lambda _: 0.001)

    clock, injection, isolation, releases = Clock(wall_ns=int), FixedInjection(), FixedIsolation(), Followed()
    view = NodeRecords(
        resources=Resources(),
        pods=pods,
        journal=Journal(folder),
        kubelet=kubelet,
        checkpoint=folder / "checkpoint",
        recorder=Recorded(),
        unit_mib=unit_mib,
    )
    announced = NodeCards(
        terms=Terms(unit_mib, 0),
        gpu_core=gpu_core,
        states=CardStates(classes((), ())),
        view=view,
        publisher=publisher,
        devices=NodeDevices(view=view, shown=FakeDevices(), old_style=False, clock=clock),
        healths=HealthFile(folder, "boot"),
        last_known=LastKnownFile(folder, "boot"),
        clock=clock,
        recorder=notices,
        releases=releases,
        injection=injection,
        isolation=isolation,
        moved=asyncio.Event(),
        changed=changed.set,
    )
    node.seen = announced.seen
    rig = Rig(folder, node, announced, changed, notices, pods, injection, isolation, releases)
    pods.apply([ListEnds("1")])
    if found:
        announced.states.found(DriverCards("580.1", (A, B)), forget=False)
    async with asyncio.TaskGroup() as tasks:
        working = [tasks.create_task(work) for work in (announced.run(), announced.follow_pods(), publisher.run())]
        node.show()
        announced.moved.set()
        yield rig
        for work in working:
            work.cancel()
    await kubelet.close()
