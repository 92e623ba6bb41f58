"""GpuShare: which cards fit, which node is preferred, and which cards are taken.

What a card or node has free is in `scheduler.state.cards`; what a pod may ask for in docs/protocol.md, "Requests".
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final, Literal, TypeAlias

import numpy as np
from pydantic import Field

from config.protocol import allocation
from config.protocol.allocation import Allocation, LegacyFields
from scheduler.framework.card_rules import CARD_RULES, NO_CARD_RULES, CardRules
from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    MAX_SCORE,
    FilterPlugin,
    Numbers,
    Objection,
    PluginArgs,
    PreFilterPlugin,
    PreFilterResult,
    Rejected,
    Relevance,
    Reservation,
    ReservePlugin,
    ScorePlugin,
)
from scheduler.pods.gpu_request import GpuRequest, Policy, ResourceNames, Selection
from scheduler.pods.pod import Pod
from scheduler.state.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.booking import CardShare
from scheduler.state.cards import CardColumns
from scheduler.state.changes import Change
from scheduler.state.node_inventory import GpuState
from scheduler.state.tables import Tables

PolicyName: TypeAlias = Literal["binpack", "spread"]
# As plain numbers: comparing an array with an IntEnum's member takes ten times as long.
_READY: Final = int(GpuState.READY)
_STATE_REASONS: Final[Mapping[int, str]] = {
    int(GpuState.NO_CARDS): "node(s) had no GPU memory to share",
    int(GpuState.UNREADABLE): "node(s) announced cards that cannot be read",
    int(GpuState.OTHER_UNIT): "node(s) announced GPU memory in another unit",
    int(GpuState.NOT_ALLOCATABLE): "node(s) had no allocatable gpu-mem (device plugin not there yet, or away)",
}
# Binpack, in shares of MAX_SCORE: a card in use before a free card, a node in use before an empty node,
# then the fuller node: used cards, free cards on used nodes, empty nodes.
_USED_CARDS: Final = MAX_SCORE * 50 // 100
_USED_NODE: Final = MAX_SCORE * 20 // 100
_FULLNESS: Final = MAX_SCORE - _USED_CARDS - _USED_NODE
_NEVER: Final = 2**31 - 1
# (rows, version of the tables, the cards that fit): Score and Reserve need again what Filter has worked out.
_FITS: Final = StateKey[tuple[Rows, int, BoolArray]]("gpu_share.fits")


class GpuShareArgs(PluginArgs):
    """A pod's `gpushare/card-policy` and `gpushare/node-policy` win over them."""

    card_policy: PolicyName = Field(
        default="binpack", description="Among the cards of a node: the tightest that fits, or the emptiest."
    )
    node_policy: PolicyName = Field(
        default="binpack", description="Among the nodes: the fullest in GPU memory that fits, or the emptiest."
    )


