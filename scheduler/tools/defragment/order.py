"""An order for moves that are made one at a time, given only that all of them fit in the end. Pure.

A move can be made as soon as its place is free. Making it only frees more, and no other move needs its place. So any
possible move is made, and if none is possible, there is no order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler.core.engine import Engine
from scheduler.core.scheduling_cycle import Placement
from scheduler.core.what_if_queries import Placing
from scheduler.pods.pod import Pod
from scheduler.state.pod_record import PodRecord


@dataclass(frozen=True, slots=True)
class Moved:
    """record: the leaving pod. cards: its current ones, index to units. moving: its successor. place: the next one."""

    record: PodRecord
    cards: Mapping[int, int]
    moving: Pod
    place: Placement


def in_turn(engine: Engine, placing: Placing, moves: Sequence[Moved]) -> list[Moved] | None:
    """The moves in such an order; None without one. The tables are restored."""
    mark, waiting, ordered = placing.mark, list(moves), list[Moved]()
    try:
        while waiting:
            made = next((one for one in waiting if _made(engine, placing, one)), None)
            if made is None:
                return None
            waiting.remove(made)
            ordered.append(made)
    finally:
        placing.undo(mark)
    return ordered


def _made(engine: Engine, placing: Placing, one: Moved) -> bool:
    """Whether the move can be made now; then it is."""
    mark = placing.mark
    placing.leave_out(one.record)
    if placing.fits(one.moving, one.place.node) and _has_room(engine, one):
        placing.put(one.moving, one.place)
        return True
    placing.undo(mark)
    return False


def _has_room(engine: Engine, one: Moved) -> bool:
    """Whether the very cards are free, where the node has room for the pod on some."""
    tables = engine.tables
    row, stored = tables.row_of[one.place.node], tables.cards.stored
    slot_of = {slot.card.index: number for number, slot in enumerate(tables.cards.slots[row])}
    request = one.moving.template.gpu_request
    for share in one.place.cards:
        slot = slot_of[share.index]
        alone = stored.holders[slot, row] == 0 if request is not None and request.exclusive else True
        if stored.free[slot, row] < share.units or stored.exclusive[slot, row] or not alone:
            return False
    return True
