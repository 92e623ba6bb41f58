"""What the node says of its cards, to the API server and to the kubelet."""

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from config.protocol import allocation, inventory, names
from config.protocol.allocation import Allocation, LegacyFields
from config.protocol.inventory import Health
from deviceplugin.allocation.decision import decided
from deviceplugin.driver.cards import CardReading, DriverCard, DriverCards, Xid, with_instances
from deviceplugin.driver.cuda import CudaAnswer
from deviceplugin.health.record import HealthFile, LastKnownFile
from deviceplugin.kubelet.device_ids import TooManyDevices
from deviceplugin.node import cards
from deviceplugin.node.card_isolation import CardIsolation
from scheduler.kube.port import Changed
from tests.support.builders import wire_pod
from tests.support.node.announcing import BROKEN, A, B, announcing
from tests.support.node.node_pods import CARDS as ANNOUNCED


async def test_cards_are_announced_counted_and_listed(tmp_path: Path) -> None:
    async with announcing(tmp_path, gpu_core=True) as rig:
        await rig.until(lambda: bool(rig.node.capacity))
        assert [(card.uuid, card.units, card.health) for card in rig.node.cards()] == [
            ("GPU-a", 4, Health.HEALTHY),
            ("GPU-b", 4, Health.HEALTHY),
        ]
        assert rig.node.capacity == {names.GPU_COUNT: "2", names.GPU_CORE: "200"}
        assert rig.cards.devices.shown.now == tuple((f"u{number}", True) for number in range(8))


