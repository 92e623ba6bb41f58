"""Allocate and PreStartContainer over real sockets: the container gets the card of its annotation, or a refusal.

Isolation adds to containers in either injection mode, and a container waits for what it needs.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import pytest

from config.protocol import allocation, names
from config.protocol.allocation import Allocation, LegacyFields
from deviceplugin.allocation.allocators import (
    AllocationContext,
    CdiAllocator,
    EnvironmentAllocator,
    ModeAllocator,
)
from deviceplugin.allocation.container_share import ContainerShare
from deviceplugin.cdi import spec
from deviceplugin.cdi.edits import Additions, BindMount
from deviceplugin.cdi.mode import Mode
from deviceplugin.kubelet.session import Answers
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire
from deviceplugin.reconcile.usage import accounts, seen
from scheduler.kube.port import Changed, Deleted, ListEnds
from tests.deviceplugin.allocation.allocator_rig import CARDS, Rig, rig, without_cdi
from tests.support.builders import wire_pod


@pytest.fixture
async def by_cdi(folder: Path) -> AsyncIterator[Rig]:
    async with rig(folder, CdiAllocator) as node:
        yield node


@pytest.fixture
async def by_environment(folder: Path) -> AsyncIterator[Rig]:
    async with rig(folder, without_cdi) as node:
        yield node


def refused(message: str) -> "pytest.RaisesExc[grpc.aio.AioRpcError]":
    return pytest.raises(grpc.aio.AioRpcError, match=message)


async def test_by_cdi_the_spec_names_the_card_of_the_annotation(by_cdi: Rig) -> None:
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


async def test_by_cdi_a_container_waits_for_the_watch_to_show_its_pod(by_cdi: Rig) -> None:
    await by_cdi.allocated("late")
    starting = asyncio.create_task(by_cdi.card_of())
    by_cdi.show("late", 1, {})
    by_cdi.bound("late", 1, card=0)
    assert await asyncio.wait_for(starting, 5) == "GPU-0"


async def test_a_container_waits_until_cuda_starts_on_its_card(by_cdi: Rig) -> None:
    problems, asked = {"GPU-0": "CUDA is being tried on it"}, asyncio.Event()

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


async def test_a_container_does_not_start_where_cuda_does_not(by_cdi: Rig) -> None:
    by_cdi.context.start_problem = lambda _: "card GPU-0: CUDA does not start on it"
    by_cdi.bound("p", 1, card=0)
    await by_cdi.allocated("p")
    with refused(r"pod default/p .*: card GPU-0: CUDA does not start on it"):
        await by_cdi.double.pre_start(["u0"])
    assert not (by_cdi.folder / "cdi").exists()


async def test_by_cdi_an_allocation_that_contradicts_the_pod_is_refused(by_cdi: Rig) -> None:
    written = allocation.encode(Allocation({0: {0: 9}}, {}, {0: "GPU-0"}, 1024), LegacyFields(9, 15, 1))
    by_cdi.show("greedy", 1, {key: text for key, text in written.items() if key != names.MEM_IDX})
    await by_cdi.allocated("greedy")
    with refused("the allocation adds up to 9 units, the pod requests 1"):
        await by_cdi.double.pre_start(["u0"])
    assert not (by_cdi.folder / "cdi").exists()


async def test_a_change_of_the_annotation_is_reported_and_ignored(by_cdi: Rig) -> None:
    by_cdi.bound("p", 1, card=0)
    await by_cdi.allocated("p")
    await by_cdi.double.pre_start(["u0"])
    by_cdi.bound("p", 1, card=1)
    assert [await by_cdi.card_of() for _ in range(2)] == ["GPU-0", "GPU-0"]
    # Told once.
    assert by_cdi.changed == [("p", (names.ALLOCATION, names.CARDS, names.MEM_IDX))]


async def test_by_environment_the_answer_names_the_card_of_the_annotation(by_environment: Rig) -> None:
    by_environment.bound("p", 2, card=1)
    by_environment.admitted("p")
    answer = await by_environment.double.allocate(["u0", "u9"])
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
    assert answer.envs["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"
    assert (len(answer.envs), list(answer.mounts)) == (6, [])
    by_environment.record("p", ["u0", "u9"], answer)
    await by_environment.double.pre_start(["u0", "u9"])


async def test_by_environment_answers_for_pods_that_are_gone_are_forgotten(by_environment: Rig) -> None:
    assert isinstance(by_environment.plugin, EnvironmentAllocator)
    for number in range(3):
        by_environment.bound(f"p{number}", 1, card=0)
        by_environment.admitted(f"p{number}")
        await by_environment.double.allocate(["u0"])
        by_environment.pods.apply([Deleted(wire_pod(f"p{number}", 1, uid=f"uid-p{number}", node="n"))])
    assert by_environment.plugin.answered == {("uid-p2", "c0")}


async def test_by_environment_a_pod_without_an_allocation_is_refused_by_name(by_environment: Rig) -> None:
    by_environment.show("by-hand", 1, {})
    by_environment.admitted("by-hand")
    with refused(r"default/by-hand .*has no allocation"):
        await by_environment.double.allocate(["u0"])
    assert by_environment.assigned == []


async def test_by_environment_a_wait_is_over_in_time_however_often_pods_change(by_environment: Rig) -> None:
    """The kubelet admits no other pod meanwhile."""
    by_environment.show("by-hand", 1, {})
    by_environment.admitted("by-hand")

    async def change_all_the_time() -> None:
        while True:
            by_environment.show("another", 0, {})
            await asyncio.sleep(0)

    changing = asyncio.create_task(change_all_the_time())
    with refused(r"default/by-hand .*has no allocation"):
        await asyncio.wait_for(by_environment.double.allocate(["u0"]), 5)
    changing.cancel()


async def test_by_environment_a_pod_admitted_before_registration_is_no_candidate(by_environment: Rig) -> None:
    assert isinstance(by_environment.plugin, EnvironmentAllocator)
    by_environment.bound("early", 1, card=0)
    by_environment.admitted("early")
    by_environment.pods.apply([ListEnds("1")])
    await by_environment.plugin.registering()
    with refused(r"early.* before this resource was registered"):
        await by_environment.double.allocate(["u0"])


async def test_by_environment_registering_waits_for_a_whole_list_of_pods(by_environment: Rig) -> None:
    assert isinstance(by_environment.plugin, EnvironmentAllocator)
    registering = asyncio.create_task(by_environment.plugin.registering())
    await asyncio.sleep(0)
    by_environment.bound("early", 1, card=0)
    await asyncio.sleep(0)
    assert not registering.done()
    by_environment.pods.apply([ListEnds("1")])
    await asyncio.wait_for(registering, 5)
    assert by_environment.plugin.passed == set()


async def test_by_environment_a_container_with_other_cards_must_not_start(by_environment: Rig) -> None:
    by_environment.bound("p", 1, card=1)
    by_environment.record("p", ["u0"], wire.ContainerAllocateResponse(envs={"GPUSHARE_CARD_UUIDS": "GPU-0"}))
    with refused("container c0 must not start"):
        await by_environment.double.pre_start(["u0"])
    # What it has is told, so that the reconcile sees that it is on another card than decided.
    assert ("p", ["c0"], frozenset({"GPU-0"})) in by_environment.assigned


@pytest.mark.parametrize("mode", [CdiAllocator, without_cdi])
async def test_a_pod_of_the_other_mode_starts_with_its_card_and_gets_a_spec_only_if_it_has_our_device(
    folder: Path, mode: Callable[[AllocationContext], Answers]
) -> None:
    async with rig(folder, mode) as node:
        for name, ids in (("by-cdi", ["u0"]), ("by-environment", ["u1"])):
            node.bound(name, 1, card=1)
            by_cdi = name == "by-cdi"
            device = wire.CDIDevice(name="gpushare/handle=0123456789abcdef")
            said = {"GPUSHARE_CARD_UUIDS": "GPU-1", "NVIDIA_VISIBLE_DEVICES": "GPU-1"}
            said |= {"ALIYUN_COM_GPU_MEM_POD": "1", "ALIYUN_COM_GPU_MEM_CONTAINER": "1"}
            answer = wire.ContainerAllocateResponse(cdi_devices=[device]) if by_cdi else None
            node.record(name, ids, answer or wire.ContainerAllocateResponse(envs=said))
            await node.double.pre_start(ids)
            assert [path.name for path in (folder / "cdi").glob("*.json")] == ["gpushare-0123456789abcdef.json"]
        assert await node.card_of() == "GPU-1"


async def test_by_cdi_a_recorded_environment_of_another_card_must_not_start(by_cdi: Rig) -> None:
    """As of the legacy plugin, after a reboot that renumbered the cards: its answer has the index alone."""
    legacy = {names.MEM_IDX: "1", names.MEM_POD: "1", names.MEM_DEV: "15", names.MEM_ASSIGNED: "true"}
    by_cdi.show("old", 1, legacy)
    recorded = {"NVIDIA_VISIBLE_DEVICES": "1", names.MEM_IDX: "1", names.MEM_POD: "1"}
    recorded["ALIYUN_COM_GPU_MEM_CONTAINER"] = "1"
    by_cdi.record("old", ["u0"], wire.ContainerAllocateResponse(envs=recorded))
    await by_cdi.double.pre_start(["u0"])
    assert by_cdi.assigned[-1] == ("old", ["c0"], frozenset({"GPU-1"}))
    by_cdi.cards = tuple(replace(card, index=1 - card.index) for card in CARDS)
    with refused(r"allocated with ALIYUN_COM_GPU_MEM_IDX=1, but .* says 0"):
        await by_cdi.double.pre_start(["u0"])


async def test_an_allocation_by_index_means_the_card_that_had_it_at_first_also_after_a_restart(folder: Path) -> None:
    index_only = {names.ALLOCATION: '{"0":{"1":1}}', names.UNIT_MIB: "1024"}
    for cards in (CARDS, tuple(replace(card, index=1 - card.index) for card in CARDS)):
        async with rig(folder, CdiAllocator) as node:
            node.cards = cards
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
    assert by_cdi.changed == [("p", (names.GPU_COUNT, names.EXCLUSIVE))]


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
        with refused("the answer of container c0 cannot be read"):
            await by_cdi.double.pre_start([f"u{number}"])


async def test_by_environment_a_pod_without_the_nvidia_runtime_is_refused_with_what_to_add(folder: Path) -> None:
    """The plugin's own pod has it by a runtime class: it is not the node's default."""
    async with rig(folder, lambda context: EnvironmentAllocator(context, 0.5, lambda: "nvidia")) as node:
        node.bound("p", 1, card=0)
        node.admitted("p")
        with refused(r"start without a card: .* add runtimeClassName: nvidia"):
            await node.double.allocate(["u0"])


ADDED = Additions(
    env={"LIMIT": "1024", "NVIDIA_VISIBLE_DEVICES": "all"},
    mounts=(BindMount("/host", "/in"), BindMount("/host/w", "/in/w", read_only=False)),
    device_nodes=("/dev/null",),
)


@dataclass
class Isolation:
    """refuses: for good. lacks: for now."""

    refuses: str = ""
    lacks: str = ""

    def objection(self, _: ContainerShare) -> str:
        return self.refuses

    async def prepare(self, _: ContainerShare) -> str:
        return self.lacks

    def additions(self, container_share: ContainerShare) -> Additions:
        assert (container_share.container.name, container_share.values()["mib"]) == ("c0", "1024")
        return ADDED


async def test_by_cdi_isolation_is_in_the_spec_and_the_cards_stay_those_that_were_decided(by_cdi: Rig) -> None:
    by_cdi.context.isolation = Isolation()
    by_cdi.bound("p", 1, card=1)
    await by_cdi.allocated("p")
    await by_cdi.double.pre_start(["u0"])
    edits = by_cdi.spec_edits(["u0"])
    assert "LIMIT=1024" in str(edits["env"])
    assert "NVIDIA_VISIBLE_DEVICES=all" not in str(edits["env"])
    assert str(edits["mounts"]).count("containerPath") == 3
    assert edits["deviceNodes"] == [{"path": "/dev/null"}]


async def test_by_environment_isolation_is_in_the_answer(by_environment: Rig) -> None:
    by_environment.context.isolation = Isolation()
    by_environment.bound("p", 1, card=1)
    by_environment.admitted("p")
    answer = await by_environment.double.allocate(["u0"])
    assert (answer.envs["LIMIT"], answer.envs["NVIDIA_VISIBLE_DEVICES"]) == ("1024", "GPU-1")
    found = [(mount.host_path, mount.container_path, mount.read_only) for mount in answer.mounts]
    assert found == [("/host", "/in", True), ("/host/w", "/in/w", False)]
    assert [(one.host_path, one.container_path, one.permissions) for one in answer.devices] == [
        ("/host/dev/GPU-1", "/dev/GPU-1", "rw"),
        ("/dev/null", "/dev/null", "rw"),
    ]


async def test_by_environment_the_kubelet_learns_of_the_device_nodes(by_environment: Rig) -> None:
    """Otherwise an update of the container's cgroup takes the card away while it runs."""
    by_environment.bound("p", 1, card=1)
    by_environment.admitted("p")
    (device,) = (await by_environment.double.allocate(["u0"])).devices
    assert (device.host_path, device.container_path, device.permissions) == ("/host/dev/GPU-1", "/dev/GPU-1", "rw")


