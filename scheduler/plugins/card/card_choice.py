"""Arithmetic of GpuShare: cards that fit, cards to choose, and how many copies of a pod they hold.

Free functions over the columns of cards. Arrays [cards, rows] cover rows that are evaluated together, see
`scheduler.state.cards.card_arrays`; `by_width` joins the answers of several such groups.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import islice
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from scheduler.framework.plugin import MAX_SCORE, Detail, Rejection
from scheduler.pods.gpu_request import WHOLE, GpuRequest, PlacementPolicy, Selection
from scheduler.state.cards.card_arrays import RowGroup, per_row
from scheduler.state.cards.card_columns import CardColumns
from scheduler.state.cards.node_inventory import accepted_codes
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.columns.resources import CPU_INDEX, ResourceColumns
from scheduler.state.columns.row_masks import count_of, only_row
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

AnyT = TypeVar("AnyT", bound=np.generic)
# Binpack, in shares of MAX_SCORE: a card in use before a free card, a node in use before an empty node, then the fuller
# node. This gives the order: used cards, free cards on used nodes, empty nodes. Among equally full nodes, the one with
# fewer CPUs wins, because fewer pods can use it: a node with 64 cores gets half of that share.
_USED_CARDS: Final = MAX_SCORE * 50 // 100
_USED_NODE: Final = MAX_SCORE * 20 // 100
_SMALL_NODE: Final = MAX_SCORE * 3 // 1000
_HALF_AS_SMALL: Final = 64_000
_FULLNESS: Final = MAX_SCORE - _USED_CARDS - _USED_NODE - _SMALL_NODE
_NEVER: Final = 2**31 - 1
# An array: NumPy takes a third longer with a plain number.
_NEVER_FREE: Final = np.array(_NEVER, dtype=np.int32)
# With fewer rows, the cost exceeds the savings per row.
_FEW_ROWS: Final = 64


def by_width(cards: CardColumns, rows: Rows, judge: Callable[[Rows], NDArray[AnyT]]) -> NDArray[AnyT]:
    """Join the answers of `judge`. It is called once for each group of rows with equally many card slots."""
    if not cards.mixed:
        return judge(rows)
    answers = []
    for group in cards.groups(rows):
        with cards.viewing(group.width):
            answers.append((group, judge(group.rows)))
    merged: NDArray[AnyT] = per_row(answers, count_of(rows, len(cards.state)))
    return merged


def together(cards: CardColumns, found: Sequence[tuple[RowGroup, Rejection]], rows: int) -> Rejection:
    """Join the same rejection of several row groups (see `by_width`) into one rejection over all rows."""
    group, first = found[0]
    if group.places is None and not cards.mixed:
        return first
    rejected = per_row([(group, rejection.rejected) for group, rejection in found], rows)

    def numbers(counted: BoolArray) -> Detail:
        details = []
        for group, rejection in found:
            own = counted if group.places is None else counted[group.places]
            if own.any() and rejection.numbers is not None:
                with cards.viewing(group.width):
                    details.append(rejection.numbers(own))
        return reduce(lambda one, other: one.joined(other), details)

    return Rejection(rejected, first.reason, None if first.numbers is None else numbers)


def fitting(cards: CardColumns, request: GpuRequest, rows: Rows) -> BoolArray:
    """Return bool[cards, rows]: the card can be allocated and has `units_per_card` free."""
    return np.logical_and(eligible(cards, request, rows), cards.free[:, rows] >= request.units_per_card)


def chosen_slots(  # noqa: PLR0917 - columns, and what is asked of them
    cards: CardColumns,
    request: GpuRequest,
    policy: PlacementPolicy,
    rows: Rows,
    fits: BoolArray,
    scores: Sequence[Int64Array] = (),
) -> RowArray:
    """Return intp[request.cards, rows]: the slots that the policy takes, tightest or emptiest first; ties by slot.

    fits: as in `fitting`. scores: int64[cards, rows] each, with precedence over the policy; higher is better, and the
    first counts most. A row with fewer fitting cards than requested gets slots that do not fit.
    """
    free = cards.free[:, rows]
    order = free if policy is PlacementPolicy.BINPACK else -free
    if scores:
        keys = (np.where(fits, order, _NEVER), *(-score for score in reversed(scores)), ~fits)
        return np.asarray(np.lexsort(keys, axis=0)[: request.cards], dtype=np.intp)
    if order.shape[1] < _FEW_ROWS:
        order = np.where(fits, order, _NEVER_FREE)
        if request.cards == 1:
            tightest: RowArray = order.argmin(axis=0)[np.newaxis]
            return tightest
        return np.asarray(order.argsort(axis=0, kind="stable")[: request.cards], dtype=np.intp)
    # The slot is in the low bits, so the smallest number names its slot, and ties go to the lower slot. NumPy finds the
    # smallest number of each column in a tenth of the time of argmin.
    bits = max(1, (len(free) - 1).bit_length())
    # In place: allocating an array of this size costs more than filling it.
    numbered = order.astype(np.int64)
    numbered <<= bits
    numbered |= np.arange(len(free))[:, np.newaxis]
    np.putmask(numbered, ~fits, _NEVER << bits)
    least = numbered.min(axis=0, keepdims=True) if request.cards == 1 else np.sort(numbered, axis=0)[: request.cards]
    return np.asarray(least & ((1 << bits) - 1), dtype=np.intp)


def slots_on(cards: CardColumns, request: GpuRequest, policy: PlacementPolicy, row: int, may: BoolArray) -> list[int]:
    """Compute `chosen_slots` for one row with plain Python numbers, in a quarter of the time.

    Empty if too few cards fit.
    may: bool[cards, 1], cards that can be allocated to the pod, regardless of their free memory.
    """
    least, free = request.units_per_card, cards.free[:, row].tolist()
    fits = [(units, slot) for slot, units in enumerate(free) if units >= least and may.item(slot, 0)]
    if len(fits) < request.cards:
        return []
    fits.sort(key=None if policy is PlacementPolicy.BINPACK else _emptiest)
    return [slot for _, slot in fits[: request.cards]]


def _emptiest(card: tuple[int, int]) -> tuple[int, int]:
    units, slot = card
    return -units, slot


def binpack_score(
    cards: CardColumns, resources: ResourceColumns, request: GpuRequest, rows: Rows, slots: RowArray
) -> Int64Array:
    """Return int64[rows], 0..MAX_SCORE: how well a node suits binpack.

    Half is for cards in use and a fifth for a node in use. The rest is for how full the node's usable cards are with
    the pod on them, with a small part for few CPUs. slots: from `chosen_slots`; rows without enough fitting cards get
    any number.
    """
    if (row := only_row(rows)) is not None:
        score = binpack_score_on(cards, resources, request, row, slots[:, 0].tolist())
        return np.array([score], dtype=np.int64)
    used = cards.holders[:, rows][slots, np.arange(slots.shape[1])] > 0
    on_used_cards = used[0] if request.cards == 1 else used.all(axis=0)
    total = np.maximum(cards.total[rows], 1)
    full: Int64Array = np.minimum((cards.booked[rows] + request.units) * _FULLNESS // total, _FULLNESS)
    small = _SMALL_NODE * _HALF_AS_SMALL // (_HALF_AS_SMALL + resources.allocatable[CPU_INDEX, rows])
    packed: Int64Array = full + small + on_used_cards * _USED_CARDS + (cards.held[rows] > 0) * _USED_NODE
    return packed


def binpack_score_on(
    cards: CardColumns, resources: ResourceColumns, request: GpuRequest, row: int, slots: Sequence[int]
) -> int:
    """Compute `binpack_score` for one row with plain Python numbers, in a fifth of the time."""
    holders = cards.stored.holders
    on_used_cards = all(holders.item(slot, row) for slot in slots)
    full = (cards.booked.item(row) + request.units) * _FULLNESS // max(cards.total.item(row), 1)
    small = _SMALL_NODE * _HALF_AS_SMALL // (_HALF_AS_SMALL + resources.allocatable.item(CPU_INDEX, row))
    return min(full, _FULLNESS) + small + on_used_cards * _USED_CARDS + (cards.held.item(row) > 0) * _USED_NODE


def idle_score(cards: CardColumns, rows: Rows) -> Int64Array:
    """Return int64[rows], 0..MAX_SCORE: booked share of the usable cards' memory; MAX_SCORE without usable cards."""
    total = cards.total[rows]
    idle = np.maximum(total - cards.booked[rows], 0)
    score: Int64Array = MAX_SCORE - idle * MAX_SCORE // np.maximum(total, 1)
    return score


