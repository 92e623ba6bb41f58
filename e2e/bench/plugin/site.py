"""One node of a cluster that is an object only, with our device plugin as a process and a double for its kubelet."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import grpc

from config.protocol import names
from deviceplugin.cdi.mode import Mode
from e2e.bench import process
from e2e.bench.plugin import pods
from e2e.bench.plugin.pods import BoundPod, Checkpoint, main_container, wrong_by_cdi, wrong_by_environment
from e2e.control_plane import commands, readiness
from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.processes import Child, free_ports, start
from tests.support.node.kubelet_double import KubeletDouble
from tests.support.repository import ROOT

T = TypeVar("T")


@dataclass(slots=True)
class Calls:
    """allocate_ms, pre_start_ms: of each call, in order. wrong: a message for each container without its card."""

    allocate_ms: list[float] = field(default_factory=list)
    pre_start_ms: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Caller:
    """A kubelet that knows the pods. cdi: where the plugin writes its documents."""

    kubelet: KubeletDouble
    checkpoint: Checkpoint
    pods: Sequence[BoundPod]
    mode: Mode
    cdi: Path

    def everything_recorded(self) -> None:
        """All pods have been admitted and hold their devices."""
        self.checkpoint.write()
        self._admit(self.pods)

    async def start_each(self, waiting: int) -> Calls:
        """Allocate and start each pod's container in turn, while all others run.

        waiting: pods that are bound and have no devices yet, the one that is allocated included; >= 1. The kubelet does
        not know the others yet, since it admits one after the other.
        """
        found = Calls()
        for number, pod in enumerate(self.pods):
            later = self.pods[number + 1 : number + waiting]
            self._forget([pod, *later])
            try:
                await self._start(pod, later, found)
            except grpc.aio.AioRpcError as error:
                found.wrong.append(f"{pod.name}: {error.details()}")
        self.everything_recorded()
        return found

    async def _start(self, pod: BoundPod, later: Sequence[BoundPod], found: Calls) -> None:
        answer = await _timed(self.kubelet.allocate(list(pod.ids)), found.allocate_ms)
        self.checkpoint.record(pod, answer)
        self.checkpoint.write(without=later)
        self._admit([pod])
        await _timed(self.kubelet.pre_start(list(pod.ids)), found.pre_start_ms)
        wrong = wrong_by_cdi(pod, self.cdi, answer) if self.mode == "cdi" else wrong_by_environment(pod, answer)
        if wrong:
            found.wrong.append(wrong)

    def _forget(self, pods: Sequence[BoundPod]) -> None:
        """The first of them has been admitted at this moment; the kubelet has not got to the others."""
        self.checkpoint.write(without=pods)
        for pod in pods:
            self.kubelet.pods.pop((pod.namespace, pod.name), None)
        self.kubelet.pods[pods[0].namespace, pods[0].name] = {main_container(): {names.GPU_MEM: []}}

    def _admit(self, pods: Sequence[BoundPod]) -> None:
        for pod in pods:
            self.kubelet.pods[pod.namespace, pod.name] = {main_container(): {names.GPU_MEM: list(pod.ids)}}


async def _timed(call: Awaitable[T], into_ms: list[float]) -> T:
    # Nothing of the caller's own is left to do when the clock starts.
    await asyncio.sleep(0)
    began_s = time.perf_counter()
    answer = await call
    into_ms.append((time.perf_counter() - began_s) * 1000)
    return answer


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
