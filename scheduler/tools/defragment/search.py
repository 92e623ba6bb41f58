"""The fewest moves that make room for one pod. Pure.

    for each node, pods that would have to leave ──▶ the pod is put there ──▶ each of those is placed elsewhere
         (the fewest first, `leaving`)             so that its room is kept     by the profile's filters and scores

If one of them finds no place, others may leave for it: a chain of at most `_LONGEST_CHAIN` moves. The work is bounded:
in the number of nodes examined pod by pod, of sets of pods, and of placements (MOST_TRIES). So a plan may not be the
shortest, and an existing one may not be found.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.core.what_if_queries import Placing
from scheduler.pods.pod import Pod
from scheduler.state.pod_record import PodRecord
from scheduler.tools.defragment.leaving import MOST_SETS, Leaving, cards_of, leaving
from scheduler.tools.defragment.movable import Movable, successor
from scheduler.tools.defragment.order import Moved, in_turn

MOST_NODES: Final = 512
MOST_TRIES: Final = 4_000
_LONGEST_CHAIN: Final = 2
# For a pod that finds no place while it is moved.
_NODES_OF_CHAIN: Final = 16
_SETS_OF_CHAIN: Final = 8


@dataclass(frozen=True, slots=True)
class RoomFound:
    """place: of the pod. moves: in an order in which they can be made, one at a time."""

    place: Placement
    moves: tuple[Moved, ...]


def room_for(engine: Engine, movable: Movable, pod: Pod, most_moves: int) -> RoomFound | None:
    """Place of the pod after at most `most_moves` moves, with as few as possible; None if none is found.

    The pod currently fits nowhere, or fits without a move.
    """
    with engine.queries.placing() as placing:
        if (place := placing.place(pod)) is not None:
            return RoomFound(place, ())
        search = _Search(engine, movable, placing, most_moves)
        for chain in range(_LONGEST_CHAIN + 1):
            search.try_all(pod, chain)
        return search.best


class _Search:
    def __init__(self, engine: Engine, movable: Movable, placing: Placing, most_moves: int) -> None:
        self.best: RoomFound | None = None
        self._engine = engine
        self._movable = movable
        self._placing = placing
        self._most = most_moves
        self._tries = 0
        self._one_by_one = False
        self._leaving: set[str] = set()  # uids of leaving pods with a place, or a search for one
        self._moves: list[Moved] = []

    def try_all(self, pod: Pod, chain: int) -> None:
        """Try every set of pods that may leave and lead to fewer moves. chain: see `_LONGEST_CHAIN`."""
        for found in leaving(self._engine, self._movable, pod, MOST_NODES)[:MOST_SETS]:
            # A chain has at least one move more than leaving pods.
            if len(found.records) + bool(chain) > self._most or self._tries >= MOST_TRIES:
                return
            self._try(pod, found, chain)

    def _try(self, pod: Pod, found: Leaving, chain: int) -> None:
        """First all leave before one is placed; then they leave one at a time, which no order can spoil."""
        for self._one_by_one in (False, True) if chain or len(found.records) > 1 else (False,):
            place = self._with_room(pod, found, chain)
            moves = list(self._moves)
            self._moves.clear()
            self._leaving.clear()
            self._placing.undo()
            if place is None or len(moves) > self._most:
                continue
            if (ordered := in_turn(self._engine, self._placing, moves)) is not None:
                self.best = RoomFound(place, tuple(ordered))
                self._most = len(moves) - 1
                return

    def _with_room(self, pod: Pod, found: Leaving, chain: int) -> Placement | None:
        """The leaving pods are elsewhere, and the pod is placed; None: everything is restored."""
        mark, moved = self._placing.mark, len(self._moves)
        uids = {record.pod.key.uid for record in found.records}
        if uids & self._leaving:
            return None
        self._leaving |= uids
        on = {record.pod.key.uid: cards_of(self._engine.tables, record) for record in found.records}
        for record in found.records:
            self._placing.leave_out(record)
        place = self._place(pod, found.node)
        if place is not None and self._one_by_one:
            for record in found.records:
                self._placing.bring_back(record)
        left = _hardest_first(found.records)
        while place is not None and left:
            record = left.pop(0)
            spare = self._most - len(self._moves) - len(left) - 1
            if spare < 0 or not self._settle(record, on[record.pod.key.uid], min(chain, spare)):
                place = None
        if place is None:
            self._placing.undo(mark)
            self._leaving -= uids
            del self._moves[moved:]
        return place

    def _settle(self, record: PodRecord, cards: dict[int, int], chain: int) -> bool:
        """Whether the leaving pod found a place. cards: its previous ones."""
        moving = successor(record.pod)
        if not record.lifted:
            self._placing.leave_out(record)
        place = self._place(moving)
        if place is None and chain:
            place = self._chained(record, moving, chain)
        if place is None:
            return False
        if place.node != record.node or {share.index for share in place.cards} != cards.keys():
            self._moves.append(Moved(record, cards, moving, place))
        return self._movable.together(moved.record for moved in self._moves)

    def _chained(self, record: PodRecord, moving: Pod, chain: int) -> Placement | None:
        """Others leave for the pod, which is left out."""
        sets = leaving(self._engine, self._movable, moving, _NODES_OF_CHAIN)[:_SETS_OF_CHAIN]
        mark = self._placing.mark
        for found in sets:
            if len(found.records) > chain or self._tries >= MOST_TRIES:
                return None
            if self._one_by_one:
                self._placing.bring_back(record)
            place = self._with_room(moving, found, chain - len(found.records))
            if place is None:
                self._placing.undo(mark)
                continue
            if self._one_by_one:
                self._placing.leave_out(record)
            return place
        return None

    def _place(self, pod: Pod, node: str = "") -> Placement | None:
        self._tries += 1
        return self._placing.place(pod, node)


def _hardest_first(records: Sequence[PodRecord]) -> list[PodRecord]:
    """The largest request first: it has the fewest places."""
    return sorted(records, key=attrgetter("pod.template.gpu_units"), reverse=True)
