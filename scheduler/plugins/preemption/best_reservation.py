"""Reservation for a pod that waits until other pods end, on the node where the least has to be freed.

It is unknown when pods will leave. So the reservation is on the node, and its cards, where the smallest share of the
request is missing; ties by node name. Nodes of expired reservations come last, because their pods may never leave. The
reservation waits only for pods of the same or a lower priority.
"""

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.plugins.preemption.victims import PODS_PER_STEP, Candidate, lower
from scheduler.plugins.preemption.victims_by_amounts import by_amounts, promising
from scheduler.pods.gpu_request import GpuRequest
from scheduler.state.amounts import NOTHING, Amount, available_on
from scheduler.state.columns.arrays import Int64Array, RowArray
from scheduler.state.pod_record import PodRecord

if TYPE_CHECKING:
    from scheduler.framework.what_if import WhatIf

# Maximum number of nodes on which the rules run, one per step.
_MOST_TRIED: Final = 16
# Both numbers are higher than the memory of any card.
_LAST: Final = 2**32
_NEVER: Final = 2**40


def best_reservation(
    what_if: "WhatIf", priority: int, gpu_mem: str, expired: Sequence[PodRecord] = ()
) -> Generator[None, None, Candidate | None]:
    """Find the node and cards to reserve, in steps; None if none of the first nodes would take the pod.

    what_if: treats the pod as if its priority were one higher. priority: its real priority. gpu_mem: resource name.
    expired: its expired reservations.
    """
    while not what_if.count(PODS_PER_STEP):
        yield
    rows = _without_kept(what_if, priority, np.setdiff1d(what_if.rows, what_if.ruled_out, assume_unique=True))
    enough, _ = promising(what_if.pod, what_if.minimum, what_if.after_preemption, rows, gpu_mem)
    for row in _least_missing_first(what_if, rows[enough], expired)[:_MOST_TRIED]:
        yield
        if what_if.is_there(row) and (found := _on(what_if, row, gpu_mem, expired)) is not None:
            return found
    return None


def missing_on_cards(
    what_if: "WhatIf", request: GpuRequest, rows: RowArray, expired: Sequence[PodRecord]
) -> Int64Array:
    """Return int64[cards, rows]: units to free on each card; a very large number if the card cannot be used.

    For cards of `expired` reservations, the number is higher than the memory of any card.
    """
    stored, counted = what_if.tables.cards.stored, what_if.after_preemption.free
    free = stored.units[:, rows] - stored.taken[:, rows]
    missing: Int64Array = np.maximum(request.units_per_card - free, 0).astype(np.int64)
    if request.exclusive:
        missing = np.maximum(missing, np.where(stored.holders[:, rows] > 0, stored.taken[:, rows], 0))
    shown = min(len(counted), len(missing))
    missing[:shown][counted[:shown, rows] < request.units_per_card] = _NEVER
    missing[~stored.usable[:, rows]] = _NEVER
    for record in expired:
        for column in np.flatnonzero(rows == what_if.tables.row_of.get(record.node, -1)).tolist():
            cards = enumerate(what_if.tables.cards.slots[rows[column]])
            missing[[slot for slot, its in cards if its.card.index in record.written.per_card], column] += _LAST
    return missing


def _without_kept(what_if: "WhatIf", priority: int, rows: RowArray) -> RowArray:
    """Return the rows without a nomination of a pod of the same priority, which would conflict."""
    nominations, row_of = what_if.nominations, what_if.tables.row_of
    nodes = (node for node, _ in nominations.by_node(without=""))
    kept = [row_of[n] for n in nodes if n in row_of and any(k.pod.priority == priority for k in nominations.on(n))]
    return rows[~np.isin(rows, kept)] if kept else rows


def _least_missing_first(what_if: "WhatIf", rows: RowArray, expired: Sequence[PodRecord]) -> list[int]:
    if not len(rows):
        return []
    asked = [amount for amount in Amount if amount is not Amount.CARD_UNITS and what_if.minimum[amount] > 0]
    least = what_if.minimum[asked][:, np.newaxis]
    shares = np.maximum(least - available_on(what_if.tables, rows)[asked], 0) / least
    request = what_if.pod.template.gpu_request
    if request is not None and what_if.minimum[Amount.CARD_UNITS] != NOTHING:
        missing = np.sort(missing_on_cards(what_if, request, rows, expired), axis=0)[: request.cards].sum(axis=0)
        shares = np.vstack((shares, missing[np.newaxis] / max(1, request.units)))
    row_of = what_if.tables.row_of
    last = np.isin(rows, [row_of.get(record.node, -1) for record in expired if not record.written.per_card])
    most, total = shares.max(axis=0, initial=0), shares.sum(axis=0)
    found: list[int] = rows[np.lexsort((what_if.tables.rank[rows], total, most, last))].tolist()
    return found


def _on(what_if: "WhatIf", row: int, gpu_mem: str, expired: Sequence[PodRecord]) -> Candidate | None:
    """Return the node and its cards if the rules accept them once pods have left; otherwise None."""
    pod, tables = what_if.pod, what_if.tables
    leaving = lower(pod, tables, row)
    for candidate in _cheapest_first(what_if, row, gpu_mem, expired):
        with what_if.trial(row, candidate.slots) as trial:
            trial.lift_all(leaving)
            if trial.fits():
                return candidate
    return None


def _cheapest_first(what_if: "WhatIf", row: int, gpu_mem: str, expired: Sequence[PodRecord]) -> Iterator[Candidate]:
    pod = what_if.pod
    found, _ = by_amounts(pod, what_if.minimum, what_if.tables, row, gpu_mem=gpu_mem)
    request = pod.template.gpu_request
    if request is None:
        yield from found
        return
    missing = missing_on_cards(what_if, request, np.array([row], dtype=np.intp), expired)[:, 0]
    yield from sorted(found, key=lambda one: (int(missing[list(one.slots or ())].sum()), one.slots or ()))
