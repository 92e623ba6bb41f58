"""Nodes and pods as an API server lists them, and the view of them.

CLUSTERS: those whose legacy output is known, the files under golden/, printed by the legacy command itself.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from config.protocol import names
from config.protocol.inventory import Card, Health, Inventory, encode
from scheduler.tools.inspect import wire
from scheduler.tools.inspect.view import InspectedNode, ListedResources, view

Json: TypeAlias = dict[str, Any]

FOLDER = Path(__file__).parent / "golden"


def node(name: str, units: object, count: object, address: str = "", *, inventory: str | None = None) -> Json:
    """A Node as the API server writes it. units, count: allocatable, any JSON value that is a quantity."""
    return {
        "metadata": {"name": name, "annotations": {} if inventory is None else {names.INVENTORY: inventory}},
        "status": {
            "allocatable": {names.GPU_MEM: units, names.GPU_COUNT: count},
            "addresses": [{"type": "Hostname", "address": name}]
            + ([{"type": "InternalIP", "address": address}] if address else []),
        },
    }


def pod(name: str, units: object, *, on: str = "gpu-node-a", phase: str = "Running", **annotations: str) -> Json:
    """A Pod as the API server writes it. annotations: `idx`, `allocation`, `cards`."""
    keys = {"idx": names.MEM_IDX, "allocation": names.ALLOCATION, "cards": names.CARDS}
    written = {keys[key]: text for key, text in annotations.items()}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": written},
        "spec": {"nodeName": on, "containers": [{"name": "c", "resources": {"limits": {names.GPU_MEM: units}}}]},
        "status": {"phase": phase},
    }


A, B = node("gpu-node-a", "30", "2", "192.168.0.71"), node("gpu-node-b", "15", "1")
_BINPACK = [pod("binpack-0", "3", idx="0"), pod("binpack-1", "4", idx="1")]
_LOST = [pod("binpack-0", "3", idx="0"), pod("lost-0", "2")]
_MULTI = [pod("multi-0", "8", allocation='{"0":{"0":4,"1":4}}')]

# Name of the golden file -> flags, nodes, pods. Nodes and pods in another order than the output's.
CLUSTERS: dict[str, tuple[tuple[str, ...], list[Json], list[Json]]] = {
    "summary": ((), [B, A], _BINPACK[::-1]),
    "details": (("-d",), [B, A], _BINPACK[::-1]),
    "summary-pending": ((), [B, A], _LOST),
    "details-pending": (("-d",), [B, A], _LOST),
    "details-multi-card": (("-d",), [A], _MULTI),
}


def golden(name: str) -> str:
    """What the legacy command printed."""
    return (FOLDER / f"{name}.txt").read_bytes().decode()


def raws(documents: Sequence[Json]) -> list[msgspec.Raw]:
    return [msgspec.Raw(json.dumps(document).encode()) for document in documents]


def viewed(
    nodes: Sequence[Json], pods: Sequence[Json], *, with_gpu_memory_only: bool = True
) -> tuple[InspectedNode, ...]:
    """What is shown of them. Every object has to be readable."""
    read_nodes, unread_nodes = wire.read(raws(nodes), wire.ListedNode)
    read_pods, unread_pods = wire.read(raws(pods), wire.ListedPod)
    assert (unread_nodes, unread_pods) == ([], [])
    return view(read_nodes, read_pods, with_gpu_memory_only=with_gpu_memory_only, resources=ListedResources())


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
