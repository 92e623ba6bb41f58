"""Nodes with NVIDIA cards (`nvidia_hardware`), ways of injecting cards into containers there, and CUDA's answers.

Every pod of a cell runs `cuda-check`: it has to answer `cuInit 0`, and find the cards that the scheduler chose.
"""

import asyncio
import itertools
import json
import re
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.protocol import names
from e2e.control_plane.admin import Admin, Json, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.node import images
from e2e.node.containers import NoSuchContainer
from e2e.node.local_node import LocalNode
from e2e.node.node_pods import PODS
from e2e.node.node_programs import programs
from e2e.node.nvidia_hardware import AT_ROOT, IN_A_CONTAINER, RUNTIME, WORLD, NvidiaHardware, Runtime, compile_driver
from e2e.programs.plugin_process import DevicePluginProcess, token
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.shared_node import GIB, all_settled, installed, lives, settled, shared_pod, written_by
from tests.support.nvidia.libraries import CUDA_CHECK, CUDA_MEMORY, compile_cuda_check, compile_cuda_memory
from tests.support.nvidia.world import DEVICES, DRIVER_WITH_LIMITS

UNITS: Final = (81920 - 640) // GIB  # from a card of `world.card`
_SETTLED_WITHIN_S: Final = 120.0
IMAGE: Final = "local.test/cuda:1"
_LOOK: Final = "cuda-check; echo END $?."
END: Final = re.compile(r"^END (\d+)\.$", re.MULTILINE)
_NUMBERS: Final = itertools.count(1)
_REFRESHED: Final = Path("/run/cdi/nvidia.yaml")  # /var/run is a link to /run
_KEPT: Final = Path("/etc/cdi/nvidia.yaml")


@dataclass(frozen=True, slots=True)
class Way:
    """A way of injecting cards into containers; fields as in `NvidiaHardware`."""

    specs: Mapping[Path, Sequence[str]]
    runtime: Runtime = "none"
    limits: bool = False

    @property
    def mode(self) -> str:
        """The mode that our plugin has to choose."""
        return "cdi" if self.specs else "environment"


WAYS: Final[Mapping[str, Way]] = {
    "uuid": Way({_REFRESHED: ("--device-name-strategy=uuid",)}),
    "kept uuid": Way({_KEPT: ("--device-name-strategy=uuid",)}),
    "index": Way({_KEPT: ("--device-name-strategy=index",)}),
    "management": Way({_KEPT: ("--mode=management", "--vendor=management.nvidia.com")}),
    "default runtime": Way({}, "default"),
    "runtime class": Way({}, "class"),
    "limits": Way({_REFRESHED: ("--device-name-strategy=uuid",)}, limits=True),
}
DRIVERS: Final[Mapping[str, Path]] = {"/": AT_ROOT, "container": IN_A_CONTAINER}


@dataclass(frozen=True, slots=True)
class NvidiaNode:
    """A node with NVIDIA cards, and our plugin on it. admin: client of its cluster. way: of WAYS."""

    node: LocalNode
    plugin: DevicePluginProcess
    hardware: NvidiaHardware
    admin: Admin
    way: str

    def pod(self, name: str, units: int, *, cards: int = 1) -> Json:
        """Create a pod for this node that runs cuda-check and then waits. units: of all its cards together."""
        folder = {"name": "world", "hostPath": {"path": str(WORLD.parent), "type": "Directory"}}
        container = {
            "name": "c",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", f"{_LOOK}\nexec sleep 1000000"],
            "resources": {"limits": {names.GPU_MEM: str(units)}},
            "volumeMounts": [{"name": "world", "mountPath": str(WORLD.parent), "readOnly": True}],
        }
        labels = {"labels": {names.GPU_COUNT: str(cards)}} if cards > 1 else {}
        spec: Json = {"volumes": [folder], "nodeSelector": {"kubernetes.io/hostname": self.node.name}}
        if WAYS[self.way].runtime == "class":
            spec["runtimeClassName"] = RUNTIME
        return shared_pod(name, [container], metadata=labels, **spec)

    async def reboot(self) -> None:
        """Reboot the node, and start the plugin as its kubelet would; return once the plugin is ready."""
        self.node.reboot()
        self.plugin.start()
        await self.plugin.ready()

    async def settled(self, created: Sequence[str]) -> list[Json]:
        """Wait until each of these pods runs or has failed; return their state then. Raises NotSeen."""
        return await all_settled(self.admin, created)

    async def settled_anew(self, before: Sequence[Json]) -> list[Json]:
        """Wait again for pods whose containers have ended since. Raises NotSeen."""
        return list(await asyncio.gather(*map(self._settled_anew, before)))

    async def _settled_anew(self, before: Json) -> Json:
        def has(found: Json) -> bool:
            return settled(found) and (found["status"]["phase"] == "Failed" or lives(found) != lives(before))

        query = {"fieldSelector": f"metadata.name={before['metadata']['name']}"}
        return await seen(self.admin, PODS, has, query, within_s=_SETTLED_WITHIN_S)

    def wrong(self, found: Json) -> list[str]:
        """Return wrong answers of CUDA in the pod's container, or that it does not run; [] if all is right."""
        name = found["metadata"]["name"]
        if found["status"]["phase"] != "Running":
            return [f"{name} is {found['status']['phase']}: {found['status'].get('message', '')}"]
        return misled(found, written_by(self.node.container(found), END)[0])

    def every_life(self, found: Json) -> dict[str, str]:
        """Return the output until END of each kept life of the pod's container, by the name of its log."""
        try:
            lives = self.node.container(found).lives()
        except NoSuchContainer:
            return {}
        return {life.log.name: written for life in lives if END.search(written := life.output())}


