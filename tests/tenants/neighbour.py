"""The tenant who does nothing wrong: a pod every few milliseconds, which runs and ends; how long each waits for a node.

A pod counts from when it was due, not from when the loop came to make it: a scheduler that holds the loop for a second
would otherwise be asked nothing for that second.
"""

import asyncio
import math
from typing import Any, Final

from msgspec.structs import replace

from scheduler.kube.objects import ContainerStatus
from scheduler.testing.cluster.store import Cursor
from scheduler.testing.cluster.world import World
from tests.support.builders import manifest
from tests.support.machine_speed import slowness
from tests.support.working_time import working_loop

NAMESPACE: Final = "good"
EVERY_S: Final = 0.03
_STARTS_AFTER_S: Final = 0.05
_ENDS_AFTER_S: Final = 0.6
_HEARTBEAT_EVERY_S: Final = 0.02
_TEMPLATES: Final = 3
# How slow the machine is changes from second to second.
_PODS_PER_LOOK: Final = 10


class Neighbour:
    """Works aside. due_s, took_s: by the pod's name; what is in `due_s` alone has no node yet."""

    def __init__(self, world: World) -> None:
        self.due_s: dict[str, float] = {}
        self.took_s: dict[str, float] = {}
        self._world = world
        self._loop = working_loop()
        self._pods = Cursor(world.pods.collection)
        world.pods.collection.listeners.append(self._written)

    async def run(self) -> None:
        """Make pods until cancelled; meanwhile every node tells, in turn, that it lives."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._make_pods())
            tasks.create_task(self._beat())

    def p99_s(self, names: list[str]) -> float:
        """Of these pods; one that still waits has waited until now."""
        now_s = self._loop.time()
        took_s = sorted(self.took_s.get(name, now_s - self.due_s[name]) for name in names)
        return took_s[math.ceil(0.99 * len(took_s)) - 1]

    async def _make_pods(self) -> None:
        due_s = self._loop.time()
        while True:
            due_s += EVERY_S
            await asyncio.sleep(due_s - self._loop.time())
            if len(self.due_s) % _PODS_PER_LOOK == 0:
                self._loop.slowed(slowness())
            name = f"pod-{len(self.due_s)}"
            self.due_s[name] = due_s
            self._world.pods.create(_pod(len(self.due_s), name))

    async def _beat(self) -> None:
        while True:
            for node in [node.metadata.name for node in self._world.nodes]:
                # Without its version it differs from what is stored: a write that changes nothing else.
                self._world.nodes.update(
                    node, lambda node: replace(node, metadata=replace(node.metadata, resource_version=""))
                )
                await asyncio.sleep(_HEARTBEAT_EVERY_S)

    def _written(self) -> None:
        for change in self._pods.take():
            pod = change.after
            if pod is None or pod.metadata.namespace != NAMESPACE or not pod.spec.node_name:
                continue
            name = pod.metadata.name
            if name not in self.took_s:
                self.took_s[name] = self._loop.time() - self.due_s[name]
                self._later(_STARTS_AFTER_S, name, self._starts)
                self._later(_ENDS_AFTER_S, name, self._ends)

    def _later(self, after_s: float, name: str, act: Any) -> None:  # noqa: ANN401
        def quietly() -> None:
            with self._loop.paused():
                act(name)

        self._loop.call_later(after_s, quietly)

    def _starts(self, name: str) -> None:
        running = (ContainerStatus(name="c0", container_id=f"containerd://{name}"),)
        self._world.pods.update(
            NAMESPACE,
            name,
            lambda pod: replace(pod, status=replace(pod.status, phase="Running", container_statuses=running)),
        )

    def _ends(self, name: str) -> None:
        self._world.pods.remove(NAMESPACE, name)


def _pod(number: int, name: str) -> dict[str, object]:
    return manifest(
        name,
        4,
        namespace=NAMESPACE,
        labels={"app": "inference", "pod-index": str(number)},
        requests={"cpu": f"{100 + number % _TEMPLATES}m", "memory": "1Gi"},
    )
