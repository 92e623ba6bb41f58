"""Small worlds, and what there is to see in them."""

from typing import Any

from msgspec.structs import replace

from config.protocol import names
from scheduler.kube import objects
from scheduler.testing.cluster.world import World
from tests.support.builders import manifest, wire_node
from tests.system.process import world

A_SECOND_S = 1.0
# The end of a message: what preemption cannot do about it.
NOT_HELPFUL = " preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
NO_VICTIMS = " preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."
HOSTNAME = "kubernetes.io/hostname"


def cluster(**nodes: list[int]) -> World:
    of = world()
    for name, cards in nodes.items():
        of.nodes.add(wire_node(name, cards))
    return of


def comes(of: World, name: str, gpu_mem: int | list[int] = 0, *, to: str = "", **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """to: the only node that it may go to."""
    if to:
        options["nodeSelector"] = {HOSTNAME: to}
    of.pods.create(manifest(name, gpu_mem, **options))


def node_of(of: World, name: str) -> str:
    return of.pods.collection.existing("default", name).spec.node_name


def card_of(of: World, name: str) -> str:
    return (of.pods.collection.existing("default", name).metadata.annotations or {})[names.CARDS]


def events(of: World, name: str) -> list[tuple[str, str]]:
    return [(event.record.reason, event.record.note) for event in of.events.about("default", name)]


def condition(of: World, name: str) -> str:
    """`status message` of PodScheduled, "" when there is none."""
    found = of.pods.collection.existing("default", name).status.conditions
    return next((f"{c.status} {c.message}".strip() for c in found if c.type == "PodScheduled"), "")


def objections(of: World, name: str) -> str:
    """The same without what preemption says."""
    return condition(of, name).partition(" preemption: ")[0]


def touch(of: World, name: str, number: int) -> None:
    """Change something of a pod that waits which some rule reads, so that it is tried again."""
    written = {names.CARD_POLICY: ("binpack", "spread")[number % 2]}
    of.pods.update("default", name, lambda pod: replace(pod, metadata=replace(pod.metadata, annotations=written)))


def plugin_marks(of: World, name: str) -> None:
    """As the legacy plugin does at Allocate."""

    def marked(pod: objects.PodObject) -> objects.PodObject:
        written = {**(pod.metadata.annotations or {}), names.MEM_ASSIGNED: "true", names.MEM_ASSUME_TIME: "5"}
        return replace(pod, metadata=replace(pod.metadata, annotations=written))

    of.pods.update("default", name, marked)


def warnings(of: World, name: str, namespace: str = "default") -> list[tuple[str, str]]:
    about = of.events.about(namespace, name)
    return [(e.record.reason, e.record.note) for e in about if e.record.type == "Warning"]
