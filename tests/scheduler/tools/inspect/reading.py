"""JSON as an API server sends it -> the view."""

import json
from collections.abc import Sequence
from typing import Final

import msgspec

from config.protocol.inventory import Card, Health, Inventory, encode
from scheduler.tools.inspect import wire
from scheduler.tools.inspect.view import InspectedNode, ListedResources, view
from tests.scheduler.tools.inspect.golden_clusters import Json

_USUAL: Final = ListedResources()


def raws(documents: Sequence[Json]) -> list[msgspec.Raw]:
    return [msgspec.Raw(json.dumps(document).encode()) for document in documents]


def viewed(
    nodes: Sequence[Json],
    pods: Sequence[Json],
    *,
    with_gpu_memory_only: bool = True,
    resources: ListedResources = _USUAL,
) -> tuple[InspectedNode, ...]:
    """What is shown of them. Every object has to be readable."""
    read_nodes, unread_nodes = wire.read(raws(nodes), wire.ListedNode)
    read_pods, unread_pods = wire.read(raws(pods), wire.ListedPod)
    assert (unread_nodes, unread_pods) == ([], [])
    return view(read_nodes, read_pods, with_gpu_memory_only=with_gpu_memory_only, resources=resources)


def cards(*units: int | None, unit_mib: int = 1024, unhealthy: frozenset[int] = frozenset()) -> str:
    """The text of an inventory: a card of so many units for each index, none for None."""
    announced = tuple(
        Card(
            index=index,
            uuid=f"GPU-{index}",
            model="M",
            memory_mib=own * unit_mib,
            units=own,
            health=Health.UNHEALTHY if index in unhealthy else Health.HEALTHY,
        )
        for index, own in enumerate(units)
        if own is not None
    )
    return encode(Inventory(unit_mib, "", announced))
