"""Allocate and PreStartContainer over real sockets: the container gets the card of its annotation, or a refusal."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from config.protocol import allocation, names
from config.protocol.allocation import Allocation, LegacyFields
from deviceplugin.allocation.allocators import AllocationContext, CdiAllocator, EnvironmentAllocator
from deviceplugin.cdi import spec
from deviceplugin.kubelet.session import Answers
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire
from deviceplugin.reconcile.usage import accounts, seen
from scheduler.kube.port import Deleted, ListEnds
from tests.deviceplugin.allocation.allocator_rig import CARDS, by_environment, rig
from tests.support.builders import wire_pod


async def test_by_cdi_the_spec_names_the_card_of_the_annotation(folder: Path) -> None:
    async with rig(folder, CdiAllocator) as node:
        node.bound("p", 3, card=1)
        answer = await node.double.allocate(["u7", "u2", "u5"])
        assert [device.name for device in answer.cdi_devices] == [
            f"gpushare/handle={spec.device_name(['u2', 'u5', 'u7'])}"
        ]
        node.record("p", ["u2", "u5", "u7"], answer)
        await node.double.pre_start(["u7", "u2", "u5"])
        edits = node.spec_edits(["u2", "u5", "u7"])
        assert edits["env"] == [
            "NVIDIA_VISIBLE_DEVICES=void",
            "GPUSHARE_CARD_UUIDS=GPU-1",
            "ALIYUN_COM_GPU_MEM_IDX=1",
            "ALIYUN_COM_GPU_MEM_POD=3",
            "ALIYUN_COM_GPU_MEM_CONTAINER=3",
            "ALIYUN_COM_GPU_MEM_DEV=15",
        ]
        assert "/run/gpushare/cards/GPU-1" in str(edits["mounts"])
        assert (sorted(edits), str(edits["mounts"]).count("hostPath")) == (["env", "mounts"], 1)
        assert node.assigned == [("p", ["c0"], frozenset({"GPU-1"}))]


async def test_by_cdi_a_container_waits_for_the_watch_to_show_its_pod(folder: Path) -> None:
    async with rig(folder, CdiAllocator) as node:
        node.record("late", ["u0"], await node.double.allocate(["u0"]))
        starting = asyncio.create_task(node.double.pre_start(["u0"]))
        node.show("late", 1, {})
        node.bound("late", 1, card=0)
        await asyncio.wait_for(starting, 5)
        assert "GPUSHARE_CARD_UUIDS=GPU-0" in str(node.spec_edits(["u0"])["env"])


async def test_by_cdi_an_allocation_that_contradicts_the_pod_is_refused(folder: Path) -> None:
    async with rig(folder, CdiAllocator) as node:
        written = allocation.encode(Allocation({0: {0: 9}}, {}, {0: "GPU-0"}, 1024), LegacyFields(9, 15, 1))
        node.show("greedy", 1, {key: text for key, text in written.items() if key != names.MEM_IDX})
        node.record("greedy", ["u0"], await node.double.allocate(["u0"]))
        with pytest.raises(grpc.aio.AioRpcError, match="the allocation adds up to 9 units, the pod asks 1"):
            await node.double.pre_start(["u0"])
        assert not (folder / "cdi").exists()


async def test_a_change_of_the_annotation_is_reported_and_ignored(folder: Path) -> None:
    async with rig(folder, CdiAllocator) as node:
        node.bound("p", 1, card=0)
        node.record("p", ["u0"], await node.double.allocate(["u0"]))
        await node.double.pre_start(["u0"])
        node.bound("p", 1, card=1)
        await node.double.pre_start(["u0"])
        assert "GPUSHARE_CARD_UUIDS=GPU-0" in str(node.spec_edits(["u0"])["env"])
        await node.double.pre_start(["u0"])
        # Told once.
        assert node.changed == [("p", (names.ALLOCATION, names.CARDS, names.MEM_IDX))]


async def test_by_environment_the_answer_names_the_card_of_the_annotation(folder: Path) -> None:
    async with rig(folder, by_environment) as node:
        node.bound("p", 2, card=1)
        node.admitted("p")
        answer = await node.double.allocate(["u0", "u9"])
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
        assert answer.envs["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"
        assert (len(answer.envs), list(answer.mounts), list(answer.devices)) == (6, [], [])
        node.record("p", ["u0", "u9"], answer)
        await node.double.pre_start(["u0", "u9"])


async def test_by_environment_pods_of_one_size_are_told_apart_by_admission(folder: Path) -> None:
    async with rig(folder, by_environment) as node:
        for number in range(2):
            node.bound(f"p{number}", 1, card=number)
        for number in range(2):
            node.admitted(f"p{number}")
            answer = await node.double.allocate([f"u{number}"])
            assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == f"GPU-{number}"
            node.record(f"p{number}", [f"u{number}"], answer)


async def test_by_environment_answers_for_pods_that_are_gone_are_forgotten(folder: Path) -> None:
    async with rig(folder, by_environment) as node:
        assert isinstance(node.plugin, EnvironmentAllocator)
        for number in range(3):
            node.bound(f"p{number}", 1, card=0)
            node.admitted(f"p{number}")
            await node.double.allocate(["u0"])
            node.pods.apply([Deleted(wire_pod(f"p{number}", 1, uid=f"uid-p{number}", node="n"))])
        assert node.plugin.answered == {("uid-p2", "c0")}


async def test_by_environment_a_pod_without_an_allocation_is_refused_by_name(folder: Path) -> None:
    async with rig(folder, by_environment) as node:
        node.show("by-hand", 1, {})
        node.admitted("by-hand")
        with pytest.raises(grpc.aio.AioRpcError, match=r"default/by-hand .*has no allocation"):
            await node.double.allocate(["u0"])
        assert node.assigned == []


async def test_by_environment_a_wait_is_over_in_time_however_often_pods_change(folder: Path) -> None:
    """The kubelet admits no other pod meanwhile."""
    async with rig(folder, by_environment) as node:
        node.show("by-hand", 1, {})
        node.admitted("by-hand")

        async def change_all_the_time() -> None:
            while True:
                node.show("another", 0, {})
                await asyncio.sleep(0)

        changing = asyncio.create_task(change_all_the_time())
        with pytest.raises(grpc.aio.AioRpcError, match=r"default/by-hand .*has no allocation"):
            await asyncio.wait_for(node.double.allocate(["u0"]), 5)
        changing.cancel()


async def test_by_environment_a_pod_admitted_before_registration_is_no_candidate(folder: Path) -> None:
    async with rig(folder, by_environment) as node:
        assert isinstance(node.plugin, EnvironmentAllocator)
        node.bound("early", 1, card=0)
        node.admitted("early")
        node.pods.apply([ListEnds("1")])
        await node.plugin.registering()
        with pytest.raises(grpc.aio.AioRpcError, match=r"early.* before this resource was registered"):
            await node.double.allocate(["u0"])


async def test_by_environment_registering_waits_for_a_whole_list_of_pods(folder: Path) -> None:
    async with rig(folder, by_environment) as node:
        assert isinstance(node.plugin, EnvironmentAllocator)
        registering = asyncio.create_task(node.plugin.registering())
        await asyncio.sleep(0)
        node.bound("early", 1, card=0)
        await asyncio.sleep(0)
        assert not registering.done()
        node.pods.apply([ListEnds("1")])
        await asyncio.wait_for(registering, 5)
        assert node.plugin.passed == set()


async def test_by_environment_a_container_with_other_cards_must_not_start(folder: Path) -> None:
    async with rig(folder, by_environment) as node:
        node.bound("p", 1, card=1)
        wrong = wire.ContainerAllocateResponse(envs={"GPUSHARE_CARD_UUIDS": "GPU-0"})
        node.record("p", ["u0"], wrong)
        with pytest.raises(grpc.aio.AioRpcError, match="container c0 must not start"):
            await node.double.pre_start(["u0"])
        # What it has is told, so that the reconcile sees that it is on another card than decided.
        assert ("p", ["c0"], frozenset({"GPU-0"})) in node.assigned


@pytest.mark.parametrize("mode", [CdiAllocator, by_environment])
async def test_a_pod_of_the_other_mode_starts_with_its_card_and_gets_a_spec_only_if_it_has_our_device(
    folder: Path, mode: Callable[[AllocationContext], Answers]
) -> None:
    async with rig(folder, mode) as node:
        for name, ids in (("by-cdi", ["u0"]), ("by-environment", ["u1"])):
            node.bound(name, 1, card=1)
            by_cdi = name == "by-cdi"
            device = wire.CDIDevice(name=spec.qualified(spec.device_name(ids)))
            said = {"GPUSHARE_CARD_UUIDS": "GPU-1", "NVIDIA_VISIBLE_DEVICES": "GPU-1"}
            said |= {"ALIYUN_COM_GPU_MEM_POD": "1", "ALIYUN_COM_GPU_MEM_CONTAINER": "1"}
            answer = wire.ContainerAllocateResponse(cdi_devices=[device]) if by_cdi else None
            node.record(name, ids, answer or wire.ContainerAllocateResponse(envs=said))
            await node.double.pre_start(ids)
            assert (folder / "cdi" / f"gpushare-{spec.device_name(ids)}.json").exists() is by_cdi
        assert "GPUSHARE_CARD_UUIDS=GPU-1" in str(node.spec_edits(["u0"])["env"])


async def test_by_cdi_a_recorded_environment_of_another_card_must_not_start(folder: Path) -> None:
    """As of the legacy plugin, after a reboot that renumbered the cards: its answer has the index alone."""
    async with rig(folder, CdiAllocator) as node:
        legacy = {names.MEM_IDX: "1", names.MEM_POD: "1", names.MEM_DEV: "15", names.MEM_ASSIGNED: "true"}
        node.show("old", 1, legacy)
        recorded = {"NVIDIA_VISIBLE_DEVICES": "1", names.MEM_IDX: "1", names.MEM_POD: "1"}
        recorded["ALIYUN_COM_GPU_MEM_CONTAINER"] = "1"
        node.record("old", ["u0"], wire.ContainerAllocateResponse(envs=recorded))
        await node.double.pre_start(["u0"])
        assert node.assigned[-1] == ("old", ["c0"], frozenset({"GPU-1"}))
        node.cards = tuple(replace(card, index=1 - card.index) for card in CARDS)
        with pytest.raises(grpc.aio.AioRpcError, match=r"allocated with ALIYUN_COM_GPU_MEM_IDX=1, but .* says 0"):
            await node.double.pre_start(["u0"])


async def test_an_allocation_by_index_means_the_card_that_had_it_at_first_also_after_a_restart(folder: Path) -> None:
    ids, index_only = ["u0"], {names.ALLOCATION: '{"0":{"1":1}}', names.UNIT_MIB: "1024"}
    for cards in (CARDS, tuple(replace(card, index=1 - card.index) for card in CARDS)):
        async with rig(folder, CdiAllocator) as node:
            node.cards = cards
            node.show("p", 1, index_only)
            node.record("p", ids, await node.double.allocate(ids))
            await node.double.pre_start(ids)
            assert "GPUSHARE_CARD_UUIDS=GPU-1" in str(node.spec_edits(ids)["env"])


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param({"units": {"c0": {"GPU-0": 1}}}, id="no unit"),
        pytest.param({"unitMiB": -1024, "units": {"c0": {"GPU-0": 1}}}, id="a unit below nothing"),
        pytest.param({"unitMiB": 1024, "units": {"another": {"GPU-0": 1}}}, id="cards of another container"),
        pytest.param({"unitMiB": 1024, "units": {"c0": {}}}, id="no card"),
        pytest.param({"unitMiB": 1024, "units": {"c0": {"GPU-0": 0}}}, id="no units"),
        pytest.param({"unitMiB": 1024, "units": {"c0": {"GPU-0": 2**31}}}, id="more units than there are"),
    ],
)
async def test_cards_in_the_journal_that_cannot_be_the_pods_count_as_not_there(
    folder: Path, kept: dict[str, object]
) -> None:
    (folder / "state").mkdir()
    said = allocation.encode(Allocation({0: {1: 1}}, {}, {1: "GPU-1"}, 1024), LegacyFields(1, 15, 1))
    document = {"version": 2, "pods": {"uid-p": {"annotations": said, "requests": {}, **kept}}}
    (folder / "state" / "journal.json").write_text(json.dumps(document))
    async with rig(folder, CdiAllocator) as node:
        node.show("p", 1, said)
        (account,) = accounts(seen(node.context.view.asking(), CARDS, 512), (), (), {}, unit_mib=512)
        assert account.units == {"GPU-1": 2}
        node.record("p", ["u0"], await node.double.allocate(["u0"]))
        await node.double.pre_start(["u0"])
        assert node.assigned == [("p", ["c0"], frozenset({"GPU-1"}))]
    assert "GPU-0" not in (folder / "state" / "journal.json").read_text()


async def test_the_first_readable_allocation_counts_as_for_the_scheduler(folder: Path) -> None:
    async with rig(folder, CdiAllocator) as node:
        node.show("p", 1, {names.ALLOCATION: "nonsense", names.UNIT_MIB: "1024"})
        node.record("p", ["u0"], await node.double.allocate(["u0"]))
        with pytest.raises(grpc.aio.AioRpcError, match="cannot be read"):
            await node.double.pre_start(["u0"])
        for card in (1, 0):
            node.bound("p", 1, card=card)
            await node.double.pre_start(["u0"])
            assert "GPUSHARE_CARD_UUIDS=GPU-1" in str(node.spec_edits(["u0"])["env"])


async def test_a_request_that_is_changed_later_is_reported_and_the_first_one_holds(folder: Path) -> None:
    async with rig(folder, CdiAllocator) as node:
        node.bound("p", 1, card=0)
        (before,) = node.context.view.asking()
        said = dict(before.annotations)
        node.show("p", 1, said | {names.EXCLUSIVE: "true", names.GPU_COUNT: "2"})
        (after,) = node.context.view.asking()
        assert (after.exclusive, after.gpu_count) == (False, "")
        assert node.changed == [("p", (names.GPU_COUNT, names.EXCLUSIVE))]


async def test_an_answer_that_is_damaged_costs_its_own_container_alone(folder: Path) -> None:
    async with rig(folder, CdiAllocator) as node:
        for number, damaged in enumerate(("", "AAAA", "no base64", 7)):
            node.bound(f"p{number}", 1, card=0)
            node.record(f"p{number}", [f"u{number}"], await node.double.allocate([f"u{number}"]))
            if damaged:
                node.records[-1]["AllocResp"] = damaged
        node.bound("q", 1, card=0)
        node.record("q", ["u9"], await node.double.allocate(["u9"]))
        for ids in (["u0"], ["u9"]):
            await node.double.pre_start(ids)
        for number in (1, 2, 3):
            with pytest.raises(grpc.aio.AioRpcError, match="the answer of container c0 cannot be read"):
                await node.double.pre_start([f"u{number}"])


async def test_by_environment_a_pod_without_the_nvidia_runtime_is_refused_with_what_to_add(folder: Path) -> None:
    """The plugin's own pod has it by a runtime class: it is not the node's default."""
    async with rig(folder, lambda context: EnvironmentAllocator(context, 0.5, lambda: "nvidia")) as node:
        node.bound("p", 1, card=0)
        node.admitted("p")
        with pytest.raises(grpc.aio.AioRpcError, match=r"start without a card: .* add runtimeClassName: nvidia"):
            await node.double.allocate(["u0"])
