"""Isolation adds to containers in either injection mode, and each mode serves pods of the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from config.protocol import allocation
from config.protocol.allocation import Allocation, LegacyFields
from deviceplugin.allocation.allocators import AllocationContext, CdiAllocator, ModeAllocator
from deviceplugin.allocation.container_share import ContainerShare, DriverLimit
from deviceplugin.cdi import limit_hooks
from deviceplugin.cdi.edits import Additions, BindMount, Edits
from deviceplugin.kubelet.session import Answers
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire
from scheduler.kube.port import Changed
from tests.deviceplugin.allocation.allocator_rig import Rig, refused, rig, without_cdi
from tests.support.builders import wire_pod
from tests.support.node.ports import FixedInjection


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


async def test_the_mode_of_the_moment_answers(folder: Path) -> None:
    """The specs may come after the first choice."""
    injection = FixedInjection("environment")

    def by_mode(context: AllocationContext) -> ModeAllocator:
        return ModeAllocator(CdiAllocator(context), without_cdi(context), injection)

    async with rig(folder, by_mode) as node:
        node.bound("p", 1, card=1)
        node.admitted("p")
        before = await node.double.allocate(["u0"])
        injection.chosen = "cdi"
        after = await node.double.allocate(["u1"])
        assert (bool(before.envs), bool(before.cdi_devices)) == (True, False)
        assert (bool(after.envs), bool(after.cdi_devices)) == (False, True)
        node.record("p", ["u0"], before)
        await node.double.pre_start(["u0"])


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


def limit_hook(uuid: str) -> dict[str, object]:
    args = ["nvidia-cdi-hook", limit_hooks.NAME, "--gpu-id", uuid]
    return {"hookName": "createRuntime", "path": "/usr/bin/nvidia-cdi-hook", "args": args}


class Hooked:
    """Cards whose edits have NVIDIA's hooks, except for the cards in `bare`."""

    limits_by_hook = True

    def __init__(self, *bare: str) -> None:
        self.bare = bare

    def edits(self, uuids: Sequence[str]) -> Edits:
        return Edits(lists={"hooks": [OTHER_HOOK, *(limit_hook(uuid) for uuid in uuids if uuid not in self.bare)]})

    def device_nodes(self, _: Sequence[str]) -> dict[str, str]:
        return {}


OTHER_HOOK = {"hookName": "createContainer", "path": "/h", "args": ["h", "update-ldcache"]}


@dataclass
class Limits(Isolation):
    """Isolation by the driver. limit: None for a container without limits."""

    limit: DriverLimit | None = None

    def additions(self, _: ContainerShare) -> Additions:
        return Additions(self.limit.variables() if self.limit else {})


async def started(node: Rig, limit: DriverLimit | None, *bare: str) -> dict[str, Any]:
    """Start a container; its edits."""
    node.context.isolation, node.context.card_edits = Limits(limit=limit), Hooked(*bare)
    node.bound("p", 1, card=1)
    await node.allocated("p")
    await node.double.pre_start(["u0"])
    return node.spec_edits(["u0"])


async def test_limits_by_the_driver_are_variables_for_the_hook_of_the_card(by_cdi: Rig) -> None:
    edits = await started(by_cdi, DriverLimit(0, 1024))
    assert edits["hooks"] == [OTHER_HOOK, limit_hook("GPU-1")]
    assert {"NVIDIA_GPU_MEMORY_REQUEST=0", "NVIDIA_GPU_MEMORY_LIMIT=1024"} <= set(edits["env"])


async def test_without_limits_the_hook_never_runs_because_it_would_obey_the_pods_own_variables(by_cdi: Rig) -> None:
    edits = await started(by_cdi, None)
    assert edits["hooks"] == [OTHER_HOOK]
    assert "NVIDIA_GPU_MEMORY" not in str(edits["env"])


async def test_variables_without_their_hook_are_no_limit_so_the_container_does_not_start(by_cdi: Rig) -> None:
    with refused("card GPU-1: its CDI spec no longer has the hook apply-cuda-memory-limits"):
        await started(by_cdi, DriverLimit(0, 1024), "GPU-1")
    assert not (by_cdi.folder / "cdi").exists()


async def test_simulated_cards_are_limited_without_a_hook(by_cdi: Rig) -> None:
    by_cdi.context.isolation = Limits(limit=DriverLimit(0, 1024))
    by_cdi.bound("p", 1, card=1)
    await by_cdi.allocated("p")
    await by_cdi.double.pre_start(["u0"])
    assert "NVIDIA_GPU_MEMORY_LIMIT=1024" in by_cdi.spec_edits(["u0"])["env"]
