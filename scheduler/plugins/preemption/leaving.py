"""Sets of pods that would have to leave one node so that a pod fits there, by plain amounts.

Unlike in preemption, all pods are equally important: the fewest leave. First, nodes are compared by the columns. Then
the pods of the most promising nodes are examined one at a time (`scheduler.plugins.preemption.victims_by_amounts`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import comb
from typing import Final

import numpy as np
from msgspec.structs import replace

from scheduler.plugins.preemption.victims import MOST_VICTIMS
from scheduler.plugins.preemption.victims_by_amounts import by_amounts
from scheduler.pods.effective_requests import CPU
from scheduler.pods.pod import Pod
from scheduler.state.amounts import NOTHING, available_on
from scheduler.state.columns.arrays import Int64Array, RowArray
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

# Sets of pods to return: for all nodes together, and for one node with many.
_MOST_SETS: Final = 256
_SETS_OF_NODE: Final = 4

# Sets of cards to examine, a third of a millisecond each: for all nodes together, and for one node.
_MOST_SETS_OF_CARDS: Final = 4_096
_MOST_OF_NODE: Final = 256
_FEWEST_NODES: Final = 32


def leaving(
    pod: Pod,
    minimum: Int64Array,
    tables: Tables,
    rows: RowArray,
    potential: Mapping[str, Collection[PodRecord]],
    *,
    most_nodes: int,
) -> list[tuple[PodRecord, ...]]:
    """Return a few sets of pods for each node and set of cards; fewest pods first, then smallest.

    minimum: int64[amounts], the pod's minimum request. rows: where evictions may make room. potential, most_nodes: see
    `WhatIfQueries.leaving`.
    """
    found = list[tuple[PodRecord, ...]]()
    most_nodes = min(most_nodes, max(_FEWEST_NODES, _MOST_SETS_OF_CARDS // _sets_of_cards(tables, pod)))
    promising = _most_promising(pod, minimum, tables, rows, potential)[:most_nodes].tolist()
    most = max(_SETS_OF_NODE, _MOST_SETS // max(1, len(promising)))
    for row in promising:
        found += _on_row(pod, minimum, tables, row, potential[tables.names[row]])[:most]
    return sorted(found, key=lambda records: (*_dear(records), records[0].node))[:_MOST_SETS]


def _sets_of_cards(tables: Tables, pod: Pod) -> int:
    """Return how many sets of cards are compared on the node with the most cards."""
    request = pod.template.gpu_request
    return 1 if request is None else max(1, min(_MOST_OF_NODE, comb(tables.cards.height, request.cards)))


def _most_promising(
    pod: Pod, minimum: Int64Array, tables: Tables, rows: RowArray, potential: Mapping[str, Collection[PodRecord]]
) -> RowArray:
    """Return the rows with potential pods, starting with those where the fewest seem to have to leave."""
    there = np.zeros(tables.capacity, dtype=np.int64)
    for node, records in potential.items():
        there[tables.row_of[node]] = len(records)
    rows = rows[there[rows] > 0]
    if not len(rows):
        return rows
    lacks = (available_on(tables, rows) < minimum[:, np.newaxis]) & (minimum != NOTHING)[:, np.newaxis]
    count = np.maximum(lacks.any(axis=0), np.minimum(_on_cards(pod, tables, rows), there[rows]))
    return rows[np.lexsort((tables.rank[rows], tables.cards.booked[rows], count))]


def _on_cards(pod: Pod, tables: Tables, rows: RowArray) -> Int64Array:
    """Return int64[rows]: pods on the cards that would be emptied; a pod on several cards counts once for each."""
    request = pod.template.gpu_request
    if request is None:
        return np.zeros(len(rows), dtype=np.int64)
    stored = tables.cards.stored
    holders = stored.holders[:, rows].astype(np.int64)
    if not request.exclusive:
        enough = stored.available[:, rows] & (stored.free[:, rows] >= request.units_per_card)
        # At worst, all holders of a card with small holders must leave.
        holders = np.where(enough, 0, np.maximum(holders, 1))
    holders = np.sort(np.where(stored.usable[:, rows], holders, MOST_VICTIMS), axis=0)
    fewest: Int64Array = holders[: request.cards].sum(axis=0)
    return fewest


def _on_row(
    pod: Pod, minimum: Int64Array, tables: Tables, row: int, potential: Iterable[PodRecord]
) -> list[tuple[PodRecord, ...]]:
    """Return the sets of pods of one node, fewest and smallest first."""
    there = sorted((record for record in potential if not record.lifted), key=_size)[-MOST_VICTIMS:]
    by_uid = {record.pod.key.uid: record for record in there}
    alike = [_as_important_as_others(record) for record in there]
    found, _ = by_amounts(
        pod, minimum, tables, row, gpu_mem=tables.resource_names.gpu_mem, potential=alike, alternatives=True
    )
    sets = dict.fromkeys(frozenset(record.pod.key.uid for record in one.victims) for one in found if one.victims)
    chosen = (tuple(by_uid[uid] for uid in sorted(uids)) for uids in sets)
    return sorted((records for records in chosen if tables.budgets.let_go(records)), key=_dear)


def _as_important_as_others(record: PodRecord) -> PodRecord:
    return replace(record, pod=replace(record.pod, priority=0, started=""), going=False)


def _size(record: PodRecord) -> tuple[int, int]:
    """Return a sort key: smaller pods come back first, so that few large ones stay out."""
    template = record.pod.template
    return template.gpu_units, template.requests.get(CPU, 0)


def _dear(records: Sequence[PodRecord]) -> tuple[int, int]:
    return len(records), sum(record.pod.template.gpu_units for record in records)
