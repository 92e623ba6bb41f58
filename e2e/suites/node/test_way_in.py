"""How cards come into containers on a real kubelet and containerd: by the CDI specs that are there, and never bare.

A driver that goes under a plugin that runs ends the plugin, and no container. NVML is a double with two cards
(`e2e.programs.with_nvml`); the specs are made up, with /dev/null for a card's node.
"""

import asyncio
import json
import os
import re
import shutil
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import pynvml  # type: ignore[import-untyped] # nvidia-ml-py has no annotations
import pytest

from config.protocol import inventory, names
from deviceplugin.report.status_page import ask_status
from e2e.control_plane.admin import Admin, Json
from e2e.node.announced import allocatable, card_units
from e2e.node.node_pods import PODS, busybox, note_of
from e2e.programs.plugin_process import DevicePluginProcess
from e2e.support.shared_node import (
    SharedNode,
    all_settled,
    healths,
    lives,
    pods,
    shared_pod,
    sharing,
    written_by,
)
from tests.support.repository import ROOT

_NVML: Final = ROOT / "e2e" / "programs" / "with_nvml"
_LIBRARY: Final = "/usr/lib/libcuda.so.580.95.05"
_NODES: Final = "$(stat -c %n:%t:%T /dev/nvidia[0-9]*)"
_LOOK: Final = f"echo NODES {_NODES} LIBRARY $(cat {_LIBRARY}) VISIBLE $NVIDIA_VISIBLE_DEVICES."
_EXIT_AFTER_S: Final = 3
_ENDS_WITHIN_S: Final = 60.0
_ENDED: Final = f"this has lasted {_EXIT_AFTER_S} s: exiting so that the kubelet recreates the container"


def spec(library: Path, kind: str = "k8s.device-plugin.nvidia.com/gpu") -> Json:
    """As NVIDIA's device plugin writes it for a driver in a container; every node is a copy of /dev/null."""

    def node(name: str) -> Json:
        on_host = made_node(library.parent / "dev" / name)
        # Numbers of an earlier boot: a container gets those of the node.
        return {"path": f"/dev/{name}", "hostPath": str(on_host), "major": 9, "minor": 9}

    devices = [
        {"name": f"GPU-{number}", "containerEdits": {"deviceNodes": [node(f"nvidia{number}")]}} for number in range(2)
    ]
    mounts = [{"hostPath": str(library), "containerPath": _LIBRARY, "options": ["ro", "bind"]}]
    shared = {"mounts": mounts, "deviceNodes": [node("nvidiactl"), node("nvidia-uvm")]}
    return {"cdiVersion": "0.6.0", "kind": kind, "containerEdits": shared, "devices": devices}


def made_node(path: Path) -> Path:
    """A copy of /dev/null."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    return path


@pytest.fixture
def driver_container(shared: SharedNode) -> Iterator[Path]:
    """The device nodes of a driver in a container, as the node sees them under /run."""
    root = shared.node.cdi.parent / "nvidia"
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        made_node(root / "driver" / "dev" / name)
    yield root
    shutil.rmtree(root)


@pytest.fixture
def library(shared: SharedNode) -> Path:
    path = shared.node.folder / "libcuda.so"
    path.write_text("the driver's library")
    return path


@pytest.fixture
def file(shared: SharedNode) -> Iterator[Path]:
    """Where a CDI spec of the cards belongs; there is none at the beginning."""
    path = shared.node.cdi / "k8s.device-plugin.nvidia.com-gpu.json"
    yield path
    path.unlink(missing_ok=True)


def describe(file: Path, library: Path) -> None:
    """Write the CDI spec."""
    file.write_text(json.dumps(spec(library)))


def with_nvml(
    shared: SharedNode,
    **settings: Any,  # noqa: ANN401 - as DevicePluginProcess
) -> AbstractAsyncContextManager[DevicePluginProcess]:
    """A plugin with the double instead of simulated cards."""
    return shared.instead(simulate="", simulateControl="", modules=_NVML, **settings)


async def test_a_node_shares_nothing_until_containers_can_have_driver_libraries_and_then_each_has_its_own_card(
    shared: SharedNode, on_node: Admin, library: Path, file: Path
) -> None:
    async with with_nvml(shared) as plugin:
        told = await plugin.said("notice", reason="GPUNotReady", within_s=30)
        assert "no injection mode is available: card GPU-0 cannot be injected into containers" in told["note"]
        assert "there is no CDI spec of kind nvidia.com/gpu" in await plugin.readyz()
        await note_of(on_node, "GPUNotReady", shared.node.name, within_s=15)
        await shared.node_seen(
            on_node, lambda found: allocatable(found) == 0 and withheld(found) == inventory.NO_INJECTION
        )
        async with pods(on_node, [shared_pod("real", [container(1)]), shared_pod("other", [container(79)])]) as made:
            describe(file, library)
            await plugin.ready()
            assert (await plugin.said("mode"))["mode"] == "cdi"
            for found in await all_settled(on_node, made):
                (card,) = json.loads(found["metadata"]["annotations"][names.CARDS]).values()
                said, _ = written_by(shared.node.container(found), re.compile("VISIBLE .*"))
                minor = card.removeprefix("GPU-")
                assert f"NODES /dev/nvidia{minor}:1:3 LIBRARY the driver's library VISIBLE void." in said
            await shared.node_seen(on_node, lambda found: not withheld(found))


def withheld(node: Json) -> str:
    """Why no new pod gets a card, as the node's inventory says."""
    return inventory.decode(node["metadata"]["annotations"][names.INVENTORY]).withheld


