"""Topology spread constraints of a class of pods in the form used by the rule, and sums over their domains.

Source: kube-scheduler, plugins/podtopologyspread/common.go, filtering.go and scoring.go.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from scheduler.framework.plugin import MAX_SCORE, POINT
from scheduler.kube import objects
from scheduler.plugins.node.node_affinity import required
from scheduler.plugins.node.taint_toleration import has_untolerated
from scheduler.pods.pod import Template
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.columns.labels import ABSENT, LabelColumn
from scheduler.state.columns.node_terms import Required
from scheduler.state.columns.selectors import Expressions, equalities, match, of_label_selector
from scheduler.state.columns.taints import Verdicts
from scheduler.state.facts.matching_pods import MatchingPods, Query
from scheduler.state.facts.node_domains import SELECTORS_BIT, TAINTS_BIT, label_bit
from scheduler.state.facts.pod_terms import TermKey
from scheduler.state.tables import Tables

_HOSTNAME: Final = "kubernetes.io/hostname"
_SOFT: Final = "ScheduleAnyway"
_POINTS: Final = MAX_SCORE // POINT


@dataclass(frozen=True, slots=True)
class WrittenConstraint:
    """A constraint from the pod's specification, with its selector parsed.

    selector: None matches no pod; for (), see `Constraint.query`.
    honors_…: whether only nodes that this rule allows for the pod count.
    """

    topology_key: str
    soft: bool
    max_skew: int
    min_domains: int
    selector: Expressions | None
    match_label_keys: tuple[str, ...]
    honors_affinity: bool
    honors_taints: bool

    def takes(self, labels: Mapping[str, str]) -> bool:
        """Return whether a pod with these labels is one of the spread pods."""
        return self.selector is not None and match(self.selector, labels)


@dataclass(frozen=True, slots=True)
class Constraint:
    """Constraint of a class of pods. query: the spread pods; None if it counts no pods.

    That is so for a selector that matches nothing, and also for one that matches everything: kube-scheduler counts no
    pods then (countPodsMatchSelector). takes_self: whether the pod itself will be one of the spread pods.
    """

    written: WrittenConstraint
    query: Query | None
    takes_self: bool


@dataclass(frozen=True, slots=True)
class Spread:
    """All constraints of a class of pods, hard and soft, each in their order.

    required, untolerated: the pod's node requirements and untolerated taints, for the constraints that honor them;
    required is None for all nodes. by_default: the constraints are not the pod's own. partial: a node that lacks a key
    still counts for the other constraints, as with kube-scheduler's own defaults.
    """

    hard: tuple[Constraint, ...]
    soft: tuple[Constraint, ...]
    required: Required | None
    untolerated: Verdicts
    by_default: bool = False
    partial: bool = False


NOT_SPREAD: Final = Spread((), (), None, Verdicts(lambda _: False, np.bool_))


@lru_cache(maxsize=1024)
def written(template: Template) -> tuple[WrittenConstraint, ...]:
    """Return the constraints in the specification of a template's pods."""
    return tuple(map(read, template.spread))


def read(constraint: objects.TopologySpreadConstraint) -> WrittenConstraint:
    """Read a constraint and parse its selector."""
    return WrittenConstraint(
        topology_key=constraint.topology_key,
        soft=constraint.when_unsatisfiable == _SOFT,
        max_skew=constraint.max_skew,
        min_domains=1 if constraint.min_domains is None else constraint.min_domains,
        selector=of_label_selector(constraint.label_selector),
        match_label_keys=constraint.match_label_keys,
        honors_affinity=constraint.node_affinity_policy != "Ignore",
        honors_taints=constraint.node_taints_policy == "Honor",
    )


def constraint_of(each: WrittenConstraint, namespace: str, labels: Mapping[str, str]) -> Constraint:
    """Return the constraint for a pod with these labels. The values of `match_label_keys` are the pod's own."""
    selector = each.selector
    if selector is not None and each.match_label_keys:
        # The API server has already merged them into the selector, unless its gate is off; adding them twice is
        # harmless.
        selector += equalities({key: labels[key] for key in each.match_label_keys if key in labels})
    query = Query((TermKey("", frozenset({namespace}), None, selector),), living=True) if selector else None
    return Constraint(each, query, each.takes(labels))


