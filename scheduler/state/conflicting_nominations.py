"""Selects the nominated pods to ignore while a pod of higher priority is decided, if there are many of them.

Ignoring all of them would be correct, but each costs a change of its booking. Most make no difference. On its row the
pod either lacks something even without them, usually because their victims are still there, or has enough with them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from scheduler.pods.effective_requests import CPU, EPHEMERAL_STORAGE, MEMORY
from scheduler.pods.pod import Pod, Template
from scheduler.state.amounts import NOTHING, Amount, available_on
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

_NATIVE: Final = (CPU, MEMORY, EPHEMERAL_STORAGE)


def conflicting_nominations(
    tables: Tables, pod: Pod, minimum: Int64Array, nominated: Sequence[PodRecord]
) -> list[PodRecord]:
    """Nominations that may affect whether their rows accept the pod. nominated: booked ones.

    minimum: int64[amounts], the pod's minimum request. The pod's rules read no other rows.
    """
    there = [record for record in nominated if record.node in tables.row_of]
    rows = np.array([tables.row_of[record.node] for record in there], dtype=np.intp)
    here, at = np.unique(rows, return_inverse=True)
    now = available_on(tables, here)
    without = now.copy()
    np.add.at(without.T, at, _held(there))
    if minimum[Amount.CARD_UNITS] != NOTHING:
        without[Amount.CARD_UNITS] = _most_on_a_card(tables, here, at, there)
    matters = _enough(without, minimum)
    if _asks_for_amounts_only(pod):
        matters = matters & ~_enough(now, minimum)
    of_record = matters[at].tolist()
    return [record for record, its in zip(there, of_record, strict=True) if its or _keeps_away(record.pod)]


def _enough(amounts: Int64Array, minimum: Int64Array) -> BoolArray:
    """bool[rows]: True if all amounts are sufficient. amounts: int64[amounts, rows]."""
    return np.asarray((amounts >= minimum[:, np.newaxis]).all(axis=0), dtype=np.bool_)


def _held(records: Iterable[PodRecord]) -> list[list[int]]:
    """[records][amounts]: amounts that each nominated pod occupies; 0 for CARD_UNITS."""
    kept: dict[tuple[Template, int], list[int]] = {}
    found = []
    for record in records:
        template, counted = record.pod.template, 0 if record.held is None else record.held.counted
        held = kept.get((template, counted))
        if held is None:
            native = [template.requests.get(name, 0) for name in _NATIVE]
            held = kept[template, counted] = [*native, 1, 0, counted]
        found.append(held)
    return found


def _most_on_a_card(tables: Tables, here: RowArray, at: RowArray, nominated: Sequence[PodRecord]) -> Int64Array:
    """int64[rows]: maximum free units of a card without these pods, even if another pod holds the card exclusively."""
    stored = tables.cards.stored
    free = stored.units[:, here] - stored.taken[:, here]
    for place, record in zip(at.tolist(), nominated, strict=True):
        for slot, units in () if record.held is None else record.held.places:
            free[slot, place] += units
    return np.asarray(np.where(stored.usable[:, here], free, -1).max(axis=0), dtype=np.int64)


def _asks_for_amounts_only(pod: Pod) -> bool:
    template = pod.template
    return template.gpu_request is None and not template.host_ports and template.requests.keys() <= {*_NATIVE}


def _keeps_away(pod: Pod) -> bool:
    """Whether the pod keeps other pods off other rows."""
    return bool(pod.template.anti_affinity.required_during_scheduling_ignored_during_execution)
