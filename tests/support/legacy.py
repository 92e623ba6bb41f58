"""Nodes and pods as the legacy extender and the legacy device plugin leave them: docs/develop/protocol.md.

The extender writes five annotations and binds in a second call. When the plugin allocates the card, it sets one of them
to "true" and another to the current time.
"""

from collections.abc import Sequence

from config.protocol import names
from scheduler.kube import objects
from scheduler.testing.cluster.world import World
from tests.support.builders import manifest, wire_node

DEFAULT = "default-scheduler"
_ASSUMED_NS = "1785000000000000000"
_ASSIGNED_NS = "1785000001000000000"


def chosen(index: int, pod_units: int, card_units: int, *, assigned: bool = True) -> dict[str, str]:
    """Return the annotations of a pod. card_units: of every card, as the extender divides. assigned: by the plugin."""
    return {
        names.MEM_IDX: str(index),
        names.MEM_POD: str(pod_units),
        names.MEM_DEV: str(card_units),
        names.MEM_ASSIGNED: "true" if assigned else "false",
        names.MEM_ASSUME_TIME: _ASSIGNED_NS if assigned else _ASSUMED_NS,
    }


def legacy_node(name: str, cards: int, units: int, **labels: str) -> objects.Node:
    """Return a node with two totals, and nothing about its cards. units: of each."""
    totals = {names.GPU_MEM: str(cards * units), names.GPU_COUNT: str(cards)}
    return wire_node(name, labels=labels, more=totals)


def runs(
    of: World,
    name: str,
    units: int | list[int],
    node: str,
    annotations: dict[str, str],
    *,
    init: Sequence[int] = (),
    phase: str = "Running",
    **options: object,
) -> None:
    """Create a pod of the default scheduler on a node."""
    created = manifest(name, units, scheduler=DEFAULT, init_gpu_mem=list(init), **options)  # type: ignore[arg-type]
    of.pods.create(created)
    of.pods.bind("default", name, node, annotations)
    of.pods.set_phase("default", name, phase)