async def test_by_environment_cards_are_asked_for_by_mounts_where_the_runtime_ignores_variables(
    by_environment: Rig,
) -> None:
    by_environment.context.volume_mounts = True
    by_environment.bound("p", 1, card=1)
    by_environment.admitted("p")
    (mount,) = (await by_environment.double.allocate(["u0"])).mounts
    assert (mount.host_path, mount.container_path) == ("/dev/null", "/var/run/nvidia-container-devices/GPU-1")
    assert mount.read_only


async def test_the_mode_of_the_moment_answers(folder: Path) -> None:
    """The specs may come after the first choice."""
    modes = list[Mode](["environment"])

    def by_mode(context: AllocationContext) -> ModeAllocator:
        return ModeAllocator(CdiAllocator(context), without_cdi(context), lambda: modes[-1])

    async with rig(folder, by_mode) as node:
        node.bound("p", 1, card=1)
        node.admitted("p")
        before = await node.double.allocate(["u0"])
        modes.append("cdi")
        after = await node.double.allocate(["u1"])
        assert (bool(before.envs), bool(before.cdi_devices)) == (True, False)
        assert (bool(after.envs), bool(after.cdi_devices)) == (False, True)
        node.record("p", ["u0"], before)
        await node.double.pre_start(["u0"])


