"""What stands on each card after a race, recomputed from API objects alone.

WrittenAllocation apart from the scheduler's own codecs, so that it does not share their mistakes.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from config.protocol import names
from e2e.node.announced import allocatable, card_units

Json: TypeAlias = dict[str, Any]
Card: TypeAlias = tuple[str, str]
"""(node name, card UUID)"""

_FINISHED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Audit:
    """What was found; all zero but `placed` is what should be.

    placed: pods with a node that ask for units. unannotated: of those, pods without every allocation key.
    misbooked: pods whose booked units are not what they ask, or lie on a card that their node lacks.
    overcommitted_cards, overcommitted_nodes: with more units booked, or asked, than they have.
    """

    placed: int
    unannotated: int
    misbooked: int
    overcommitted_cards: int
    overcommitted_nodes: int


def judged(nodes: Iterable[Json], pods: Iterable[Json]) -> Audit:
    """Judge the pods that ask for units, have a node and have not finished."""
    known = {node["metadata"]["name"]: node for node in nodes}
    live = [pod for pod in pods if asked(pod) and _holds_a_place(pod)]
    annotated = [pod for pod in live if all(key in _annotations(pod) for key in names.ALLOCATION_KEYS)]
    announced = {(name, uuid): units for name, node in known.items() for uuid, units in card_units(node).items()}
    gives = {name: allocatable(node) for name, node in known.items()}
    on_nodes: Counter[str] = Counter()
    on_cards: Counter[Card] = Counter()
    misbooked = 0
    for pod in live:
        on_nodes[pod["spec"]["nodeName"]] += asked(pod)
    for pod in annotated:
        booked = booked_cards(pod)
        on_cards.update(booked)
        misbooked += sum(booked.values()) != asked(pod) or not booked.keys() <= announced.keys()
    return Audit(
        placed=len(live),
        unannotated=len(live) - len(annotated),
        misbooked=misbooked,
        overcommitted_cards=sum(units > announced.get(card, 0) for card, units in on_cards.items()),
        overcommitted_nodes=sum(units > gives.get(name, 0) for name, units in on_nodes.items()),
    )


def _holds_a_place(pod: Json) -> bool:
    return bool(pod["spec"].get("nodeName")) and pod["status"].get("phase") not in _FINISHED


def asked(pod: Json) -> int:
    """Units that the pod's containers ask for together (the workload has no init containers)."""
    return sum(int(c["resources"].get("limits", {}).get(names.GPU_MEM, 0)) for c in pod["spec"]["containers"])


def booked_cards(pod: Json) -> Counter[Card]:
    """Units that the pod's annotations book, by card."""
    annotations = _annotations(pod)
    uuids: Mapping[str, str] = json.loads(annotations[names.CARDS])
    booked: Counter[Card] = Counter()
    for share in json.loads(annotations[names.ALLOCATION]).values():
        for index, units in share.items():
            booked[pod["spec"]["nodeName"], uuids.get(index, f"index {index}")] += units
    return booked


def _annotations(of: Json) -> Mapping[str, str]:
    annotations: Mapping[str, str] = of["metadata"].get("annotations", {})
    return annotations
