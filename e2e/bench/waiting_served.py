"""CPU that a heartbeat and a finished pod cost the scheduler's process while many pods wait, on a real API server.

python -m e2e.bench.waiting_served     1,000 full nodes, 5,000 waiting pods of 500 templates; printed only
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
import uvloop
from rich.console import Console
from rich.table import Table

from e2e.bench import process, waiting_engine, workload
from e2e.bench.contenders import start_ours
from e2e.bench.observer import PODS
from e2e.bench.waiting_engine import TEMPLATES
from e2e.bench.workload import NAMESPACE, Size
from e2e.control_plane import binaries, readiness
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child, free_ports
from scheduler.kube import objects

_SIZE: Final = Size(nodes=1000, pods=5000, templates=TEMPLATES)
_HEARTBEATS: Final = 1000
_FINISHED: Final = 300
# The process has nothing left to do when it used less than a twentieth of a processor for so long.
_QUIET_S: Final = 3.0
_QUIET_SHARE: Final = 0.05
_QUIET_WITHIN_S: Final = 300.0
_PER_S: Final = 100
_RUNNING: Final = "/api/v1/namespaces/default/pods"


def main() -> int:
    """Measure and print."""
    binaries.ensure(["etcd", "kube-apiserver"])
    with (
        ControlPlane(load_tuned=True) as cluster,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        heartbeat_ms, finished_ms = runner.run(_measured(cluster))
    table = Table("figure", "measured", "must reach", title="While many pods wait, on a real API server")
    table.add_row("CPU per heartbeat of a node", f"{heartbeat_ms:.2f} ms", "≤ 1 ms")
    table.add_row("CPU per pod that finishes, the next pod's binding included", f"{finished_ms:.2f} ms", "≤ 4 ms")
    Console().print(table)
    return 0


async def _measured(cluster: ControlPlane) -> tuple[float, float]:
    async with Admin(cluster.access()) as admin, _with_pods_that_wait(admin, cluster) as child:
        nodes = [node["metadata"]["name"] for node in await admin.items("/api/v1/nodes")]
        heartbeat_ms = await _cost_ms(child, nodes[:_HEARTBEATS], lambda name: _heartbeat(admin, name))
        ends = [f"{_RUNNING}/ends-{number}" for number in range(_FINISHED)]
        return heartbeat_ms, await _cost_ms(child, ends, lambda path: _finish(admin, path))


@asynccontextmanager
async def _with_pods_that_wait(admin: Admin, cluster: ControlPlane) -> AsyncIterator[Child]:
    await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    nodes = list(workload.nodes(_SIZE))
    await admin.create_all("/api/v1/nodes", nodes)
    await admin.create_all(_RUNNING, (pod for number, node in enumerate(nodes) for pod in _filling(number, node)))
    await admin.create_all(PODS, workload.pods(_SIZE))
    (port,) = free_ports(1)
    child = start_ours(cluster, port)
    try:
        await asyncio.to_thread(readiness.wait_until, child, readiness.missing_at_http(port, "/readyz"))
        await _quiet(child)
        yield child
    finally:
        child.stop()


def _filling(number: int, node: dict[str, Any]) -> list[dict[str, Any]]:
    made = waiting_engine.filling(number, msgspec.convert(node, objects.Node))
    pods = [msgspec.to_builtins(pod) for pod in made]
    return [
        {
            "metadata": {key: pod["metadata"][key] for key in ("name", "annotations")},
            "spec": {
                "nodeName": pod["spec"]["nodeName"],
                "containers": [{**container, "image": "none"} for container in _containers(pod)],
            },
        }
        for pod in pods
    ]


def _containers(pod: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"name": one["name"], "resources": {"limits": one["resources"]["limits"]}} for one in pod["spec"]["containers"]
    ]


async def _cost_ms(child: Child, names: list[str], act: Callable[[str], Awaitable[None]]) -> float:
    """CPU for each, what the process uses at rest taken off."""
    await _quiet(child)
    rest_s, rested_s = process.cpu_s(child.pid), time.monotonic()
    await asyncio.sleep(_QUIET_S)
    at_rest = (process.cpu_s(child.pid) - rest_s) / (time.monotonic() - rested_s)
    before_s, began_s = process.cpu_s(child.pid), time.monotonic()
    for number, name in enumerate(names):
        await asyncio.sleep(max(0.0, began_s + number / _PER_S - time.monotonic()))
        await act(name)
    await _quiet(child)
    used_s = process.cpu_s(child.pid) - before_s - at_rest * (time.monotonic() - began_s)
    return 1000 * used_s / len(names)


async def _quiet(child: Child) -> None:
    until_s = time.monotonic() + _QUIET_WITHIN_S
    while time.monotonic() < until_s:
        before_s = process.cpu_s(child.pid)
        await asyncio.sleep(_QUIET_S)
        if process.cpu_s(child.pid) - before_s < _QUIET_SHARE * _QUIET_S:
            return
    message = f"the scheduler was never quiet within {_QUIET_WITHIN_S:g} s"
    raise TimeoutError(message)


async def _heartbeat(admin: Admin, name: str) -> None:
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now}
    await admin.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [ready]}})


async def _finish(admin: Admin, path: str) -> None:
    await admin.patch(f"{path}/status", {"status": {"phase": "Succeeded"}})


if __name__ == "__main__":
    sys.exit(main())