async def test_by_environment_a_pod_that_can_never_be_isolated_is_refused(by_environment: Rig) -> None:
    by_environment.context.isolation = Isolation(refuses="add hostIPC: true")
    by_environment.bound("p", 1, card=1)
    by_environment.admitted("p")
    with refused(r"pod default/p .*: add hostIPC: true"):
        await by_environment.double.allocate(["u0"])
    assert by_environment.assigned == []


async def test_by_environment_a_pod_is_admitted_while_its_isolation_is_not_ready_and_does_not_start(
    by_environment: Rig,
) -> None:
    by_environment.context.isolation = Isolation(lacks="no daemon")
    by_environment.bound("p", 1, card=1)
    by_environment.admitted("p")
    await by_environment.allocated("p")
    with refused("no daemon"):
        await by_environment.double.pre_start(["u0"])
    by_environment.context.isolation = Isolation()
    await by_environment.double.pre_start(["u0"])


@pytest.mark.parametrize("isolation", [Isolation(refuses="never"), Isolation(lacks="not yet")])
async def test_by_cdi_a_container_has_no_spec_until_it_can_be_isolated(by_cdi: Rig, isolation: Isolation) -> None:
    by_cdi.context.isolation = isolation
    by_cdi.bound("p", 1, card=1)
    await by_cdi.allocated("p")
    with refused("never|not yet"):
        await by_cdi.double.pre_start(["u0"])
    assert not (by_cdi.folder / "cdi").exists()


