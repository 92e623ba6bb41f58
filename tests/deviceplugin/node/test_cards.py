"""What the node says of its cards, to the API server and to the kubelet."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from config.protocol import allocation, inventory, names
from config.protocol.allocation import Allocation, LegacyFields
from config.protocol.inventory import Health
from config.settings.scheduler import Resources
from deviceplugin.allocation.decision import decided
from deviceplugin.allocation.journal import Journal
from deviceplugin.allocation.own_pods import OwnPods
from deviceplugin.allocation.view import NodeRecords
from deviceplugin.driver.cards import Back, DriverCard, DriverCards, Xid
from deviceplugin.health.last_known import LastKnownFile
from deviceplugin.health.record import HealthFile
from deviceplugin.health.rules import classes
from deviceplugin.health.states import CardStates
from deviceplugin.kubelet.checkpoint import CheckpointEntry
from deviceplugin.kubelet.client import PodResources
from deviceplugin.kubelet.device_ids import TooManyDevices
from deviceplugin.kubelet.device_list import FakeDevices
from deviceplugin.node.cards import NodeCards, held_by
from deviceplugin.node.events import Notice
from deviceplugin.node.inventory import Terms
from deviceplugin.node.publisher import NodePublisher
from scheduler.kube import objects
from scheduler.kube.port import Changed, ListEnds
from tests.support.builders import wire_pod
from tests.support.node_pods import CARDS as ANNOUNCED
from tests.support.node_pods import entry, node_pod, on

A, B = (
    DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=4096),
    DriverCard(index=1, uuid="GPU-b", model="M", memory_mib=4096),
)
BROKEN = Xid("GPU-a", 79)


class NodeObject:
    """The node as the API server has it; the plugin sees every change of it."""

    def __init__(self) -> None:
        self.annotations: dict[str, str] = {}
        self.capacity: objects.Quantities = {}
        self.seen: Callable[[objects.Node], None] = lambda _: None

    async def annotate(self, annotations: Mapping[str, str | None], version: str) -> None:
        del version
        both = {**self.annotations, **annotations}
        self.annotations = {key: text for key, text in both.items() if text is not None}
        self.show()

    async def set_capacity(self, capacity: Mapping[str, int]) -> None:
        self.capacity = {**self.capacity, **{name: str(amount) for name, amount in capacity.items()}}
        self.show()

    def show(self, **said: str) -> None:
        self.annotations |= said
        meta = objects.ObjectMeta("n", annotations=dict(self.annotations))
        self.seen(objects.Node(meta, status=objects.NodeStatus(capacity=dict(self.capacity))))

    def cards(self) -> tuple[inventory.Card, ...]:
        text = self.annotations.get(names.INVENTORY)
        return inventory.decode(text).cards if text else ()


@dataclass
class Rig:
    """A node's cards being announced."""

    folder: Path
    node: NodeObject
    cards: NodeCards
    changed: asyncio.Event
    notices: list[Notice]
    pods: OwnPods
    records: list[dict[str, object]] = field(default_factory=list)

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds():
                await self.changed.wait()
                self.changed.clear()
                # What was wanted is written by then.
                await asyncio.sleep(0.01)

    def happened(self, *events: Xid | Back) -> None:
        for event in events:
            self.cards.states.event(event, 0.0)
        self.cards.moved()

    def running(self, name: str, ids: list[str], card: int) -> None:
        """A pod on a card that holds these ids."""
        written = Allocation({0: {card: len(ids)}}, {}, {card: f"GPU-{'ab'[card]}"})
        annotations = allocation.encode(written, LegacyFields(len(ids), 4, 1))
        self.records.append(
            {
                "PodUID": f"uid-{name}",
                "ContainerName": "c0",
                "ResourceName": names.GPU_MEM,
                "DeviceIDs": {"-1": ids},
            }
        )
        document = {"Data": {"PodDeviceEntries": self.records, "RegisteredDevices": {}}, "Checksum": 1}
        (self.folder / "checkpoint").write_text(json.dumps(document))
        self.pods.apply([Changed(wire_pod(name, len(ids), uid=f"uid-{name}", annotations=annotations, node="n"))])

    def unhealthy(self) -> set[str]:
        return {name for name, healthy in self.cards.devices.now if not healthy}


