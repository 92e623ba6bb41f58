"""Victims on one node by plain amounts: cpu, memory, pod slots, and the memory of cards.

As in kube-scheduler (`scheduler.plugins.preemption.victims`), all pods of lower priority are removed and then put back
one at a time as long as the new pod still fits, those that a disruption budget protects first. With cards, this is done
for each set of the requested number of cards, because memory freed on other cards does not help. On cards, a few large
pods and many small ones often free the same amount, so every choice of a few pods is compared.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import combinations, compress
from math import comb
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from scheduler.plugins.card.card_reasons import memory_reason
from scheduler.plugins.node.node_resources_fit import TOO_MANY_PODS
from scheduler.plugins.preemption.victims import ABOVE_ALL, Candidate, Key, candidate, key_of, lower, moment
from scheduler.pods.effective_requests import CPU, EPHEMERAL_STORAGE, MEMORY
from scheduler.pods.gpu_request import GpuRequest
from scheduler.pods.pod import Pod
from scheduler.state.amounts import NOTHING, Amount
from scheduler.state.available_after_preemption import AvailableAfterPreemption
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

if TYPE_CHECKING:
    from scheduler.framework.what_if import WhatIf

# Number of card sets of one node that are evaluated, out of those compared only by their cards.
_MOST_SETS: Final = 16
_MOST_COMPARED: Final = 256
_FEWEST_OPEN: Final = 2
_MOST_OPEN: Final = 10
# There are too many alternatives to more victims.
_MOST_FEW: Final = 3
_NAMES: Final = {
    Amount.CPU_MILLIS: CPU,
    Amount.MEMORY_BYTES: MEMORY,
    Amount.EPHEMERAL_STORAGE_BYTES: EPHEMERAL_STORAGE,
}
_NATIVE: Final = frozenset(_NAMES.values())
_COLUMN: Final = {
    Amount.CPU_MILLIS: 0,
    Amount.MEMORY_BYTES: 1,
    Amount.EPHEMERAL_STORAGE_BYTES: 2,
    Amount.PODS: 3,
}


class _Holder(NamedTuple):
    """Potential victim. amounts: how much of each requested amount it holds; on: units by slot."""

    record: PodRecord
    amounts: tuple[int, ...]
    on: dict[int, int]
    protected: bool


def kept_place(pod: Pod, what_if: "WhatIf", going: Sequence[PodRecord], gpu_mem: str) -> Candidate | None:
    """Return cards for a nominated pod whose own are unknown, as after a restart: those that terminating pods hold.

    None if the cards are known or not requested, or if too little terminates.
    """
    kept = what_if.nominations.of(pod.key.uid)
    if kept is None or not kept.lacks_cards or not what_if.may_help_on(kept.node):
        return None
    row = what_if.tables.row_of[kept.node]
    found, _ = by_amounts(pod, what_if.minimum, what_if.tables, row, gpu_mem=gpu_mem, potential=going)
    for place in found:
        with what_if.trial(row, place.slots) as trial:
            for record in going:
                trial.lift(record)
            if trial.fits():
                return candidate(row, place.slots, going, 0)
    return None


def by_amounts(
    pod: Pod,
    minimum: Int64Array,
    tables: Tables,
    row: int,
    *,
    gpu_mem: str,
    potential: Sequence[PodRecord] | None = None,
    alternatives: bool = False,
) -> tuple[list[Candidate], tuple[str, ...]]:
    """Return the victims for each set of cards, cheapest first; or none, and the amounts that are too small.

    minimum: int64[amounts], the pod's minimum request. gpu_mem: the resource's name. potential: pods that may be
    evicted; None for all of lower priority. alternatives: also other victims for the same cards, see `_few`. The rules
    may require more victims.
    """
    potential = lower(pod, tables, row) if potential is None else potential
    asked = [amount for amount in Amount if amount is not Amount.CARD_UNITS and minimum[amount] != NOTHING]
    violating, others = tables.budgets.split(potential)
    holders = [
        _Holder(record, tuple(_held(record, amount) for amount in asked), _on(record), protected)
        for protected, records in ((True, violating), (False, others))
        for record in records
    ]
    rooms = [
        _left(tables, row, amount) - int(minimum[amount]) + sum(holder.amounts[place] for holder in holders)
        for place, amount in enumerate(asked)
    ]
    request = pod.template.gpu_request if minimum[Amount.CARD_UNITS] != NOTHING else None
    short = tuple(_reason(amount, gpu_mem) for amount, room in zip(asked, rooms, strict=True) if room < 0)
    if request is None:
        chosen = () if short else _few(holders, rooms, {}) if alternatives else (_victims(holders, rooms, {}),)
        return [_candidate(row, None, victims) for victims in chosen], short
    on_cards = _rooms_on_cards(tables, row, request, holders)
    if short or len(on_cards) < request.cards:
        return [], short or (memory_reason(request),)
    found = []
    for slots in _sets(request, holders, on_cards):
        own = {slot: on_cards[slot] for slot in slots}
        if alternatives:
            found += [_candidate(row, slots, few) for few in _few(holders, rooms, own, exclusive=request.exclusive)]
        else:
            found.append(_candidate(row, slots, _fewest(holders, rooms, own, exclusive=request.exclusive)))
    return sorted(found, key=attrgetter("key", "slots")), ()


def promising(
    pod: Pod, minimum: Int64Array, after: AvailableAfterPreemption, rows: RowArray, gpu_mem: str
) -> tuple[BoolArray, Counter[str]]:
    """Return (bool[rows]: enough is available without pods of lower priority, how many rows lack each amount).

    rows: must be counted in `after`. The other arguments are as in `by_amounts`.
    """
    reasons: Counter[str] = Counter()
    enough = np.ones(len(rows), dtype=np.bool_)
    for amount in Amount:
        if amount is not Amount.CARD_UNITS and minimum[amount] != NOTHING:
            lacks = after.available[amount, rows] < minimum[amount]
            reasons[_reason(amount, gpu_mem)] += int(np.count_nonzero(lacks))
            enough &= ~lacks
    request = pod.template.gpu_request
    if request is not None and minimum[Amount.CARD_UNITS] != NOTHING:
        served = after.serves(rows, request)
        reasons[memory_reason(request)] += int(np.count_nonzero(enough & ~served))
        enough &= served
    return enough, +reasons


def say_all(pod: Pod) -> bool:
    """Return whether amounts alone explain why a node has no room for the pod even without all potential victims."""
    return not pod.template.host_ports and pod.template.requests.keys() <= _NATIVE


def _left(tables: Tables, row: int, amount: Amount) -> int:
    if amount is Amount.NODE_UNITS:
        return int(tables.cards.node_free[row])
    column = _COLUMN[amount]
    return int(tables.resources.allocatable[column, row] - tables.resources.requested[column, row])


def _held(record: PodRecord, amount: Amount) -> int:
    if amount is Amount.PODS:
        return 1
    if amount is Amount.NODE_UNITS:
        return 0 if record.held is None else record.held.counted
    return record.pod.template.requests.get(_NAMES[amount], 0)


def _on(record: PodRecord) -> dict[int, int]:
    return {} if record.held is None else dict(record.held.places)


def _reason(amount: Amount, gpu_mem: str) -> str:
    if amount is Amount.PODS:
        return TOO_MANY_PODS
    return f"Insufficient {gpu_mem if amount is Amount.NODE_UNITS else _NAMES[amount]}"


def _rooms_on_cards(tables: Tables, row: int, request: GpuRequest, holders: Sequence[_Holder]) -> dict[int, int]:
    """Map usable slots to the units left over with the pod on the card and the card's holders evicted."""
    stored, rooms = tables.cards.stored, dict[int, int]()
    for slot in range(len(tables.cards.slots[row])):
        if _can_be_allocated(tables, row, slot, request, holders):
            free = int(stored.units[slot, row]) - int(stored.taken[slot, row])
            room = free + sum(holder.on.get(slot, 0) for holder in holders) - request.units_per_card
            if room >= 0:
                rooms[slot] = room
    return rooms


