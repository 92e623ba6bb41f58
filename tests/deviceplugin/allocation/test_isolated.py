"""Isolation adds to containers in either injection mode, and a container waits for what it needs."""

from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest

from config.protocol import allocation
from config.protocol.allocation import Allocation, LegacyFields
from deviceplugin.allocation.allocators import CdiAllocator
from deviceplugin.allocation.container_share import ContainerShare
from deviceplugin.cdi.edits import Additions, BindMount
from scheduler.kube.port import Changed
from tests.deviceplugin.allocation.allocator_rig import by_environment, rig
from tests.support.builders import wire_pod

ADDED = Additions(
    env={"LIMIT": "1024", "NVIDIA_VISIBLE_DEVICES": "all"},
    mounts=(BindMount("/host", "/in"), BindMount("/host/w", "/in/w", read_only=False)),
    device_nodes=("/dev/null",),
)
# As it is written without isolation, and was before there was any.


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


async def test_by_cdi_it_is_in_the_spec_and_the_cards_stay_those_that_were_decided(folder: Path) -> None:
    async with rig(folder, CdiAllocator) as node:
        node.context.isolation = Isolation()
        node.bound("p", 1, card=1)
        node.record("p", ["u0"], await node.double.allocate(["u0"]))
        await node.double.pre_start(["u0"])
        edits = node.spec_edits(["u0"])
        assert "LIMIT=1024" in str(edits["env"])
        assert "NVIDIA_VISIBLE_DEVICES=all" not in str(edits["env"])
        assert str(edits["mounts"]).count("containerPath") == 3
        assert edits["deviceNodes"] == [{"path": "/dev/null"}]


async def test_by_environment_it_is_in_the_answer(folder: Path) -> None:
    async with rig(folder, by_environment) as node:
        node.context.isolation = Isolation()
        node.bound("p", 1, card=1)
        node.admitted("p")
        answer = await node.double.allocate(["u0"])
        assert (answer.envs["LIMIT"], answer.envs["NVIDIA_VISIBLE_DEVICES"]) == ("1024", "GPU-1")
        found = [(mount.host_path, mount.container_path, mount.read_only) for mount in answer.mounts]
        assert found == [("/host", "/in", True), ("/host/w", "/in/w", False)]
        assert [(one.host_path, one.container_path, one.permissions) for one in answer.devices] == [
            ("/dev/null", "/dev/null", "rw")
        ]


async def test_by_environment_a_pod_that_can_never_be_isolated_is_refused(folder: Path) -> None:
    async with rig(folder, by_environment) as node:
        node.context.isolation = Isolation(refuses="add hostIPC: true")
        node.bound("p", 1, card=1)
        node.admitted("p")
        with pytest.raises(grpc.aio.AioRpcError, match=r"pod default/p .*: add hostIPC: true"):
            await node.double.allocate(["u0"])
        assert node.assigned == []


async def test_by_environment_a_pod_is_admitted_while_its_isolation_is_not_ready_and_does_not_start(
    folder: Path,
) -> None:
    async with rig(folder, by_environment) as node:
        node.context.isolation = Isolation(lacks="no daemon")
        node.bound("p", 1, card=1)
        node.admitted("p")
        node.record("p", ["u0"], await node.double.allocate(["u0"]))
        with pytest.raises(grpc.aio.AioRpcError, match="no daemon"):
            await node.double.pre_start(["u0"])
        node.context.isolation = Isolation()
        await node.double.pre_start(["u0"])


@pytest.mark.parametrize("isolation", [Isolation(refuses="never"), Isolation(lacks="not yet")])
async def test_by_cdi_a_container_has_no_spec_until_it_can_be_isolated(folder: Path, isolation: Isolation) -> None:
    async with rig(folder, CdiAllocator) as node:
        node.context.isolation = isolation
        node.bound("p", 1, card=1)
        node.record("p", ["u0"], await node.double.allocate(["u0"]))
        with pytest.raises(grpc.aio.AioRpcError, match=r"never|not yet"):
            await node.double.pre_start(["u0"])
        assert not (folder / "cdi").exists()


async def test_each_of_the_containers_that_hold_the_same_devices_one_after_the_other_is_prepared(folder: Path) -> None:
    @dataclass
    class Prepared(Isolation):
        names: tuple[str, ...] = ()

        async def prepare(self, container_share: ContainerShare) -> str:
            self.names += (container_share.container.name,)
            return ""

        def additions(self, _: ContainerShare) -> Additions:
            return Additions()

    async with rig(folder, CdiAllocator) as node:
        isolation = node.context.isolation = Prepared()
        on_card = Allocation({0: {1: 1}}, {0: {1: 1}}, {1: "GPU-1"}, 1024)
        annotations = allocation.encode(on_card, LegacyFields(1, 15, 1))
        pod = wire_pod("p", 1, init_gpu_mem=[1], uid="uid-p", annotations=annotations, node="n")
        node.pods.apply([Changed(pod)])
        answer = await node.double.allocate(["u0"])
        node.record("p", ["u0"], answer)
        node.records[0]["ContainerName"] = "i0"
        node.record("p", ["u0"], answer)
        await node.double.pre_start(["u0"])
        assert isolation.names == ("i0", "c0")