def container(units: int) -> Json:
    """Writes down which cards and which library it has."""
    return busybox(_LOOK, resources={"limits": {names.GPU_MEM: str(units)}})


async def test_a_node_that_loses_its_way_in_gives_nothing_away_until_there_is_one_and_keeps_what_is_held(
    shared: SharedNode, on_node: Admin, library: Path, file: Path
) -> None:
    describe(file, library)
    async with with_nvml(shared) as plugin:
        await plugin.ready()
        # Not what the kubelet still says of the plugin before.
        whole = allocatable(await shared.node_seen(on_node, _all_is_allocatable))
        async with pods(on_node, [shared_pod("stays", [container(2)])]) as made:
            (before,) = await all_settled(on_node, made)
            plugin.stop()
            await asyncio.to_thread(file.unlink)
            plugin.start()
            await plugin.said("notice", reason="GPUNotReady", within_s=30)
            assert "cannot be injected into containers" in await plugin.readyz()
            # Registered on the word of its records: what is held, and nothing free.
            await shared.node_seen(on_node, lambda found: allocatable(found) == 2)
            (after,) = await all_settled(on_node, made)
            assert lives(after) == lives(before)
            describe(file, library)
            await plugin.ready()
            await shared.node_seen(on_node, lambda found: allocatable(found) == whole)


async def test_one_card_that_no_spec_brings_in_takes_no_new_pods_and_costs_no_other(
    shared: SharedNode, on_node: Admin, library: Path, file: Path
) -> None:
    whole = spec(library)
    await asyncio.to_thread(file.write_text, json.dumps(whole | {"devices": whole["devices"][:1]}))
    async with with_nvml(shared) as plugin:
        await plugin.ready()
        await shared.node_seen(on_node, lambda found: healths(found) == ["healthy", "suspect no-way-in"])
        (problem,) = (await ask_status(f"127.0.0.1:{plugin.port}")).problems
        assert (
            f"card GPU-1 cannot be injected into containers: /var/run/cdi/{file.name} has no device node for the card"
            in problem
        )
        note = (await plugin.said("notice", reason="GPUSuspect"))["note"]
        assert "card 1 (GPU-1) takes no new pods: card GPU-1 cannot be injected into containers" in note
        async with pods(on_node, [shared_pod(f"on-the-first-{k}", [container(1)]) for k in range(2)]) as made:
            found = await all_settled(on_node, made)
            cards = [list(json.loads(pod["metadata"]["annotations"][names.CARDS]).values()) for pod in found]
            assert cards == [["GPU-0"]] * 2
            describe(file, library)
            await shared.node_seen(on_node, lambda found: healths(found) == ["healthy", "healthy"])


@pytest.mark.usefixtures("driver_container")
async def test_by_environment_the_kubelet_knows_the_device_nodes_of_the_card(
    shared: SharedNode, on_node: Admin
) -> None:
    """Nodes that the runtime alone adds are gone when the kubelet, or systemd, writes the container's cgroup."""
    async with with_nvml(shared, mode="environment") as plugin:
        await plugin.ready()
        look = busybox("echo NODES $(ls /dev/nvidia*) END", resources={"limits": {names.GPU_MEM: "2"}})
        async with pods(on_node, [shared_pod("real", [look])]) as made:
            (found,) = await all_settled(on_node, made)
            (card,) = json.loads(found["metadata"]["annotations"][names.CARDS]).values()
            said, _ = written_by(shared.node.container(found), re.compile("END"))
            assert f"NODES /dev/nvidia-uvm /dev/nvidia{card.removeprefix('GPU-')} /dev/nvidiactl END" in said


@pytest.fixture
def nvidia_runtime(shared: SharedNode) -> Iterator[None]:
    """NVML as a mount of its own, by which the plugin knows that the NVIDIA runtime has made its container."""
    nvml = shared.node.folder / "libnvidia-ml.so.580.95.05"
    nvml.touch()
    shared.node.enter("mount-nvml", ["mount", "--bind", nvml, nvml]).process.wait(_ENDS_WITHIN_S)
    yield
    shared.node.enter("unmount-nvml", ["umount", nvml]).process.wait(_ENDS_WITHIN_S)


