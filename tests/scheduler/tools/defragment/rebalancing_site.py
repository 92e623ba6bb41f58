"""Small clusters of pods that may be moved, and the plans for them."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from scheduler.core.engine import Engine
from scheduler.kube.objects import OwnerReference
from scheduler.pods.pod import Pod
from scheduler.tools.defragment.movable import Movable
from scheduler.tools.defragment.planning import RoomFound, room_for
from tests.support.builders import bound, engine, pod
from tests.support.placing import on_card

WEB = OwnerReference("uid-of-web", "ReplicaSet", "web", controller=True)
_CARD = 8


@dataclass(frozen=True)
class Small:
    """nodes: units of their cards. pods: name -> (node, card, units). units, cards: of the pod that asks."""

    nodes: dict[str, list[int]]
    pods: dict[str, tuple[str, int, int]]
    units: int
    cards: int = 1

    def engine(self) -> Engine:
        built = engine(**self.nodes)
        built.budgets_listed()
        for name, (node, card, units) in self.pods.items():
            built.pod_assigned(bound(pod(name, units, labels={"app": name}), node, on_card(card, units)))
        return built

    def asks(self) -> Pod:
        labels = {"aliyun.com/gpu-count": str(self.cards)} if self.cards > 1 else {}
        return pod("asks", self.units * self.cards, labels=labels)


def owners(built: Engine, of: OwnerReference = WEB) -> Mapping[str, OwnerReference]:
    """All pods are the owner's."""
    return {record.pod.key.uid: of for record in built.tables.records()}


def room(built: Engine, asks: Pod, most: int = 5, max_priority: int = 0) -> RoomFound | None:
    """The plan, where every pod has an owner."""
    return room_for(built, Movable(built, owners(built), max_priority), asks, most)


def told(found: RoomFound | None) -> list[str] | None:
    """`pod node/card -> node/card` of each move."""
    if found is None:
        return None
    return [
        f"{one.record.pod.key.name} {one.record.node}/{_indexes(one.cards)} -> "
        f"{one.place.node}/{_indexes(share.index for share in one.place.cards)}"
        for one in found.moves
    ]


def _indexes(of: Mapping[int, int] | Iterator[int]) -> str:
    return ",".join(map(str, of))


def small_clusters(seed: int) -> Small:
    """2 to 4 nodes of 1 to 4 cards of 8 units, up to 8 pods of one card, and what is asked."""
    rng = random.Random(seed)  # noqa: S311 - the same for the same seed
    nodes = {name: [_CARD] * rng.choice((1, 2, 2, 4)) for name in "abcd"[: rng.randrange(2, 5)]}
    free = {(name, card): _CARD for name, cards in nodes.items() for card in range(len(cards))}
    pods = {}
    for number in range(rng.randrange(3, 9)):
        units = rng.choice((1, 2, 3, 4, 5, 6, 8))
        if places := [place for place in free if free[place] >= units]:
            place = rng.choice(places)
            free[place] -= units
            pods[f"p{number}"] = (*place, units)
    return Small(nodes, pods, *rng.choice(((4, 1), (6, 1), (8, 1), (8, 2), (4, 2), (6, 2), (8, 4))))


def fewest_moves(of: Small, most: int) -> int | None:
    """By trying every sequence of moves, on whatever cards the pod is to get; None where `most` moves are not enough.

    No pod is moved twice, nor to the room that the pod is to get: that is kept free from the first move on.
    """
    found = [
        fewest
        for node, sizes in of.nodes.items()
        for chosen in combinations(range(len(sizes)), of.cards)
        if (fewest := _fewest_on(of, dict.fromkeys(((node, card) for card in chosen), of.units), most)) is not None
    ]
    return min(found, default=None)


def _fewest_on(of: Small, kept: Mapping[tuple[str, int], int], most: int) -> int | None:
    """kept: units by (node, card)."""
    names = sorted(of.pods)
    units = [of.pods[name][2] for name in names]
    start: tuple[tuple[str, int], ...] = tuple(of.pods[name][:2] for name in names)
    layer, seen = {start}, {start}
    for moves in range(most + 1):
        following = set()
        for where in layer:
            free = _free(of, kept, where, units)
            if all(free[card] >= 0 for card in kept):
                return moves
            following |= set(_moved(where, start, units, free))
        layer = following - seen
        seen |= layer
    return None


def _moved(
    where: tuple[tuple[str, int], ...], start: tuple[tuple[str, int], ...], units: list[int], free: Mapping[Any, int]
) -> Iterator[tuple[tuple[str, int], ...]]:
    """After one more move of a pod that has not been moved."""
    for number, size in enumerate(units):
        for card, room in free.items() if where[number] == start[number] else ():
            if card != where[number] and room >= size:
                yield (*where[:number], card, *where[number + 1 :])


def _free(
    of: Small, kept: Mapping[tuple[str, int], int], where: tuple[tuple[str, int], ...], units: list[int]
) -> dict[tuple[str, int], int]:
    """By (node, card), less what is kept; negative where it is not free yet."""
    free = {
        (node, card): size - kept.get((node, card), 0)
        for node, sizes in of.nodes.items()
        for card, size in enumerate(sizes)
    }
    for place, size in zip(where, units, strict=True):
        free[place] -= size
    return free
