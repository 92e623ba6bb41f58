"""Kubelet and plugin start again at once, ten times: no pod is lost, whatever its containers did at that moment."""

import asyncio
import sys
from typing import Final

import pytest

from e2e.control_plane.admin import Admin, Json
from e2e.node.node_pods import PODS
from e2e.suites.shared_node import SharedNode, allocatable, passing, pods, shared_pod, sharing

pytestmark = pytest.mark.nightly

RESTARTS: Final = 10
# Those whose init container has ended, and those that wait for another start: the kubelet looks at what they hold.
STEADY, WITH_INIT, CRASHING = 12, 4, 4
LATE: Final = 3
_ADMITTED_AFTER_S: Final = 6.0


def all_pods() -> list[Json]:
    crash = sharing(2) | {"command": ["sh", "-c", "sleep 1; exit 1"]}
    return [
        *(shared_pod(f"steady-{k}", [sharing(2)]) for k in range(STEADY)),
        *(shared_pod(f"init-{k}", [sharing(2)], initContainers=[passing(2)]) for k in range(WITH_INIT)),
        *(shared_pod(f"crash-{k}", [crash], restartPolicy="Always") for k in range(CRASHING)),
    ]


async def failed(on_node: Admin, prefix: str = "") -> list[Json]:
    return [
        pod
        for pod in await on_node.items(PODS)
        if pod["status"].get("phase") == "Failed" and pod["metadata"]["name"].startswith(prefix)
    ]


async def bound(on_node: Admin, names: list[str]) -> None:
    """Return once each of them has a node and has been started once."""
    async with asyncio.timeout(60):
        while True:
            found = {pod["metadata"]["name"]: pod for pod in await on_node.items(PODS)}
            if all(found[name]["status"].get("containerStatuses") for name in names):
                return
            await asyncio.sleep(0.2)


def start_both(shared: SharedNode) -> None:
    shared.plugin.start()
    shared.node.start_kubelet()


async def again(on_node: Admin, lost: list[Json], wanted: list[Json]) -> None:
    """As a controller would."""
    for pod in lost:
        await on_node.delete(f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    by_name = {pod["metadata"]["name"]: pod for pod in wanted}
    names = [pod["metadata"]["name"] for pod in lost]
    await asyncio.gather(*(on_node.create(PODS, by_name[name]) for name in names))
    await bound(on_node, names)


async def test_no_pod_is_lost_when_kubelet_and_plugin_start_again_at_once(shared: SharedNode, on_node: Admin) -> None:
    wanted, lost_of_20, lost_late = all_pods(), 0, 0
    async with pods(on_node, wanted) as created:
        await bound(on_node, created)
        for number in range(RESTARTS):
            await asyncio.to_thread(shared.node.stop_kubelet)
            await asyncio.to_thread(shared.plugin.stop)
            late = [shared_pod(f"late-{number}-{k}", [sharing(1)]) for k in range(LATE)]
            starting = asyncio.create_task(asyncio.to_thread(start_both, shared))
            async with pods(on_node, late):
                await starting
                await shared.plugin.ready()
                await shared.node_seen(on_node, lambda node: allocatable(node) > 0)
                await asyncio.sleep(_ADMITTED_AFTER_S)
                of_late = await failed(on_node, "late-")
            lost = [pod for pod in await failed(on_node) if pod["metadata"]["name"] in created]
            names = sorted(pod["metadata"]["name"] for pod in lost)
            why = sorted({pod["status"].get("message", "")[:90] for pod in (*lost, *of_late)})
            sys.stdout.write(f"{number}: lost {names}, late {len(of_late)} of {LATE} {why}\n")
            lost_of_20, lost_late = lost_of_20 + len(lost), lost_late + len(of_late)
            await again(on_node, lost, wanted)
    for line in shared.plugin.lines("registered"):
        sys.stdout.write(f"registered {line.get('after_s', '')} {line['timestamp']}\n")
    sys.stdout.write(f"{RESTARTS} restarts: {lost_of_20} lost, {lost_late} of those that came meanwhile\n")
    assert (lost_of_20, lost_late) == (0, 0)