@asynccontextmanager
async def announcing(
    folder: Path, *, found: bool = True, unit_mib: int = 1024, gpu_core: bool = False
) -> AsyncIterator[Rig]:
    node, pods, changed, notices = NodeObject(), OwnPods(), asyncio.Event(), list[Notice]()
    kubelet = PodResources(folder / "pod-resources.sock", names.GPU_MEM)
    publisher = NodePublisher(node, lambda _: 0.0)
    cards = NodeCards(
        terms=Terms(unit_mib, 0),
        gpu_core=gpu_core,
        old_style_ids=False,
        states=CardStates(classes((), ())),
        view=NodeRecords(
            resources=Resources(),
            pods=pods,
            journal=Journal(folder),
            kubelet=kubelet,
            checkpoint=folder / "checkpoint",
            changed=lambda *_: None,
            cards=lambda: cards.whole,
            unit_mib=unit_mib,
        ),
        publisher=publisher,
        devices=FakeDevices(),
        healths=HealthFile(folder, "boot"),
        last_known=LastKnownFile(folder, "boot"),
        wall_s=lambda: 0.0,
        tell=notices.append,
        changed=changed.set,
    )
    node.seen = cards.seen
    rig = Rig(folder, node, cards, changed, notices, pods)
    pods.apply([ListEnds("1")])
    if found:
        cards.states.found(DriverCards("580.1", (A, B)), 0.0, forget=False)
    async with asyncio.TaskGroup() as tasks:
        working = [tasks.create_task(work) for work in (cards.run(), cards.follow_pods(), publisher.run())]
        node.show()
        cards.moved()
        yield rig
        for work in working:
            work.cancel()
    await kubelet.close()


async def test_cards_are_announced_counted_and_listed(tmp_path: Path) -> None:
    async with announcing(tmp_path, gpu_core=True) as rig:
        await rig.until(lambda: bool(rig.node.capacity))
        assert [(card.uuid, card.units, card.health) for card in rig.node.cards()] == [
            ("GPU-a", 4, Health.HEALTHY),
            ("GPU-b", 4, Health.HEALTHY),
        ]
        assert rig.node.capacity == {names.GPU_COUNT: "2", names.GPU_CORE: "200"}
        assert rig.cards.devices.now == tuple((f"u{number}", True) for number in range(8))


async def test_nothing_is_announced_before_a_card_is_known_or_remembered(tmp_path: Path) -> None:
    async with announcing(tmp_path, found=False) as rig:
        await asyncio.sleep(0.02)
        assert (rig.node.annotations, rig.cards.devices.now, rig.cards.cards) == ({}, (), ())
        rig.cards.states.remember((A,))
        rig.cards.moved()
        await rig.until(lambda: len(rig.node.cards()) == 1)


async def test_an_unhealthy_card_takes_out_as_many_ids_as_units_and_none_in_use(
    tmp_path: Path,
) -> None:
    async with announcing(tmp_path) as rig:
        rig.running("on-a", ["u6"], card=0)
        rig.running("on-b", ["u0", "u1", "u2"], card=1)
        rig.happened(BROKEN)
        await rig.until(lambda: len(rig.unhealthy()) == 4)
        assert "u6" in rig.unhealthy()
        assert not rig.unhealthy() & {"u0", "u1", "u2"}
        before = rig.unhealthy()
        # One more of the ids that are still healthy goes to a pod on the other card.
        (free,) = {"u3", "u4", "u5", "u7"} - before
        rig.running("late-b", [free], card=1)
        await asyncio.sleep(0.02)
        assert rig.unhealthy() == before
        assert rig.notices[-1].reason == "GPUUnhealthy"
        assert "GPU-a" in rig.notices[-1].note