class GpuShare(PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin):
    """Judges `gpu-mem`, per card and per node, and nobody else does: fits, prefers and takes cards by their memory.

    A card may be given when it is healthy, not cordoned, not lost, held by no exclusive pod, of the models and UUIDs
    that the pod asks for, and when no card rule of the profile objects; an exclusive pod needs one that no pod holds.
    The node's total counts too: allocatable gpu-mem less the requests of live pods that are not on unhealthy cards.

    | reason | when | numbers |
    |---|---|---|
    | `node(s) had no GPU memory to share` | nothing is announced | |
    | `node(s) announced cards that cannot be read` | the inventory breaks a rule | |
    | `node(s) announced GPU memory in another unit` | `unitMiB` is not the scheduler's | |
    | `node(s) had no allocatable gpu-mem (device plugin not there yet, or away)` | the kubelet has none | |
    | `node(s) had fewer cards than the pod asks for` | `gpu-count` is more than the node's cards | |
    | `node(s) had too few cards of those the pod asks for` | models or UUIDs leave too few usable cards | |
    | `Insufficient GPU memory on one card`, `… on N cards`, `… without other pods` | too few cards have it | yes |
    | the reason of a card rule | that rule leaves too few of the cards with enough memory | |
    | `Insufficient aliyun.com/gpu-mem` | the node's total is used up | yes |

    Binpack scores half for landing on cards in use, a fifth for a node in use, the rest by how full the node's usable
    cards are with the pod on them; `spread` is the reverse. Within the node: what the card scores prefer, then the
    tightest card that fits, or the emptiest, then the lower slot. A profile's card set chooser chooses instead. A pod's
    annotations `gpushare/card-policy` and `gpushare/node-policy` win over the arguments.

    Writes every allocation annotation of the Binding
    ([protocol](../../docs/protocol.md#what-the-scheduler-writes)).
    """

    name: ClassVar[str] = "GpuShare"
    on_by_default: ClassVar[bool] = True
    indispensable: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.INVENTORY | Change.ALLOCATABLE | Change.CARDS
    Args = GpuShareArgs
    args: GpuShareArgs
    default_weight: ClassVar[int] = 10

    def __init__(self, args: GpuShareArgs | None = None, resources: ResourceNames = ResourceNames()) -> None:  # noqa: B008 - immutable
        """As Plugin."""
        super().__init__(args, resources)
        self._card_policy = Policy(self.args.card_policy)
        self._node_policy = Policy(self.args.node_policy)

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Reject a wrong ask; leave pods without gpu-mem alone."""
        if pod.template.gpu_request_error:
            return Rejected(pod.template.gpu_request_error)
        return Relevance.JUDGE if pod.template.gpu_request else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Objection]:
        """Too little memory on enough cards, or on the node in all; cards that cannot be given out."""
        good = np.logical_and(*self._enough_and_roomy(pod, tables, state, rows))
        return () if np.count_nonzero(good) == len(good) else (Objection(~good, "Insufficient GPU memory"),)

    def diagnose(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Objection]:
        """What is wrong with the node's cards as a whole, then with each card, then the node's total."""
        cards = tables.cards
        enough, roomy = self._enough_and_roomy(pod, tables, state, rows)
        ready = cards.state[rows] == _READY
        return (
            *(Objection(cards.state[rows] == s, reason) for s, reason in _STATE_REASONS.items()),
            *self._card_objections(pod, tables, state, rows, ready & ~enough),
            self._node_objection(cards, _request(pod), rows, ready & enough & ~roomy),
        )

    def room(self, pod: Pod, tables: Tables, state: CycleState, rows: RowArray) -> Int64Array | None:
        """Copies that the free memory of the fitting cards holds, and that the card rules let onto them."""
        request, cards = pod.template.gpu_request, tables.cards
        if request is None:
            return None
        fits = _fits(pod, tables, state, rows)
        per_card = np.ones_like(fits, dtype=np.int64)
        if not request.exclusive:
            per_card = cards.free[:, rows].astype(np.int64) // request.units_per_card
        per_card = _card_rules(state).room(pod, tables, state, rows, per_card)
        on_cards = np.where(fits, per_card, 0).sum(axis=0) // request.cards
        return np.asarray(np.minimum(on_cards, cards.node_free[rows] // request.units), dtype=np.int64)

    def scores(self, pod: Pod) -> bool:
        """Pods without gpu-mem get nothing from here on any node."""
        return pod.template.gpu_request is not None

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:
        """How well the node's best cards suit the node policy, 0..MAX_SCORE."""
        request = _request(pod)
        slots = self._chosen(pod, tables, state, rows)
        packed = binpack_score(tables.cards, request, rows, slots)
        spread = (request.node_policy or self._node_policy) is Policy.SPREAD
        return MAX_SCORE - packed if spread else packed

    def reserve(self, pod: Pod, tables: Tables, state: CycleState, row: int, now_ns: int) -> Reservation:
        """The cards by the card policy, and the annotations that say so."""
        request, cards = pod.template.gpu_request, tables.cards
        if request is None:
            return Reservation()
        chosen = sorted(self._chosen(pod, tables, state, slice(row, row + 1))[:, 0].tolist())
        announced = tables.inventory(tables.names[row])
        shares = tuple(_share(cards, slot, row, request, has_uuids=announced.has_uuids) for slot in chosen)
        legacy = LegacyFields(pod.template.gpu_units, int(cards.units[chosen[0], row]), now_ns)
        return Reservation(shares, allocation.encode(_allocation(request, shares, announced.unit_mib), legacy))

    def _enough_and_roomy(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> tuple[BoolArray, BoolArray]:
        """bool[rows] each: enough cards fit; the node's total holds the pod, which it never does where not READY."""
        request, fits = _request(pod), _fits(pod, tables, state, rows)
        enough = np.logical_or.reduce(fits) if request.cards == 1 else fits.sum(axis=0) >= request.cards
        return enough, tables.cards.node_free[rows] >= request.units

    def _chosen(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> RowArray:
        """intp[request.cards, rows]: the slots that the pod would take; rows without enough fitting cards: any."""
        request, rules = _request(pod), _card_rules(state)
        fits = _fits(pod, tables, state, rows)
        slots = rules.chosen(pod, tables, state, rows, fits)
        if slots is not None:
            return slots
        policy = request.card_policy or self._card_policy
        scores = rules.scores(pod, tables, state, rows, fits.shape) if rules.scorers else ()
        return chosen_slots(tables.cards, request, policy, rows, fits, scores)

    def _card_objections(
        self, pod: Pod, tables: Tables, state: CycleState, rows: Rows, short: BoolArray
    ) -> list[Objection]:
        """Why there are too few cards on the `short` rows: what thins them out below what the pod asks, in order."""
        request, cards = _request(pod), tables.cards
        found: list[Objection] = []

        def too_few(left: BoolArray, reason: str, numbers: Callable[[BoolArray], Numbers] | None = None) -> None:
            nonlocal short
            few = short & (left.sum(axis=0) < request.cards)
            found.append(Objection(few, reason, numbers))
            short = short & ~few

        left = cards.units[:, rows] > 0
        too_few(left, "node(s) had fewer cards than the pod asks for")
        if request.models or request.uuids:
            too_few(left & _eligible(cards, request, rows), "node(s) had too few cards of those the pod asks for")
        left = fitting(cards, request, rows)
        how_many = "one card" if request.cards == 1 else f"{request.cards} cards"
        alone = " without other pods" if request.exclusive else ""

        def numbers(counted: BoolArray) -> Numbers:
            return _card_numbers(cards, request, rows, counted)

        too_few(left, f"Insufficient GPU memory on {how_many}{alone}", numbers)
        for objection in _card_rules(state).objections(pod, tables, state, rows, left.shape):
            left = left & ~objection.rejected
            too_few(left, objection.reason)
        return found

    def _node_objection(self, cards: CardColumns, request: GpuRequest, rows: Rows, scarce: BoolArray) -> Objection:
        def numbers(counted: BoolArray) -> Numbers:
            free = (cards.allocatable[rows] - cards.counted[rows])[counted]
            best = int(free.argmax())
            return Numbers(request.units, int(free[best]), int(cards.allocatable[rows][counted][best]))

        return Objection(scarce, f"Insufficient {self.resource_names.gpu_mem}", numbers)


def fitting(cards: CardColumns, request: GpuRequest, rows: Rows) -> BoolArray:
    """bool[cards, rows]: the card may be given and has `units_per_card` free."""
    return np.logical_and(_eligible(cards, request, rows), cards.free[:, rows] >= request.units_per_card)


def chosen_slots(  # noqa: PLR0917 - columns, and what is asked of them
    cards: CardColumns,
    request: GpuRequest,
    policy: Policy,
    rows: Rows,
    fits: BoolArray,
    scores: Sequence[Int64Array] = (),
) -> RowArray:
    """intp[request.cards, rows]: the slots that the policy takes: the tightest first, or the emptiest; ties by slot.

    fits: as `fitting`. scores: int64[cards, rows] each, ahead of the policy, higher is better, the first counts most.
    A row with fewer fitting cards than asked gets slots that do not fit.
    """
    free = cards.free[:, rows]
    order = np.where(fits, free if policy is Policy.BINPACK else -free, _NEVER)
    if scores:
        keys = (order, *(-score for score in reversed(scores)), ~fits)
        return np.asarray(np.lexsort(keys, axis=0)[: request.cards], dtype=np.intp)
    if request.cards == 1:
        tightest: RowArray = order.argmin(axis=0)[np.newaxis]
        return tightest
    return np.asarray(order.argsort(axis=0, kind="stable")[: request.cards], dtype=np.intp)


def binpack_score(cards: CardColumns, request: GpuRequest, rows: Rows, slots: RowArray) -> Int64Array:
    """int64[rows], 0..MAX_SCORE: how well a node suits binpack.

    Half for landing on cards in use, a fifth for a node in use, the rest by how full the node's usable cards are with
    the pod on them. slots: as `chosen_slots`; rows without enough fitting cards get any number.
    """
    used = cards.holders[:, rows][slots, np.arange(slots.shape[1])] > 0
    on_used_cards = used[0] if request.cards == 1 else used.all(axis=0)
    total = np.maximum(cards.total[rows], 1)
    full: Int64Array = np.minimum((cards.booked[rows] + request.units) * _FULLNESS // total, _FULLNESS)
    score: Int64Array = full + on_used_cards * _USED_CARDS + (cards.held[rows] > 0) * _USED_NODE
    return score


def _eligible(cards: CardColumns, request: GpuRequest, rows: Rows) -> BoolArray:
    """Cards that may be given to this pod, whatever they have free."""
    may = cards.available[:, rows]
    if request.exclusive:
        may = may & (cards.holders[:, rows] == 0)
    if request.models or request.uuids:
        may = may & _selected(cards, request, rows)
    return may


def _selected(cards: CardColumns, request: GpuRequest, rows: Rows) -> BoolArray:
    """Cards of the models and UUIDs that the pod asks for."""
    selected = np.ones(cards.units[:, rows].shape, dtype=np.bool_)
    if request.models:
        selected &= _of_models(cards, request.models, rows)
    if request.uuids:
        selected &= _of_uuids(cards, request.uuids, rows)
    return selected


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


def _fits(pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> BoolArray:
    """`fitting` less what the card rules reject; not worked out again for the rows that were asked about last."""
    last = state.find(_FITS)
    version = tables.changes.version
    if last is not None and last[1] == version and (last[0] is rows or _same_slice(last[0], rows)):
        return last[2]
    fits = fitting(tables.cards, _request(pod), rows)
    rules = _card_rules(state)
    if rules.filters:
        for objection in rules.objections(pod, tables, state, rows, fits.shape):
            fits = fits & ~objection.rejected
    state.write(_FITS, (rows, version, fits))
    return fits


def _same_slice(one: Rows, other: Rows) -> bool:
    return isinstance(one, slice) and isinstance(other, slice) and one == other


def _card_rules(state: CycleState) -> CardRules:
    return state.find(CARD_RULES) or NO_CARD_RULES


def _request(pod: Pod) -> GpuRequest:
    request = pod.template.gpu_request
    if request is None:
        message = f"pod {pod.key} asks no GPU memory; expected a pod that PreFilter did not skip"
        raise TypeError(message)
    return request


def _share(cards: CardColumns, slot: int, row: int, request: GpuRequest, *, has_uuids: bool) -> CardShare:
    card = cards.slots[row][slot].card
    return CardShare(card.index, card.uuid if has_uuids else "", request.units_per_card)


def _allocation(request: GpuRequest, shares: Sequence[CardShare], unit_mib: int) -> Allocation:
    indexes = [share.index for share in shares]
    return Allocation(
        containers=_per_container(request.containers, indexes),
        init_containers=_per_container(request.init_containers, indexes),
        cards={share.index: share.uuid for share in shares if share.uuid},
        unit_mib=unit_mib,
    )


def _per_container(units: Sequence[int], indexes: Sequence[int]) -> dict[int, dict[int, int]]:
    return {number: dict.fromkeys(indexes, own) for number, own in enumerate(units) if own}
