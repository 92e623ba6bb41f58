"""Pods that would have to leave a node so that a pod fits there: the fewest for each node, by plain amounts. Pure.

First, nodes are compared by the columns. Then the pods of the most promising nodes are examined one at a time, as in
preemption (`scheduler.plugins.preemption.victims_by_amounts`), except that all pods are equally important.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import combinations
from math import comb
from typing import Final

import numpy as np
from msgspec.structs import replace

from scheduler.core.engine import Engine
from scheduler.plugins.preemption.victims import MOST_VICTIMS, Candidate
from scheduler.plugins.preemption.victims_by_amounts import by_amounts
from scheduler.pods.effective_requests import CPU, EPHEMERAL_STORAGE, MEMORY
from scheduler.pods.pod import Pod
from scheduler.state.amounts import NOTHING, available_on
from scheduler.state.columns.arrays import Int64Array, RowArray
from scheduler.state.columns.resources import NATIVE
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables
from scheduler.tools.defragment.movable import Movable

# Sets of pods to examine: for all nodes together, and for one node with many.
MOST_SETS: Final = 256
_SETS_OF_NODE: Final = 4
# Besides the best set, others with at most one more pod are tried, up to this size.
_MOST_LEAVING: Final = 3
_MOST_COMPARED: Final = 12

# Sets of cards to examine, a third of a millisecond each: for all nodes together, and for one node.
_MOST_SETS_OF_CARDS: Final = 4_096
_MOST_OF_NODE: Final = 256
_FEWEST_NODES: Final = 32


@dataclass(frozen=True, slots=True)
class Leaving:
    """Pods that leave a node. units: GPU memory that they hold together."""

    node: str
    records: tuple[PodRecord, ...]
    units: int


def leaving(engine: Engine, movable: Movable, pod: Pod, most_nodes: int) -> list[Leaving]:
    """Return the fewest pods for each node and set of cards, for an unschedulable pod; fewest first, then smallest.

    most_nodes: number of nodes examined pod by pod.
    """
    tables = engine.tables
    with engine.nominations.seen_by(pod):
        rows = engine.queries.evaluate(pod).resolvable
        minimum = engine.queries.minimum_request(pod)
        found = list[Leaving]()
        most_nodes = min(most_nodes, max(_FEWEST_NODES, _MOST_SETS_OF_CARDS // _sets_of_cards(engine, pod)))
        promising = _most_promising(engine, movable, pod, minimum, rows)[:most_nodes].tolist()
        most = max(_SETS_OF_NODE, MOST_SETS // max(1, len(promising)))
        for row in promising:
            found += _on_row(engine, pod, minimum, row, _largest(movable.on(tables.names[row])))[:most]
    return sorted(found, key=lambda one: (len(one.records), one.units, one.node))


def _sets_of_cards(engine: Engine, pod: Pod) -> int:
    """Return how many sets of cards are compared on the node with the most cards."""
    request = pod.template.gpu_request
    return 1 if request is None else max(1, min(_MOST_OF_NODE, comb(engine.tables.cards.height, request.cards)))


def _most_promising(engine: Engine, movable: Movable, pod: Pod, minimum: Int64Array, rows: RowArray) -> RowArray:
    """Return the rows where moving pods may help, starting with those where the fewest pods seem to have to leave."""
    tables = engine.tables
    there = np.zeros(tables.capacity, dtype=np.int64)
    for node, records in movable.nodes.items():
        there[tables.row_of[node]] = len(records)
    rows = rows[there[rows] > 0]
    if not len(rows):
        return rows
    lacks = (available_on(tables, rows) < minimum[:, np.newaxis]) & (minimum != NOTHING)[:, np.newaxis]
    count = np.maximum(lacks.any(axis=0), np.minimum(_on_cards(engine, pod, rows), there[rows]))
    return rows[np.lexsort((tables.rank[rows], tables.cards.booked[rows], count))]


def _on_cards(engine: Engine, pod: Pod, rows: RowArray) -> Int64Array:
    """Return int64[rows]: pods on the cards that would be emptied; a pod on several cards counts once for each."""
    request = pod.template.gpu_request
    if request is None:
        return np.zeros(len(rows), dtype=np.int64)
    stored = engine.tables.cards.stored
    holders = stored.holders[:, rows].astype(np.int64)
    if not request.exclusive:
        enough = stored.available[:, rows] & (stored.free[:, rows] >= request.units_per_card)
        # At worst, all holders of a card with small holders must leave.
        holders = np.where(enough, 0, np.maximum(holders, 1))
    holders = np.sort(np.where(stored.usable[:, rows], holders, MOST_VICTIMS), axis=0)
    fewest: Int64Array = holders[: request.cards].sum(axis=0)
    return fewest


def _on_row(engine: Engine, pod: Pod, minimum: Int64Array, row: int, potential: Sequence[PodRecord]) -> list[Leaving]:
    """Return the sets of pods of one node, fewest and smallest first."""
    tables = engine.tables
    by_uid = {record.pod.key.uid: record for record in potential}
    alike = sorted(map(_as_important_as_others, potential), key=_size)
    found, _ = by_amounts(pod, minimum, tables, row, gpu_mem=tables.resource_names.gpu_mem, potential=alike)
    sets = dict[frozenset[str], None]()
    for one in found:
        if one.victims and not one.violations:
            sets[frozenset(record.pod.key.uid for record in one.victims)] = None
            sets |= dict.fromkeys(_others(tables, pod, minimum, one, alike))
    chosen = [tuple(by_uid[uid] for uid in sorted(uids)) for uids in sets]
    return [Leaving(tables.names[row], records, _units(records)) for records in sorted(chosen, key=_dear)]


def _others(
    tables: Tables, pod: Pod, minimum: Int64Array, best: Candidate, potential: Sequence[PodRecord]
) -> Iterator[frozenset[str]]:
    """Yield other sets for the same cards: the pods of one set may find no new node while those of another do."""
    request = pod.template.gpu_request
    if len(best.victims) > _MOST_LEAVING or (request is not None and request.exclusive):
        return
    slots, row = best.slots or (), best.row
    asked = minimum[:NATIVE] != NOTHING
    lacks = np.where(asked, np.where(asked, minimum[:NATIVE], 0) - available_on(tables, np.array([row]))[:NATIVE, 0], 0)
    free = tables.cards.stored.free[list(slots), row]
    need = np.concatenate((lacks, (0 if request is None else request.units_per_card) - free))
    held = {
        record.pod.key.uid: np.array([*_held(record), *(_on(record, slot) for slot in slots)]) for record in potential
    }
    useful = [record for record in potential if ((held[record.pod.key.uid] > 0) & (need > 0)).any()]
    for count in (len(best.victims), len(best.victims) + 1):
        for some in combinations(useful[:_MOST_COMPARED], count):
            if (sum(held[record.pod.key.uid] for record in some) >= need).all():
                yield frozenset(record.pod.key.uid for record in some)


def _held(record: PodRecord) -> tuple[int, ...]:
    """Return the amounts in the native columns."""
    requests = record.pod.template.requests
    return (*(requests.get(name, 0) for name in (CPU, MEMORY, EPHEMERAL_STORAGE)), 1)


def _on(record: PodRecord, slot: int) -> int:
    return 0 if record.held is None else dict(record.held.places).get(slot, 0)


def _largest(records: Sequence[PodRecord]) -> Sequence[PodRecord]:
    return nlargest(MOST_VICTIMS, records, key=_size) if len(records) > MOST_VICTIMS else records


def _as_important_as_others(record: PodRecord) -> PodRecord:
    """Return the record with equal importance, so that the fewest pods are chosen."""
    pod = replace(record.pod, priority=0, started="")
    return PodRecord(
        pod=pod,
        node=record.node,
        written=record.written,
        exclusive=record.exclusive,
        assumed=False,
        held=record.held,
    )


def _size(record: PodRecord) -> tuple[int, int]:
    """Return a sort key: smaller pods come back first, so that few large ones stay out."""
    template = record.pod.template
    return template.gpu_units, template.requests.get(CPU, 0)


def _dear(records: Sequence[PodRecord]) -> tuple[int, int]:
    return len(records), _units(records)


def _units(records: Iterable[PodRecord]) -> int:
    return sum(record.pod.template.gpu_units for record in records)