def eligible(cards: CardColumns, request: GpuRequest, rows: Rows) -> BoolArray:
    """Return bool[cards, rows]: the card can be allocated to this pod, regardless of its free memory."""
    may = cards.available[:, rows]
    if request.exclusive:
        may = may & (cards.holders[:, rows] == 0)
    if _restricts(cards, request):
        may = may & selected(cards, request, rows)
    return may


def could_hold(cards: CardColumns, request: GpuRequest, rows: Rows) -> BoolArray:
    """Return bool[rows]: enough cards would fit if they held no pods."""
    would_do = cards.usable[:, rows] & (cards.units[:, rows] >= request.units_per_card)
    if _restricts(cards, request):
        would_do = would_do & selected(cards, request, rows)
    return np.asarray(np.count_nonzero(would_do, axis=0) >= request.cards, dtype=np.bool_)


def selected(cards: CardColumns, request: GpuRequest, rows: Rows) -> BoolArray:
    """Return bool[cards, rows]: the card has a model and UUID that the pod accepts, and the traits that it needs."""
    if not request.traits:
        return named(cards, request, rows)
    found = having(cards, request.traits, rows)
    return found & named(cards, request, rows) if request.models or request.uuids else found


def _restricts(cards: CardColumns, request: GpuRequest) -> bool:
    """Return whether some cards may be unsuitable for the pod whatever their memory: several, only if instances exist.

    A pod with several cards is common, and instances are not.
    """
    if request.models or request.uuids or request.traits & ~WHOLE:
        return True
    return bool(request.traits) and cards.instances > 0


