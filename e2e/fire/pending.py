"""Whether a pod that waits has a true reason, and says it: no card has room for it.

Pure. What a message counts is what was true when the reasons last changed (docs/events.md): how many nodes there are,
and how much is free, may have moved since; what is wanted, and that it is free nowhere, may not.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from e2e.fire import reading
from e2e.fire.reading import Json
from e2e.fire.witness import Witness

_COUNTED: Final = re.compile(r"0/(\d+) nodes are available: (.*?)\.?(?:\s*preemption: .*)?$", re.DOTALL)
_EACH: Final = re.compile(r"(?:^|, )(\d+) (?=\D)")
_WANTS: Final = re.compile(r"Insufficient GPU memory on (?:one card|\d+ cards): wants (\d+), most free (\d+)")


def untrue(witness: Witness) -> list[str]:
    """What does not hold of the pods that wait, a line each; [] is well."""
    free = witness.free()
    return [line for pod in witness.waiting() if reading.is_ours(pod) for line in _of(pod, free, witness.node_counts)]


def fits(pod: Json, free: Mapping[str, Mapping[str, int]]) -> str:
    """A node with so many units free on so many cards, "" when there is none."""
    wanted, count = reading.asked_on_each_card(pod), reading.cards_asked(pod)
    for node, cards in free.items():
        if sum(units >= wanted for units in cards.values()) >= count:
            return node
    return ""


def message_of(pod: Json) -> str:
    """What the condition PodScheduled says; "" while it says nothing."""
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message: str = condition.get("message", "")
            return message
    return ""


def _of(pod: Json, free: Mapping[str, Mapping[str, int]], node_counts: set[int]) -> Iterator[str]:
    name, said = pod["metadata"]["name"], message_of(pod)
    if node := fits(pod, free):
        yield f"{name} waits, and {reading.asked_on_each_card(pod)} units are free on {node}; it says {said!r}"
        return
    yield from (f"{name}: {wrong}: {said!r}" for wrong in _wrong(pod, said, node_counts))


def _wrong(pod: Json, said: str, node_counts: set[int]) -> Iterator[str]:
    counted = _COUNTED.search(said)
    if counted is None:
        yield "says no reason"
        return
    nodes, reasons = int(counted[1]), counted[2]
    if nodes not in node_counts or sum(map(int, _EACH.findall(reasons))) != nodes:
        yield f"counts {nodes} nodes; there were {sorted(node_counts)}"
    wants = _WANTS.search(reasons)
    asked = reading.asked_on_each_card(pod)
    if wants is None or int(wants[1]) != asked or int(wants[2]) >= asked:
        yield f"asks {asked}"
