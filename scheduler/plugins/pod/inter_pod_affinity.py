"""InterPodAffinity: required and preferred affinity and anti-affinity, of the pod and of running pods.

Source: kube-scheduler, plugins/interpodaffinity/filtering.go and scoring.go.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
from pydantic import Field

from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import MAX_SCORE, POINT, DomainScorePlugin, FilterPlugin, PluginArgs, Rejection
from scheduler.kube import objects
from scheduler.pods.pod import NO_TERMS, Pod, Template
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Int64Array, Rows
from scheduler.state.columns.labels import ABSENT
from scheduler.state.columns.row_masks import count_of
from scheduler.state.facts.existing_terms import AntiAffinity, ExistingTerms, Preferences
from scheduler.state.facts.matching_pods import MatchingPods, Query
from scheduler.state.facts.node_domains import NodeDomains, label_bit
from scheduler.state.facts.pod_terms import TermKey, term_key
from scheduler.state.tables import Tables

NO_COMPANY: Final = "node(s) didn't match pod affinity rules"
BAD_COMPANY: Final = "node(s) didn't match pod anti-affinity rules"
KEPT_OUT: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

_POINTS: Final = MAX_SCORE // POINT


@dataclass(frozen=True, slots=True)
class Own:
    """The pod's own affinity terms, without those that cannot match any pod.

    affinity: a pod counts only if it matches all of these terms. impossible: one of them cannot match any pod.
    anti_affinity: each term counts alone. preferred: with weights, negative for anti-affinity.
    """

    affinity: tuple[TermKey, ...]
    impossible: bool
    anti_affinity: tuple[TermKey, ...]
    preferred: tuple[TermKey, ...]


_OWN: Final[StateKey[Own]] = StateKey("inter_pod_affinity.own")
# (PodTerms.version, the slots of the terms that match pods of this class)
_AGAINST: Final[StateKey[tuple[int, Int64Array]]] = StateKey("inter_pod_affinity.against")
_PREFERRING: Final[StateKey[tuple[int, Int64Array]]] = StateKey("inter_pod_affinity.preferring")


class InterPodAffinityArgs(PluginArgs):
    """Takes the same fields as in kube-scheduler."""

    hard_pod_affinity_weight: int = Field(
        1,
        ge=0,
        le=100,
        description="Points that a node gets for each pod on it whose required affinity matches the new pod.",
    )
    ignore_preferred_terms_of_existing_pods: bool = Field(
        False,  # noqa: FBT003 - a default
        description="Score nodes only for pods that have preferred terms of their own.",
    )


class InterPodAffinity(FilterPlugin, DomainScorePlugin):
    """Rejects nodes by the **required** affinity and anti-affinity of pods; prefers nodes by the **preferred**.

    A term covers pods whose labels match its `labelSelector` (`{}` matches all, a missing selector matches none). They
    are in the namespace of the term's own pod, in its `namespaces`, or in those that its `namespaceSelector` selects
    (`{}` selects all). The value of the label `topologyKey` names a node's domain; a node without that label is in no
    domain.

    - `node(s) didn't match pod affinity rules`: in one of the domains that the required affinity names there is no
      pod that matches all its terms, or the node lacks a label. If no pod anywhere matches but the pod itself does, it
      may be the first.
    - `node(s) didn't match pod anti-affinity rules`: a pod in the domain matches a required anti-affinity term.
    - `node(s) didn't satisfy existing pods anti-affinity rules`: a pod there has such a term, and this pod matches it.

    A node's score is the sum of the weights of the preferred terms that match, both of the pod and of pods in the
    domain (anti-affinity is subtracted), scaled between the lowest and the highest of the feasible nodes. Each running
    pod with a required affinity to this pod adds `hardPodAffinityWeight`. A pod with a term affects its whole domain,
    so the rule runs on all nodes at every decision. The API server has already merged `matchLabelKeys` and
    `mismatchLabelKeys` into the selector.
    Source: kube-scheduler, plugins/interpodaffinity.
    """

    name: ClassVar[str] = "InterPodAffinity"
    Args: ClassVar[type[PluginArgs]] = InterPodAffinityArgs
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.LABELS | Change.PODS | Change.DOMAINS
    default_weight: ClassVar[int] = 2

    def start(self, tables: Tables) -> None:
        """Count from the first pod on."""
        for fact in (AntiAffinity, MatchingPods, NodeDomains):
            tables.fact(fact)

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Rejection]:
        """Reject nodes without pods that the pod requires, with pods that it excludes, or with pods that exclude it."""
        found: list[Rejection] = []
        for rejected, reason in self._rejected(pod, tables, state, rows):
            # As in kube-scheduler, a node counts only under the first reason.
            for before in found:
                np.logical_and(rejected, ~before.rejected, out=rejected)
            # Evictions cannot provide a missing pod.
            found.append(Rejection(rejected, reason, unresolvable=reason == NO_COMPANY))
        return found

    def _rejected(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Iterator[tuple[BoolArray, str]]:
        """Yield bool[rows], owned by the caller, and the reason."""
        if _writes_terms(pod):
            own = _own_of(pod, state)
            if own.impossible:
                yield np.ones(count_of(rows, tables.capacity), dtype=np.bool_), NO_COMPANY
            elif own.affinity:
                yield ~_with_company(pod, own, tables, rows), NO_COMPANY
            if own.anti_affinity:
                yield _with_any(own.anti_affinity, tables, rows), BAD_COMPANY
        existing = tables.fact(AntiAffinity)
        if existing:
            against = _matching(pod, existing, state, _AGAINST)
            if len(against):
                yield existing.closed(against, rows), KEPT_OUT

    def opened_by(self, pod: Pod, tables: Tables, state: CycleState) -> int:
        """Return the bits of the changes after which a rejected node may accept the pod.

        Matching pods may come or go, and pods with a term that matches this pod may go.
        """
        existing = tables.fact(AntiAffinity)
        bits = existing.bits(_matching(pod, existing, state, _AGAINST)) if existing else 0
        if _writes_terms(pod):
            own, pods = _own_of(pod, state), tables.fact(MatchingPods)
            if own.affinity:
                company = Query.of(*own.affinity)
                bits |= pods.bit(company, came=True) | pods.bit(company, came=False)
            for term in own.anti_affinity:
                bits |= pods.bit(Query.of(term), came=False)
            for term in (*own.affinity, *own.anti_affinity):
                # When a node changes its domain, its pods change theirs.
                bits |= label_bit(term.topology_key)
        return bits

    def scores(self, pod: Pod) -> bool:
        """Return whether to score the pod: always, unless the preferences of running pods are ignored."""
        return not self.args.ignore_preferred_terms_of_existing_pods or _has_preferences(pod)

    def score_domains(self, pod: Pod, tables: Tables, state: CycleState, feasible: BoolArray) -> Int64Array | None:
        """Score the pod's preferences, and other pods' preferences about it. The lowest feasible node gets 0."""
        total: Int64Array | None = None
        existing = self._preferences(tables)
        if existing:
            matching = _matching(pod, existing, state, _PREFERRING)
            total = existing.sums(matching) if len(matching) else None
        if _has_preferences(pod):
            pods = tables.fact(MatchingPods)
            for term in _own_of(pod, state).preferred:
                here = term.weight * _in_domain(pods.counts(Query.of(term)), tables, term.topology_key)
                total = here if total is None else total + here
        if total is None or not feasible.any():
            return None
        among = total[feasible]
        lowest, highest = int(among.min()), int(among.max())
        return (total - lowest) * _POINTS // (highest - lowest) * POINT if highest > lowest else None

    def signature(self, pod: Pod, tables: Tables) -> Hashable:
        """Return the terms that match the pod; if it has terms, also its namespace, and whether it matches them."""
        namespace, labels = pod.key.namespace, pod.labels
        existing, preferring = tables.fact(AntiAffinity), self._preferences(tables)
        own = None
        if _writes_terms(pod):
            own = namespace, _may_be_first(pod, _read(pod.template, namespace), tables)
        return existing.signature(namespace, labels), preferring.signature(namespace, labels), own

    def _preferences(self, tables: Tables) -> Preferences:
        return tables.fact(Preferences, self.args.hard_pod_affinity_weight)


def _writes_terms(pod: Pod) -> bool:
    return _has_terms(pod) and (
        _has_preferences(pod)
        or any(
            side.required_during_scheduling_ignored_during_execution
            for side in (pod.template.affinity, pod.template.anti_affinity)
        )
    )


def _has_terms(pod: Pod) -> bool:
    """Return whether the pod has terms. Quickly False for most pods: the rule runs several times in a decision."""
    template = pod.template
    return template.affinity is not NO_TERMS or template.anti_affinity is not NO_TERMS


def _has_preferences(pod: Pod) -> bool:
    return _has_terms(pod) and any(
        side.preferred_during_scheduling_ignored_during_execution
        for side in (pod.template.affinity, pod.template.anti_affinity)
    )


def _own_of(pod: Pod, state: CycleState) -> Own:
    own = state.find(_OWN)
    if own is None:
        own = _read(pod.template, pod.key.namespace)
        state.write(_OWN, own)
    return own


@lru_cache(maxsize=1024)
def _read(template: Template, namespace: str) -> Own:
    required = template.affinity.required_during_scheduling_ignored_during_execution
    affinity = tuple(term_key(term, namespace) for term in required)
    return Own(
        affinity=tuple(term for term in affinity if term is not None),
        impossible=None in affinity,
        anti_affinity=tuple(_required(template.anti_affinity, namespace)),
        preferred=(*_preferred(template.affinity, namespace, 1), *_preferred(template.anti_affinity, namespace, -1)),
    )


def _required(side: objects.PodAffinity, namespace: str) -> Iterator[TermKey]:
    for written in side.required_during_scheduling_ignored_during_execution:
        if (term := term_key(written, namespace)) is not None:
            yield term


def _preferred(side: objects.PodAffinity, namespace: str, sign: int) -> Iterator[TermKey]:
    for preferred in side.preferred_during_scheduling_ignored_during_execution:
        if (term := term_key(preferred.pod_affinity_term, namespace, sign * preferred.weight)) is not None:
            yield term


def _may_be_first(pod: Pod, own: Own, tables: Tables) -> bool:
    """Return whether the pod matches all of its own affinity terms."""
    namespace = pod.key.namespace
    return bool(own.affinity) and Query.of(*own.affinity).matches(
        namespace, tables.namespaces.get(namespace, {}), pod.labels
    )


def _matching(
    pod: Pod, existing: ExistingTerms, state: CycleState, kept: StateKey[tuple[int, Int64Array]]
) -> Int64Array:
    """Return the slots of the terms that match the pod, recomputed when terms come or go."""
    now = existing.terms.version
    found = state.find(kept)
    if found is None or found[0] != now:
        found = (now, existing.against(pod.key.namespace, pod.labels))
        state.write(kept, found)
    return found[1]


def _with_company(pod: Pod, own: Own, tables: Tables, rows: Rows) -> BoolArray:
    """Return bool[rows]: for every term, the row's domain has a pod that matches all terms.

    True for all rows if the pod may be the first of its group.
    A nominated pod does not satisfy affinity, because it may never arrive. Source: kube-scheduler,
    RunFilterPluginsWithNominatedPods.
    """
    counts = tables.fact(MatchingPods).placed(Query.of(*own.affinity))
    here = [_in_domain(counts, tables, term.topology_key) for term in own.affinity]
    if not any(found.any() for found in here) and _may_be_first(pod, own, tables):
        codes = [tables.labels.column(term.topology_key).codes[rows] for term in own.affinity]
        return np.asarray(np.all([of_row != ABSENT for of_row in codes], axis=0))
    return np.asarray(np.all([found[rows] > 0 for found in here], axis=0))


def _with_any(terms: tuple[TermKey, ...], tables: Tables, rows: Rows) -> BoolArray:
    """Return bool[rows]: nodes in a domain where a pod matches one of the terms."""
    pods = tables.fact(MatchingPods)
    here = [_in_domain(pods.counts(Query.of(term)), tables, term.topology_key)[rows] > 0 for term in terms]
    return np.asarray(np.any(here, axis=0))


def _in_domain(counts: Int64Array, tables: Tables, topology_key: str) -> Int64Array:
    """Return int64[nodes]: `counts`, given by row, summed over the row's domain; 0 if the node lacks the key."""
    column = tables.labels.column(topology_key)
    places = column.codes - ABSENT
    # Few rows have a count, and testing for truth finds them fastest. `take` is faster than indexing with int32.
    (rows,) = (counts != 0).nonzero()
    sums = np.bincount(places.take(rows), weights=counts.take(rows), minlength=len(column.values) + 1)
    sums[0] = 0
    return sums.astype(np.int64).take(places)
