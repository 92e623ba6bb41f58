"""A few GPU nodes and pods of one test, on a real API server that our scheduler serves.

Everything that a test creates is removed, and the scheduler has seen the removal, before the next test begins. So the
counts in a message cover only that test's objects.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from config.protocol import names
from e2e.control_plane.admin import Admin, Json, UnexpectedAnswer, done, seen
from e2e.programs.scheduler_process import SchedulerProcess

NODES: Final = "/api/v1/nodes"
_SOON_S: Final = 15.0
_LOOK_EVERY_S: Final = 0.02
_AT_ONCE: Final = {"gracePeriodSeconds": 0}


def gpu_node(name: str, cards: Sequence[int], *, cards_of: str = "", **annotations: str) -> Json:
    """Return a node of 64 cores with cards of these sizes in units of one GiB.

    cards_of: name prefix of the cards' UUIDs; "" for the node's name.
    """
    announced = [
        {"index": index, "uuid": card(cards_of or name, index), "model": "M", "memoryMiB": units * 1024, "units": units}
        | {"health": "healthy"}
        for index, units in enumerate(cards)
    ]
    inventory = {"version": 1, "unitMiB": 1024, "driver": "", "cards": announced}
    place = {"cpu": "64", "memory": "256Gi", "pods": "110", names.GPU_MEM: str(sum(cards))}
    place[names.GPU_COUNT] = str(len(cards))
    return {
        "metadata": {"name": name, "annotations": {names.INVENTORY: json.dumps(inventory), **annotations}},
        "status": {"capacity": place, "allocatable": place},
    }


def card(node: str, index: int) -> str:
    """Return the UUID of a card of `gpu_node`."""
    return f"GPU-{node}-{index}"


def gpu_pod(name: str, gpu_mem: int, *, annotations: Mapping[str, str] | None = None, **spec: object) -> Json:
    """Return a pod of one container that requests this many units. spec: more fields of its spec."""
    container = {"name": "c", "image": "none", "resources": {"limits": {names.GPU_MEM: str(gpu_mem)}}}
    own = {"schedulerName": names.SCHEDULER_NAME, "containers": [container]}
    return {"metadata": {"name": name, "annotations": dict(annotations or {})}, "spec": own | spec}


def condition(pod: Json, kind: str = "PodScheduled") -> Json:
    """Return the pod's condition of that type; {} if it has none."""
    conditions: list[Json] = pod["status"].get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


def cards_of(pod: Json) -> dict[str, str]:
    """Return UUID by index of the cards that the binding names; {} for an unbound pod."""
    cards: dict[str, str] = json.loads(pod["metadata"].get("annotations", {}).get(names.CARDS, "{}"))
    return cards


def is_bound(pod: Json) -> bool:
    """Return whether the pod has a node."""
    return bool(pod["spec"].get("nodeName"))


def is_unschedulable(pod: Json) -> bool:
    """Return whether the scheduler has reported the pod as unschedulable."""
    return condition(pod).get("reason") == "Unschedulable"


class GpuSite:
    """Nodes and pods of one test; created by `gpu_site`."""

    def __init__(self, admin: Admin, namespace: str, scheduler: SchedulerProcess) -> None:
        self.admin = admin
        self.namespace = namespace
        self.scheduler = scheduler
        self._nodes: list[str] = []

    @property
    def pods_path(self) -> str:
        """Path of its pods."""
        return f"/api/v1/namespaces/{self.namespace}/pods"

    async def nodes(self, **cards: Sequence[int]) -> None:
        """Create nodes, `nodes(a=[16, 16], b=[80])`, and return once the scheduler knows them."""
        await self.add_nodes(*(gpu_node(name, units) for name, units in cards.items()))

    async def add_nodes(self, *manifests: Json) -> None:
        """Create these nodes, and return once the scheduler knows them."""
        for manifest in manifests:
            self._nodes.append(manifest["metadata"]["name"])
            await self.admin.create(NODES, manifest)
        await self._until(lambda known: known == set(self._nodes), "nodes known")

    async def annotate_node(self, name: str, **annotations: str | None) -> None:
        """Set annotations, None removes one; write `gpushare_cordon` for `gpushare/cordon`."""
        keys = {key.replace("_", "/"): value for key, value in annotations.items()}
        done(await self.admin.patch(f"{NODES}/{name}", {"metadata": {"annotations": keys}}))

    async def pod(self, name: str, gpu_mem: int, **options: Any) -> Json:  # noqa: ANN401 - as gpu_pod
        """Create a pod: see `gpu_pod`."""
        return await self.admin.create(self.pods_path, gpu_pod(name, gpu_mem, **options))

    async def delete_pod(self, name: str) -> None:
        """Delete a pod without a grace period, because there is no kubelet."""
        done(await self.admin.delete(f"{self.pods_path}/{name}", _AT_ONCE))

    async def read(self, name: str) -> Json:
        """Return the pod's current state."""
        return done(await self.admin.get(f"{self.pods_path}/{name}")).body

    async def seen(self, name: str, wanted: Callable[[Json], bool], *, within_s: float = _SOON_S) -> Json:
        """Wait for the pod to be as wanted. Raises NotSeen."""
        query = {"fieldSelector": f"metadata.name={name}"}
        return await seen(self.admin, self.pods_path, wanted, query, within_s=within_s)

    async def bound(self, name: str) -> Json:
        """Wait for the pod to have a node."""
        return await self.seen(name, is_bound)

    async def unschedulable(self, name: str) -> str:
        """Wait for the scheduler to report the pod as unschedulable; return the message."""
        message: str = condition(await self.seen(name, is_unschedulable))["message"]
        return message

    async def event(self, pod: str, reason: str) -> Json:
        """Wait for the pod's event with that reason."""
        path = f"/apis/events.k8s.io/v1/namespaces/{self.namespace}/events"
        query = {"fieldSelector": f"reason={reason}"}
        return await seen(self.admin, path, lambda event: event["regarding"]["name"] == pod, query, within_s=_SOON_S)

    async def clear(self) -> None:
        """Remove everything; return once the scheduler has seen that."""
        await self.admin.delete(self.pods_path, _AT_ONCE)
        for name in self._nodes:
            await self.admin.delete(f"{NODES}/{name}")
        await self._until(lambda known: not known, "nodes and pods gone", empty_queue=True)

    async def _until(self, holds: Callable[[set[str]], bool], what: str, *, empty_queue: bool = False) -> None:
        try:
            async with asyncio.timeout(_SOON_S):
                while True:
                    metrics = await self.scheduler.metrics()
                    known = {node for name, node in metrics if name == "gpushare_scheduler_node_memory_bytes"}
                    waiting = sum(value for (name, _), value in metrics.items() if name == "scheduler_pending_pods")
                    if holds(known) and not (empty_queue and waiting):
                        return
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError:
            message = f"{what}: not within {_SOON_S} s; the scheduler knows {known}, {waiting:g} pods wait"
            raise UnexpectedAnswer(message) from None


@asynccontextmanager
async def gpu_site(admin: Admin, namespace: str, scheduler: SchedulerProcess) -> AsyncIterator[GpuSite]:
    """Yield a site that is cleared at the end."""
    site = GpuSite(admin, namespace, scheduler)
    try:
        yield site
    finally:
        await site.clear()
