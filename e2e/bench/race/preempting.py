"""The row of preemption: every card of every node is full of pods of priority 0 when pods of a higher one come.

No kubelet runs here, so nothing would end a pod that is being deleted: `end_terminating` does what a kubelet does last,
for both schedulers the same.
"""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from typing import Final

import msgspec

from config.protocol import allocation, names
from config.protocol.allocation import Allocation, LegacyFields
from e2e.bench import workload
from e2e.bench.race.placed import Placed
from e2e.bench.workload import CARDS_PER_NODE, UNITS_PER_CARD, Json, Size
from e2e.control_plane.admin import Admin, done
from e2e.node.announced import card_units

RESIDENTS: Final = "residents"
"""The namespace of the pods that are there before, one on each card."""

_URGENT: Final = "urgent"
_PODS: Final = f"/api/v1/namespaces/{RESIDENTS}/pods"
_UNIT_MIB: Final = 1024


def before(size: Size) -> Iterator[tuple[str, Iterator[Json]]]:
    """What is there before the preemptors: path and objects, in order."""
    yield "/apis/scheduling.k8s.io/v1/priorityclasses", iter([{"metadata": {"name": _URGENT}, "value": 1000}])
    yield "/api/v1/namespaces", iter([{"metadata": {"name": RESIDENTS}}])
    yield _PODS, (pod for number, node in enumerate(workload.nodes(size)) for pod in _residents(number, node))


def preemptors(size: Size) -> Iterator[Json]:
    """Pods that each need as much of one card as one resident holds."""
    for pod in workload.pods(size):
        pod["spec"]["priorityClassName"] = _URGENT
        yield _whole_card(pod)


def evicted_beyond_need(placed: Placed) -> int:
    """Residents that are gone, beyond the one that each preemptor needs."""
    left = [pod for pod in placed.everywhere if pod["metadata"]["namespace"] == RESIDENTS]
    return len(placed.nodes) * CARDS_PER_NODE - len(left) - len(placed.pods)


async def end_terminating(admin: Admin) -> None:
    """Delete residents for good as soon as they are being deleted, from now on, until cancelled."""
    version = done(await admin.get(_PODS, {"limit": "1"})).body["metadata"]["resourceVersion"]
    async with asyncio.TaskGroup() as tasks:
        while True:
            async with aclosing(admin.watch(_PODS, {"resourceVersion": version})) as lines:
                async for line in lines:
                    change = msgspec.json.decode(line, type=_Change)
                    version = change.object.metadata.resource_version
                    if change.type == "MODIFIED" and change.object.metadata.deletion_timestamp:
                        tasks.create_task(_end(admin, change.object.metadata.name))


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str
    deletion_timestamp: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata


class _Change(msgspec.Struct):
    type: str
    object: _Pod


async def _end(admin: Admin, name: str) -> None:
    await admin.delete(f"{_PODS}/{name}", {"gracePeriodSeconds": 0})


def _residents(number: int, node: Json) -> Iterator[Json]:
    """Running pods as our scheduler has bound them, one with all of each card."""
    for index, uuid in enumerate(card_units(node)):
        pod = _whole_card(workload.pod(number * CARDS_PER_NODE + index, workload.template(0)))
        pod["spec"]["nodeName"] = node["metadata"]["name"]
        share = Allocation({0: {index: UNITS_PER_CARD}}, {}, {index: uuid}, _UNIT_MIB)
        pod["metadata"]["annotations"] |= allocation.encode(share, LegacyFields(UNITS_PER_CARD, UNITS_PER_CARD, 1))
        yield pod


def _whole_card(pod: Json) -> Json:
    pod["spec"]["containers"][0]["resources"]["limits"][names.GPU_MEM] = str(UNITS_PER_CARD)
    return pod
