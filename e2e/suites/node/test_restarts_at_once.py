"""Kubelet and plugin end and start again at once, ten times: no pod is lost, whatever its containers did then.

A plugin that is killed beside a kubelet that goes on can ask nobody to wait: pods that are bound before the next one
has registered are failed. From its second such end on, new pods wait (docs/develop/decisions/0020).
"""

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from e2e.control_plane.admin import Admin, Json
from e2e.node.announced import allocatable
from e2e.node.node_pods import PODS
from e2e.support.shared_node import SharedNode, passing, pods, shared_pod, sharing

pytestmark = pytest.mark.nightly

RESTARTS: Final = 10
# Those whose init container has ended, and those that wait for another start: the kubelet looks at what they hold.
STEADY, WITH_INIT, CRASHING = 12, 4, 4
LATE: Final = 3
_ADMITTED_AFTER_S: Final = 6.0
_CONTAINER_S: Final = 2.0
# Programs end with the thread that has started them, and a thread of an event loop ends with the test.
_STARTS: Final = ThreadPoolExecutor(1)


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


def started_once(found: Json) -> bool:
    statuses = found["status"].get("containerStatuses", [])
    return bool(statuses) and all("containerID" in status for status in statuses)


async def started(on_node: Admin, names: list[str]) -> None:
    """Return once each of them has a node and has been started once."""
    async with asyncio.timeout(60):
        while True:
            found = {pod["metadata"]["name"]: pod for pod in await on_node.items(PODS)}
            if all(map(started_once, (found[name] for name in names))):
                return
            await asyncio.sleep(0.2)


def stop_both(shared: SharedNode) -> None:
    shared.node.stop_kubelet()
    shared.plugin.stop()


def kill_both(shared: SharedNode) -> None:
    shared.node.kill_kubelet()
    shared.plugin.kill()


def start_both(shared: SharedNode) -> None:
    shared.plugin.start()
    shared.node.start_kubelet()


def start_container(shared: SharedNode) -> None:
    """As a kubelet does it that looks for containers that have ended once a second."""
    time.sleep(_CONTAINER_S)
    shared.plugin.start()


def kill_plugin(shared: SharedNode) -> None:
    shared.plugin.kill()


async def again(on_node: Admin, lost: list[Json], wanted: list[Json]) -> None:
    """As a controller would."""
    for pod in lost:
        await on_node.delete(f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
    by_name = {pod["metadata"]["name"]: pod for pod in wanted}
    names = [pod["metadata"]["name"] for pod in lost]
    await asyncio.gather(*(on_node.create(PODS, by_name[name]) for name in names))
    await started(on_node, names)


@pytest.mark.parametrize(
    ("end", "start", "most_late"),
    [
        pytest.param(stop_both, start_both, 0, id="both are stopped"),
        pytest.param(kill_both, start_both, 0, id="both are killed"),
        pytest.param(kill_plugin, start_container, 2 * LATE, id="the plugin is killed"),
    ],
)
async def test_no_pod_is_lost_when_kubelet_and_plugin_start_again_at_once(
    shared: SharedNode,
    on_node: Admin,
    end: Callable[[SharedNode], None],
    start: Callable[[SharedNode], None],
    most_late: int,
) -> None:
    wanted, lost_of_20, lost_late = all_pods(), 0, 0
    async with pods(on_node, wanted) as created:
        await started(on_node, created)
        for number in range(RESTARTS):
            await asyncio.to_thread(end, shared)
            late = [shared_pod(f"late-{number}-{k}", [sharing(1)]) for k in range(LATE)]
            starting = asyncio.get_running_loop().run_in_executor(_STARTS, start, shared)
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
    assert (lost_of_20, lost_late <= most_late) == (0, True)
