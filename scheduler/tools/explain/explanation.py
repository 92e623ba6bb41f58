"""Explains a pod on every node: the rules that reject it, the cards, and the pods on them.

Includes the cause of a rule's reason in the pod and the node: the taint, the label, or the claim by name. The reasons
themselves are kube-scheduler's and name nothing, so that a message stays short on any cluster.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final

import numpy as np

from scheduler.core.scheduling_cycle import PodEvaluation
from scheduler.framework.diagnosis import count_reasons
from scheduler.framework.plugin import Rejection
from scheduler.plugins.card.card_choice import by_width, selected
from scheduler.plugins.card.card_reasons import verdicts
from scheduler.plugins.node import taint_toleration
from scheduler.plugins.node.node_affinity import NodeAffinity
from scheduler.plugins.node.node_name import NodeName
from scheduler.plugins.pod import pod_topology_spread, spread_constraints
from scheduler.plugins.pod.inter_pod_affinity import NO_COMPANY
from scheduler.plugins.volume import volume_binding
from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import PodClaim
from scheduler.process.terminal import some
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.tables import Tables
from scheduler.state.volumes.claim_state import Bound, ClaimState, Delayed, Immediate
from scheduler.tools.explain.answers import ExplainedCard, ExplainedNode, HeldUnits, ReasonGroup, RuleRejection
from scheduler.tools.explain.reading import ClusterSnapshot

_MOST: Final = 3


def cause(tables: Tables, pod: Pod, row: int, reason: str) -> str:
    """Return the cause on one node; "" if the reason is complete, or nothing more is known."""
    told = _CAUSES.get(reason)
    return "" if told is None else told(tables, pod, row)


def blocking_claims(tables: Tables, pod: Pod) -> Iterator[str]:
    """Yield a sentence for each claim without a volume that no node can help; only a few."""
    unbound = [(used.name, one) for used, one in _claim_states(tables, pod) if isinstance(one, Immediate)]
    for name, claim_state in unbound[:_MOST]:
        yield f"Claim {pod.key.namespace}/{name} is not bound: {_unbound(tables, pod, name, claim_state)}."


def _unbound(tables: Tables, pod: Pod, name: str, claim_state: Immediate) -> str:
    claim = tables.volumes.claim((pod.key.namespace, name))
    class_name = "" if claim is None else claim.wants.class_name
    if claim_state.volume:
        return f"it is assigned PersistentVolume {claim_state.volume}" + (
            "" if tables.volumes.volume(claim_state.volume) is not None else ", which does not exist"
        )
    if not class_name:
        return "it names no StorageClass, and no PersistentVolume without a StorageClass is bound to it"
    known = tables.volumes.of_class(class_name)
    if known is None or known.known is None:
        return f"there is no StorageClass {class_name}"
    return f"its StorageClass {class_name} has neither provisioned nor bound a volume for it"


def _taints(tables: Tables, pod: Pod, row: int) -> str:
    found = [
        f"{taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
        for taint in tables.taints.of_row(row)
        if taint_toleration.has_untolerated((taint,), pod.template.tolerations)
    ]
    return some(found, _MOST)


def _lacking(tables: Tables, pod: Pod, row: int) -> str:
    return _labels(
        tables, row, (each.topology_key for each in spread_constraints.written(pod.template) if not each.soft)
    )


def _no_company(tables: Tables, pod: Pod, row: int) -> str:
    terms = pod.template.affinity.required_during_scheduling_ignored_during_execution
    return _labels(tables, row, (term.topology_key for term in terms))


def _labels(tables: Tables, row: int, keys: Iterator[str]) -> str:
    missing = [key for key in dict.fromkeys(keys) if key not in tables.labels.of_row(row)]
    nowhere = [key for key in missing if not len(tables.labels.column(key).values)]
    if nowhere:
        return f"no node has the label {some(nowhere, _MOST)}"
    return f"the node lacks the label {some(missing, _MOST)}" if missing else ""


def _skewed(tables: Tables, pod: Pod, row: int) -> str:
    labels = tables.labels.of_row(row)
    for each, held in spread_constraints.domains(pod.template, pod.key.namespace, pod.labels, tables):
        written = each.written
        own, fewest = labels.get(written.topology_key, ""), min(held, key=lambda domain: (held[domain], domain))
        enough = len(held) >= written.min_domains
        least = held[fewest] if enough else 0
        if held.get(own, 0) - least <= written.max_skew - each.takes_self:
            continue
        other = f"{fewest} has {least}" if enough else f"domains: {len(held)}, minDomains is {written.min_domains}"
        return f"{written.topology_key}: {own} has {held.get(own, 0)}, {other}, maxSkew is {written.max_skew}"
    return ""


def _claim_states(tables: Tables, pod: Pod) -> Iterator[tuple[PodClaim, ClaimState]]:
    return zip(dict.fromkeys(pod.volumes.claims), tables.volumes.of_pod(pod).claim_states, strict=True)


def _claims(tables: Tables, pod: Pod, matters: Callable[[ClaimState], str]) -> str:
    told = [(used.name, matters(claim_state)) for used, claim_state in _claim_states(tables, pod)]
    return some([f"claim {name}{text}" for name, text in told if text], _MOST)


def _delayed(tables: Tables, pod: Pod, row: int) -> str:  # noqa: ARG001 - as every cause
    def of_class(claim_state: ClaimState) -> str:
        if not isinstance(claim_state, Delayed):
            return ""
        being_made = (
            f", whose volume is being created on node {volume_binding.shown(claim_state.selected)}"
            if claim_state.selected
            else ""
        )
        return f" of StorageClass {claim_state.claim.wants.class_name}{being_made}"

    return _claims(tables, pod, of_class)


def _elsewhere(tables: Tables, pod: Pod, row: int) -> str:
    def volume(claim_state: ClaimState) -> str:
        reach = claim_state.reach if isinstance(claim_state, Bound) else None
        away = reach is not None and not reach.over(tables, slice(row, row + 1))[0]
        return f" has PersistentVolume {claim_state.volume}" if isinstance(claim_state, Bound) and away else ""

    return _claims(tables, pod, volume)


_CAUSES: Final[Mapping[str, Callable[[Tables, Pod, int], str]]] = {
    taint_toleration.REASON: _taints,
    pod_topology_spread.LACKING: _lacking,
    pod_topology_spread.SKEWED: _skewed,
    NO_COMPANY: _no_company,
    volume_binding.BIND_CONFLICT: _delayed,
    volume_binding.NOT_ENOUGH_SPACE: _delayed,
    volume_binding.NODE_CONFLICT: _elsewhere,
}


MOST_NODES: Final = 10
_MOST_EXAMPLES: Final = 3
_SELECTING: Final = frozenset({NodeAffinity.name, NodeName.name})


def reasons(tables: Tables, judged: PodEvaluation) -> tuple[ReasonGroup, ...]:
    """Group every node under the reasons of the first rule that rejects it, most frequent first."""
    left, groups = tables.valid, []
    for rule, rejections in judged.rules:
        for rejection in rejections:
            for counted in count_reasons(left, [[rejection]], tables.names):
                text, examples = str(counted).partition(" ")[2], counted.examples[:_MOST_EXAMPLES]
                groups.append(ReasonGroup(nodes=counted.nodes, rule=rule, reason=text, examples=examples))
        left = left & ~_rejected(rejections, left.shape)
    return tuple(sorted(groups, key=attrgetter("nodes"), reverse=True))


def nearest(reading: ClusterSnapshot, pod: Pod, judged: PodEvaluation) -> tuple[ExplainedNode, ...]:
    """Return the nominated node, then nodes where the pod could run at all, those with fewest rejecting rules first.

    Ties go by missing memory, then by name; at most MOST_NODES nodes.
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
    order: RowArray = rows[np.lexsort(keys)][:MOST_NODES]
    return tuple(explained_node(reading, pod, judged, tables.names[row]) for row in order)


def _never_there(tables: Tables, pod: Pod, judged: PodEvaluation) -> Int64Array:
    """Return int64[nodes]: 0 if the pod could run there; 1 if it never could; 2 if it requests cards and finds none.

    Never: its own selector excludes the node, or the cards are too small or too few, whichever pods leave.
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
    """Explain one node, without remedies: see `remedies`. Raises KeyError if it does not exist."""
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
                    pod=str(record.pod.key),
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
            isolation=slots[verdict.slot].card.isolation,
            pods=tuple(sorted(held.get(verdict.slot, ()), key=lambda one: (-one.units, one.pod))),
        )
        for verdict in verdicts(pod, tables, judged.state, row)
    )


def _short(tables: Tables, pod: Pod, rows: RowArray) -> Int64Array:
    """Return int64[rows]: units missing on the best cards in use, as many cards as requested; 0 if none requested."""
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
