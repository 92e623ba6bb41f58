"""Which cards are to be kept free while the moves of a plan are made, so that no successor takes room back. Pure."""

from collections.abc import Mapping, Sequence

from scheduler.tools.defragment.answers import Move
from scheduler.tools.explain.answers import NodeAndCards


def kept_free(place: NodeAndCards | None, moves: Sequence[Move]) -> Mapping[str, frozenset[int]]:
    """By node, the indexes of cards, while the first of the moves is made and before.

    place: of the pod for which room is made; its cards are kept free, and those of every later move to a node that an
    earlier one leaves. Where the first one goes is not: the pod may leave room on its own cards.
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