@dataclass
class Prepared(Isolation):
    """names: containers that were prepared, in order."""

    names: tuple[str, ...] = ()

    async def prepare(self, container_share: ContainerShare) -> str:
        self.names += (container_share.container.name,)
        return ""

    def additions(self, _: ContainerShare) -> Additions:
        return Additions()


async def test_each_of_the_containers_that_hold_the_same_devices_one_after_the_other_is_prepared(by_cdi: Rig) -> None:
    isolation = by_cdi.context.isolation = Prepared()
    on_card = Allocation({0: {1: 1}}, {0: {1: 1}}, {1: "GPU-1"}, 1024)
    annotations = allocation.encode(on_card, LegacyFields(1, 15, 1))
    by_cdi.pods.apply([Changed(wire_pod("p", 1, init_gpu_mem=[1], uid="uid-p", annotations=annotations, node="n"))])
    await by_cdi.allocated("p")
    by_cdi.records[0]["ContainerName"] = "i0"
    by_cdi.record("p", ["u0"], await by_cdi.double.allocate(["u0"]))
    await by_cdi.double.pre_start(["u0"])
    assert isolation.names == ("i0", "c0")
    # Each has a device of its own, and both start with the card.
    specs = [path.read_text() for path in (by_cdi.folder / "cdi").glob("*.json")]
    assert ["GPUSHARE_CARD_UUIDS=GPU-1" in text for text in specs] == [True, True]


async def test_by_cdi_no_container_gets_the_device_of_an_earlier_one(by_cdi: Rig) -> None:
    """The runtime may still have its spec in memory, with another card."""
    first, second = [await by_cdi.double.allocate(["u0"]) for _ in range(2)]
    assert first.cdi_devices[0].name != second.cdi_devices[0].name
