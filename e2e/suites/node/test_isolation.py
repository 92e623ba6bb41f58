"""Isolation on a real kubelet, with simulated cards: what a container finds inside itself, by either way in.

A script stands for NVIDIA's control daemon, and a file with an ELF head for the library of HAMi-core.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from config.settings import isolation
from deviceplugin.isolation.mps_namespaces import namespace_of
from e2e.control_plane.admin import Admin, Json, seen
from e2e.node.node_pods import PODS
from e2e.programs.plugin_process import DevicePluginProcess
from e2e.support.shared_node import (
    GIB,
    SOON_S,
    SharedNode,
    all_settled,
    pods,
    settled,
    shared_pod,
    sharing,
    what_is_inside,
)
from tests.support.node import mps_double

EVENTS: Final = "/api/v1/namespaces/default/events"
MODES: Final = ("cdi", "environment")
# By day the environment brings in what a description asks: all kinds of it.
BY_DAY: Final = ("cdi", pytest.param("environment", marks=pytest.mark.nightly))
_CARDS_MIB: Final = (16 * GIB,)
_UNITS: Final = 4
_LOST: Final = "GPUIsolationLost"


def wanted(name: str, **spec: Any) -> Json:  # noqa: ANN401 - fields of a pod
    """A pod that has a quarter of the card."""
    return shared_pod(name, [sharing(_UNITS)], **spec)


@asynccontextmanager
async def running(shared: SharedNode, on_node: Admin, pod: Json) -> AsyncIterator[tuple[dict[str, str], str, str]]:
    """The pod's variables, its mounts, and the UUID of its card."""
    async with pods(on_node, [pod]) as created:
        (found,) = await all_settled(on_node, created)
        container = shared.node.container(found)
        what_is_inside(container)
        inside = container.environment()
        yield inside, container.execute("cat", "/proc/self/mountinfo"), inside["GPUSHARE_CARD_UUIDS"]


def mount_of(mounts: str, path: str) -> str:
    """Its options; "" where nothing is mounted at the path."""
    found = [line.split() for line in mounts.splitlines() if line.split()[4] == path]
    return found[0][5] if found else ""


@pytest.mark.parametrize("mode", MODES)
async def test_a_description_of_ones_own(shared: SharedNode, on_node: Admin, tmp_path: Path, mode: str) -> None:
    mechanism = tmp_path / "own.yaml"
    mechanism.write_text(
        "apiVersion: gpushare/v1alpha1\nkind: IsolationMechanism\n"
        "environment: {OWN: '{units} {mib} {percent} {index} {container} {pod_uid}'}\n"
        "mounts: [{containerPath: /own, content: said}]\ndeviceNodes: [/dev/fuse]\n"
    )
    async with shared.instead(_CARDS_MIB, mode=mode, isolation=str(mechanism)) as plugin:
        await plugin.ready()
        async with pods(on_node, [wanted(f"own-{mode}")]) as created:
            (found,) = await all_settled(on_node, created)
            container = shared.node.container(found)
            what_is_inside(container)
            uid = found["metadata"]["uid"]
            assert container.environment()["OWN"] == f"4 4096 25 0 c {uid}"
            assert container.execute("cat", "/own") == "said"
            assert container.execute("sh", "-c", "test -c /dev/fuse && echo there") == "there\n"
            assert "ro" in mount_of(container.execute("cat", "/proc/self/mountinfo"), "/own").split(",")


