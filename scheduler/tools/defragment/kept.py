"""Cards to keep free during the moves of a plan, so that no successor takes the room. Pure."""

from collections.abc import Mapping, Sequence

from scheduler.tools.defragment.answers import Move
from scheduler.tools.explain.answers import NodeAndCards


def kept_free(place: NodeAndCards | None, moves: Sequence[Move]) -> Mapping[str, frozenset[int]]:
    """By node, the indexes of cards to keep free until the first move is done.

    place: of the pod to make room for; its cards are kept free, and those of every later move to a node that an earlier
    one leaves. Those of the first one are not: the pod may leave room on its own cards.
    """
    kept: dict[str, set[int]] = {}
    if place is not None:
        kept.setdefault(place.node, set()).update(place.cards)
        left = set[str]()
        for number, move in enumerate(moves):
            if number and move.to.node in left:
                kept.setdefault(move.to.node, set()).update(move.to.cards)
            left.add(move.at.node)
        for first in moves[:1]:
            kept.get(first.to.node, set()).difference_update(first.to.cards)
    return {node: frozenset(cards) for node, cards in kept.items() if cards}