@pytest.mark.usefixtures("nvidia_runtime")
async def test_specs_that_come_late_are_used_once_no_pod_has_a_card_and_then_waited_for(
    shared: SharedNode, on_node: Admin, library: Path, file: Path
) -> None:
    async with with_nvml(shared) as plugin:
        await plugin.ready()
        assert (await plugin.said("mode"))["mode"] == "environment"
        async with pods(on_node, [shared_pod("first", [sharing(1)])]) as made:
            (found,) = await all_settled(on_node, made)
            describe(file, library)
            assert shared.mismatches(found, by_cdi=False) == []
        told = await plugin.said("notice", reason="GPUInjectionMode", within_s=30)
        assert "through CDI, no longer through the environment" in told["note"]
        await note_of(on_node, "GPUInjectionMode", shared.node.name, within_s=15)
        async with pods(on_node, [shared_pod("second", [container(1)])]) as made:
            (found,) = await all_settled(on_node, made)
            said, _ = written_by(shared.node.container(found), re.compile("VISIBLE .*"))
            assert "LIBRARY the driver's library VISIBLE void." in said
        # As after a reboot, when the service that writes the specs has not run yet.
        plugin.stop()
        await asyncio.to_thread(file.unlink)
        plugin.start()
        told = await plugin.said("notice", reason="GPUNotReady", within_s=30)
        assert "waiting for the CDI specs that this node had before: card GPU-0 cannot be injected" in told["note"]
        describe(file, library)
        await plugin.ready()


def _all_is_allocatable(found: Json) -> bool:
    return allocatable(found) == sum(card_units(found).values()) > 2


async def test_a_spec_of_another_driver_brings_no_card_in(shared: SharedNode, library: Path, file: Path) -> None:
    older = json.dumps(spec(library, "nvidia.com/gpu")).replace("libcuda.so.580.95.05", "libcuda.so.570.12")
    await asyncio.to_thread(file.write_text, older)
    async with with_nvml(shared) as plugin:
        told = await plugin.said("notice", reason="GPUNotReady", within_s=30)
        assert f"{file.name} was written for driver 570.12; the driver is now 580.95.05; " in told["note"]


@pytest.fixture
async def plugin(shared: SharedNode, library: Path, file: Path) -> AsyncIterator[DevicePluginProcess]:
    """With a driver that answers, and a CDI spec that fits it."""
    describe(file, library)
    try:
        async with with_nvml(shared, readingInterval="1s", driverExitAfter=f"{_EXIT_AFTER_S}s") as started:
            await started.ready()
            yield started
    finally:
        _error(shared).unlink(missing_ok=True)


def _error(shared: SharedNode) -> Path:
    """Has the number of the error that NVML fails with."""
    return shared.node.folder / "nvml-error"


async def _again(on_node: Admin, found: list[Json]) -> list[Json]:
    return [(await on_node.get(f"{PODS}/{pod['metadata']['name']}")).body for pod in found]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        pytest.param(
            pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
            "the driver was replaced after this container was made",
            id="replaced",
        ),
        pytest.param(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, "is the driver installed on this node?", id="removed"),
    ],
)
async def test_a_driver_that_has_gone_ends_the_plugin_and_nobodys_container(
    number: int, says: str, plugin: DevicePluginProcess, shared: SharedNode, on_node: Admin
) -> None:
    await shared.node_seen(on_node, lambda node: allocatable(node) > 0)
    async with pods(on_node, [shared_pod(f"there-{k}", [sharing(1)]) for k in range(3)]) as created:
        before = await all_settled(on_node, created)
        assert [pod["status"]["phase"] for pod in before] == ["Running"] * 3
        _error(shared).write_text(str(number))

        failed = await plugin.said("driver.failed")
        assert says in failed["reason"]
        code = await asyncio.to_thread(plugin.child.process.wait, _ENDS_WITHIN_S)
        last = plugin.log.read_text().splitlines()[-1]
        assert (code, says in last, _ENDED in last) == (2, True, True), last
        assert names.HELD_UNTIL in (await shared.read(on_node))["metadata"]["annotations"]
        await shared.node_seen(on_node, lambda node: allocatable(node) == 0)
        assert list(map(lives, await _again(on_node, before))) == list(map(lives, before))

        # As a kubelet does it: the container of the plugin is made again, with the driver that is there now.
        _error(shared).unlink()
        plugin.start()
        await plugin.ready()
        assert "this has lasted" not in (await ask_status(f"127.0.0.1:{plugin.port}")).problems
        assert list(map(lives, await _again(on_node, before))) == list(map(lives, before))
