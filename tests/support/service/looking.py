"""Small worlds, and queries for their state."""

import asyncio
from typing import Any

from msgspec.structs import replace

from config.protocol import names
from scheduler.kube import objects
from scheduler.testing.cluster.world import World
from tests.support.builders import manifest, wire_node
from tests.support.service.process import A_MOMENT_S, world

A_SECOND_S = 1.0
# The end of a message: why preemption does not help.
NOT_HELPFUL = " preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
NO_VICTIMS = " preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
HOSTNAME = "kubernetes.io/hostname"


def cluster(**nodes: list[int]) -> World:
    of = world()
    for name, cards in nodes.items():
        of.nodes.add(wire_node(name, cards))
    return of


def comes(of: World, name: str, gpu_mem: int | list[int] = 0, *, to: str = "", **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """Create a pod. to: the only node that it may run on."""
    if to:
        options["nodeSelector"] = {HOSTNAME: to}
    of.pods.create(manifest(name, gpu_mem, **options))


async def arrives(of: World, name: str, gpu_mem: int | list[int] = 0, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """Create a pod, and let a second pass: enough for all immediate consequences."""
    comes(of, name, gpu_mem, **options)
    await asyncio.sleep(A_SECOND_S)


def node_of(of: World, name: str, namespace: str = "default") -> str:
    return of.pods.collection.existing(namespace, name).spec.node_name


def card_of(of: World, name: str) -> str:
    return (of.pods.collection.existing("default", name).metadata.annotations or {})[names.CARDS]


def events(of: World, name: str) -> list[tuple[str, str]]:
    return [(event.record.reason, event.record.note) for event in of.events.about("default", name)]


def condition(of: World, name: str, namespace: str = "default") -> str:
    """Return `status message` of PodScheduled, "" if there is none."""
    found = of.pods.collection.existing(namespace, name).status.conditions
    return next((f"{c.status} {c.message}".strip() for c in found if c.type == "PodScheduled"), "")


def objections(of: World, name: str) -> str:
    """Return the condition without preemption's part."""
    return condition(of, name).partition(" preemption: ")[0]


def touch(of: World, name: str, number: int) -> None:
    """Change a field of a waiting pod that some rule reads, so that it is retried."""
    written = {names.CARD_POLICY: ("binpack", "spread")[number % 2]}
    of.pods.update("default", name, lambda pod: replace(pod, metadata=replace(pod.metadata, annotations=written)))


def plugin_marks(of: World, name: str) -> None:
    """Mark the pod as the legacy plugin does at Allocate."""

    def marked(pod: objects.PodObject) -> objects.PodObject:
        written = {**(pod.metadata.annotations or {}), names.MEM_ASSIGNED: "true", names.MEM_ASSUME_TIME: "5"}
        return replace(pod, metadata=replace(pod.metadata, annotations=written))

    of.pods.update("default", name, marked)


def warnings(of: World, name: str) -> list[tuple[str, str]]:
    about = of.events.about("default", name)
    return [(e.record.reason, e.record.note) for e in about if e.record.type == "Warning"]


async def runs(of: World, name: str, gpu_mem: int, priority: int = 0, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """Create a pod, and let its kubelet start it."""
    comes(of, name, gpu_mem, priority=priority, **options)
    await asyncio.sleep(A_MOMENT_S)
    if node_of(of, name):
        of.pods.set_phase("default", name, "Running")


def is_going(of: World, name: str) -> bool:
    found = of.pods.find("default", name)
    return found is not None and bool(found.metadata.deletion_timestamp)


def nominated(of: World, name: str) -> str:
    return of.pods.collection.existing("default", name).status.nominated_node_name