async def test_an_unhealthy_card_is_remembered_and_an_operator_clears_it(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        rig.happened(BROKEN)
        await rig.until(lambda: len(rig.unhealthy()) == 4)
        assert "GPU-a" in HealthFile(tmp_path, "boot").load()
        rig.node.show(**{names.CLEAR_HEALTH: "0"})
        await rig.until(lambda: names.CLEAR_HEALTH not in rig.node.annotations)
        assert [card.reason for card in rig.node.cards()] == ["recovering", ""]


async def test_a_cordon_by_index_is_rewritten_and_lifting_it_is_never_undone(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        rig.node.show(**{names.CORDON: "1"})
        await rig.until(lambda: rig.node.annotations.get(names.CORDON) == "GPU-b")
        assert [card.health for card in rig.node.cards()] == [Health.HEALTHY, Health.CORDONED]
        del rig.node.annotations[names.CORDON]
        rig.node.show()
        await rig.until(lambda: all(card.health is Health.HEALTHY for card in rig.node.cards()))
        assert names.CORDON not in rig.node.annotations


async def test_what_is_remembered_from_before_a_reboot_is_not_taken_for_known_since(tmp_path: Path) -> None:
    last_boot = LastKnownFile(tmp_path, "last boot")
    last_boot.save(inventory.encode(inventory.Inventory(1024, "580.1", ANNOUNCED)))
    async with announcing(tmp_path, found=False) as rig:
        rig.cards.states.remember(LastKnownFile(tmp_path, "boot").load().cards)
        rig.cards.moved()
        await rig.until(lambda: bool(rig.node.cards()))
        assert not LastKnownFile(tmp_path, "boot").load().same_boot
        rig.cards.states.found(DriverCards("580.1", (A,)), 0.0, forget=True)
        rig.cards.moved()
        await rig.until(lambda: len(rig.node.cards()) == 1)
        assert LastKnownFile(tmp_path, "boot").load().same_boot


async def test_indexes_are_not_resolved_before_the_driver_has_named_its_cards(tmp_path: Path) -> None:
    async with announcing(tmp_path, found=False) as rig:
        rig.cards.states.remember((B,))
        rig.node.show(**{names.CORDON: "1"})
        await rig.until(lambda: bool(rig.node.cards()))
        assert rig.node.annotations[names.CORDON] == "1"


async def test_outside_use_is_not_announced_and_no_held_id_turns_unhealthy(
    tmp_path: Path,
) -> None:
    async with announcing(tmp_path) as rig:
        rig.running("on-b", ["u7", "u6"], card=1)
        rig.cards.outside({"GPU-a": 1500})
        await rig.until(lambda: bool(rig.unhealthy()))
        assert [card.units for card in rig.node.cards()] == [2, 4]
        assert len(rig.cards.devices.now) == 8
        assert len(rig.unhealthy()) == 2
        assert not rig.unhealthy() & {"u6", "u7"}


async def test_a_decision_stands_when_outside_use_fills_the_card(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        rig.running("on-a", ["u6"], card=0)
        rig.cards.outside({"GPU-a": 4096})
        await rig.until(lambda: bool(rig.unhealthy()))
        assert [card.units for card in rig.node.cards()] == [0, 4]
        (pod,) = rig.cards.view.asking()
        assert decided(pod, rig.cards.whole, 1024).uuids() == {"GPU-a"}


async def test_a_unit_that_is_too_small_ends_it_with_one_that_fits(tmp_path: Path) -> None:
    with pytest.RaisesGroup(TooManyDevices):
        async with announcing(tmp_path, found=False, unit_mib=1) as rig:
            huge = DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=2**24)
            rig.cards.states.found(DriverCards("580.1", (huge,)), 0.0, forget=False)
            rig.cards.moved()
            await asyncio.sleep(5)


async def test_a_checkpoint_that_cannot_be_read_changes_no_device(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        await rig.until(lambda: len(rig.cards.devices.now) == 8)
        (tmp_path / "checkpoint").write_text("{")
        rig.happened(BROKEN)
        await rig.until(lambda: rig.node.cards()[0].health is Health.UNHEALTHY)
        assert rig.unhealthy() == set()
        (tmp_path / "checkpoint").write_bytes(msgspec.json.encode({"Data": {"PodDeviceEntries": None}}))
        await rig.until(lambda: len(rig.unhealthy()) == 4)


def test_who_holds_an_id_is_known_by_the_decision_for_its_container() -> None:
    p, q = on(node_pod("p", [2]), ANNOUNCED[0]), node_pod("q", [1])
    entries = [
        entry(p, "c0", "u0", "u1"),
        entry(q, "c0", "u2"),
        entry(p, "c0", "z", resource="x.com/other"),
        CheckpointEntry("uid-gone", "c0", names.GPU_MEM, frozenset({"u3"})),
        CheckpointEntry("uid-gone-too", "c0", names.GPU_MEM, frozenset({"u4"})),
    ]
    found = inventory.Inventory(1024, "", ANNOUNCED)
    holders = held_by(entries, [p, q], found, names.GPU_MEM, frozenset({"u4"}))
    # Nobody is given an unhealthy id, so u4 is only a record of the dead.
    assert holders == {"u0": {"GPU-a"}, "u1": {"GPU-a"}, "u2": frozenset(), "u3": frozenset()}


def test_an_id_with_two_holders_is_only_as_free_as_the_less_known_one() -> None:
    p, q = on(node_pod("p", [1]), ANNOUNCED[0]), on(node_pod("q", [1]), ANNOUNCED[1])
    found = inventory.Inventory(1024, "", ANNOUNCED)
    both = held_by([entry(p, "c0", "u0"), entry(q, "c0", "u0")], [p, q], found, names.GPU_MEM, frozenset())
    assert both == {"u0": {"GPU-a", "GPU-b"}}
    unknown = held_by([entry(p, "c0", "u0"), entry(q, "c0", "u0")], [p], found, names.GPU_MEM, frozenset())
    assert unknown == {"u0": frozenset()}
