"""Allocate and PreStartContainer without CDI, over real sockets: the answer names the card, or the call fails."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from deviceplugin.allocation.allocators import EnvironmentAllocator
from deviceplugin.allocation.container_share import ContainerShare
from deviceplugin.allocation.decision import Share
from deviceplugin.kubelet.server import CallRejected
from deviceplugin.kubelet.v1beta1 import deviceplugin_pb2 as wire
from scheduler.kube.port import Changed, Deleted, ListEnds
from tests.deviceplugin.allocation.allocator_rig import Rig, refused, rig
from tests.support.builders import wire_pod
from tests.support.node.node_pods import node_pod


async def test_the_answer_names_the_card_of_the_annotation(by_environment: Rig) -> None:
    by_environment.bound("p", 2, card=1)
    by_environment.admitted("p")
    answer = await by_environment.double.allocate(["u0", "u9"])
    assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
    assert answer.envs["ALIYUN_COM_GPU_MEM_CONTAINER"] == "2"
    assert (len(answer.envs), list(answer.mounts)) == (6, [])
    by_environment.record("p", ["u0", "u9"], answer)
    await by_environment.double.pre_start(["u0", "u9"])


async def test_answers_for_pods_that_are_gone_are_forgotten(by_environment: Rig) -> None:
    assert isinstance(by_environment.plugin, EnvironmentAllocator)
    for number in range(3):
        by_environment.bound(f"p{number}", 1, card=0)
        by_environment.admitted(f"p{number}")
        await by_environment.double.allocate(["u0"])
        by_environment.pods.apply([Deleted(wire_pod(f"p{number}", 1, uid=f"uid-p{number}", node="n"))])
    assert by_environment.plugin.answered == {("uid-p2", "c0")}


async def test_a_pod_without_an_allocation_is_refused_by_name(by_environment: Rig) -> None:
    by_environment.show("by-hand", 1, {})
    by_environment.admitted("by-hand")
    with refused(r"default/by-hand .*has no allocation"):
        await by_environment.double.allocate(["u0"])
    assert by_environment.assigned == []


async def test_a_wait_is_over_in_time_however_often_pods_change(by_environment: Rig) -> None:
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


async def test_a_pod_admitted_before_registration_is_no_candidate(by_environment: Rig) -> None:
    assert isinstance(by_environment.plugin, EnvironmentAllocator)
    by_environment.bound("early", 1, card=0)
    by_environment.admitted("early")
    by_environment.pods.apply([ListEnds("1")])
    await by_environment.plugin.registering()
    with refused(r"early.* before this resource was registered"):
        await by_environment.double.allocate(["u0"])


async def test_registering_waits_for_a_whole_list_of_pods(by_environment: Rig) -> None:
    assert isinstance(by_environment.plugin, EnvironmentAllocator)
    registering = asyncio.create_task(by_environment.plugin.registering())
    await asyncio.sleep(0)
    by_environment.bound("early", 1, card=0)
    await asyncio.sleep(0)
    assert not registering.done()
    by_environment.pods.apply([ListEnds("1")])
    await asyncio.wait_for(registering, 5)
    assert by_environment.plugin.passed == set()


async def test_a_container_with_other_cards_must_not_start(by_environment: Rig) -> None:
    by_environment.bound("p", 1, card=1)
    by_environment.record("p", ["u0"], wire.ContainerAllocateResponse(envs={"GPUSHARE_CARD_UUIDS": "GPU-0"}))
    with refused("container c0 must not start"):
        await by_environment.double.pre_start(["u0"])
    # What it has is told, so that the reconcile sees that it is on another card than decided.
    assert ("p", ["c0"], frozenset({"GPU-0"})) in by_environment.assigned


async def test_a_pod_without_the_nvidia_runtime_is_refused_with_what_to_add(folder: Path) -> None:
    """The plugin's own pod has it by a runtime class: it is not the node's default."""
    async with rig(folder, lambda context: EnvironmentAllocator(context, 0.5, "uid-plugin")) as node:
        own = wire_pod("plugin", uid="uid-plugin")
        own = msgspec.structs.replace(own, spec=msgspec.structs.replace(own.spec, runtime_class_name="nvidia"))
        node.pods.apply([Changed(own)])
        node.bound("p", 1, card=0)
        node.admitted("p")
        with refused(r"start without a card: .* add runtimeClassName: nvidia"):
            await node.double.allocate(["u0"])


async def test_the_kubelet_learns_of_the_device_nodes(by_environment: Rig) -> None:
    """Otherwise an update of the container's cgroup takes the card away while it runs."""
    by_environment.bound("p", 1, card=1)
    by_environment.admitted("p")
    (device,) = (await by_environment.double.allocate(["u0"])).devices
    assert (device.host_path, device.container_path, device.permissions) == ("/host/dev/GPU-1", "/dev/GPU-1", "rw")


async def test_cards_are_asked_for_by_mounts_where_the_runtime_ignores_variables(
    by_environment: Rig,
) -> None:
    by_environment.context.volume_mounts = True
    by_environment.bound("p", 1, card=1)
    by_environment.admitted("p")
    (mount,) = (await by_environment.double.allocate(["u0"])).mounts
    assert (mount.host_path, mount.container_path) == ("/dev/null", "/var/run/nvidia-container-devices/GPU-1")
    assert mount.read_only


async def test_an_instance_that_no_mount_can_ask_for_is_refused_and_not_left_out(by_environment: Rig) -> None:
    by_environment.context.volume_mounts = True
    uuid = "MIG-GPU-8ef24466-da8d-5c70-aee2-d8f9f45d12f9/1/0"
    share = Share(uuid, 1010, 1, 4)
    pod = node_pod("p", [1])
    with pytest.raises(CallRejected, match=f"card {uuid} cannot be requested by a mount; expected a driver from 470"):
        by_environment.context.answer(ContainerShare(pod, pod.containers[0], (share,), 1024))
