"""Nodes with NVIDIA cards (`nvidia_hardware`), ways of bringing cards into containers there, and what CUDA says there.

Every pod of a cell runs `cuda-check`: it has to answer `cuInit 0`, and find the cards that the scheduler chose.
"""

import asyncio
import itertools
import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.protocol import names
from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.cluster import ControlPlane
from e2e.node import images
from e2e.node.local_node import LocalNode, programs
from e2e.node.nvidia_hardware import AT_ROOT, IN_A_CONTAINER, RUNTIME, WORLD, NvidiaHardware, Runtime, compile_driver
from e2e.programs.plugin_process import DevicePluginProcess
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.shared_node import GIB, SharedNode, all_settled, installed, plugin_token, pods, shared_pod, written_by
from tests.support.nvidia.libraries import CUDA_CHECK, compile_cuda_check

UNITS: Final = (81920 - 640) // GIB  # of a card of `world.card`
_IMAGE: Final = "local.test/cuda:1"
_LOOK: Final = "cuda-check; echo END $?."
_END: Final = re.compile(r"^END (\d+)\.$", re.MULTILINE)
_NUMBERS: Final = itertools.count(1)
_REFRESHED: Final = Path("/run/cdi/nvidia.yaml")  # /var/run is a link to /run
_KEPT: Final = Path("/etc/cdi/nvidia.yaml")


@dataclass(frozen=True, slots=True)
class Way:
    """How cards come into containers. specs, runtime: as `NvidiaHardware`. mode: the plugin's."""

    specs: Mapping[Path, Sequence[str]]
    runtime: Runtime = "none"
    mode: str = "auto"


WAYS: Final[Mapping[str, Way]] = {
    "uuid": Way({_REFRESHED: ("--device-name-strategy=uuid",)}),
    "kept uuid": Way({_KEPT: ("--device-name-strategy=uuid",)}),
    "index": Way({_KEPT: ("--device-name-strategy=index",)}),
    "management": Way({_KEPT: ("--mode=management", "--vendor=management.nvidia.com")}),
    "default runtime": Way({}, "default", "environment"),
    "runtime class": Way({}, "class", "environment"),
}
DRIVERS: Final[Mapping[str, Path]] = {"/": AT_ROOT, "container": IN_A_CONTAINER}


@dataclass(frozen=True, slots=True)
class NvidiaSite:
    """A cluster with our scheduler, for nodes with NVIDIA cards. folder: driver and image."""

    cluster: ControlPlane
    scheduler: SchedulerProcess
    folder: Path

    @contextmanager
    def node(self, way: str, driver: str, cards: int) -> Iterator[SharedNode]:
        """A node of its own, with our plugin on it. way: of WAYS. driver: of DRIVERS."""
        chosen = WAYS[way]
        hardware = NvidiaHardware(self.folder / "driver", cards, DRIVERS[driver], chosen.runtime, chosen.specs)
        with LocalNode(self.cluster, f"nvidia-{next(_NUMBERS)}", hardware=hardware) as node:
            node.import_images(self.folder / "image.tar")
            of_plugin = asyncio.run(plugin_token(node))
            with _plugin(node, of_plugin, hardware, chosen.mode) as plugin:
                yield SharedNode(node, self.scheduler, plugin)


@contextmanager
def nvidia_site() -> Iterator[NvidiaSite]:
    """Start the cluster; returns when the scheduler is ready."""
    with (
        tempfile.TemporaryDirectory(prefix="gpushare-e2e-") as scratch,
        ControlPlane(controller_manager=True) as cluster,
    ):
        folder = Path(scratch)
        compile_driver(folder / "driver")
        _write_image(folder)
        with SchedulerProcess(asyncio.run(installed(cluster)), folder) as scheduler:
            asyncio.run(_prepare(cluster, scheduler))
            yield NvidiaSite(cluster, scheduler, folder)


def cuda_pod(name: str, way: str, units: int, *, cards: int = 1, **spec: object) -> Json:
    """A pod that runs cuda-check, and waits. units: of all its cards together."""
    volume = {"name": "world", "hostPath": {"path": str(WORLD.parent), "type": "Directory"}}
    container = {
        "name": "c",
        "image": _IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", f"{_LOOK}\nexec sleep 1000000"],
        "resources": {"limits": {names.GPU_MEM: str(units)}},
        "volumeMounts": [{"name": "world", "mountPath": str(WORLD.parent), "readOnly": True}],
    }
    labels = {"labels": {names.GPU_COUNT: str(cards)}} if cards > 1 else {}
    of_class = {"runtimeClassName": RUNTIME} if WAYS[way].runtime == "class" else {}
    return shared_pod(name, [container], metadata=labels, volumes=[volume], **of_class, **spec)


def wrong(shared: SharedNode, found: Json) -> list[str]:
    """What CUDA says in the container of this pod and should not; [] where it is right."""
    name = found["metadata"]["name"]
    if found["status"]["phase"] != "Running":
        return [f"{name} is {found['status']['phase']}: {found['status'].get('message', '')}"]
    said, _ = written_by(shared.node.container(found), _END)
    chosen = sorted(json.loads(found["metadata"]["annotations"][names.CARDS]).values())
    result, *devices = said.splitlines()[:-1]
    cards = sorted(line.split()[-1] for line in devices)
    return [] if (result, cards) == ("cuInit 0", chosen) else [f"{name} has {chosen}; CUDA says {said}"]


async def all_wrong(shared: SharedNode, wanted: Sequence[Json]) -> list[str]:
    """Run these pods at once, to their judgment. Raises NotSeen."""
    async with Admin(shared.node.cluster.access()) as admin, pods(admin, wanted) as created:
        found = await all_settled(admin, created)
        return [line for one in found for line in wrong(shared, one)]


def _plugin(node: LocalNode, of_plugin: str, hardware: NvidiaHardware, mode: str) -> DevicePluginProcess:
    settings: Json = {"simulate": "", "simulateControl": "", "mode": mode, "readingInterval": "1s"}
    # No program of NVIDIA's toolkit is in the plugin's image.
    settings["nvidiaCtk"] = "absent-nvidia-ctk"
    libraries = None if hardware.root == AT_ROOT else hardware.libraries
    return DevicePluginProcess(node, of_plugin, (), libraries=libraries, **settings)


async def _prepare(cluster: ControlPlane, scheduler: SchedulerProcess) -> None:
    await scheduler.ready()
    async with Admin(cluster.access()) as admin:
        made = {"metadata": {"name": RUNTIME}, "handler": RUNTIME}
        await admin.create("/apis/node.k8s.io/v1/runtimeclasses", made)


def _write_image(folder: Path) -> None:
    """A shell, cuda-check, and what it needs of a C library."""
    check, shell = compile_cuda_check(folder), images.busybox(programs()["busybox"])
    files = images.shared_objects(check) | {f"bin/{CUDA_CHECK}": check}
    images.archive([images.Image(_IMAGE, shell.program, shell.links, files)], folder / "image.tar")
