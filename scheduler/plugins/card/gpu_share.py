"""GpuShare: fitting cards, preferred nodes, and the cards to allocate.

The free memory of cards and nodes is in `scheduler.state.cards.card_columns`; docs/develop/protocol.md, "Requests",
describes the forms of a pod's request.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import ClassVar, Final, Literal, TypeAlias

import numpy as np
from pydantic import Field

from config.protocol.allocation import LegacyFields, encode
from config.settings.duration import Seconds
from scheduler.framework.card_rules import CARD_RULES, NO_CARD_RULES, CardRules
from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    MAX_SCORE,
    Detail,
    FilterPlugin,
    Numbers,
    PluginArgs,
    PreFilterPlugin,
    PreFilterResult,
    Rejected,
    Rejection,
    Relevance,
    Reservation,
    ReservePlugin,
    ScorePlugin,
)
from scheduler.plugins.card.card_choice import (
    binpack_score,
    binpack_score_on,
    by_width,
    chosen_slots,
    could_hold,
    eligible,
    fitting,
    idle_score,
    slots_on,
    together,
)
from scheduler.plugins.card.card_reasons import (
    STATE_DETAILS,
    STATE_REASONS,
    all_unhealthy,
    card_numbers,
    memory_reason,
    narrowed,
    out_of_use,
)
from scheduler.plugins.fragmentation.placement_effect import PlacementEffect, on_best_card, on_cards
from scheduler.plugins.fragmentation.requests_seen import HALF_LIFE_S
from scheduler.plugins.fragmentation.target_workload import TargetWorkload
from scheduler.pods.gpu_request import GpuRequest, PlacementPolicy, ResourceNames
from scheduler.pods.pod import Pod
from scheduler.state.amounts import Amount
from scheduler.state.cards.booking import allocation_of, share_of
from scheduler.state.cards.card_arrays import RowGroup
from scheduler.state.cards.card_columns import CardColumns
from scheduler.state.cards.node_inventory import GpuState
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.columns.row_masks import count_of, only_row
from scheduler.state.tables import Tables

_LONGEST_HALF_LIFE_S: Final = 365 * 86_400.0
PlacementPolicyName: TypeAlias = Literal["binpack", "spread", "fragmentation"]
# Plain numbers: comparing an array with an IntEnum member takes ten times as long.
_READY: Final = int(GpuState.READY)
_Fits: TypeAlias = tuple[Rows, int, BoolArray]
_Chosen: TypeAlias = tuple[Rows, int, RowArray]
_SLOTS: Final[StateKey[tuple[int, int, list[int]]]] = StateKey("gpu_share.slots")


class GpuShareArgs(PluginArgs):
    """Policies for pods without `gpushare/card-policy` or `gpushare/node-policy`."""

    card_policy: PlacementPolicyName = Field(
        default="binpack",
        description="Which card of a node to prefer: the fullest that fits, the emptiest, or the one that typical pods "
        "need least.",
    )
    node_policy: PlacementPolicyName = Field(
        default="binpack",
        description="Which node to prefer, by the same criteria, applied to all GPU memory of the node.",
    )
    requests_half_life_s: Seconds = Field(
        default=HALF_LIFE_S,
        validation_alias="requestsHalfLife",
        ge=60.0,
        le=_LONGEST_HALF_LIFE_S,
        description="The policy `fragmentation` learns from past requests. After this time, a request counts half. If "
        "profiles differ, the last one counts.",
    )


class GpuShare(PreFilterPlugin, FilterPlugin, ScorePlugin, ReservePlugin):
    """The only rule for `gpu-mem`, per card and per node: filters, scores and allocates cards by their memory.

    A card can be allocated if it is healthy, not cordoned, not lost and not held by an exclusive pod. It must match
    the models and UUIDs that the pod requests, and no card rule of the profile may reject it. An exclusive pod needs a
    card that no pod holds. The node's total counts, too: allocatable gpu-mem minus the requests of live pods that are
    not on unhealthy cards.

    | reason | when | numbers |
    |---|---|---|
    | `node(s) had no GPU memory to share` | nothing is announced | |
    | `node(s) had an unreadable inventory` | the inventory breaks a rule | |
    | `node(s) announced GPU memory in another unit` | `unitMiB` is not the scheduler's | |
    | `node(s) had no allocatable gpu-mem (device plugin not running)` | the kubelet has none | since when |
    | `node(s) had a starting kubelet or device plugin` | `gpushare/held-until` is later than its last report | |
    | `node(s) could not inject cards into containers` | the inventory has `withheld` | which |
    | `node(s) had fewer cards than the pod requests` | `gpu-count` is more than the node's cards | |
    | `node(s) had too few of the requested cards` | models or UUIDs leave too few | the other models |
    | `node(s) had too few whole cards (CUDA uses one MIG instance per process)` | `gpu-count` is above 1 | |
    | `node(s) had too few cards on which memory is enforced (…)` | `gpushare/isolation: required` | |
    | `node(s) had too few cards with MPS (…)`, `… without MPS (…)` | `gpushare/compute-mode` | |
    | `node(s) had 2 unhealthy cards (xid-79)`, `suspect`, `cordoned`, … | too few cards are in use | how many |
    | `Insufficient GPU memory on one card`, `… on N cards`, `… without other pods` | too few cards have it | yes |
    | the reason of a card rule | that rule leaves too few of the cards with enough memory | |
    | `Insufficient aliyun.com/gpu-mem` | the node's total is used up | yes |

    `binpack` gives half its points for cards in use and a fifth for a node in use. The rest depends on how full the
    node's usable cards are with the pod; of equally full nodes, the one with less CPU wins. `spread` is the reverse.
    `fragmentation` scores how much of the memory typical pods could have used ([packing](../../docs/packing.md)).
    Pods without gpu-mem are kept away from nodes with idle cards, whose future pods need the CPU: `binpack` scores the
    booked share of the usable cards, `fragmentation` works as for other pods, `spread` scores nothing.
    Within the node, the card scores come first; then the policy picks the tightest card that fits, the emptiest, or the
    card that is least useful for typical pods; then the lower slot. A pod's annotations `gpushare/card-policy` and
    `gpushare/node-policy` override the arguments.

    Writes every allocation annotation of the Binding
    ([protocol](../../docs/develop/protocol.md#what-the-scheduler-writes)).
    """

    name: ClassVar[str] = "GpuShare"
    on_by_default: ClassVar[bool] = True
    indispensable: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.INVENTORY | Change.ALLOCATABLE | Change.CARDS
    Args = GpuShareArgs
    args: GpuShareArgs
    default_weight: ClassVar[int] = 10

    def __init__(self, args: GpuShareArgs | None = None, resources: ResourceNames = ResourceNames()) -> None:  # noqa: B008 - immutable
        super().__init__(args, resources)
        self._card_policy = PlacementPolicy(self.args.card_policy)
        self._node_policy = PlacementPolicy(self.args.node_policy)

    def start(self, tables: Tables) -> None:
        """Learn usual requests from the first pod on, whatever the policy: metrics measure fragmentation by them."""
        tables.fact(TargetWorkload).seen.half_life_s = self.args.requests_half_life_s

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Reject an invalid request; skip pods without gpu-mem."""
        if pod.template.gpu_request_error:
            return Rejected(pod.template.gpu_request_error)
        return Relevance.EVALUATE if pod.template.gpu_request else Relevance.SKIP

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        """Reject nodes with too little memory on enough cards or in total, or without cards that can be allocated."""
        cards, units, row = tables.cards, _request(pod).units, only_row(rows)
        if row is not None and cards.node_free.item(row) >= units and self._slots_on(pod, tables, state, row):
            return ()
        enough = by_width(cards, rows, lambda group: self._enough(pod, tables, state, group))
        good = np.logical_and(enough, cards.node_free[rows] >= units)
        return () if np.count_nonzero(good) == len(good) else (Rejection(~good, "Insufficient GPU memory"),)

    def diagnose(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        """Return reasons for the node's cards as a whole, then for single cards, then for the node's total."""
        cards = tables.cards
        enough = by_width(cards, rows, lambda group: self._enough(pod, tables, state, group))
        # A node that is not READY has nothing to allocate.
        roomy, ready = cards.node_free[rows] >= _request(pod).units, cards.state[rows] == _READY
        states = STATE_REASONS.items() if np.count_nonzero(ready) < len(ready) else ()
        # The unhealthy cards are the reason why nothing is allocatable there.
        unhealthy = by_width(cards, rows, partial(all_unhealthy, cards)) if states else np.zeros_like(ready)
        details = {s: partial(detail, tables, rows) for s, detail in STATE_DETAILS.items()}
        found = (
            *(Rejection((cards.state[rows] == s) & ~unhealthy, reason, details.get(s)) for s, reason in states),
            *self._card_rejections(pod, tables, state, rows, (ready & ~enough) | unhealthy),
            self._node_rejection(cards, _request(pod), rows, ready & enough & ~roomy),
        )
        large_enough = by_width(cards, rows, lambda group: could_hold(cards, _request(pod), group))
        stays = ~(ready & large_enough & (cards.allocatable[rows] >= _request(pod).units))
        return [replace(rejection, unresolvable=stays) for rejection in found]

    def minimum_request(self, pod: Pod) -> Mapping[Amount, int]:
        """Return the memory that the pod needs on its best card, and in total on the node."""
        request = pod.template.gpu_request
        if request is None:
            return {}
        return {Amount.CARD_UNITS: request.units_per_card, Amount.NODE_UNITS: request.units}

    def scores(self, pod: Pod) -> bool:
        """Score pods without gpu-mem, too, to keep them off idle cards, which need the CPU; not needed for `spread`."""
        return pod.template.gpu_request is not None or self._node_policy is not PlacementPolicy.SPREAD

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:
        """Return how well the node's best cards suit the node policy, 0..MAX_SCORE."""
        cards, request, row = tables.cards, pod.template.gpu_request, only_row(rows)
        policy = self._node_policy if request is None else request.node_policy or self._node_policy
        if policy is PlacementPolicy.FRAGMENTATION:
            return by_width(cards, rows, lambda group: self._unfragmented(pod, tables, state, group))
        if request is None:
            return idle_score(cards, rows)
        if row is not None and (slots := self._slots_on(pod, tables, state, row)):
            score = binpack_score_on(cards, tables.resources, _request(pod), row, slots)
            packed = np.array([score], dtype=np.int64)
        else:
            packed = by_width(cards, rows, lambda group: self._packed(pod, tables, state, group))
        return MAX_SCORE - packed if policy is PlacementPolicy.SPREAD else packed

    def reserve(self, pod: Pod, tables: Tables, state: CycleState, row: int, now_ns: int) -> Reservation:
        """Choose the cards by the card policy, and return them with the annotations that name them."""
        request, cards = pod.template.gpu_request, tables.cards
        if request is None:
            return Reservation()
        chosen = self._slots_on(pod, tables, state, row)
        if not chosen:
            with cards.viewing(cards.width_of(row)):
                chosen = self._chosen(pod, tables, state, slice(row, row + 1))[:, 0].tolist()
        chosen = sorted(chosen)
        announced = tables.inventory(tables.names[row])
        shares = tuple(share_of(cards.slots[row][slot], request, has_uuids=announced.has_uuids) for slot in chosen)
        legacy = LegacyFields(pod.template.gpu_units, int(cards.stored.units[chosen[0], row]), now_ns)
        return Reservation(shares, encode(allocation_of(request, shares, announced.unit_mib), legacy))

    def _slots_on(self, pod: Pod, tables: Tables, state: CycleState, row: int) -> list[int]:
        """Return the slots that the pod would take on one row; empty if too few cards fit or a card rule ranks them.

        Cached for further queries about the row, because the pod usually goes there.
        """
        rules, policy = _card_rules(state), self._policy_of(_request(pod))
        if rules.scorers or policy is PlacementPolicy.FRAGMENTATION:
            return []
        last, version = state.find(_SLOTS), tables.changes.version
        if last is not None and last[:2] == (row, version):
            return last[2]
        cards, request, here = tables.cards, _request(pod), slice(row, row + 1)
        with cards.viewing(cards.width_of(row)):
            may = eligible(cards, request, here)
            for rejection in rules.rejections(pod, tables, state, here, may.shape):
                may = may & ~rejection.rejected
            slots = slots_on(cards, request, policy, row, may)
        state.write_row_cache(_SLOTS, (row, version, slots))
        return slots

    def _enough(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> BoolArray:
        """Return bool[rows]: at least as many cards fit as the pod requests."""
        request, fits = _request(pod), _fits(pod, tables, state, rows)
        return np.asarray(np.logical_or.reduce(fits) if request.cards == 1 else fits.sum(axis=0) >= request.cards)

    def _packed(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:
        slots = self._chosen(pod, tables, state, rows)
        return binpack_score(tables.cards, tables.resources, _request(pod), rows, slots)

    def _unfragmented(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:
        request, rules = pod.template.gpu_request, _card_rules(state)
        if request is None:
            return on_cards(pod, tables, rows, np.zeros((0, count_of(rows, tables.capacity)), dtype=np.intp))
        if rules.scorers or self._policy_of(request) is not PlacementPolicy.FRAGMENTATION:
            return on_cards(pod, tables, rows, self._chosen(pod, tables, state, rows))
        return self._on_best_card(pod, tables, state, rows).scores

    def _on_best_card(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> PlacementEffect:
        """Effect on the best cards, cached for later queries about these rows, because the pod usually goes there."""
        key, version = _placed_key(tables.cards.width), tables.changes.version
        last = state.find(key)
        if last is not None and last[1] == version and (found := last[2].of(last[0], rows)) is not None:
            return found
        placed = on_best_card(pod, tables, rows, _fits(pod, tables, state, rows))
        state.write_row_cache(key, (rows, version, placed))
        return placed

    def _policy_of(self, request: GpuRequest) -> PlacementPolicy:
        """Return the card policy. For several cards, `fragmentation` takes the tightest ones, not every combination."""
        policy = request.card_policy or self._card_policy
        return PlacementPolicy.BINPACK if policy is PlacementPolicy.FRAGMENTATION and request.cards > 1 else policy

    def _chosen(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> RowArray:
        """Return intp[request.cards, rows]: the slots that the pod would take; arbitrary for rows with too few cards.

        The choice for a single row is cached until the tables change, because the pod usually goes there.
        """
        if only_row(rows) is None:
            return self._choose(pod, tables, state, rows)
        key, version = _chosen_key(tables.cards.width), tables.changes.version
        last = state.find(key)
        if last is not None and last[:2] == (rows, version):
            return last[2]
        slots = self._choose(pod, tables, state, rows)
        state.write_row_cache(key, (rows, version, slots))
        return slots

    def _choose(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> RowArray:
        request, rules = _request(pod), _card_rules(state)
        policy = self._policy_of(request)
        if policy is PlacementPolicy.FRAGMENTATION and not rules.scorers:
            return self._on_best_card(pod, tables, state, rows).slots
        fits = _fits(pod, tables, state, rows)
        scores = rules.scores(pod, tables, state, rows, fits.shape) if rules.scorers else ()
        return chosen_slots(tables.cards, request, policy, rows, fits, scores)

    def _card_rejections(
        self, pod: Pod, tables: Tables, state: CycleState, rows: Rows, short: BoolArray
    ) -> list[Rejection]:
        """Return the reasons for too few cards on the `short` rows, in the order in which they rule out cards."""
        cards, merged = tables.cards, dict[str, list[tuple[RowGroup, Rejection]]]()
        for group in cards.groups(rows):
            with cards.viewing(group.width):
                own = short if group.places is None else short[group.places]
                for rejection in self._card_rejections_of(pod, tables, state, group.rows, own):
                    merged.setdefault(rejection.reason, []).append((group, rejection))
        return [together(cards, found, len(short)) for found in merged.values()]

    def _card_rejections_of(
        self, pod: Pod, tables: Tables, state: CycleState, rows: Rows, short: BoolArray
    ) -> list[Rejection]:
        """Compute `_card_rejections` for rows that are evaluated together."""
        request, cards = _request(pod), tables.cards
        found: list[Rejection] = []

        def too_few(left: BoolArray, reason: str, numbers: Callable[[BoolArray], Detail] | None = None) -> None:
            nonlocal short
            few = short & (left.sum(axis=0) < request.cards)
            found.append(Rejection(few, reason, numbers))
            short = short & ~few

        there = cards.units[:, rows] > 0
        too_few(there, "node(s) had fewer cards than the pod requests")
        for suitable, reason, numbers in narrowed(cards, request, rows, there):
            there = suitable
            too_few(there, reason, numbers)
        found += out_of_use(cards, request, rows, there, short)
        short = short & ~np.logical_or.reduce([rejection.rejected for rejection in found])
        left = fitting(cards, request, rows)
        too_few(left, memory_reason(request), partial(card_numbers, tables, request, rows))
        for rejection in _card_rules(state).rejections(pod, tables, state, rows, left.shape):
            left = left & ~rejection.rejected
            too_few(left, rejection.reason)
        return found

    def _node_rejection(self, cards: CardColumns, request: GpuRequest, rows: Rows, scarce: BoolArray) -> Rejection:
        def numbers(counted: BoolArray) -> Numbers:
            free = (cards.allocatable[rows] - cards.counted[rows])[counted]
            best = int(free.argmax())
            return Numbers(request.units, max(0, int(free[best])), int(cards.allocatable[rows][counted][best]))

        return Rejection(scarce, f"Insufficient {self.resource_names.gpu_mem}", numbers)


def _fits(pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> BoolArray:
    """Return `fitting` without the cards that card rules reject; cached for the rows of the last call."""
    key = _fits_key(tables.cards.width)
    last = state.find(key)
    version = tables.changes.version
    if last is not None and last[1] == version and (last[0] is rows or _same_slice(last[0], rows)):
        return last[2]
    fits = fitting(tables.cards, _request(pod), rows)
    rules = _card_rules(state)
    if rules.filters:
        for rejection in rules.rejections(pod, tables, state, rows, fits.shape):
            fits = fits & ~rejection.rejected
    state.write_row_cache(key, (rows, version, fits))
    return fits


@cache
def _fits_key(width: int) -> StateKey[_Fits]:
    return StateKey(f"gpu_share.fits.{width}")


@cache
def _placed_key(width: int) -> StateKey[tuple[Rows, int, PlacementEffect]]:
    return StateKey(f"gpu_share.placed.{width}")


@cache
def _chosen_key(width: int) -> StateKey[_Chosen]:
    return StateKey(f"gpu_share.chosen.{width}")


def _same_slice(one: Rows, other: Rows) -> bool:
    return isinstance(one, slice) and isinstance(other, slice) and one == other


def _card_rules(state: CycleState) -> CardRules:
    return state.find(CARD_RULES) or NO_CARD_RULES


def _request(pod: Pod) -> GpuRequest:
    request = pod.template.gpu_request
    if request is None:
        raise TypeError(f"pod {pod.key} requests no GPU memory; expected a pod that PreFilter did not skip")
    return request
