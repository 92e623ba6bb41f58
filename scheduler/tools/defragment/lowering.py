"""Moves that lower the cluster's fragmentation, one at a time: always the best of those compared. Pure.

Compared are pods of the nodes with most memory that typical pods cannot use. For a move, only two nodes are measured
again: the pod's node, and the one where the profile would place it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter
from typing import Final

import numpy as np

from scheduler.core.engine import Engine
from scheduler.core.what_if_queries import Placing
from scheduler.state.packing.fragmentation import Fragmentation, measured
from scheduler.state.packing.workload import PodMix
from scheduler.state.pod_record import PodRecord
from scheduler.tools.defragment.leaving import cards_of
from scheduler.tools.defragment.movable import Movable, successor
from scheduler.tools.defragment.order import Moved

_NODES_COMPARED: Final = 32
_PODS_OF_NODE: Final = 8
# Units of memory: a smaller gain is not worth a restart of the pod.
_LEAST_GAIN_UNITS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Lowered:
    """before, after: of the whole cluster. gains: units that each move makes useful, in the order of the moves."""

    before: Fragmentation
    after: Fragmentation
    moves: tuple[Moved, ...]
    gains: tuple[float, ...]


def lowered(engine: Engine, movable: Movable, most_moves: int) -> Lowered:
    """At most `most_moves` moves, each lowering the fragmentation by at least one unit of memory."""
    tables = engine.tables
    workload = tables.target.usual()
    before, moves = measured(tables, workload).total(), list[Moved]()
    gains = list[float]()
    with engine.queries.placing() as placing:
        while len(moves) < most_moves:
            compared = ((_gain(engine, placing, workload, one), one) for one in _candidates(engine, movable, workload))
            allowed = (
                (gain, one) for gain, one in compared if movable.together((*(moved.record for moved in moves), one))
            )
            gain, best = max(allowed, key=itemgetter(0), default=(0.0, None))
            moved = None if best is None or gain < _LEAST_GAIN_UNITS else _made(engine, placing, best)
            if moved is None:
                break
            moves.append(moved)
            gains.append(gain)
        after = measured(tables, workload).total()
    return Lowered(before, after, tuple(moves), tuple(gains))


def _candidates(engine: Engine, movable: Movable, workload: PodMix) -> Iterator[PodRecord]:
    """Pods with GPU memory of the nodes with most that is unusable, the largest of each."""
    tables = engine.tables
    unusable = measured(tables, workload).unusable
    rows = [tables.row_of[node] for node in movable.nodes]
    for row in nlargest(_NODES_COMPARED, rows, key=lambda row: (unusable[row], -tables.rank[row])):
        asking = [record for record in movable.on(tables.names[row]) if record.pod.template.gpu_units]
        yield from nlargest(_PODS_OF_NODE, asking, key=_units)


def _gain(engine: Engine, placing: Placing, workload: PodMix, record: PodRecord) -> float:
    """Units that become usable by the move; 0 without another place."""
    tables = engine.tables
    mark, source = placing.mark, tables.row_of[record.node]
    without = _unusable(engine, workload, [source])
    moved = _made(engine, placing, record)
    if moved is None:
        return 0.0
    target = tables.row_of[moved.place.node]
    after = _unusable(engine, workload, sorted({source, target}))
    placing.undo(mark)
    before = without if source == target else without + _unusable(engine, workload, [target])
    return before - after


def _made(engine: Engine, placing: Placing, record: PodRecord) -> Moved | None:
    """The move, made; None where the pod would go where it is, or nowhere: nothing is changed then."""
    mark, cards, moving = placing.mark, cards_of(engine.tables, record), successor(record.pod)
    placing.leave_out(record)
    place = placing.place(moving)
    if place is None or (place.node == record.node and {share.index for share in place.cards} == cards.keys()):
        placing.undo(mark)
        return None
    return Moved(record, cards, moving, place)


def _unusable(engine: Engine, workload: PodMix, rows: Sequence[int]) -> float:
    return measured(engine.tables, workload, np.array(rows, dtype=np.intp)).total().unusable


def _units(record: PodRecord) -> int:
    return record.pod.template.gpu_units
