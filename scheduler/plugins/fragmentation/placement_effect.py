"""Arithmetic of the policy `fragmentation`: how much of the memory that typical pods need remains after an allocation.

A placement is scored by the worth (`workload`) that its memory loses, so memory that no pod could use goes first.
Differences below a certain share of a card do not count. Ties go by the order of the nodes, so
that nodes are filled one at a time.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from scheduler.framework.plugin import MAX_SCORE
from scheduler.plugins.fragmentation.cards_seen import FreeCards, FreeCardsOf, rows_at
from scheduler.plugins.fragmentation.room_columns import RoomColumns
from scheduler.plugins.fragmentation.row_kinds import alike
from scheduler.plugins.fragmentation.target_workload import Part, TargetWorkload
from scheduler.plugins.fragmentation.workload import FloatArray, PodMix, Room
from scheduler.pods.effective_requests import CPU
from scheduler.pods.pod import Pod
from scheduler.state.columns.arrays import ALL_ROWS, BoolArray, Int32Array, Int64Array, RowArray, Rows
from scheduler.state.columns.row_masks import only_row
from scheduler.state.tables import Tables

_MIDDLE: Final = MAX_SCORE // 2
# Steps from the middle at which a score is halfway to its limit. Small differences have the most effect, but all of
# them have some.
_HALFWAY: Final = 25
# Packed into one number: free units of a card, its model, its slot.
_SLOT_BITS, _MODEL_BITS = 8, 28
_NO_CARD: Final = np.int64(1) << 62
# This many rows are cheaper one at a time.
_FEW: Final = 6
# Intermediate results of this many placements fit into the processor's cache.
_PLACES_AT_A_TIME: Final = 512


class PlacementEffect(NamedTuple):
    """Effect of a pod on each row. scores: int64[rows], 0..MAX_SCORE. slots: intp[cards of the pod, rows]."""

    scores: Int64Array
    slots: RowArray

    def of(self, known: Rows, rows: Rows) -> "PlacementEffect | None":
        """Return the effect on `rows` if they are the `known` rows or one of them; otherwise None.

        known: the rows of this effect.
        """
        if isinstance(known, slice):
            return self if isinstance(rows, slice) and known == rows else None
        if (row := only_row(rows)) is None:
            return self if known is rows else None
        (places,) = (known == row).nonzero()
        return PlacementEffect(self.scores[places], self.slots[:, places]) if len(places) else None


class _Place(NamedTuple):
    """A node that the pod may get. cards: (free units, model code) of each card there. cpu: free millicores."""

    row: int
    cards: Sequence[tuple[int, int]]
    cpu: int


def on_best_card(pod: Pod, tables: Tables, rows: Rows, fits: BoolArray) -> PlacementEffect:
    """Return the effect of a one-card pod on the best card of each row, the tightest on ties.

    rows: evaluated together. fits: bool[cards, rows]; a row without a fitting card gets an arbitrary score and slot.
    """
    if (row := only_row(rows)) is not None:
        columns = tables.fact(TargetWorkload).columns_of(row)
        scores, slots = _best_cards_of_few(pod, tables, columns, np.array([row]), fits)
        return PlacementEffect(scores, slots[np.newaxis])
    count = fits.shape[1]
    placed = PlacementEffect(np.zeros(count, dtype=np.int64), np.zeros((1, count), dtype=np.intp))
    # Leave out full rows: a full cluster has many of them.
    (roomy,) = np.logical_or.reduce(fits).nonzero()
    fits = fits[:, roomy]
    for part in tables.fact(TargetWorkload).parts(rows_at(rows, roomy)):
        scores, slots = _best_cards(pod, tables, part, fits[:, part.places])
        places = roomy[part.places]
        placed.scores[places], placed.slots[0, places] = scores, slots
    return placed


def on_cards(pod: Pod, tables: Tables, rows: Rows, slots: RowArray) -> Int64Array:
    """Return int64[rows], 0..MAX_SCORE: scores of a pod that gets these cards, or no cards.

    slots: intp[cards of the pod, rows].
    rows: evaluated together.
    """
    if (row := only_row(rows)) is not None:
        return _on_slots_of(pod, tables, row, slots[:, 0].tolist())
    scores = np.zeros(slots.shape[1], dtype=np.int64)
    for part in tables.fact(TargetWorkload).parts(rows):
        scores[part.places] = _on_slots(pod, tables, part, slots[:, part.places])
    return scores


def _on_slots_of(pod: Pod, tables: Tables, row: int, slots: Sequence[int]) -> Int64Array:
    """Compute `on_cards` for one row, in a third of the time."""
    seen = FreeCardsOf.row(tables, row)
    place = _Place(row, [(seen.free[slot], seen.model[slot]) for slot in slots], seen.cpu)
    return _score(_steps_on(pod, tables.fact(TargetWorkload).columns_of(row), [place]))


def _steps_on(pod: Pod, columns: RoomColumns, places: Sequence[_Place]) -> Int64Array:
    """Return int64[places]: the loss in steps for each of a few placements.

    Weighs all their remaining rooms at once.
    """
    left = np.empty((len(places), columns.width))
    for number, place in enumerate(places):
        workload, after = columns.workload_of(place.row), columns.room_of(place.row)
        for free, model in place.cards:
            after = after + (workload.on_card(_left_of(pod, free), model) - workload.on_card(free, model))
        left[number] = after
    rows = np.array([place.row for place in places], dtype=np.intp)
    cpu = np.array([float(max(place.cpu - _cpu(pod), 0)) for place in places])
    return _steps_of(pod, columns, rows, left, cpu)


def _best_cards(pod: Pod, tables: Tables, part: Part, fits: BoolArray) -> tuple[Int64Array, RowArray]:
    """Return (int64[rows]: scores, intp[rows]: slots) for the rows of one part, each with cards that fit."""
    first, like = alike(part.columns.kinds(part.rows), fits)
    rows = rows_at(part.rows, first)
    best = _best_cards_of_few if len(rows) <= _FEW else _best_cards_of
    scores, slots = best(pod, tables, part.columns, rows, fits[:, first])
    return scores[like], slots[like]


def _best_cards_of_few(
    pod: Pod, tables: Tables, columns: RoomColumns, rows: RowArray, fits: BoolArray
) -> tuple[Int64Array, RowArray]:
    """Compute `_best_cards_of` in a third of the time. The result is arbitrary for a row without a fitting card."""
    places: list[_Place] = []
    slots: list[int] = []
    begins: list[int] = []
    for row, fitting in zip(rows.tolist(), fits.T.tolist(), strict=True):
        begins.append(len(places))
        cards = FreeCardsOf.row(tables, row)
        kinds: dict[tuple[int, int], int] = {}
        for slot, fit in enumerate(fitting):
            if fit:
                kinds.setdefault((cards.free[slot], cards.model[slot]), slot)
        for card in sorted(kinds) or ((0, 0),):
            places.append(_Place(row, (card,), cards.cpu))
            slots.append(kinds.get(card, 0))
    steps = _steps_on(pod, columns, places)
    best = [begin + int(some.argmax()) for begin, some in zip(begins, np.split(steps, begins[1:]), strict=True)]
    return _score(steps[best]), np.array([slots[place] for place in best], dtype=np.intp)


def _best_cards_of(
    pod: Pod, tables: Tables, columns: RoomColumns, rows: RowArray, fits: BoolArray
) -> tuple[Int64Array, RowArray]:
    """Return (int64[rows]: scores, intp[rows]: slots) for some rows."""
    seen = FreeCards.of(tables, rows)
    row, slot = _different_cards(seen, fits)
    steps = _steps_with(pod, columns, rows[row], seen.cpu[row], [(seen.free[slot, row], seen.model[slot, row])])
    begins = np.ones(len(row), dtype=np.bool_)
    np.not_equal(row[1:], row[:-1], out=begins[1:])
    best = np.maximum.reduceat(steps, begins.nonzero()[0]) if len(row) else steps
    slots = np.zeros(len(rows), dtype=np.intp)
    # On ties, the first one is written last, so it wins.
    (good,) = (steps == best[begins.cumsum() - 1]).nonzero()
    slots[row[good[::-1]]] = slot[good[::-1]]
    return _score(best), slots


def _on_slots(pod: Pod, tables: Tables, part: Part, slots: RowArray) -> Int64Array:
    """Return int64[rows]: scores of the rows of one part."""
    # Rows that are equal otherwise may differ in the pod's cards.
    first, like = (ALL_ROWS, ALL_ROWS) if len(slots) else alike(part.columns.kinds(part.rows))
    rows, places = rows_at(part.rows, first), np.arange(slots.shape[1])
    seen = FreeCards.of(tables, rows)
    cards = [(seen.free[slot, places], seen.model[slot, places]) for slot in slots]
    return _score(_steps_with(pod, part.columns, rows, seen.cpu, cards))[like]


def _steps_with(
    pod: Pod, columns: RoomColumns, rows: RowArray, cpu: FloatArray, cards: Sequence[tuple[FloatArray, Int32Array]]
) -> Int64Array:
    """Return int64[places]: loss in steps of a placement on each of `rows`. cpu: free millicores of each.

    cards: the cards that the pod gets there, each as (free units, model).
    """
    steps = np.zeros(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _PLACES_AT_A_TIME):
        some = slice(start, start + _PLACES_AT_A_TIME)
        here = rows[some]
        rooms = columns.rooms_on(here)
        for free, model in cards:
            rooms += _change(pod, columns.workload, free[some], model[some])
        steps[some] = _steps_of(pod, columns, here, rooms, np.maximum(cpu[some] - _cpu(pod), 0.0))
    return steps


def _steps_of(pod: Pod, columns: RoomColumns, rows: RowArray, left: FloatArray, cpu: FloatArray) -> Int64Array:
    """Return int64[places]: the loss that each placement causes on its row, in multiples of the workload's `step`.

    left: float64[places, 3 x asks], the remaining room; cpu: float64[places], free millicores, >= 0.
    """
    workload = columns.workload_on(rows)
    gain = workload.total * _units(pod) - (columns.worth[rows] - workload.worth(Room.of(left), cpu))
    return np.floor(gain / workload.step).astype(np.int64)


def _change(pod: Pod, workload: PodMix, free: FloatArray, model: Int32Array) -> FloatArray:
    """Return float64[cards, 3 x asks]: change of the room of each card once the pod has it."""
    kinds, models, like = workload.kinds_of_cards(free, model)
    changes = workload.on_cards(_left(pod, kinds), models) - workload.on_cards(kinds, models)
    return changes.take(like, axis=0)


def _different_cards(seen: FreeCards, fits: BoolArray) -> tuple[RowArray, RowArray]:
    """Return (intp[cells]: rows, ascending; intp[cells]: slots): one fitting card of each kind, the tightest first.

    Two cards of a node are of one kind if they have the same model and the same free memory.
    """
    kinds = seen.free.astype(np.int64) << _MODEL_BITS | seen.model
    slots = np.arange(len(kinds))[:, np.newaxis]
    cards = np.sort(np.where(fits, kinds << _SLOT_BITS | slots, _NO_CARD), axis=0)
    chosen = cards != _NO_CARD
    chosen[1:] &= cards[1:] >> _SLOT_BITS != cards[:-1] >> _SLOT_BITS
    row, place = chosen.T.nonzero()
    return row, (cards[place, row] & ((1 << _SLOT_BITS) - 1)).astype(np.intp)


def _left(pod: Pod, free: FloatArray) -> FloatArray:
    """Return the units of a card that remain for other pods when the pod has it."""
    request = pod.template.gpu_request
    if request is None or request.exclusive:
        return np.zeros_like(free)
    return np.maximum(free - request.units_per_card, 0.0)


def _left_of(pod: Pod, free: int) -> int:
    request = pod.template.gpu_request
    return 0 if request is None or request.exclusive else max(free - request.units_per_card, 0)


def _units(pod: Pod) -> int:
    """Return the units that the pod takes. The rest of a card held exclusively is useless to other pods."""
    request = pod.template.gpu_request
    return 0 if request is None else request.units


def _cpu(pod: Pod) -> float:
    return float(pod.template.requests.get(CPU, 0))


def _score(steps: Int64Array) -> Int64Array:
    score: Int64Array = _MIDDLE + _MIDDLE * steps // (_HALFWAY + np.abs(steps))
    return score
