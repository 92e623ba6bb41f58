"""The pods of one node that have to go for another: all of lower priority, less those that can come back.

Source: kube-scheduler, plugins/defaultpreemption/default_preemption.go (SelectVictimsOnNode), framework/preemption/
preemption.go (pickOneNodeForPreemption), pkg/scheduler/util/utils.go (MoreImportantPod, GetEarliestPodStartTime).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING, Final, TypeAlias

from scheduler.pods.gpu_request import GpuRequest
from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

if TYPE_CHECKING:
    from scheduler.framework.what_if import Trial, WhatIf

# Less is better: violations, highest priority, sum of priorities, victims, when the most important one has started.
Key: TypeAlias = tuple[int, int, int, int, int]
# So that a few victims with negative priorities are not worse than many.
_ABOVE_ALL: Final = 2**31
_NOT_STARTED: Final = 10**14
# Of one node; those that hold something that the pod lacks, the least important first.
MOST_VICTIMS: Final = 256
# Sets of cards that are tried on one node, of so many that are compared.
_MOST_TRIED: Final = 16
_MOST_COMPARED: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One node. victims: the most important one first. slots: the cards that they free, None where none is asked."""

    row: int
    slots: tuple[int, ...] | None
    victims: tuple[PodRecord, ...]
    violations: int

    @property
    def key(self) -> Key:
        """The least is chosen."""
        return key_of(self.victims, self.violations)


def key_of(victims: Sequence[PodRecord], violations: int) -> Key:
    """victims: at least one."""
    highest = max(record.pod.priority for record in victims)
    earliest = min(started(record.pod) for record in victims if record.pod.priority == highest)
    total = sum(record.pod.priority + _ABOVE_ALL for record in victims)
    return violations, highest, total, len(victims), -earliest


def started(pod: Pod) -> int:
    """A number that is larger for a pod that has started later; the largest while it has not."""
    digits = "".join(filter(str.isdigit, pod.started[:19]))
    return int(digits) if len(digits) == len(str(_NOT_STARTED)) - 1 else _NOT_STARTED


def importance(record: PodRecord) -> tuple[int, int, str]:
    """The most important pod has the least: the highest priority, then the longest running, then by name."""
    return -record.pod.priority, started(record.pod), str(record.pod.key)


def lower(pod: Pod, tables: Tables, row: int) -> list[PodRecord]:
    """The pods of a node that may be removed for the pod."""
    return [
        record
        for record in tables.records_on(tables.names[row])
        if record.pod.priority < pod.priority and not record.nominated
    ]


def selected(
    pod: Pod, what_if: "WhatIf", row: int, slots: tuple[int, ...] | None
) -> tuple[Candidate | None, tuple[str, ...]]:
    """The victims on one node, for a place on certain cards; or None and why there are none."""
    potential = sorted(lower(pod, what_if.tables, row), key=importance)
    with what_if.trial(row, slots) as trial:
        for record in potential:
            trial.lift(record)
        if not trial.fits():
            return None, trial.reasons()
        violating, others = what_if.tables.budgets.split(potential)
        protected = _cannot_come_back(trial, violating)
        victims = sorted((*protected, *_cannot_come_back(trial, others)), key=importance)
    if not victims:
        return None, ()
    return Candidate(row=row, slots=slots, victims=tuple(victims), violations=len(protected)), ()


def _cannot_come_back(trial: "Trial", records: Iterable[PodRecord]) -> list[PodRecord]:
    """In order: each that the pod leaves no room for."""
    victims = []
    for record in records:
        trial.put_back(record)
        if not trial.fits():
            trial.lift(record)
            victims.append(record)
    return victims


def shares_of(pod: Pod, tables: Tables, chosen: Candidate) -> tuple[CardShare, ...]:
    """The cards that the pod is to get."""
    request = pod.template.gpu_request
    if request is None or chosen.slots is None:
        return ()
    announced = [tables.cards.slots[chosen.row][slot].card for slot in sorted(chosen.slots)]
    has_uuids = tables.inventory(tables.names[chosen.row]).has_uuids
    return tuple(CardShare(card.index, card.uuid if has_uuids else "", request.units_per_card) for card in announced)


def card_sets(pod: Pod, tables: Tables, row: int) -> list[tuple[int, ...] | None]:
    """The sets of cards of a node that are worth a try for the pod, the cheapest first; [None] where any will do.

    What a set costs is worked out from the memory of its cards alone; what else stands in the way, the try shows.
    """
    request = pod.template.gpu_request
    if request is None:
        return [None]
    potential = sorted(lower(pod, tables, row), key=importance)
    violating = {record.pod.key.uid for record in tables.budgets.split(potential)[0]}
    victims: dict[int, list[PodRecord]] = {}
    for slot in range(len(tables.cards.slots[row])):
        found = _on_card(request, tables, row, slot, potential)
        if found is not None:
            victims[slot] = found

    def cost(slots: Iterable[int]) -> Key | tuple[()]:
        all_of_them = {record.pod.key.uid: record for slot in slots for record in victims[slot]}
        return key_of([*all_of_them.values()], len(violating & all_of_them.keys())) if all_of_them else ()

    if len(victims) < request.cards:
        return [None]
    if comb(len(victims), request.cards) <= _MOST_COMPARED:
        sets = sorted(combinations(victims, request.cards), key=lambda slots: (cost(slots), slots))
        return [*sets[:_MOST_TRIED]]
    return [_one_by_one(victims, request.cards, cost)]


def _one_by_one(slots: Iterable[int], cards: int, cost: Callable[[Iterable[int]], Key | tuple[()]]) -> tuple[int, ...]:
    """So many cards: always the one that makes the set least dear."""
    left, chosen = set(slots), list[int]()
    for _ in range(cards):
        cheapest = min(left, key=lambda slot: (cost((*chosen, slot)), slot))
        left.discard(cheapest)
        chosen.append(cheapest)
    return tuple(sorted(chosen))


def _on_card(
    request: GpuRequest, tables: Tables, row: int, slot: int, potential: Sequence[PodRecord]
) -> list[PodRecord] | None:
    """Who has to leave one card, as far as its memory goes; None where that is not enough, or the card not given."""
    stored = tables.cards.stored
    there = [(record, units) for record in potential for place, units in _places(record) if place == slot]
    room = int(stored.units[slot, row]) - int(stored.taken[slot, row]) + sum(units for _, units in there)
    room -= request.units_per_card
    if room < 0 or not stored.usable[slot, row]:
        return None
    victims = []
    for record, units in there:
        if request.exclusive or record.exclusive or units > room:
            victims.append(record)
        else:
            room -= units
    return victims


def _places(record: PodRecord) -> tuple[tuple[int, int], ...]:
    return () if record.held is None else record.held.places
