"""Nodes and pods for the faults: small cards, so that each is filled to the last unit, and more pods than fit."""

import json
import random
from typing import Final

from e2e.fire import reading
from e2e.fire.reading import Json

CARDS: Final = 4
UNITS: Final = 16
_LARGEST: Final = 8


def node(name: str, generation: int = 0) -> Json:
    """A node of four cards of 16 GiB. generation: another one has other cards."""
    cards = [
        {"index": index, "uuid": f"GPU-{name}-{generation}-{index}", "units": UNITS, "health": "healthy"}
        for index in range(CARDS)
    ]
    place = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    place |= {reading.GPU_MEM: str(CARDS * UNITS), reading.GPU_COUNT: str(CARDS)}
    inventory = {"version": 1, "unitMiB": 1024, "driver": "", "cards": cards}
    return {
        "metadata": {"name": name, "annotations": {reading.INVENTORY: json.dumps(inventory)}},
        "status": {"capacity": place, "allocatable": place},
    }


def pod(name: str, rng: random.Random) -> Json:
    """A pod that asks for up to half a card: of one container, or with a sidecar, an init container, two cards."""
    units = rng.randint(1, _LARGEST)
    spec: Json = {"schedulerName": reading.SCHEDULER_NAMES[0], "containers": [_container("app", units)]}
    metadata: Json = {"name": name}
    match rng.randrange(8):
        case 0:
            spec["initContainers"] = [_container("side", 1) | {"restartPolicy": "Always"}]
        case 1:
            spec["initContainers"] = [_container("init", rng.randint(1, _LARGEST))]
        case 2:
            spec["containers"] = [_container("app", 2 * units), _container("beside", 0)]
            metadata["labels"] = {reading.GPU_COUNT: "2"}
    return {"metadata": metadata, "spec": spec}


def cpu_pod(name: str) -> Json:
    """A pod that asks for no card, for kube-scheduler."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "10m"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def _container(name: str, units: int) -> Json:
    limits = {reading.GPU_MEM: str(units)} if units else {}
    return {"name": name, "image": "none", "resources": {"limits": limits}}
