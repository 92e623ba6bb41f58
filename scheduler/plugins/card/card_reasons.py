"""Reasons for too few cards, and for each card that a pod cannot use: GpuShare's messages.

Free functions over the columns of cards, for rows that are evaluated together; called only for messages. A message
about many nodes is bounded: a few models, and a few reasons for each health state.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from config.protocol import inventory
from scheduler.framework.card_rules import CARD_RULES
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import Detail, Numbers, Rejection
from scheduler.plugins.card.card_choice import eligible, having, held_by_terminating, named, selected
from scheduler.pods.gpu_request import BY_MPS, BY_TURNS, ENFORCED, WHOLE, GpuRequest
from scheduler.pods.pod import Pod
from scheduler.process.terminal import one_line
from scheduler.state.cards.card_columns import CardColumns
from scheduler.state.cards.node_inventory import GpuState, Out
from scheduler.state.columns.arrays import BoolArray, Int8Array, RowArray, Rows
from scheduler.state.tables import Tables

STATE_REASONS: Final[Mapping[int, str]] = {
    int(GpuState.NO_CARDS): "node(s) had no GPU memory to share",
    int(GpuState.UNREADABLE): "node(s) had an unreadable inventory",
    int(GpuState.OTHER_UNIT): "node(s) announced GPU memory in another unit",
    int(GpuState.NOT_ALLOCATABLE): "node(s) had no allocatable gpu-mem (device plugin not running)",
    int(GpuState.NOT_REGISTERED): "node(s) had a starting kubelet or device plugin",
    int(GpuState.WITHHELD): "node(s) could not inject cards into containers",
}
OUT_OF_USE: Final[Mapping[Out, str]] = {
    Out.UNHEALTHY: "node(s) had unhealthy cards",
    Out.SUSPECT: "node(s) had suspect cards",
    Out.LISTED: "node(s) had cards listed in ConfigMap unhealthy-gpu-<node>",
    Out.CORDONED: "node(s) had cordoned cards",
    Out.ANNOUNCED_TWICE: "node(s) had cards with a UUID that another node also announces",
}
_MANY: Final[Mapping[Out, str]] = {out: text.removeprefix("node(s) had ") for out, text in OUT_OF_USE.items()}
_ONE: Final[Mapping[Out, str]] = {out: text.replace("cards", "card", 1) for out, text in _MANY.items()}
NOT_ENFORCED: Final = "memory is not enforced"
# By trait: (reason for nodes with too few cards that have it, why a card without it does not suit).
_WITHOUT: Final[Mapping[int, tuple[str, str]]] = {
    WHOLE: ("node(s) had too few whole cards (CUDA uses one MIG instance per process)", "one MIG instance, not a card"),
    ENFORCED: ("node(s) had too few cards on which memory is enforced (gpushare/isolation: required)", NOT_ENFORCED),
    BY_MPS: ("node(s) had too few cards with MPS (gpushare/compute-mode: mps)", "without MPS"),
    BY_TURNS: ("node(s) had too few cards without MPS (gpushare/compute-mode: time-slicing)", "with MPS"),
}
_NOT_ALLOCATABLE: Final = int(GpuState.NOT_ALLOCATABLE)
_HELD_ALONE: Final = "held exclusively"
_IN_COMPANY: Final = "with other pods"
_CLOSED: Final = "its node takes no pods"
_STATES: Final[Mapping[str, str]] = {
    "unhealthy": "an unhealthy card",
    "listed": "a card listed in ConfigMap unhealthy-gpu-<node>",
    "announced twice": "a card with a UUID that another node also announces",
    _CLOSED: "a card whose node takes no pods",
}
_LATER: Final = "~"  # later than any time
_MOST_NAMES: Final = 5
_LONGEST_NAME: Final = 64
_LONGEST_REASON: Final = 32
# Number of cards examined for the reasons of a message.
_MOST_ASKED: Final = 1024


@dataclass(frozen=True, slots=True)
class CardsOut(Detail):
    """Number of cards that are out of use, and why. reasons: causes of their health, most frequent first."""

    cards: Counter[Out]
    reasons: Counter[tuple[Out, str]]

    def worded(self, reason: str) -> str:  # noqa: ARG002 - the counts stand inside it
        """Return text such as `node(s) had 2 unhealthy cards (xid-79) and 1 cordoned card`."""
        parts = [self._part(out, number) for out, number in sorted(self.cards.items())]
        return f"node(s) had {' and '.join(parts)}"

    def joined(self, other: "CardsOut") -> "CardsOut":
        return CardsOut(self.cards + other.cards, self.reasons + other.reasons)

    def _part(self, out: Out, number: int) -> str:
        text = f"{number} {_ONE[out] if number == 1 else _MANY[out]}"
        reasons = [reason for (of, reason), _ in self.reasons.most_common() if of is out][:_MOST_NAMES]
        return f"{text} ({', '.join(reasons)})" if reasons else text


@dataclass(frozen=True, slots=True)
class ModelsThere(Detail):
    """Models of the cards that the pod did not request, with the number of each.

    wants: requested cards. most: highest number of requested cards on one node.
    """

    cards: Counter[str]
    wants: int
    most: int

    def worded(self, reason: str) -> str:
        """Text like `node(s) had too few of the requested cards: wants 2, most on one node 1, others are Tesla-T4`."""
        others = self._others()
        if not self.most:
            return f"{reason}: there are {others}" if others else reason
        return f"{reason}: wants {self.wants}, most on one node {self.most}{f', others are {others}' if others else ''}"

    def _others(self) -> str:
        found = sorted(self.cards, key=lambda model: (-self.cards[model], model))
        more = f" and {len(found) - _MOST_NAMES} more models" if len(found) > _MOST_NAMES else ""
        named = ", ".join((model or "cards of no named model")[:_LONGEST_NAME] for model in found[:_MOST_NAMES])
        return named + more

    def joined(self, other: "ModelsThere") -> "ModelsThere":
        """Return the sum of the models and the better node."""
        return ModelsThere(self.cards + other.cards, self.wants, max(self.most, other.most))


@dataclass(frozen=True, slots=True)
class AwaySince(Detail):
    """Node that has been without a device plugin for the longest time. since: it was already missing then, RFC 3339."""

    since: str
    node: str

    def worded(self, reason: str) -> str:
        """Return the reason with `…, node a at least since 2026-11-22T08:42:09Z: check the log of …`."""
        since = f" at least since {self.since}" if self.since else ""
        return f"{reason}, node {self.node}{since}: check the log of the device plugin's pod there"

    def joined(self, other: "AwaySince") -> "AwaySince":
        return min(self, other, key=lambda one: (one.since or _LATER, one.node))


def away_since(tables: Tables, rows: Rows, counted: BoolArray) -> AwaySince:
    """Return the detail for the `counted` rows."""
    known = tables.card_changes.away_since
    here = [tables.names[row] for row in _row_numbers(tables.cards, rows)[counted].tolist()]
    return min(
        (AwaySince(known.get(name, ""), name) for name in here),
        key=lambda one: (one.since or _LATER, one.node),
    )


@dataclass(frozen=True, slots=True)
class SeeNode(Detail):
    """Node with an Event that names the cause; of several nodes, the first by name."""

    node: str

    def worded(self, reason: str) -> str:
        """Return the reason with `…, node a: the node's Event GPUNotReady names the cause`."""
        return f"{reason}, node {self.node}: the node's Event GPUNotReady names the cause"

    def joined(self, other: "SeeNode") -> "SeeNode":
        """Return the detail whose node comes first by name."""
        return min(self, other, key=lambda one: one.node)


def see_node(tables: Tables, rows: Rows, counted: BoolArray) -> SeeNode:
    """Return the detail for the `counted` rows."""
    return SeeNode(min(tables.names[row] for row in _row_numbers(tables.cards, rows)[counted].tolist()))


# By GpuState: details for a message about the `counted` rows.
STATE_DETAILS: Final[Mapping[int, Callable[[Tables, Rows, BoolArray], Detail]]] = {
    _NOT_ALLOCATABLE: away_since,
    int(GpuState.WITHHELD): see_node,
}


def out_codes(cards: CardColumns, rows: Rows) -> Int8Array:
    """Return int8[cards, rows] of Out. This covers UUIDs that another node also uses, which only the tables know."""
    codes: Int8Array = cards.out[:, rows]
    twice = (codes == Out.IN_USE) & ~cards.usable[:, rows] & (cards.units[:, rows] > 0)
    return np.where(twice, np.int8(Out.ANNOUNCED_TWICE), codes)


def cards_out(cards: CardColumns, rows: Rows, among: BoolArray, counted: BoolArray) -> CardsOut:
    """Count the cards of `counted` rows that are out of use, with their health reasons.

    among: bool[cards, rows], cards that are suitable otherwise.
    """
    codes = np.where(among, out_codes(cards, rows), np.int8(Out.IN_USE))[:, counted]
    numbers = np.bincount(codes.ravel(), minlength=len(Out)).tolist()
    found = Counter({out: numbers[out] for out in OUT_OF_USE if numbers[out]})
    here = _row_numbers(cards, rows)[counted]
    reasons: Counter[tuple[Out, str]] = Counter()
    for slot, place in islice(zip(*codes.nonzero(), strict=True), _MOST_ASKED):
        reason = cards.slots[here[place]][slot].card.reason
        if reason:
            reasons[Out(int(codes[slot, place])), reason[:_LONGEST_REASON]] += 1
    return CardsOut(found, reasons)


def models_there(cards: CardColumns, request: GpuRequest, rows: Rows, counted: BoolArray) -> ModelsThere:
    """Return the models on the `counted` rows."""
    asked = (named(cards, request, rows) & (cards.units[:, rows] > 0))[:, counted]
    others = np.where(asked, 0, cards.model[:, rows][:, counted])
    numbers = np.bincount(others.ravel(), minlength=1 + len(cards.model_code)).tolist()
    of_each = zip(cards.model_code, numbers[1:], strict=True)
    found = Counter({model: number for model, number in of_each if number})
    return ModelsThere(found, request.cards, int(asked.sum(axis=0).max(initial=0)))


def card_numbers(tables: Tables, request: GpuRequest, rows: Rows, counted: BoolArray) -> Numbers:
    """Return the missing memory of the `counted` rows, over cards that can be allocated to the pod.

    counted: bool[rows].
    The note names memory that would be enough: held by terminating pods, or on a card that cannot be allocated, with
    the reason.
    """
    cards = tables.cards
    here = _row_numbers(cards, rows)[counted]
    may = eligible(cards, request, rows)[:, counted]
    usable = _nth_freest(cards, request, here, may)
    note = held_by_terminating(tables, request, here) or _barred(cards, request, here, may)
    return Numbers(request.units_per_card, max(0, usable.free), usable.of, note)


def _barred(cards: CardColumns, request: GpuRequest, here: RowArray, may: BoolArray) -> str:
    """Return text such as `not counting 13 on a card held exclusively` if that would be enough; otherwise "".

    may: bool[cards, here].
    """
    barred_rows = np.flatnonzero((cards.units[:, here].astype(np.bool_) & ~may).any(axis=0))
    if not len(barred_rows):
        return ""
    here, may = here[barred_rows], may[:, barred_rows]
    would = selected(cards, request, here) & (cards.units[:, here] > 0)
    elsewhere = _nth_freest(cards, request, here, would)
    if elsewhere.free < request.units_per_card:
        return ""
    barred = ((place, slot) for place, slots in elsewhere.best() for slot in slots if not may[slot, place])
    words = {_which(_bar(cards, request, int(here[place]), slot)) for place, slot in barred}
    return f"not counting {elsewhere.free} on {min(words)}" if words else ""


@dataclass(frozen=True, slots=True)
class _NthFreest:
    """Rows with the best N-th freest card. free: its free units, < 0 if there is no such card. of: its total units.

    places: indexes into the evaluated rows. slots: intp[N, places], the freest first.
    """

    free: int
    of: int
    places: RowArray
    slots: RowArray

    def best(self) -> Iterator[tuple[int, list[int]]]:
        """Yield (place, slots of its N freest cards) for some of the rows."""
        return islice(zip(self.places.tolist(), self.slots.T.tolist(), strict=True), _MOST_ASKED)


def _nth_freest(cards: CardColumns, request: GpuRequest, rows: RowArray, among: BoolArray) -> _NthFreest:
    """Find the rows with the best N-th freest card, the largest on ties. N is the number of cards requested."""
    free = np.where(among, np.maximum(cards.free[:, rows], 0), -1)
    rank = min(request.cards, free.shape[0]) - 1
    # argmax finds the freest card of each row in a tenth of the time that sorting takes.
    order = (-free).argsort(axis=0, kind="stable") if rank else free.argmax(axis=0)[np.newaxis]
    columns = np.arange(len(rows))
    nth_free = free[order[rank], columns]
    of = cards.units[order[rank], rows]
    most = int(nth_free.max())
    largest = int(of.max(where=nth_free == most, initial=0))
    places = np.flatnonzero((nth_free == most) & (of == largest))
    return _NthFreest(most, largest, places, order[: rank + 1, places])


class CardVerdict(NamedTuple):
    """State of one card for a pod. free: units, >= 0. why: why the pod cannot use the card, or "".

    health: with its reason, such as `unhealthy (xid-79)`, and anything else that takes the card out of use.
    """

    slot: int
    free: int
    health: str
    why: str


def verdicts(pod: Pod, tables: Tables, state: CycleState, row: int) -> list[CardVerdict]:
    """Return the state of each card of `row` by itself; empty if no node can ever take the pod, or for no request."""
    cards, request, rules, rows = tables.cards, pod.template.gpu_request, state.find(CARD_RULES), slice(row, row + 1)
    if request is None or rules is None:
        return []
    found = []
    with cards.viewing(cards.width_of(row)):
        rejections = rules.rejections(pod, tables, state, rows, cards.units[:, rows].shape)
        wanted, may = named(cards, request, rows)[:, 0], eligible(cards, request, rows)[:, 0]
        for slot in range(len(cards.slots[row])):
            free = max(0, int(cards.stored.free[slot, row]))
            if not wanted[slot]:
                named_by = (*(("model",) if request.models else ()), *(("UUID",) if request.uuids else ()))
                why = f"not a requested {' or '.join(named_by)}"
            elif missing := request.traits & ~int(cards.stored.traits[slot, row]):
                why = _without(missing, cards.slots[row][slot].card)
            elif not may[slot]:
                why = _bar(cards, request, row, slot)
            elif free < request.units_per_card:
                why = f"{request.units_per_card - free} short"
            else:
                why = next((one.reason for one in rejections if one.rejected[slot, 0]), "")
            found.append(CardVerdict(slot, free, _health(cards, row, slot), why))
    return found


def _without(missing: int, card: inventory.Card) -> str:
    trait, (_, text) = next((trait, texts) for trait, texts in _WITHOUT.items() if missing & trait)
    return f"{text}: {one_line(card.unenforced)}" if trait == ENFORCED and card.unenforced else text


def _health(cards: CardColumns, row: int, slot: int) -> str:
    out = Out(int(out_codes(cards, slice(row, row + 1))[slot, 0]))
    reason = cards.slots[row][slot].card.reason[:_LONGEST_REASON]
    return (out.name.lower().replace("_", " ") if out else "healthy") + (f" ({reason})" if reason else "")


def _bar(cards: CardColumns, request: GpuRequest, row: int, slot: int) -> str:
    """Return why a card that the pod would take cannot be allocated to it."""
    with cards.viewing(cards.width_of(row)):
        out = Out(int(out_codes(cards, slice(row, row + 1))[slot, 0]))
    if out is not Out.IN_USE:
        return _health(cards, row, slot)
    if cards.stored.exclusive[slot, row]:
        return _HELD_ALONE
    return _IN_COMPANY if request.exclusive else _CLOSED


def _which(bar: str) -> str:
    """Return text such as `a card held exclusively` or `an unhealthy card (xid-79)`."""
    if bar in {_HELD_ALONE, _IN_COMPANY}:
        return f"a card {bar}"
    state, opening, reason = bar.partition(" (")
    return _STATES.get(state, f"a {state} card") + opening + reason


def _row_numbers(cards: CardColumns, rows: Rows) -> RowArray:
    return np.arange(cards.stored.units.shape[1])[rows] if isinstance(rows, slice) else rows


def narrowed(
    cards: CardColumns, request: GpuRequest, rows: Rows, there: BoolArray
) -> Iterator[tuple[BoolArray, str, Callable[[BoolArray], Detail] | None]]:
    """Yield fewer and fewer cards: those that the pod names, then those with each trait that it needs.

    Each with the reason for rows that have too few of them, and the reason's numbers. there: all cards.
    """
    if request.models or request.uuids:
        there = there & named(cards, request, rows)
        models = partial(models_there, cards, request, rows) if request.models else None
        yield there, "node(s) had too few of the requested cards", models
    for trait, (reason, _) in _WITHOUT.items():
        if request.traits & trait:
            there = there & having(cards, trait, rows)
            yield there, reason, None


def all_unhealthy(cards: CardColumns, rows: Rows) -> BoolArray:
    """Return bool[rows]: nothing is allocatable, and every card is unhealthy."""
    there, unhealthy = cards.units[:, rows] > 0, cards.unhealthy[:, rows]
    found: BoolArray = (cards.state[rows] == _NOT_ALLOCATABLE) & there.any(axis=0) & ~(there & ~unhealthy).any(axis=0)
    return found


def out_of_use(
    cards: CardColumns, request: GpuRequest, rows: Rows, there: BoolArray, short: BoolArray
) -> Iterator[Rejection]:
    """Reject rows that have enough cards of sufficient size, but too few of them usable.

    The reason names the worst health of the unusable cards of the row.
    there: bool[cards, rows], cards that the pod may request. short: bool[rows], rows not explained yet.
    """
    if not short.any():
        return
    usable = cards.usable[:, rows]
    large = there & (cards.units[:, rows] >= request.units_per_card)
    few = short & (large.sum(axis=0) >= request.cards) & ((there & usable).sum(axis=0) < request.cards)
    if not few.any():
        return
    out = large & ~usable
    worst = np.where(out, out_codes(cards, rows), len(Out)).min(axis=0)
    for code, reason in OUT_OF_USE.items():
        here = few & (worst == int(code))
        if here.any():
            yield Rejection(here, reason, partial(cards_out, cards, rows, out))


def memory_reason(request: GpuRequest) -> str:
    """Return the reason for nodes where too few cards have the memory."""
    how_many = "one card" if request.cards == 1 else f"{request.cards} cards"
    return f"Insufficient GPU memory on {how_many}{' without other pods' if request.exclusive else ''}"
