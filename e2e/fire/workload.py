"""Nodes and pods for the faults: small cards, so that each is filled to the last unit, and more pods than fit."""

import random
from typing import Final

from e2e.fire import reading
from e2e.fire.reading import Json
from e2e.support.gpu_site import gpu_node

CARDS: Final = 4
UNITS: Final = 16
_LARGEST: Final = 8


def node(name: str, generation: int = 0) -> Json:
    """A node of four cards of 16 GiB. generation: another one has other cards."""
    return gpu_node(name, [UNITS] * CARDS, cards_of=f"{name}-{generation}")


def pod(name: str, rng: random.Random) -> Json:
    """A pod that asks for up to half a card: of one container, or with a sidecar, an init container, two cards."""
    units = rng.randint(1, _LARGEST)
    spec: Json = {"schedulerName": reading.SCHEDULER_NAMES[0], "containers": [container("app", units)]}
    metadata: Json = {"name": name}
    match rng.randrange(8):
        case 0:
            spec["initContainers"] = [container("side", 1) | {"restartPolicy": "Always"}]
        case 1:
            spec["initContainers"] = [container("init", rng.randint(1, _LARGEST))]
        case 2:
            spec["containers"] = [container("app", 2 * units), container("beside", 0)]
            metadata["labels"] = {reading.GPU_COUNT: "2"}
    return {"metadata": metadata, "spec": spec}


def cpu_pod(name: str) -> Json:
    """A pod that asks for no card, for kube-scheduler."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "10m"}}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def container(name: str, units: int) -> Json:
    """One that asks for so many units; with 0 for none."""
    limits = {reading.GPU_MEM: str(units)} if units else {}
    return {"name": name, "image": "none", "resources": {"limits": limits}}
