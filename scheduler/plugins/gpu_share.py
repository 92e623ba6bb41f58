"""GpuShare: the only judge of `gpu-mem`, per card and per node.

Source: PROTOCOL, "Requests"; DESIGN, "One pod's way through". What a card or node has free is in
`scheduler.state.cards`; which of the fitting cards is taken, and which node is preferred, is decided here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from config.protocol import allocation
from config.protocol.allocation import Allocation, LegacyFields
from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    MAX_SCORE,
    FilterPlugin,
    Numbers,
    Objection,
    PreFilterPlugin,
    PreFilterResult,
    Rejected,
    Relevance,
    Reservation,
    ReservePlugin,
    ScorePlugin,
)
from scheduler.pods.gpu_request import GpuRequest, Policy, Selection
from scheduler.pods.pod import Pod
from scheduler.state.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.booking import CardShare
from scheduler.state.cards import CardColumns
from scheduler.state.changes import Change
from scheduler.state.node_inventory import GpuState
from scheduler.state.tables import Tables

# As plain numbers: comparing an array with an IntEnum's member takes ten times as long.
_READY: Final = int(GpuState.READY)
_STATE_REASONS: Final[Mapping[int, str]] = {
    int(GpuState.NO_CARDS): "node(s) had no GPU memory to share",
    int(GpuState.UNREADABLE): "node(s) announced cards that cannot be read",
    int(GpuState.OTHER_UNIT): "node(s) announced GPU memory in another unit",
    int(GpuState.NOT_ALLOCATABLE): "node(s) had no allocatable gpu-mem (device plugin not there yet, or away)",
}
# Binpack, in shares of MAX_SCORE: a card in use before a free card, a node in use before an empty node,
# then the fuller node. Source of the order: PACKING, 1.5 (used cards, free cards on used nodes, empty nodes).
_USED_CARDS: Final = MAX_SCORE * 50 // 100
_USED_NODE: Final = MAX_SCORE * 20 // 100
_FULLNESS: Final = MAX_SCORE - _USED_CARDS - _USED_NODE
_NEVER: Final = 2**31 - 1
# Filter's answer (rows, version of the tables, `fitting`), which Score needs again a moment later.
_FITS: Final = StateKey[tuple[Rows, int, BoolArray]]("gpu_share.fits")


@dataclass(frozen=True, slots=True)
class GpuShareArgs:
    """The profile's policies, where the pod names none."""

    card_policy: Policy = Policy.BINPACK
    node_policy: Policy = Policy.BINPACK


