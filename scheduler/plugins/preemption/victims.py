"""Victims on one node: all pods of lower priority, except those that can be put back.

First, the pods' cpu, memory, pod slots and cards are added up as plain numbers (`by_amounts`) for all compared nodes.
Then the rules check the cheapest candidates until they accept one. Source: kube-scheduler,
plugins/defaultpreemption/default_preemption.go (SelectVictimsOnNode), framework/preemption/ preemption.go
(pickOneNodeForPreemption), pkg/scheduler/util/utils.go (MoreImportantPod, GetEarliestPodStartTime).
"""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from scheduler.pods.pod import Pod, Template
from scheduler.state.cards.booking import CardShare
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables

if TYPE_CHECKING:
    from scheduler.framework.what_if import Trial, WhatIf

# Smaller is better: violations, highest priority, sum of priorities, victims, start of the most important one.
Key: TypeAlias = tuple[int, int, int, int, int]
# Prevents a few victims with negative priorities from ranking worse than many.
ABOVE_ALL: Final = 2**31
_NOT_STARTED: Final = 10**14
_LAST: Final = "~"
# Pods examined one at a time: this takes a few milliseconds.
PODS_PER_STEP: Final = 256
# For each node, the pods that hold most of the request; all of them are examined within one step.
MOST_VICTIMS: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Candidate node. victims: most important first.

    slots: cards that the victims free; None if no cards are requested. violations: victims that a disruption budget
    protects. key: the candidate with the smallest key is chosen.
    """

    row: int
    slots: tuple[int, ...] | None
    victims: tuple[PodRecord, ...]
    violations: int
    key: Key


def candidate(row: int, slots: tuple[int, ...] | None, victims: Iterable[PodRecord], violations: int) -> Candidate:
    """Return the candidate. victims: in any order.

    For a pod with cards, victims that are already terminating cost nothing.
    """
    ordered = tuple(sorted(victims, key=importance))
    costly = ordered if slots is None else tuple(record for record in ordered if not record.going)
    return Candidate(row=row, slots=slots, victims=ordered, violations=violations, key=key_of(costly, violations))


def key_of(victims: Sequence[PodRecord], violations: int) -> Key:
    """Return the sort key. An empty list of victims sorts first."""
    if not victims:
        return (-1, 0, 0, 0, 0)
    highest = max(record.pod.priority for record in victims)
    earliest = min(record.pod.started or _LAST for record in victims if record.pod.priority == highest)
    total = sum(record.pod.priority + ABOVE_ALL for record in victims)
    return violations, highest, total, len(victims), -moment(earliest)


def moment(started: str) -> int:
    """Return a number that grows with time; the largest for an invalid time. started: RFC 3339, whole seconds."""
    digits = "".join(filter(str.isdigit, started[:19]))
    return int(digits) if len(digits) == len(str(_NOT_STARTED)) - 1 else _NOT_STARTED


def importance(record: PodRecord) -> tuple[int, str, str, str]:
    """Return a sort key that is least for the most important pod: highest priority, then longest running, then name."""
    pod = record.pod
    return -pod.priority, pod.started or _LAST, pod.key.namespace, pod.key.name


def lower(pod: Pod, tables: Tables, row: int) -> list[PodRecord]:
    """Return pods of a node that may be evicted for the pod, most important first; at most MOST_VICTIMS.

    Mirror pods are left out: the kubelet keeps the static pod running, so deleting them frees nothing. For a pod with
    cards, pods that already terminate on another card come last, because no other pod has to replace them.
    """
    priority = pod.priority
    records = tables.records_on(tables.names[row])
    found = [one for one in records if one.pod.priority < priority and not (one.nominated or one.pod.mirror)]
    if len(found) > MOST_VICTIMS:
        templates = {record.pod.template for record in found}
        shares = {template: _share(template, pod.template) for template in templates}
        found = nlargest(MOST_VICTIMS, found, key=lambda record: (shares[record.pod.template], -record.pod.priority))
    found.sort(key=importance)
    if pod.template.gpu_request is not None:
        found.sort(key=attrgetter("going"))
    return found


def _share(held: Template, asked: Template) -> float:
    """Return the held share of the request, for the resource where it is largest."""
    shares = [held.requests.get(name, 0) / amount for name, amount in asked.requests.items()]
    if asked.gpu_units:
        shares.append(held.gpu_units / asked.gpu_units)
    return max(shares, default=0)


def agreed(
    pod: Pod, what_if: "WhatIf", found: Candidate, since: int
) -> Generator[None, None, tuple[Candidate | None, tuple[str, ...]]]:
    """Run `by_rules` as one step, or as two on a node with very many pods. since: as in `by_rules`."""
    if not what_if.is_there(found.row):
        return None, ()
    potential, tables = lower(pod, what_if.tables, found.row), what_if.tables
    if tables.pods_on(found.row) > PODS_PER_STEP:
        yield
        potential = [record for record in potential if tables.record(record.pod.key.uid) is record]
    return by_rules(what_if, found, potential, since)


def by_rules(
    what_if: "WhatIf", found: Candidate, potential: Sequence[PodRecord], since: int
) -> tuple[Candidate | None, tuple[str, ...]]:
    """Return (victims that the rules accept, ()), or (None, reasons, if known) without such victims.

    The victims are those of `found`, or others on the same node and cards.
    As in kube-scheduler, the pod must fit without any pod of lower priority, so their affinity does not help.
    potential: from `lower`. since: version of the tables in which no pod of `found` could stay.
    """
    if not what_if.is_there(found.row):
        return None, ()
    with what_if.trial(found.row, found.slots) as trial:
        trial.lift_all(potential)
        if not trial.fits():
            return None, trial.reasons()
        stay = [record for record in potential if record not in found.victims]
        if 0 < len(found.victims) == len(potential) - len(stay) and what_if.is_as_it_was(found.row, since):
            trial.put_back_all(stay)
            if trial.fits():
                return found, ()
            trial.lift_all(stay)
        violating, others = what_if.tables.budgets.split(potential)
        protected = _cannot_come_back(trial, violating)
        victims = (*protected, *_cannot_come_back(trial, others))
    return (candidate(found.row, found.slots, victims, len(protected)) if victims else None), ()


def without_all(pod: Pod, what_if: "WhatIf", row: int) -> tuple[str, ...]:
    """Return why the rules reject the pod even on a node without any pod of lower priority; () if they do not."""
    with what_if.trial(row) as trial:
        trial.lift_all(lower(pod, what_if.tables, row))
        return trial.reasons()


def shares_of(pod: Pod, tables: Tables, chosen: Candidate) -> tuple[CardShare, ...]:
    """Return the cards that the pod will get."""
    request = pod.template.gpu_request
    if request is None or chosen.slots is None:
        return ()
    announced = [tables.cards.slots[chosen.row][slot].card for slot in sorted(chosen.slots)]
    has_uuids = tables.inventory(tables.names[chosen.row]).has_uuids
    return tuple(CardShare(card.index, card.uuid if has_uuids else "", request.units_per_card) for card in announced)


def _cannot_come_back(trial: "Trial", records: Iterable[PodRecord]) -> list[PodRecord]:
    """Put the pods back one at a time, in order; return those that do not fit alongside the new pod."""
    victims = []
    for record in records:
        trial.put_back(record)
        if not trial.fits():
            trial.lift(record)
            victims.append(record)
    return victims