def spread_of(
    constraints: Sequence[Constraint], template: Template, *, by_default: bool = False, partial: bool = False
) -> Spread:
    """Return all constraints of a pod of this template. by_default, partial: see Spread."""
    return Spread(
        hard=tuple(each for each in constraints if not each.written.soft),
        soft=tuple(each for each in constraints if each.written.soft),
        required=required(template),
        untolerated=Verdicts(lambda taints: has_untolerated(taints, template.tolerations), np.bool_),
        by_default=by_default,
        partial=partial,
    )


def rejecting(spread: Spread, tables: Tables, rows: Rows) -> tuple[BoolArray, BoolArray]:
    """Return (bool[rows], bool[rows]): nodes that lack a label of a hard constraint, nodes that would be too skewed.

    The first constraint that rejects a node decides which.
    """
    lacking = np.zeros_like(tables.valid[rows])
    skewed = lacking.copy()
    places = [_places(tables.labels.column(each.written.topology_key)) for each in spread.hard]
    having_all = _having_all(places, tables)
    for each, of_row in zip(spread.hard, places, strict=True):
        counted = _counted(having_all, each.written, spread, tables)
        there = of_row[rows]
        allowed = each.written.max_skew - each.takes_self
        too_many = _above_least(each, of_row, counted, _pods(each, tables)) > allowed
        if tables.any_nominated and each.query is not None:
            # Nominated pods fill their own domain but open no other, because they may never arrive.
            placed = tables.fact(MatchingPods).placed(each.query)
            too_many |= _above_least(each, of_row, counted, placed) > allowed
        undecided = ~(lacking | skewed)
        lacks = there == 0
        lacking |= undecided & lacks
        skewed |= undecided & ~lacks & too_many[there]
    return lacking, skewed


def domains(
    template: Template, namespace: str, labels: Mapping[str, str], tables: Tables
) -> Iterator[tuple[Constraint, dict[str, int]]]:
    """Yield (hard constraint, number of spread pods by counted domain), for messages.

    Only the pod's own constraints count.
    A constraint without a counted domain is left out.
    """
    constraints = [constraint_of(each, namespace, labels) for each in written(template)]
    spread = spread_of(constraints, template)
    columns = [tables.labels.column(each.written.topology_key) for each in spread.hard]
    having_all = _having_all([_places(column) for column in columns], tables)
    for each, column in zip(spread.hard, columns, strict=True):
        counted, pods = _counted(having_all, each.written, spread, tables), _pods(each, tables)
        held: dict[str, int] = {}
        for row in np.flatnonzero(counted).tolist():
            domain = column.values.value(int(column.codes[row]))
            held[domain] = held.get(domain, 0) + int(pods[row])
        if held:
            yield each, held


def opened_by(spread: Spread, pods: MatchingPods) -> int:
    """Return the bits of changes of counted pods and nodes after which a rejected node may accept the pod."""
    bits = SELECTORS_BIT if spread.by_default else 0
    for each in spread.hard:
        bits |= label_bit(each.written.topology_key)
        if each.query is not None:
            # One more pod in the emptiest domain opens the others; one fewer in a full domain opens that domain.
            bits |= pods.bit(each.query, came=True) | pods.bit(each.query, came=False)
        if each.written.honors_taints:
            bits |= TAINTS_BIT
        if each.written.honors_affinity and spread.required is not None:
            for key in spread.required.keys:
                bits |= label_bit(key)
    return bits


