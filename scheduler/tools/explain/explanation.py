"""A pod against every node: the rules that object, the cards, and the pods on them."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from scheduler.core.scheduling_cycle import PodEvaluation
from scheduler.framework.diagnosis import count_reasons
from scheduler.framework.plugin import Rejection
from scheduler.plugins.card.card_choice import by_width, selected
from scheduler.plugins.node.node_affinity import NodeAffinity
from scheduler.plugins.node.node_name import NodeName
from scheduler.pods.pod import Pod
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.tables import Tables
from scheduler.tools.explain.answers import ExplainedCard, ExplainedNode, HeldUnits, ReasonGroup, RuleRejection
from scheduler.tools.explain.causes import cause
from scheduler.tools.explain.reading import ClusterSnapshot

MOST_NODES: Final = 10
_MOST_EXAMPLES: Final = 3
_SELECTING: Final = frozenset({NodeAffinity.name, NodeName.name})


def reasons(tables: Tables, judged: PodEvaluation) -> tuple[ReasonGroup, ...]:
    """Every node under the reasons of the first rule that rejects it; the most frequent first."""
    left, groups = tables.valid, []
    for rule, rejections in judged.rules:
        for rejection in rejections:
            for counted in count_reasons(left, [[rejection]], tables.names):
                text, examples = str(counted).partition(" ")[2], counted.examples[:_MOST_EXAMPLES]
                groups.append(ReasonGroup(nodes=counted.nodes, rule=rule, reason=text, examples=examples))
        left = left & ~_rejected(rejections, left.shape)
    return tuple(sorted(groups, key=lambda group: -group.nodes))


def nearest(
    reading: ClusterSnapshot, pod: Pod, judged: PodEvaluation, most: int = MOST_NODES
) -> tuple[ExplainedNode, ...]:
    """The nominated node; then nodes where the pod could run at all, those with the fewest rejecting rules first.

    Ties by missing memory, then by name; at most `most`.
    """
    tables, kept = reading.engine.tables, reading.engine.nominations.of(pod.key.uid)
    rows = np.flatnonzero(tables.valid)
    blocked = sum(
        (_rejected(rejections, tables.valid.shape).astype(np.int64) for _, rejections in judged.rules),
        start=np.zeros(tables.valid.shape, dtype=np.int64),
    )
    keys = (
        tables.rank[rows],
        _short(tables, pod, rows),
        blocked[rows],
        ~np.isin(rows, judged.resolvable),
        _never_there(tables, pod, judged)[rows],
        rows != (-1 if kept is None else tables.row_of.get(kept.node, -1)),
    )
    order: RowArray = rows[np.lexsort(keys)][:most]
    return tuple(explained_node(reading, pod, judged, tables.names[row]) for row in order)


def _never_there(tables: Tables, pod: Pod, judged: PodEvaluation) -> Int64Array:
    """int64[nodes]: 2 if a pod that requests cards finds none; 0 if it could run; 1 if it never could.

    Never: its own selector excludes the node, or the cards are too small or too few, whatever pods leave.
    """
    never: BoolArray = np.zeros(tables.valid.shape, dtype=np.bool_)
    for rule, rejections in judged.rules:
        if rule in _SELECTING:
            never |= _rejected(rejections, never.shape)
    request, cards = pod.template.gpu_request, tables.cards
    if request is None:
        return never.astype(np.int64)

    def large_enough(rows: Rows) -> BoolArray:
        large = (cards.units[:, rows] >= request.units_per_card) & selected(cards, request, rows)
        return np.asarray(np.count_nonzero(large, axis=0) >= request.cards)

    never |= ~by_width(cards, slice(None), large_enough)
    without = ~by_width(cards, slice(None), lambda rows: np.asarray((cards.units[:, rows] > 0).any(axis=0)))
    return np.where(without, 2, never.astype(np.int64))


def explained_node(reading: ClusterSnapshot, pod: Pod, judged: PodEvaluation, name: str) -> ExplainedNode:
    """One node, without remedies: see `remedies`. KeyError if it does not exist."""
    tables = reading.engine.tables
    row = tables.row_of[name]
    only = np.zeros_like(tables.valid)
    only[row] = True
    rules = tuple(
        RuleRejection(rule=rule, reason=str(counted).partition(" ")[2], cause=cause(tables, pod, row, rejection.reason))
        for rule, rejections in judged.rules
        for rejection in rejections
        for counted in count_reasons(only, [[rejection]])
    )
    cards, short = _cards(reading, pod, judged, row), int(_short(tables, pod, np.array([row]))[0])
    return ExplainedNode(name=name, rules=rules, short_units=short, cards=cards, leaving=(), remedy="")


def _cards(reading: ClusterSnapshot, pod: Pod, judged: PodEvaluation, row: int) -> tuple[ExplainedCard, ...]:
    tables = reading.engine.tables
    slots, request = tables.cards.slots[row], pod.template.gpu_request
    needed = 0 if request is None else request.units_per_card
    held: dict[int, list[HeldUnits]] = {}
    for record in tables.records_on(tables.names[row]):
        for slot, units in () if record.held is None else record.held.places:
            held.setdefault(slot, []).append(
                HeldUnits(
                    pod=reading.named(record.pod.key),
                    units=units,
                    exclusive=record.exclusive,
                    terminating=record.pod.terminating,
                    nominated=record.nominated,
                )
            )
    return tuple(
        ExplainedCard(
            index=slots[verdict.slot].card.index,
            uuid=slots[verdict.slot].card.uuid,
            model=slots[verdict.slot].card.model,
            units=slots[verdict.slot].card.units,
            free=verdict.free,
            needed=needed,
            health=verdict.health,
            why=verdict.why,
            pods=tuple(sorted(held.get(verdict.slot, ()), key=lambda one: (-one.units, one.pod))),
        )
        for verdict in judged.verdicts(row)
    )


def _short(tables: Tables, pod: Pod, rows: RowArray) -> Int64Array:
    """int64[rows]: units that the best cards in use lack, as many cards as the pod asks; 0 for a pod that asks none."""
    request = pod.template.gpu_request
    if request is None:
        return np.zeros(len(rows), dtype=np.int64)
    stored = tables.cards.stored
    free = np.where(stored.available[:, rows], np.maximum(stored.free[:, rows], 0), 0).astype(np.int64)
    best = np.sort(free, axis=0)[::-1][: request.cards]
    missing: Int64Array = np.maximum(request.units_per_card - best, 0).sum(axis=0)
    return missing + request.units_per_card * max(0, request.cards - len(best))


def _rejected(rejections: Sequence[Rejection], shape: tuple[int, ...]) -> BoolArray:
    found = np.zeros(shape, dtype=np.bool_)
    for rejection in rejections:
        found |= rejection.rejected
    return found