class GpuShare(PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin):
    """Fits, prefers and takes cards by their memory."""

    name: ClassVar[str] = "GpuShare"
    on_by_default: ClassVar[bool] = True
    indispensable: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.INVENTORY | Change.ALLOCATABLE | Change.CARDS

    def __init__(self, args: GpuShareArgs, gpu_mem: str) -> None:
        """gpu_mem: the configured resource name, for messages."""
        self._args = args
        self._gpu_mem = gpu_mem

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Reject a wrong ask; leave pods without gpu-mem alone."""
        if pod.template.gpu_request_error:
            return Rejected(pod.template.gpu_request_error)
        return Relevance.JUDGE if pod.template.gpu_request else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Objection]:
        """Too little memory on enough cards, or on the node in all; cards that cannot be given out."""
        request, cards = _request(pod), tables.cards
        fits = fitting(cards, request, rows)
        state.write(_FITS, (rows, tables.changes.version, fits))
        ready = cards.state[rows] == _READY
        enough = np.logical_or.reduce(fits) if request.cards == 1 else fits.sum(axis=0) >= request.cards
        roomy = cards.allocatable[rows] - cards.counted[rows] >= request.units
        if np.count_nonzero(ready & enough & roomy) == len(ready):
            return ()
        objections = [Objection(cards.state[rows] == s, reason) for s, reason in _STATE_REASONS.items()]
        objections += self._card_objections(cards, request, rows, ready & ~enough)
        objections.append(self._node_objection(cards, request, rows, ready & enough & ~roomy))
        return objections

    def room(self, pod: Pod, tables: Tables, state: CycleState, rows: RowArray) -> Int64Array | None:
        """Copies that the free memory of the fitting cards holds."""
        request, cards = pod.template.gpu_request, tables.cards
        if request is None:
            return None
        fits = fitting(cards, request, rows)
        per_card = (
            np.ones_like(fits, dtype=np.int64) if request.exclusive else cards.free[:, rows] // request.units_per_card
        )
        on_cards = np.where(fits, per_card, 0).sum(axis=0) // request.cards
        on_node = (cards.allocatable[rows] - cards.counted[rows]) // request.units
        return np.asarray(np.minimum(on_cards, on_node), dtype=np.int64)

    def scores(self, pod: Pod) -> bool:
        """Pods without gpu-mem get nothing from here on any node."""
        return pod.template.gpu_request is not None

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:
        """How well the node's best cards suit the node policy, 0..MAX_SCORE."""
        request = _request(pod)
        fits = _fits(tables, request, state, rows)
        packed = binpack_score(tables.cards, request, self._card_policy(request), rows, fits)
        spread = (request.node_policy or self._args.node_policy) is Policy.SPREAD
        return MAX_SCORE - packed if spread else packed

    def reserve(self, pod: Pod, tables: Tables, state: CycleState, row: int, now_ns: int) -> Reservation:
        """The cards by the card policy, and the annotations that say so."""
        request, cards = pod.template.gpu_request, tables.cards
        if request is None:
            return Reservation()
        one = slice(row, row + 1)
        fits = _fits(tables, request, state, one)
        chosen = sorted(chosen_slots(cards, request, self._card_policy(request), one, fits)[:, 0].tolist())
        has_uuids = tables.inventory(tables.names[row]).has_uuids
        shares = tuple(_share(cards, slot, row, request, has_uuids=has_uuids) for slot in chosen)
        legacy = LegacyFields(pod.template.gpu_units, int(cards.units[chosen[0], row]), now_ns)
        return Reservation(shares, allocation.encode(_allocation(request, shares), legacy))

    def _card_policy(self, request: GpuRequest) -> Policy:
        return request.card_policy or self._args.card_policy

    def _card_objections(
        self, cards: CardColumns, request: GpuRequest, rows: Rows, short: BoolArray
    ) -> list[Objection]:
        there = cards.units[:, rows] > 0
        few = there.sum(axis=0) < request.cards
        objections = [Objection(short & few, "node(s) had fewer cards than the pod asks for")]
        short = short & ~few
        if request.models or request.uuids:
            few = (there & _eligible(cards, request, rows)).sum(axis=0) < request.cards
            objections.append(Objection(short & few, "node(s) had too few cards of those the pod asks for"))
            short = short & ~few
        how_many = "one card" if request.cards == 1 else f"{request.cards} cards"
        what = f"Insufficient GPU memory on {how_many}"
        if request.exclusive:
            what = f"Insufficient GPU memory on {how_many} without other pods"

        def numbers(counted: BoolArray) -> Numbers:
            return _card_numbers(cards, request, rows, counted)

        return [*objections, Objection(short, what, numbers)]

    def _node_objection(self, cards: CardColumns, request: GpuRequest, rows: Rows, scarce: BoolArray) -> Objection:
        def numbers(counted: BoolArray) -> Numbers:
            free = (cards.allocatable[rows] - cards.counted[rows])[counted]
            best = int(free.argmax())
            return Numbers(request.units, int(free[best]), int(cards.allocatable[rows][counted][best]))

        return Objection(scarce, f"Insufficient {self._gpu_mem}", numbers)


def fitting(cards: CardColumns, request: GpuRequest, rows: Rows) -> BoolArray:
    """bool[cards, rows]: the card may be given and has `units_per_card` free."""
    return np.logical_and(_eligible(cards, request, rows), cards.free[:, rows] >= request.units_per_card)


def chosen_slots(
    cards: CardColumns, request: GpuRequest, policy: Policy, rows: Rows, fits: BoolArray
) -> NDArray[np.intp]:
    """intp[request.cards, rows]: the slots that the policy takes: the tightest first, or the emptiest; ties by slot.

    fits: as `fitting`. A row with fewer fitting cards than asked gets slots that do not fit.
    """
    free = cards.free[:, rows]
    order = np.where(fits, free if policy is Policy.BINPACK else -free, _NEVER)
    if request.cards == 1:
        return np.asarray(order.argmin(axis=0)[np.newaxis], dtype=np.intp)
    return np.asarray(order.argsort(axis=0, kind="stable")[: request.cards], dtype=np.intp)


