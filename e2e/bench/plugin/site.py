"""One node of a cluster that is an object only, with our device plugin as a process and a double for its kubelet."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.protocol import names
from deviceplugin.cdi.mode import Mode
from e2e.bench import process
from e2e.bench.plugin import pods
from e2e.bench.plugin.calls import Caller, Calls
from e2e.bench.plugin.pods import BoundPod, Checkpoint
from e2e.control_plane import commands, readiness
from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.processes import Child, free_ports, start
from tests.support.node.kubelet_double import KubeletDouble
from tests.support.repository import ROOT

_HEAD: Final = {"apiVersion": "gpushare/v1alpha1", "kind": "DevicePluginConfiguration"}


@dataclass(frozen=True, slots=True)
class BenchNode:
    """A node, and the pods that are bound to it."""

    name: str
    pods: Sequence[BoundPod]


@dataclass(frozen=True, slots=True)
class PluginRun:
    """One plugin process. pods: on its node. resident_mib: after everything.

    waiting: as `Caller.start_each`. idle_percent: of one core, while nobody asked for anything; None: not watched.
    """

    mode: Mode
    pods: int
    waiting: int
    calls: Calls
    resident_mib: float
    idle_percent: float | None


async def node_with_pods(admin: Admin, count: int, namespace: str) -> BenchNode:
    """Make a node, and so many pods there that are bound to it. Raises TooMany, and what Admin raises."""
    name, info = f"gpu-node-{count}", {"containerRuntimeVersion": "containerd://2.1.0"}
    await admin.create("/api/v1/nodes", {"metadata": {"name": name}, "status": {"nodeInfo": info}})
    path, manifests = f"/api/v1/namespaces/{namespace}/pods", pods.manifests(count, name)
    await admin.create_all(path, manifests)
    created = {pod["metadata"]["name"]: pod for pod in await admin.items(path)}
    return BenchNode(name, pods.bound_pods([created[pod["metadata"]["name"]] for pod in manifests]))


async def measure(
    kubeconfig: Path, folder: Path, node: BenchNode, mode: Mode, *, waiting: int = 1, idle_s: float | None = None
) -> PluginRun:
    """Start a plugin, let every pod's container start once, and look at the process.

    kubeconfig: of the plugin. folder: empty; its path is short, since sockets lie in it. idle_s: seconds to watch it
    afterwards while nothing happens; None: not at all. Raises Died, NotReady.
    """
    sockets, pods = folder / "kubelet", node.pods
    sockets.mkdir()
    configuration = _files(kubeconfig, folder, node.name, mode)
    async with KubeletDouble(sockets).running() as kubelet:
        caller = Caller(kubelet, Checkpoint(sockets, pods, mode), pods, mode, folder / "cdi")
        caller.everything_recorded()
        async with _plugin(configuration, folder, node.name) as child:
            calls = await caller.start_each(waiting)
            idle = None if idle_s is None else await _idle_percent(child, idle_s)
            child.check_alive()
            return PluginRun(mode, len(pods), waiting, calls, process.resident_mib(child.pid), idle)


async def _idle_percent(child: Child, idle_s: float) -> float:
    before_s = process.cpu_s(child.pid)
    await asyncio.sleep(idle_s)
    return 100 * (process.cpu_s(child.pid) - before_s) / idle_s


@asynccontextmanager
async def _plugin(configuration: Path, folder: Path, node: str) -> AsyncIterator[Child]:
    """`gpushare-device-plugin run` from this checkout, registered with the double."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "deviceplugin.cli", "run"]
    command += ["--config", str(configuration), "--listen", f"127.0.0.1:{port}"]
    environment = {"PATH": os.defpath, "HOME": str(folder), "PYTHONPATH": str(ROOT), "NODE_NAME": node}
    child = start("gpushare-device-plugin", command, folder / "plugin.log", environment)
    try:
        answers = readiness.missing_at_http(port, "/readyz")
        await asyncio.to_thread(readiness.wait_until, child, answers)
        yield child
    finally:
        await asyncio.to_thread(child.stop)


def _files(kubeconfig: Path, folder: Path, node: str, mode: Mode) -> Path:
    """Write the cards and the configuration; the configuration's path."""
    each = [{"model": "SIM", "memoryMiB": pods.CARD_MIB, "uuid": pods.uuid(index)} for index in range(pods.CARDS)]
    cards = folder / "cards.yaml"
    cards.write_text(commands.as_yaml({"nodes": [{"name": node, "cards": each}]}), encoding="utf-8")
    configuration: Json = {
        **_HEAD,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "resources": {"gpuMem": names.GPU_MEM},
        "memoryUnitMiB": pods.UNIT_MIB,
        "mode": mode,
        "cdiDir": str(folder / "cdi"),
        "stateDir": str(folder / "state"),
        "simulate": str(cards),
        "kubelet": {
            "devicePluginDir": str(folder / "kubelet"),
            "podResourcesSocket": str(folder / "kubelet" / "pod-resources.sock"),
        },
    }
    path = folder / "device-plugin.yaml"
    path.write_text(commands.as_yaml(configuration), encoding="utf-8")
    return path