def having(cards: CardColumns, traits: int, rows: Rows) -> BoolArray:
    """Return bool[cards, rows]: the card has all these traits."""
    needed = np.int8(traits)
    return np.asarray(np.equal(np.bitwise_and(cards.traits[:, rows], needed), needed))


def named(cards: CardColumns, request: GpuRequest, rows: Rows) -> BoolArray:
    """Return bool[cards, rows]: the card has a model and UUID that the pod accepts."""
    found = np.ones(cards.units[:, rows].shape, dtype=np.bool_)
    if request.models:
        found &= _of_models(cards, request.models, rows)
    if request.uuids:
        found &= _of_uuids(cards, request.uuids, rows)
    return found


def _of_models(cards: CardColumns, models: Selection, rows: Rows) -> BoolArray:
    return np.asarray(accepted_codes(models, cards.model_code)[cards.model[:, rows]], dtype=np.bool_)


def _of_uuids(cards: CardColumns, uuids: Selection, rows: Rows) -> BoolArray:
    taken = np.full(cards.units.shape, not uuids.wanted, dtype=np.bool_)
    for names, mark in ((uuids.wanted, True), (uuids.excluded, False)):
        for uuid in names:
            for row, slot in cards.announced.places(uuid):
                if slot < cards.width:
                    taken[slot, row] = mark
    return np.asarray(taken[:, rows], dtype=np.bool_)


# Terminating pods examined for a message: this takes half a millisecond.
_MOST_ASKED: Final = 256
_NOT_ENOUGH: Final = np.iinfo(np.int64).max


def held_by_terminating(tables: Tables, request: GpuRequest, rows: RowArray) -> str:
    """Return text such as `16 held by 1 terminating pod` if a row would fit without such pods; otherwise "".

    rows: intp[…], with equally many card slots. The text is about the row that waits for the fewest units.
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
    """Return (int64[cards, rows]: units held by these pods, bool[cards, rows]: the card would fit without them)."""
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