async def test_the_inventory_names_what_enforces_shares_and_the_next_plugin_begins_with_it(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        rig.isolation["GPU-a"] = CardIsolation("driver")
        rig.cards.moved.set()
        await rig.until(lambda: [card.isolation for card in rig.node.cards()] == ["driver", ""])
    remembered = LastKnownFile(tmp_path, "boot").load().cards
    assert [(card.uuid, card.limits) for card in remembered] == [("GPU-a", True), ("GPU-b", False)]


async def test_nothing_is_announced_before_a_card_is_known_or_remembered(tmp_path: Path) -> None:
    async with announcing(tmp_path, found=False) as rig:
        await asyncio.sleep(0.02)
        assert (rig.node.annotations, rig.cards.devices.shown.now, rig.cards.cards) == ({}, (), ())
        rig.cards.states.remember((A,))
        rig.cards.moved.set()
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


async def test_while_devices_are_withheld_only_held_ones_are_healthy(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        await rig.until(lambda: len(rig.cards.devices.shown.now) == 8)
        rig.running("on-b", ["u0", "u1"], card=1)
        rig.injection.withheld = "no spec"
        rig.cards.moved.set()
        await rig.until(lambda: rig.unhealthy() == {f"u{number}" for number in range(2, 8)})
        assert [card.units for card in rig.node.cards()] == [4, 4]
        await rig.until(lambda: rig.node.withheld() == "no-way-in")
        rig.injection.withheld = ""
        rig.cards.moved.set()
        await rig.until(lambda: not rig.unhealthy())
        await rig.until(lambda: not rig.node.withheld())


async def test_a_card_that_containers_cannot_get_takes_no_new_pods_and_costs_no_other(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        await rig.until(lambda: len(rig.cards.devices.shown.now) == 8)
        rig.running("on-b", ["u0", "u1"], card=1)
        rig.injection.uncovered = {"GPU-b": "nvidia.yaml is out of date"}
        rig.cards.moved.set()
        await rig.until(lambda: [card.reason for card in rig.node.cards()] == ["", "no-way-in"])
        assert [card.health for card in rig.node.cards()] == [Health.HEALTHY, Health.SUSPECT]
        # Containers that run keep their devices.
        assert (rig.unhealthy(), rig.node.withheld()) == (set(), "")
        note = "card 1 (GPU-b) takes no new pods: nvidia.yaml is out of date"
        assert (rig.notices[-1].reason, rig.notices[-1].note) == ("GPUSuspect", note)
        rig.happened(Xid("GPU-b", 79))
        await rig.until(lambda: rig.node.cards()[1].reason == "xid-79")
        rig.injection.uncovered = {}
        rig.cards.states.cleared(["GPU-b"], 0.0)
        rig.cards.moved.set()
        await rig.until(lambda: rig.node.cards()[1].reason == "recovering")


async def test_an_unhealthy_card_is_remembered_and_an_operator_clears_it(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        rig.happened(BROKEN)
        await rig.until(lambda: len(rig.unhealthy()) == 4)
        assert "GPU-a" in HealthFile(tmp_path, "boot").load()
        rig.node.show(**{names.CLEAR_HEALTH: "0"})
        await rig.until(lambda: names.CLEAR_HEALTH not in rig.node.annotations)
        assert [card.reason for card in rig.node.cards()] == ["recovering", ""]


async def test_a_release_is_followed_and_removed_when_it_is_over(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        rig.node.show(**{names.RELEASE: "0"})
        rig.cards.states.release(["GPU-a"], 600.0)
        await rig.until(lambda: [card.reason for card in rig.node.cards()] == ["released", ""])
        assert rig.node.annotations[names.RELEASE] == "0"
        assert rig.unhealthy() == set()
        assert rig.notices[-1].reason == "GPUReleased"
        rig.node.show(**{names.RELEASE: "0,done"})
        await rig.until(lambda: names.RELEASE not in rig.node.annotations)


async def test_an_order_that_comes_while_a_card_is_let_go_of_is_obeyed_too(tmp_path: Path) -> None:
    """Not taken away with the one that was obeyed just before."""
    letting_go, gone = asyncio.Event(), asyncio.Event()

    class Slow:
        async def follow(self, text: str) -> bool:
            if text:
                letting_go.set()
                await gone.wait()
            return False

    async with announcing(tmp_path) as rig:
        rig.happened(BROKEN, Xid("GPU-b", 79))
        await rig.until(lambda: len(rig.unhealthy()) == 8)
        rig.cards.releases = Slow()
        rig.node.show(**{names.CLEAR_HEALTH: "0", names.RELEASE: "0"})
        await letting_go.wait()
        rig.node.show(**{names.CLEAR_HEALTH: "1"})
        gone.set()
        await rig.until(lambda: names.CLEAR_HEALTH not in rig.node.annotations)
        assert [card.reason for card in rig.node.cards()] == ["recovering", "recovering"]


async def test_what_the_annotation_says_of_releases_is_not_known_without_the_node(tmp_path: Path) -> None:
    """As in the first moments of the plugin: a card that was released before must not be taken back."""
    async with announcing(tmp_path) as rig:
        rig.node.show(**{names.RELEASE: "0"})
        await rig.until(lambda: bool(rig.releases.texts))
        rig.changed.clear()
        rig.cards.seen(None)
        await rig.changed.wait()
        assert set(rig.releases.texts) == {"0"}


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
        rig.cards.moved.set()
        await rig.until(lambda: bool(rig.node.cards()))
        assert not LastKnownFile(tmp_path, "boot").load().same_boot
        rig.cards.states.found(DriverCards("580.1", (A,)), forget=True)
        rig.cards.moved.set()
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
        assert len(rig.cards.devices.shown.now) == 8
        assert len(rig.unhealthy()) == 2
        assert not rig.unhealthy() & {"u6", "u7"}


async def test_a_decision_stands_when_outside_use_fills_the_card(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        rig.running("on-a", ["u6"], card=0)
        rig.cards.outside({"GPU-a": 4096})
        await rig.until(lambda: bool(rig.unhealthy()))
        assert [card.units for card in rig.node.cards()] == [0, 4]
        (pod,) = rig.cards.view.asking()
        (shares,) = decided(pod, rig.cards.view.cards, 1024).shares.values()
        assert [share.uuid for share in shares] == ["GPU-a"]


async def test_a_checkpoint_that_cannot_be_read_changes_no_device(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        await rig.until(lambda: len(rig.cards.devices.shown.now) == 8)
        (tmp_path / "checkpoint").write_text("{")
        rig.happened(BROKEN)
        await rig.until(lambda: rig.node.cards()[0].health is Health.UNHEALTHY)
        assert rig.unhealthy() == set()
        (tmp_path / "checkpoint").write_bytes(
            msgspec.json.encode({"Data": {"PodDeviceEntries": None, "RegisteredDevices": None}})
        )
        await rig.until(lambda: len(rig.unhealthy()) == 4)


async def test_a_cordon_that_names_no_card_is_told_once_and_stays_a_problem(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        rig.node.show(**{names.CORDON: "GPU-a, 7,GPU-typo"})
        await rig.until(lambda: any(notice.reason == "GPUCordonUnknown" for notice in rig.notices))
        rig.cards.outside({"GPU-b": 1024})
        await rig.until(lambda: [card.units for card in rig.node.cards()] == [4, 3])
        told = [notice.note for notice in rig.notices if notice.reason == "GPUCordonUnknown"]
        problem = "gpushare/cordon lists cards that this node does not have: 7, GPU-typo"
        assert (rig.cards.problems(), told) == ([problem], [f"{problem}; these entries have no effect"])
        rig.node.show(**{names.CORDON: "GPU-a"})
        await rig.until(lambda: not rig.cards.problems())


async def test_calls_are_answered_once_the_driver_has_named_its_cards_or_is_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cards, "_DRIVER_WITHIN_S", 0.05)
    async with announcing(tmp_path, found=False) as rig:
        rig.cards.states.remember((A,))
        rig.cards.moved.set()
        async with asyncio.timeout(5):
            await rig.cards.listed()
        assert [name for name, _ in rig.cards.devices.shown.now] == ["u0", "u1", "u2", "u3"]
    monkeypatch.setattr(cards, "_DRIVER_WITHIN_S", 60.0)
    async with announcing(tmp_path) as rig, asyncio.timeout(5):
        await rig.cards.listed()


async def test_a_checkpoint_that_cannot_be_read_keeps_no_kubelet_from_its_devices(tmp_path: Path) -> None:
    """It writes another one once it is told of some."""
    (tmp_path / "checkpoint").write_text("{")
    async with announcing(tmp_path) as rig:
        await rig.until(lambda: len(rig.cards.devices.shown.now) == 8)


async def test_devices_that_have_to_be_looked_at_again_are_so_once_a_second_however_often_anything_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint that could not be read for an hour kept a processor busy."""
    monkeypatch.setattr(cards, "_AGAIN_S", 0.1)
    async with announcing(tmp_path) as rig:
        await rig.until(lambda: len(rig.cards.devices.shown.now) == 8)
        (tmp_path / "checkpoint").write_text("{")
        for _ in range(6):
            rig.cards.moved.set()
            await asyncio.sleep(0.013)
        began_s = asyncio.get_running_loop().time()
        for _ in range(8):
            await asyncio.wait_for(rig.changed.wait(), 5)
            rig.changed.clear()
        assert asyncio.get_running_loop().time() - began_s > 0.5


async def test_a_unit_that_is_too_small_ends_it(tmp_path: Path) -> None:
    with pytest.RaisesGroup(TooManyDevices):
        async with announcing(tmp_path, found=False, unit_mib=1) as rig:
            huge = DriverCard(index=0, uuid="GPU-a", model="M", memory_mib=2**24)
            rig.cards.states.found(DriverCards("580.1", (huge,)), forget=False)
            rig.cards.moved.set()
            await asyncio.sleep(5)


async def test_cuda_that_starts_on_no_card_is_an_event_with_its_remedy_and_said_once(tmp_path: Path) -> None:
    async with announcing(tmp_path) as rig:
        await rig.until(lambda: len(rig.node.cards()) == 2)
        states = rig.cards.states
        states.tries_cuda = True
        states.answered({"GPU-a": CardReading(used_mib=0), "GPU-b": CardReading(used_mib=0)}, 0.0)
        for uuid in ("GPU-a", "GPU-b"):
            states.tried(uuid, CudaAnswer(999), 0.0)
        rig.cards.moved.set()
        await rig.until(lambda: rig.node.withheld() == "no-way-in")
        rig.cards.moved.set()
        await rig.until(lambda: len(rig.unhealthy()) == 8)
        (ready,) = (notice.note for notice in rig.notices if notice.reason == "GPUNotReady")
        assert "nvidia-modprobe -u -c=0" in ready
        suspect = [notice.note for notice in rig.notices if notice.reason == "GPUSuspect"]
        assert [("cuda-999" in note, "/dev/nvidia-uvm" in note) for note in suspect] == [(True, True)] * 2
        states.tried("GPU-b", CudaAnswer(0), 1.0)
        rig.cards.moved.set()
        await rig.until(lambda: not rig.node.withheld())
        assert [card.health for card in rig.node.cards()] == [Health.SUSPECT, Health.HEALTHY]


def split(*numbers: int) -> DriverCards:
    """The card A in MIG mode, with these instances, and the whole card B."""
    parts = tuple(
        DriverCard(
            index=1000 + 10 * n,
            uuid=f"MIG-{n}",
            model="NVIDIA M MIG 1g.2gb",
            memory_mib=2048,
            parent="GPU-a",
            instance=(n, 0),
        )
        for n in numbers
    )
    return DriverCards("580.1", tuple(with_instances([replace(A, mig=True, instances=parts), B])))


async def test_instances_are_announced_beside_their_card(tmp_path: Path) -> None:
    async with announcing(tmp_path, found=False) as rig:
        rig.cards.states.found(split(1, 2), forget=False)
        rig.cards.moved.set()
        await rig.until(lambda: len(rig.node.cards()) == 4)
        assert [(card.index, card.uuid, card.units, card.reason, card.parent) for card in rig.node.cards()] == [
            (0, "GPU-a", 0, "mig", ""),
            (1, "GPU-b", 4, "", ""),
            (1010, "MIG-1", 2, "", "GPU-a"),
            (1020, "MIG-2", 2, "", "GPU-a"),
        ]
        assert rig.node.cards()[2].model == "NVIDIA-M-MIG-1g.2gb"
        assert LastKnownFile(tmp_path, "boot").load().cards[2].parent == "GPU-a"


@pytest.mark.parametrize(("named", "cordoned"), [("0", ["MIG-1", "MIG-2"]), ("1010", ["MIG-1"]), ("MIG-2", ["MIG-2"])])
async def test_a_cordon_of_a_split_card_holds_for_its_instances(
    tmp_path: Path, named: str, cordoned: list[str]
) -> None:
    async with announcing(tmp_path, found=False) as rig:
        rig.cards.states.found(split(1, 2), forget=False)
        rig.node.show(**{names.CORDON: named})
        await rig.until(lambda: bool(rig.node.cards()))
        shown = [card.uuid for card in rig.node.cards() if card.health is Health.CORDONED and card.parent]
        assert shown == cordoned


async def test_clearing_a_split_card_clears_its_instances(tmp_path: Path) -> None:
    async with announcing(tmp_path, found=False) as rig:
        rig.cards.states.found(split(1, 2), forget=False)
        rig.happened(BROKEN)
        await rig.until(lambda: [card.reason for card in rig.node.cards()] == ["mig", "", "xid-79", "xid-79"])
        rig.node.show(**{names.CLEAR_HEALTH: "0"})
        await rig.until(lambda: [card.reason for card in rig.node.cards()] == ["mig", "", "recovering", "recovering"])


async def test_a_destroyed_instance_is_reported_on_the_node_and_on_its_pods_once(tmp_path: Path) -> None:
    async with announcing(tmp_path, found=False) as rig:
        rig.cards.states.found(split(1, 2), forget=False)
        rig.cards.moved.set()
        await rig.until(lambda: len(rig.cards.view.cards) == 4)
        written = allocation.encode(Allocation({0: {1010: 1}}, {}, {1010: "MIG-1"}), LegacyFields(1, 2, 1024))
        rig.pods.apply([Changed(wire_pod("p", 1, uid="uid-p", annotations=written, node="n"))])
        rig.cards.view.asking()

        for _ in range(2):
            rig.cards.states.found(split(2, 3), forget=False)
            rig.cards.moved.set()
            await rig.until(lambda: "MIG-3" in {card.uuid for card in rig.node.cards()})

        gone = "MIG instance MIG-1 (card 1010) of card GPU-a was destroyed"
        assert [(one.reason, one.note, one.pod and one.pod.name) for one in rig.notices] == [
            ("GPUInstanceDestroyed", f"{gone}; pods on it: 1", None),
            ("GPUInstanceDestroyed", f"{gone}, which this pod has: delete the pod", "p"),
        ]