def _can_be_allocated(tables: Tables, row: int, slot: int, request: GpuRequest, holders: Sequence[_Holder]) -> bool:
    """Return whether the pod requests the card, and the card can be allocated once the holders are evicted."""
    stored, card = tables.cards.stored, tables.cards.slots[row][slot].card
    going = [holder.record for holder in holders if slot in holder.on]
    if request.exclusive:
        alone = int(stored.holders[slot, row]) == len(going)
    else:
        alone = int(stored.exclusive[slot, row]) == sum(record.exclusive for record in going)
    return (
        alone
        and bool(stored.usable[slot, row])
        and request.models.accepts(card.model)
        and request.uuids.accepts(card.uuid)
        and int(stored.traits[slot, row]) & request.traits == request.traits
    )


def _candidate(row: int, slots: tuple[int, ...] | None, victims: Sequence[_Holder]) -> Candidate:
    return candidate(row, slots, (holder.record for holder in victims), sum(holder.protected for holder in victims))


def _victims(
    holders: Sequence[_Holder], rooms: Sequence[int], on_cards: dict[int, int], *, exclusive: bool = False
) -> list[_Holder]:
    """Return the victims: holders that cannot be put back."""
    rooms, on_cards = list(rooms), dict(on_cards)
    # Usually the node has room for all of them; then only holders of the cards matter.
    plenty = all(room >= sum(holder.amounts[place] for holder in holders) for place, room in enumerate(rooms))
    victims = []
    for holder in holders:
        mine = [(slot, units) for slot, units in holder.on.items() if slot in on_cards]
        stays_out = any(exclusive or holder.record.exclusive or units > on_cards[slot] for slot, units in mine)
        if stays_out or not (plenty or all(a <= room for a, room in zip(holder.amounts, rooms, strict=True))):
            victims.append(holder)
            continue
        for slot, units in mine:
            on_cards[slot] -= units
        if not plenty:
            rooms = [room - amount for room, amount in zip(rooms, holder.amounts, strict=True)]
    return victims