def misled(found: Json, written: str) -> list[str]:
    """Return wrong answers of CUDA in a container of the pod; [] if all is right. written: its output until END."""
    chosen = sorted(json.loads(found["metadata"]["annotations"][names.CARDS]).values())
    result, *devices = written.splitlines()[:-1]
    cards = sorted(line.split()[-1] for line in devices)
    said = f"{found['metadata']['name']} has {chosen}; CUDA says {written}"
    return [] if (result, cards) == ("cuInit 0", chosen) else [said]


@dataclass(frozen=True, slots=True)
class NvidiaSite:
    """A cluster with our scheduler, for nodes with NVIDIA cards. folder: driver and image."""

    cluster: ControlPlane
    scheduler: SchedulerProcess
    folder: Path

    @asynccontextmanager
    async def node(
        self,
        way: str,
        driver: str,
        cards: int,
        *,
        first: int = 0,
        kubelet: Json | None = None,
        instances: Sequence[tuple[int, int]] = (),
        **configuration: object,
    ) -> AsyncIterator[NvidiaNode]:
        """Yield a separate node with our plugin, once that is ready. way: of WAYS. driver: of DRIVERS.

        first: number of its first card: no two nodes of a cluster may have the same card. kubelet, configuration:
        fields of the kubelet's configuration and of the plugin's that differ. instances: as in `NvidiaHardware`.
        """
        hardware = self._hardware(WAYS[way], DRIVERS[driver], range(first, first + cards))
        hardware.instances = instances
        with LocalNode(self.cluster, f"nvidia-{next(_NUMBERS)}", kubelet=kubelet, hardware=hardware) as node:
            node.import_images(self.folder / "image.tar")
            async with Admin(self.cluster.access()) as admin:
                with _plugin(node, await token(admin, node.name), hardware, configuration) as plugin:
                    await plugin.ready()
                    yield NvidiaNode(node, plugin, hardware, admin, way)

    def _hardware(self, way: Way, root: Path, numbers: range) -> NvidiaHardware:
        driver = self.folder / ("driver-with-limits" if way.limits else "driver")
        return NvidiaHardware(driver, len(numbers), root, way.runtime, way.specs, way.limits, numbers.start)


@contextmanager
def nvidia_site() -> Iterator[NvidiaSite]:
    """Start the cluster; yield once the scheduler is ready."""
    with (
        tempfile.TemporaryDirectory(prefix="gpushare-e2e-") as scratch,
        ControlPlane(controller_manager=True) as cluster,
    ):
        folder = Path(scratch)
        compile_driver(folder / "driver")
        compile_driver(folder / "driver-with-limits", DRIVER_WITH_LIMITS)
        _write_image(folder)
        with SchedulerProcess(asyncio.run(installed(cluster)), folder) as scheduler:
            asyncio.run(_prepare(cluster, scheduler))
            yield NvidiaSite(cluster, scheduler, folder)


def _plugin(
    node: LocalNode, of_plugin: str, hardware: NvidiaHardware, configuration: Mapping[str, object]
) -> DevicePluginProcess:
    settings: Json = {"simulate": "", "simulateControl": "", "readingInterval": "1s", "hostDev": "/dev"}
    settings["cdiSpecDirs"] = ["/etc/cdi", "/var/run/cdi"]
    # The plugin's image has no program of NVIDIA's toolkit.
    settings["nvidiaCtk"] = "absent-nvidia-ctk"
    if hardware.limits:
        settings["hostCgroup"] = str(hardware.host_cgroup(node))
    # NVIDIA's runtime would mount both into the plugin's container, at their usual paths.
    libraries, devices = {"LD_LIBRARY_PATH": str(hardware.libraries)}, {DEVICES: str(hardware.root / "dev")}
    variables = {} if hardware.root == AT_ROOT else libraries | devices
    return DevicePluginProcess(node, of_plugin, (), variables=variables, **{**settings, **configuration})


async def _prepare(cluster: ControlPlane, scheduler: SchedulerProcess) -> None:
    await scheduler.ready()
    async with Admin(cluster.access()) as admin:
        made = {"metadata": {"name": RUNTIME}, "handler": RUNTIME}
        await admin.create("/apis/node.k8s.io/v1/runtimeclasses", made)


def _write_image(folder: Path) -> None:
    """Write an image with a shell, cuda-check, cuda-memory, and the files that it needs from a C library."""
    check, shell = compile_cuda_check(folder), images.busybox(programs()["busybox"])
    files = images.shared_objects(check) | {
        f"bin/{CUDA_CHECK}": check,
        f"bin/{CUDA_MEMORY}": compile_cuda_memory(folder),
    }
    images.archive([images.Image(IMAGE, shell.program, shell.links, files)], folder / "image.tar")