@pytest.mark.parametrize("mode", BY_DAY)
async def test_a_client_of_mps(shared: SharedNode, on_node: Admin, mode: str) -> None:
    control = mps_double.installed(shared.node.folder)
    async with shared.instead(_CARDS_MIB, mode=mode, isolation="mps", mps={"control": str(control)}) as plugin:
        await plugin.ready()
        async with running(shared, on_node, wanted(f"mps-{mode}", hostIPC=True)) as (inside, mounts, uuid):
            pipes = f"/run/gpushare/mps/{uuid}"
            assert inside[isolation.MPS_PIPES] == pipes
            assert inside["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=4096M"
            assert inside["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
            assert "rw" in mount_of(mounts, pipes).split(",")
            await plugin.said("mps.ready", uuid=uuid)
            await plugin.said("compute_mode.set", uuid=uuid)
            await ends_and_is_told(shared, on_node, plugin, f"mps-{mode}", uuid)
            pid = daemon(shared, uuid)
    # The plugin was told to stop: its daemon has ended, and the card is as it was.
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    await plugin.said("compute_mode.given_back", uuid=uuid)


def daemon(shared: SharedNode, uuid: str) -> int:
    """Its process."""
    return int((shared.node.folder / "run" / "gpushare" / "mps" / uuid / mps_double.PID_FILE).read_text())


async def ends_and_is_told(
    shared: SharedNode, on_node: Admin, plugin: DevicePluginProcess, name: str, uuid: str
) -> None:
    """The daemon of the card is killed: the pod is told, and another one is there."""
    os.kill(daemon(shared, uuid), signal.SIGKILL)
    query = {"fieldSelector": f"involvedObject.name={name},reason={_LOST}"}
    event = await seen(on_node, EVENTS, lambda _: True, query, within_s=40)
    assert "its MPS daemon has ended with signal 9" in event["message"]
    async with asyncio.timeout(SOON_S):
        while len(plugin.lines("mps.ready")) < 2:  # noqa: ASYNC110 - a log tells nobody
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("mode", BY_DAY)
async def test_a_client_of_mps_with_a_namespace(shared: SharedNode, on_node: Admin, mode: str) -> None:
    ours = {"control": str(mps_double.installed(shared.node.folder)), "protocol": 3}
    async with shared.instead(_CARDS_MIB, mode=mode, isolation="mps", mps=ours) as plugin:
        await plugin.ready()
        name = f"namespace-{mode}"
        async with pods(on_node, [wanted(name)]) as created:
            (found,) = await all_settled(on_node, created)
            uid, container = found["metadata"]["uid"], shared.node.container(found)
            what_is_inside(container)
            inside, namespace, pid = container.environment(), namespace_of(uid, "c"), container.pid
            uuid, folder = inside["GPUSHARE_CARD_UUIDS"], shared.node.folder / "run" / "gpushare" / "mps"
            pipes = f"/run/gpushare/mps/{uuid}/mps"
            assert inside[isolation.MPS_PIPES] == f"{pipes}/{namespace}"
            assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in inside
            assert container.execute("ls", pipes) == f"{namespace}\n"
            assert container.execute("ls", f"{pipes}/{namespace}") == "control\n"
            (folder / uuid / mps_double.CLIENTS).write_text(f"{os.getpid()}\n{pid}\n")
            await on_node.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 4})
            drained = await plugin.said("mps.drained", within_s=SOON_S)
            # It is terminated while it still runs.
            assert (drained["pid"], container.pid) == (pid, pid)
            last = f"namespace delete {namespace} --server=mps"
            commands = (folder / "log" / uuid / mps_double.COMMANDS).read_text
            async with asyncio.timeout(SOON_S):
                while last not in commands().splitlines():  # noqa: ASYNC110 - a file tells nobody
                    await asyncio.sleep(0.1)
            assert [line for line in commands().splitlines() if line.startswith("client")] == [
                f"client terminate {pid}"
            ]


async def test_a_client_of_mps_without_the_nodes_shared_memory(shared: SharedNode, on_node: Admin) -> None:
    control = mps_double.installed(shared.node.folder)
    ours = {"isolation": "mps", "mps": {"control": str(control)}}
    async with shared.instead(_CARDS_MIB, mode="cdi", **ours) as plugin:
        await plugin.ready()
        async with pods(on_node, [wanted("waiting")]):
            refused = await plugin.said("call.refused", call="PreStartContainer", kind="NotIsolated", within_s=SOON_S)
            assert "add hostIPC: true to the pod" in refused["reason"]
            assert not settled((await on_node.get(f"{PODS}/waiting")).body)
    async with shared.instead(_CARDS_MIB, mode="environment", **ours) as plugin:
        await plugin.ready()
        async with pods(on_node, [wanted("private")]) as created:
            (found,) = await all_settled(on_node, created)
            assert found["status"]["phase"] == "Failed"
            assert "add hostIPC: true to the pod" in found["status"]["message"]


@pytest.mark.parametrize("mode", BY_DAY)
async def test_a_container_with_the_library(shared: SharedNode, on_node: Admin, mode: str) -> None:
    library = shared.node.folder / "libvgpu.so"
    library.write_bytes(b"\x7fELF and no code")
    library.chmod(0o644)
    ours = {"isolation": "hami-core", "hamiCore": {"library": str(library)}}
    async with shared.instead(_CARDS_MIB, mode=mode, **ours) as plugin:
        await plugin.ready()
        async with pods(on_node, [wanted(f"hami-{mode}")]) as created:
            (found,) = await all_settled(on_node, created)
            container = shared.node.container(found)
            what_is_inside(container)
            inside = container.environment()
            assert inside["CUDA_DEVICE_MEMORY_LIMIT"] == "4096m"
            assert inside["CUDA_DEVICE_SM_LIMIT"] == "25"
            assert container.execute("cat", "/etc/ld.so.preload") == "/usr/local/vgpu/libvgpu.so\n"
            assert container.execute("head", "-c", "4", "/usr/local/vgpu/libvgpu.so") == "\x7fELF"
            cache = inside["CUDA_DEVICE_MEMORY_SHARED_CACHE"]
            assert container.execute("sh", "-c", f"echo used > {cache} && cat {cache}") == "used\n"
            container.execute("touch", "/tmp/vgpulock/lock")  # noqa: S108 - the library has the path built in
            state = next(shared.node.folder.glob("state-*/isolation/pods/" + found["metadata"]["uid"]))
            assert [path.read_text() for path in state.glob("c/*/c.cache")] == ["used\n"]


async def test_a_library_that_others_may_write_to_ends_the_plugin(shared: SharedNode) -> None:
    library = shared.node.folder / "libopen.so"
    library.write_bytes(b"\x7fELF")
    library.chmod(0o666)
    async with shared.instead(isolation="hami-core", hamiCore={"library": str(library)}) as plugin:
        assert plugin.child.process.wait(30) == 2
        assert "to be writable only by its owner" in plugin.log.read_text()