def binpack_score(cards: CardColumns, request: GpuRequest, policy: Policy, rows: Rows, fits: BoolArray) -> Int64Array:
    """int64[rows], 0..MAX_SCORE: how well a node suits binpack.

    Half for landing on cards in use, a fifth for a node in use, the rest by how full the node's usable cards are with
    the pod on them. fits: as `fitting`; rows without enough fitting cards get any number.
    """
    slots = chosen_slots(cards, request, policy, rows, fits)
    holders = cards.holders[:, rows][slots, np.arange(slots.shape[1])]
    on_used_cards = holders[0] > 0 if request.cards == 1 else (holders > 0).all(axis=0)
    total = cards.total[rows]
    booked = total - cards.left[rows] + request.units
    full = np.minimum(booked * _FULLNESS // np.maximum(total, 1), _FULLNESS)
    return np.asarray(on_used_cards * _USED_CARDS + (cards.held[rows] > 0) * _USED_NODE + full, dtype=np.int64)


def _eligible(cards: CardColumns, request: GpuRequest, rows: Rows) -> BoolArray:
    """Cards that may be given to this pod, whatever they have free."""
    may = np.logical_and(cards.usable[:, rows], cards.exclusive[:, rows] == 0)
    if request.exclusive:
        may &= cards.holders[:, rows] == 0
    if request.models:
        may &= _of_models(cards, request.models, rows)
    if request.uuids:
        may &= _of_uuids(cards, request.uuids, rows)
    return np.asarray(may, dtype=np.bool_)


def _of_models(cards: CardColumns, models: Selection, rows: Rows) -> BoolArray:
    codes = [code for model, code in cards.model_code.items() if models.accepts(model)]
    return np.isin(cards.model[:, rows], codes)


def _of_uuids(cards: CardColumns, uuids: Selection, rows: Rows) -> BoolArray:
    taken = np.full(cards.units.shape, not uuids.wanted, dtype=np.bool_)
    for names, mark in ((uuids.wanted, True), (uuids.excluded, False)):
        for uuid in names:
            for slot, row in cards.places.get(uuid, ()):
                taken[slot, row] = mark
    return np.asarray(taken[:, rows], dtype=np.bool_)


def _card_numbers(cards: CardColumns, request: GpuRequest, rows: Rows, counted: BoolArray) -> Numbers:
    free = np.where(_eligible(cards, request, rows), np.maximum(cards.free[:, rows], 0), -1)[:, counted]
    # With N cards asked, the N-th freest card of a node is what it lacks.
    rank = min(request.cards, free.shape[0]) - 1
    order = (-free).argsort(axis=0, kind="stable")[rank]
    nth_free = np.take_along_axis(free, order[np.newaxis], axis=0)[0]
    best = int(nth_free.argmax())
    total = int(cards.units[:, rows][:, counted][order[best], best])
    return Numbers(request.units_per_card, max(0, int(nth_free[best])), total)


def _fits(tables: Tables, request: GpuRequest, state: CycleState, rows: Rows) -> BoolArray:
    """`fitting`, without the work where Filter has just answered for the same rows: packing often takes one twice."""
    filtered = state.find(_FITS)
    if filtered is not None:
        judged, version, fits = filtered
        same = judged is rows or (isinstance(judged, slice) and judged == rows)
        if same and version == tables.changes.version:
            return fits
    return fitting(tables.cards, request, rows)


def _request(pod: Pod) -> GpuRequest:
    request = pod.template.gpu_request
    if request is None:
        message = f"pod {pod.key} asks no GPU memory; expected a pod that PreFilter did not skip"
        raise TypeError(message)
    return request


def _share(cards: CardColumns, slot: int, row: int, request: GpuRequest, *, has_uuids: bool) -> CardShare:
    card = cards.slots[row][slot].card
    return CardShare(card.index, card.uuid if has_uuids else "", request.units_per_card)


def _allocation(request: GpuRequest, shares: Sequence[CardShare]) -> Allocation:
    indexes = [share.index for share in shares]
    return Allocation(
        containers=_per_container(request.containers, indexes),
        init_containers=_per_container(request.init_containers, indexes),
        cards={share.index: share.uuid for share in shares if share.uuid},
    )


def _per_container(units: Sequence[int], indexes: Sequence[int]) -> dict[int, dict[int, int]]:
    return {number: dict.fromkeys(indexes, own) for number, own in enumerate(units) if own}