class _Open(NamedTuple):
    """Pods on the cards, or that hold some of a short amount. forced: all of these must leave; pods: some of these."""

    forced: list[_Holder]
    pods: list[_Holder]
    short: list[int]

    @classmethod
    def of(
        cls, holders: Sequence[_Holder], rooms: Sequence[int], on_cards: dict[int, int], *, exclusive: bool
    ) -> "_Open":
        """Return the pods. The arguments are as for `_victims`."""
        short = [place for place, room in enumerate(rooms) if room < sum(holder.amounts[place] for holder in holders)]
        forced, pods = list[_Holder](), list[_Holder]()
        for holder in holders:
            here = any(slot in on_cards for slot in holder.on)
            if here and (exclusive or holder.record.exclusive):
                forced.append(holder)
            elif here or any(holder.amounts[place] for place in short):
                pods.append(holder)
        return cls(forced, pods, short)

    def amounts(self, rooms: Sequence[int], on_cards: dict[int, int]) -> tuple[Int64Array, Int64Array]:
        """Return (int64[pods, amounts]: what each holds, int64[amounts]: what pods that stay may hold together)."""
        held = [
            [*(pod.on.get(slot, 0) for slot in on_cards), *(pod.amounts[place] for place in self.short)]
            for pod in self.pods
        ]
        room = [*on_cards.values(), *(rooms[place] for place in self.short)]
        return np.array(held, dtype=np.int64), np.array(room, dtype=np.int64)


def _fewest(
    holders: Sequence[_Holder], rooms: Sequence[int], on_cards: dict[int, int], *, exclusive: bool
) -> list[_Holder]:
    """Return the victims with the smallest key among a few choices; otherwise the holders that cannot be put back."""
    forced, pods, _ = of = _Open.of(holders, rooms, on_cards, exclusive=exclusive)
    # Of two such pods, evicting the less important one is always better, if it suffices.
    if not _FEWEST_OPEN < len(pods) <= _MOST_OPEN:
        return _victims(holders, rooms, on_cards, exclusive=exclusive)
    held, room = of.amounts(rooms, on_cards)
    if not forced and (one := _only_one(pods, (held >= held.sum(axis=0) - room).all(axis=1).tolist())) is not None:
        return [one]
    goes = _sufficient(held, room)
    best = goes[_least_key([*pods, *forced], np.hstack((goes, np.ones((len(goes), len(forced)), dtype=np.bool_))))]
    return [*forced, *compress(pods, best)]


