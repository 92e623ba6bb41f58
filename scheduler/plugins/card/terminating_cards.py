"""GPU memory that terminating pods still hold, where it is all that a pod lacks: asked only for a message."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

import numpy as np

from scheduler.plugins.card.card_choice import selected
from scheduler.pods.gpu_request import GpuRequest
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

# Terminating pods examined for a message: half a millisecond.
_MOST_ASKED: Final = 256
_NOT_ENOUGH: Final = np.iinfo(np.int64).max


def held_by_terminating(tables: Tables, request: GpuRequest, rows: RowArray) -> str:
    """`16 held by 1 terminating pod`, where the cards of a row would do without such pods; "" where those of none do.

    rows: intp[…], of one width. Of several rows, the one that waits for the least.
    """
    leaving = _by_row(tables)
    here = rows[np.isin(rows, list(leaving))] if leaving else rows[:0]
    if not len(here):
        return ""
    held, enough = _without(tables, request, here, leaving)
    few = np.sort(np.where(enough, held, _NOT_ENOUGH), axis=0)[: request.cards]
    if len(few) < request.cards or (few[-1] == _NOT_ENOUGH).all():
        return ""
    place = int(np.where(few[-1] == _NOT_ENOUGH, _NOT_ENOUGH, few.sum(axis=0)).argmin())
    order = np.where(enough[:, place], held[:, place], _NOT_ENOUGH).argsort(kind="stable")[: request.cards]
    pods = sum(not {slot for slot, _ in _places(one)}.isdisjoint(order.tolist()) for one in leaving[int(here[place])])
    return f"{few[:, place].sum()} held by {pods} terminating pod{'' if pods == 1 else 's'}" if pods else ""


def _by_row(tables: Tables) -> Mapping[int, Sequence[PodRecord]]:
    found: dict[int, list[PodRecord]] = {}
    for record in islice(tables.terminating, _MOST_ASKED):
        if (row := tables.row_of.get(record.node)) is not None and not record.lifted:
            found.setdefault(row, []).append(record)
    return found


def _without(
    tables: Tables, request: GpuRequest, rows: RowArray, leaving: Mapping[int, Sequence[PodRecord]]
) -> tuple[Int64Array, BoolArray]:
    """(int64[cards, rows]: units that they hold, bool[cards, rows]: the card would do without them)."""
    cards = tables.cards
    held = np.zeros((cards.width, len(rows)), dtype=np.int64)
    holders, exclusive = np.zeros_like(held), np.zeros_like(held)
    for place, row in enumerate(rows.tolist()):
        for record in leaving[row]:
            for slot, units in _places(record):
                held[slot, place] += units
                holders[slot, place] += 1
                exclusive[slot, place] += record.exclusive
    enough = cards.usable[:, rows] & (cards.exclusive[:, rows] == exclusive) & selected(cards, request, rows)
    enough &= np.maximum(cards.free[:, rows] + held, 0) >= request.units_per_card
    if request.exclusive:
        enough &= cards.holders[:, rows] == holders
    return held, enough


def _places(record: PodRecord) -> tuple[tuple[int, int], ...]:
    return () if record.held is None else record.held.places