def points(spread: Spread, tables: Tables, feasible: BoolArray) -> Int64Array | None:
    """Return int64[nodes]: 0..MAX_SCORE, higher for fewer pods; None if all feasible nodes are equal."""
    places = [_places(tables.labels.column(each.written.topology_key)) for each in spread.soft]
    having_all = tables.valid if spread.partial else _having_all(places, tables)
    scored = feasible & having_all
    count = int(np.count_nonzero(scored))
    if not count:
        return None
    raw = np.zeros(tables.capacity, dtype=np.float64)
    for each, of_row in zip(spread.soft, places, strict=True):
        raw += _score(each, of_row, scored, _counted(having_all, each.written, spread, tables), tables)
    # Go's math.Round; NumPy rounds halves to the even number.
    rounded = np.floor(raw + 0.5).astype(np.int64)
    lowest, highest = int(rounded[scored].min()), int(rounded[scored].max())
    if lowest == highest and count == np.count_nonzero(feasible):
        return None
    best = _POINTS * (highest + lowest - rounded) // highest if highest else np.full_like(rounded, _POINTS)
    return np.where(scored, best * POINT, 0)


def _score(each: Constraint, places: RowArray, scored: BoolArray, counted: BoolArray, tables: Tables) -> Int64Array:
    """Return float64[nodes]: the part of one constraint in the raw score; 0 if the label is missing.

    A domain weighs more if there are more domains, because each then holds fewer pods.
    """
    pods = _pods(each, tables)
    if each.written.topology_key == _HOSTNAME:
        domains = int(np.count_nonzero(scored))
        here = pods
    else:
        # A node without the label is in the domain "", which counts for the weight but scores nothing.
        places_or_empty = np.where(places == 0, _place_of_empty(each, tables), places)
        domains = int(np.count_nonzero(np.bincount(places_or_empty[scored])))
        here = np.bincount(places_or_empty, weights=pods * counted)[places_or_empty]
    return np.where(places == 0, 0.0, here * np.log(domains + 2) + (each.written.max_skew - 1))


def _place_of_empty(each: Constraint, tables: Tables) -> int:
    code = tables.labels.column(each.written.topology_key).values.code("")
    return 0 if code is None else code - ABSENT


def _above_least(each: Constraint, places: RowArray, counted: BoolArray, pods: Int64Array) -> Int64Array:
    """Return int64[places]: by how many pods each domain exceeds the domain with the fewest.

    counted: bool[nodes], nodes that count. pods: int64[nodes], spread pods. With fewer domains than `min_domains`, the
    minimum is 0.
    """
    size = int(places.max(initial=0)) + 1
    there = np.bincount(places[counted], minlength=size) > 0
    held = np.bincount(places, weights=pods * counted, minlength=size).astype(np.int64)
    enough = np.count_nonzero(there) >= max(1, each.written.min_domains)
    return held - held[there].min() if enough else held


def _pods(each: Constraint, tables: Tables) -> Int64Array:
    """Return int64[nodes]: the number of spread pods on each node."""
    if each.query is None:
        return np.zeros(tables.capacity, dtype=np.int64)
    return tables.fact(MatchingPods).counts(each.query)


def _places(column: LabelColumn) -> RowArray:
    """Return intp[nodes]: the index of each node's domain in a table of domains; 0 for nodes that lack the label."""
    return column.codes.astype(np.intp) - ABSENT


def _having_all(places: Sequence[RowArray], tables: Tables) -> BoolArray:
    """Return bool[nodes]: nodes with all the labels."""
    having = tables.valid
    for of_row in places:
        having = having & (of_row != 0)
    return having


def _counted(having_all: BoolArray, each: WrittenConstraint, spread: Spread, tables: Tables) -> BoolArray:
    """Return bool[nodes]: nodes of `having_all` that count under the policies of a constraint."""
    counted = having_all
    for allowed in _allowed(each, spread, tables):
        counted = counted & allowed
    return counted


def _allowed(each: WrittenConstraint, spread: Spread, tables: Tables) -> Iterator[BoolArray]:
    everything = slice(None)
    if each.honors_affinity and spread.required is not None:
        yield spread.required.over(tables, everything)
    if each.honors_taints:
        yield ~spread.untolerated.over(tables.taints, everything)