def _few(
    holders: Sequence[_Holder], rooms: Sequence[int], on_cards: dict[int, int], *, exclusive: bool = False
) -> list[list[_Holder]]:
    """Return `_fewest`, then other choices of as many victims or one more, of the first pods if they are many."""
    best = _fewest(holders, rooms, on_cards, exclusive=exclusive)
    of = _Open.of(holders, rooms, on_cards, exclusive=exclusive)
    fewest = len(best) - len(of.forced)
    if not 0 < fewest <= _MOST_FEW:
        return [best]
    held, room = of.amounts(rooms, on_cards)
    goes = _sufficient(held[:_MOST_OPEN], room - held[_MOST_OPEN:].sum(axis=0))[::-1]
    count = np.count_nonzero(goes, axis=1)
    few = goes[(count == fewest) | (count == fewest + 1)]
    return [best, *([*of.forced, *compress(of.pods, choice)] for choice in few)]


def _sufficient(held: Int64Array, room: Int64Array) -> BoolArray:
    """Return bool[choices, pods]: every choice of pods to leave after which the others hold at most `room`."""
    goes = _choices(len(held))
    return goes[((~goes).astype(np.int64) @ held <= room).all(axis=1)]


def _only_one(holders: Sequence[_Holder], enough: Sequence[bool]) -> _Holder | None:
    """Return the least important holder, if evicting it alone suffices."""
    if any(holder.record.going for holder in holders):
        return None
    ranks = [(holder.protected, holder.record.pod.priority) for holder in holders]
    lowest = min(ranks)
    alone = [holder for holder, rank, does in zip(holders, ranks, enough, strict=True) if does and rank == lowest]
    # The latest start; on ties the least important, which comes last.
    return max(reversed(alone), key=lambda holder: moment(holder.record.pod.started), default=None)


@cache
def _choices(count: int) -> BoolArray:
    """Return bool[2 ** count, count]: every choice. Choices of less important pods come first, and so win ties."""
    numbers = np.arange(2**count)[::-1, np.newaxis]
    return np.asarray(numbers >> np.arange(count) & 1, dtype=np.bool_)


def _least_key(holders: Sequence[_Holder], goes: BoolArray) -> int:
    """Return the row of `goes` with the smallest `key_of`, on ties with the fewest pods.

    goes: bool[choices, holders], at least one choice.
    """
    everybody = np.count_nonzero(goes, axis=1)
    goes = goes & [not holder.record.going for holder in holders]
    priorities = np.array([holder.record.pod.priority for holder in holders], dtype=np.int64)
    moments = np.array([moment(holder.record.pod.started) for holder in holders], dtype=np.int64)
    violations = np.count_nonzero(goes & [holder.protected for holder in holders], axis=1)
    highest = np.where(goes, priorities, NOTHING).max(axis=1)
    of_highest = goes & (priorities == highest[:, np.newaxis])
    earliest = np.where(of_highest, moments, np.iinfo(np.int64).max).min(axis=1)
    count = np.count_nonzero(goes, axis=1)
    total = goes @ priorities + count * ABOVE_ALL
    return int(np.lexsort((everybody, -earliest, count, total, highest, violations))[0])


def _sets(request: GpuRequest, holders: Sequence[_Holder], on_cards: dict[int, int]) -> list[tuple[int, ...]]:
    """Return the cheapest sets of cards, by the memory on these cards."""
    if request.cards == 1:
        return [(slot,) for slot in on_cards]
    on_any = [holder for holder in holders if holder.on]
    alone = {
        slot: _victims(
            [holder for holder in on_any if slot in holder.on], [], {slot: room}, exclusive=request.exclusive
        )
        for slot, room in on_cards.items()
    }

    def cost(slots: Iterable[int]) -> Key:
        victims = {id(holder): holder for slot in slots for holder in alone[slot]}.values()
        costly = [holder for holder in victims if not holder.record.going]
        return key_of([holder.record for holder in costly], sum(holder.protected for holder in costly))

    if comb(len(alone), request.cards) <= _MOST_COMPARED:
        return sorted(combinations(alone, request.cards), key=lambda slots: (cost(slots), slots))[:_MOST_SETS]
    return [_one_by_one(alone, request.cards, cost)]


def _one_by_one(slots: Iterable[int], cards: int, cost: Callable[[Iterable[int]], Key]) -> tuple[int, ...]:
    """Choose the requested number of cards greedily, by the cost of the set."""
    left, chosen = set(slots), list[int]()
    for _ in range(cards):
        cheapest = min(left, key=lambda slot: (cost((*chosen, slot)), slot))
        left.discard(cheapest)
        chosen.append(cheapest)
    return tuple(sorted(chosen))
