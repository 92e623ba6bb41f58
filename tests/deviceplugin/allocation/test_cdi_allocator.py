"""Allocate and PreStartContainer with CDI, over real sockets: the spec names the card, or the call fails."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from config.protocol import allocation, names
from config.protocol.allocation import Allocation, LegacyFields
from deviceplugin.allocation.allocators import CdiAllocator
from deviceplugin.cdi import spec
from deviceplugin.kubelet.session import FakeDevices
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire
from deviceplugin.reconcile.usage import accounts, seen
from tests.deviceplugin.allocation.allocator_rig import CARDS, Rig, refused, rig


async def test_the_spec_names_the_card_of_the_annotation(by_cdi: Rig) -> None:
    by_cdi.bound("p", 3, card=1)
    answer = await by_cdi.double.allocate(["u7", "u2", "u5"])
    assert [len(name) for name in spec.device_names(device.name for device in answer.cdi_devices)] == [16]
    by_cdi.record("p", ["u2", "u5", "u7"], answer)
    await by_cdi.double.pre_start(["u7", "u2", "u5"])
    edits = by_cdi.spec_edits(["u2", "u5", "u7"])
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
    assert by_cdi.assigned == [("p", ["c0"], frozenset({"GPU-1"}))]


async def test_a_container_waits_for_the_watch_to_show_its_pod(by_cdi: Rig) -> None:
    await by_cdi.allocated("late")
    starting = asyncio.create_task(by_cdi.card_of())
    by_cdi.show("late", 1, {})
    by_cdi.bound("late", 1, card=0)
    assert await asyncio.wait_for(starting, 5) == "GPU-0"


async def test_a_container_waits_until_cuda_starts_on_its_card(by_cdi: Rig) -> None:
    problems, asked = {"GPU-0": "CUDA is still being tested on it"}, asyncio.Event()

    def problem(uuids: Sequence[str]) -> str:
        asked.set()
        return "".join(problems.get(uuid, "") for uuid in uuids)

    by_cdi.context.start_problem = problem
    by_cdi.bound("p", 1, card=0)
    await by_cdi.allocated("p")
    starting = asyncio.create_task(by_cdi.card_of())
    await asked.wait()
    assert not (by_cdi.folder / "cdi").exists()
    problems.clear()
    by_cdi.pods.wake()
    assert await starting == "GPU-0"


async def test_a_container_that_the_checkpoint_lacks_has_the_kubelet_write_it_again(by_cdi: Rig) -> None:
    asked = list[bool]()

    class Written(FakeDevices):
        def again(self) -> None:
            asked.append(True)
            by_cdi.record("p", *lost)

    by_cdi.context.devices = Written()
    by_cdi.bound("p", 1, card=0)
    lost = ["u0"], await by_cdi.double.allocate(["u0"])
    with refused("the kubelet records no live container with exactly these devices"):
        await by_cdi.double.pre_start(["u0"])
    assert await by_cdi.card_of() == "GPU-0"
    assert asked == [True]


async def test_a_container_does_not_start_where_cuda_does_not(by_cdi: Rig) -> None:
    by_cdi.context.start_problem = lambda _: "card GPU-0: CUDA does not start on it"
    by_cdi.bound("p", 1, card=0)
    await by_cdi.allocated("p")
    with refused(r"pod default/p .*: card GPU-0: CUDA does not start on it"):
        await by_cdi.double.pre_start(["u0"])
    assert not (by_cdi.folder / "cdi").exists()


async def test_an_allocation_that_contradicts_the_pod_is_refused(by_cdi: Rig) -> None:
    written = allocation.encode(Allocation({0: {0: 9}}, {}, {0: "GPU-0"}, 1024), LegacyFields(9, 15, 1))
    by_cdi.show("greedy", 1, {key: text for key, text in written.items() if key != names.MEM_IDX})
    await by_cdi.allocated("greedy")
    with refused("the allocation adds up to 9 units, but the pod requests 1"):
        await by_cdi.double.pre_start(["u0"])
    assert not (by_cdi.folder / "cdi").exists()


async def test_a_change_of_the_annotation_is_reported_and_ignored(by_cdi: Rig) -> None:
    by_cdi.bound("p", 1, card=0)
    await by_cdi.allocated("p")
    await by_cdi.double.pre_start(["u0"])
    by_cdi.bound("p", 1, card=1)
    assert [await by_cdi.card_of() for _ in range(2)] == ["GPU-0", "GPU-0"]
    # Told once.
    (event,) = by_cdi.events
    assert (event.reason, event.pod and event.pod.name) == ("GPUAllocationChanged", "p")
    assert event.note.startswith(f"its allocation changed ({names.ALLOCATION}, {names.CARDS}, {names.MEM_IDX}); ")


async def test_a_recorded_environment_of_another_card_must_not_start(by_cdi: Rig) -> None:
    """As of the legacy plugin, after a reboot that renumbered the cards: its answer has the index alone."""
    legacy = {names.MEM_IDX: "1", names.MEM_POD: "1", names.MEM_DEV: "15", names.MEM_ASSIGNED: "true"}
    by_cdi.show("old", 1, legacy)
    recorded = {"NVIDIA_VISIBLE_DEVICES": "1", names.MEM_IDX: "1", names.MEM_POD: "1"}
    recorded["ALIYUN_COM_GPU_MEM_CONTAINER"] = "1"
    by_cdi.record("old", ["u0"], wire.ContainerAllocateResponse(envs=recorded))
    await by_cdi.double.pre_start(["u0"])
    assert by_cdi.assigned[-1] == ("old", ["c0"], frozenset({"GPU-1"}))
    by_cdi.context.view.cards = tuple(replace(card, index=1 - card.index) for card in CARDS)
    with refused(r"allocated with ALIYUN_COM_GPU_MEM_IDX=1, but .* says 0"):
        await by_cdi.double.pre_start(["u0"])


async def test_an_allocation_by_index_means_the_card_that_had_it_at_first_also_after_a_restart(folder: Path) -> None:
    index_only = {names.ALLOCATION: '{"0":{"1":1}}', names.UNIT_MIB: "1024"}
    for cards in (CARDS, tuple(replace(card, index=1 - card.index) for card in CARDS)):
        async with rig(folder, CdiAllocator) as node:
            node.context.view.cards = cards
            node.show("p", 1, index_only)
            await node.allocated("p")
            assert await node.card_of() == "GPU-1"


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
        await node.allocated("p")
        await node.double.pre_start(["u0"])
        assert node.assigned == [("p", ["c0"], frozenset({"GPU-1"}))]
    assert "GPU-0" not in (folder / "state" / "journal.json").read_text()


async def test_the_first_readable_allocation_counts_as_for_the_scheduler(by_cdi: Rig) -> None:
    by_cdi.show("p", 1, {names.ALLOCATION: "nonsense", names.UNIT_MIB: "1024"})
    await by_cdi.allocated("p")
    with refused("cannot be read"):
        await by_cdi.double.pre_start(["u0"])
    for card in (1, 0):
        by_cdi.bound("p", 1, card=card)
        assert await by_cdi.card_of() == "GPU-1"


async def test_a_request_that_is_changed_later_is_reported_and_the_first_one_holds(by_cdi: Rig) -> None:
    by_cdi.bound("p", 1, card=0)
    (before,) = by_cdi.context.view.asking()
    by_cdi.show("p", 1, dict(before.annotations) | {names.EXCLUSIVE: "true", names.GPU_COUNT: "2"})
    (after,) = by_cdi.context.view.asking()
    assert (after.exclusive, after.gpu_count) == (False, "")
    (event,) = by_cdi.events
    assert event.note.startswith(f"its allocation changed ({names.GPU_COUNT}, {names.EXCLUSIVE}); ")


async def test_an_answer_that_is_damaged_costs_its_own_container_alone(by_cdi: Rig) -> None:
    for number, damaged in enumerate(("", "AAAA", "no base64", 7)):
        by_cdi.bound(f"p{number}", 1, card=0)
        await by_cdi.allocated(f"p{number}", f"u{number}")
        if damaged:
            by_cdi.records[-1]["AllocResp"] = damaged
    by_cdi.bound("q", 1, card=0)
    await by_cdi.allocated("q", "u9")
    for ids in (["u0"], ["u9"]):
        await by_cdi.double.pre_start(ids)
    for number in (1, 2, 3):
        with refused("cannot read the response recorded for container c0"):
            await by_cdi.double.pre_start([f"u{number}"])


async def test_no_container_gets_the_device_of_an_earlier_one(by_cdi: Rig) -> None:
    """The runtime may still have its spec in memory, with another card."""
    first, second = [await by_cdi.double.allocate(["u0"]) for _ in range(2)]
    assert first.cdi_devices[0].name != second.cdi_devices[0].name
