"""Affinity terms of placed pods: the terms that match a pod, and the topology domains in which they count.

Equal terms of many pods are stored once, with a count per domain. For updates of facts, see `fact`.
Source: kube-scheduler, plugins/interpodaffinity/filtering.go, getExistingAntiAffinityCounts, and scoring.go,
processExistingPod.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from functools import reduce
from operator import or_
from typing import Final, TypeAlias

import numpy as np

from scheduler.kube.objects import Node, PodAffinityTerm
from scheduler.pods.pod import NO_TERMS, Pod, Template
from scheduler.state.changes import Change, domain_bit
from scheduler.state.columns.arrays import BoolArray, Int64Array, Rows, resized
from scheduler.state.columns.labels import LabelColumn
from scheduler.state.columns.row_masks import count_of
from scheduler.state.facts.fact import Columns, NodeFact
from scheduler.state.facts.pod_terms import PodTerms, TermKey, term_key

_FIRST_PAIRS: Final = 8


class _TermDomains:
    """Pairs of a term and a topology domain with at least one holder, in no particular order.

    Each pair uses the domain's code in the label column, so the code stays assigned as long as the pair exists.
    """

    def __init__(self, column: LabelColumn) -> None:
        """column: label column of the topology key."""
        self._column = column
        self._place_of: dict[tuple[int, int], int] = {}
        # By position of a pair: slot of the term, code of the domain, number of holders.
        self._slots: Int64Array = np.zeros(_FIRST_PAIRS, dtype=np.int64)
        self._codes: Int64Array = np.zeros(_FIRST_PAIRS, dtype=np.int64)
        self._holders: Int64Array = np.zeros(_FIRST_PAIRS, dtype=np.int64)

    def __bool__(self) -> bool:
        return bool(self._place_of)

    @property
    def column(self) -> LabelColumn:
        """Label column whose codes identify the domains."""
        return self._column

    def count(self, slot: int, domain: str, holders: int) -> None:
        """Add `holders`, which may be negative, to the number of pods in `domain` that have the term."""
        code = self._column.values.code(domain)
        place = None if code is None else self._place_of.get((slot, code))
        if place is None:
            place = self._enter(slot, self._column.values.take(domain))
        self._holders[place] += holders
        if not self._holders[place]:
            self._leave(place)

    def among(self, wanted: BoolArray) -> BoolArray:
        """bool[codes + 1]: True for domains with a holder of a wanted term.

        The last element is for rows without the topology key. wanted: bool[slots].
        """
        pairs = len(self._place_of)
        domains = np.zeros(len(self._column.values) + 1, dtype=np.bool_)
        domains[self._codes[:pairs][wanted[self._slots[:pairs]]]] = True
        return domains

    def sums(self, weights: Int64Array) -> Int64Array:
        """int64[codes + 1]: sum of the weights of all holders in each domain.

        The last element is for rows without the topology key. weights: int64[slots].
        """
        pairs = len(self._place_of)
        each = weights.take(self._slots[:pairs]) * self._holders[:pairs]
        # Most pairs belong to terms that do not match.
        (some,) = (each != 0).nonzero()
        # Exact, because sums of the weights that pods may have stay far below 2^53.
        sums = np.bincount(self._codes.take(some), weights=each.take(some), minlength=len(self._column.values) + 1)
        return sums.astype(np.int64)

    def _enter(self, slot: int, code: int) -> int:
        place = len(self._place_of)
        if place == len(self._slots):
            shape = (2 * place,)
            self._slots, self._codes = resized(self._slots, shape, 0), resized(self._codes, shape, 0)
            self._holders = resized(self._holders, shape, 0)
        self._place_of[slot, code] = place
        self._slots[place], self._codes[place], self._holders[place] = slot, code, 0
        return place

    def _leave(self, place: int) -> None:
        """Remove a pair; the last one moves to its position."""
        slot, code, last = int(self._slots[place]), int(self._codes[place]), len(self._place_of) - 1
        self._place_of[int(self._slots[last]), int(self._codes[last])] = place
        del self._place_of[slot, code]
        for pairs in (self._slots, self._codes, self._holders):
            pairs[place] = pairs[last]
        self._column.values.drop(code)


# (weight of a term, the term)
Weighted: TypeAlias = tuple[int, PodAffinityTerm]
# (namespace of a pod, its terms)
_Read: TypeAlias = tuple[str, tuple[Weighted, ...]]


class ExistingTerms(NodeFact[_Read]):
    """Terms of all placed pods. terms: each distinct term once."""

    def __init__(self, tables: Columns) -> None:
        super().__init__(tables)
        self.terms: PodTerms[TermKey] = PodTerms()
        # By row: slot -> number of the row's pods that have the term; and the labels that name their domains.
        self._on: dict[int, Counter[int]] = {}
        self._labels: dict[int, Mapping[str, str]] = {}
        self._domains: dict[str, _TermDomains] = {}

    def __bool__(self) -> bool:
        """Whether any pod has a term that can match."""
        return bool(self.terms)

    @abstractmethod
    def terms_of(self, template: Template) -> Iterable[Weighted]:
        """Terms of a pod that this fact counts."""

    def read(self, pod: Pod) -> _Read | None:
        """Namespace and terms of a pod; None if it has no such terms."""
        template = pod.template
        if template.affinity is NO_TERMS and template.anti_affinity is NO_TERMS:
            return None
        terms = tuple(self.terms_of(template))
        return (pod.key.namespace, terms) if terms else None

    def book(self, row: int, read: _Read, sign: int) -> None:
        namespace, terms = read
        for weight, written in terms:
            key = term_key(written, namespace, weight)
            if key is not None:
                self._enter(row, key) if sign > 0 else self._leave(row, key)

    def node_changed(self, row: int, node: Node | None) -> Change:
        """Update the counts for a node whose labels, and therefore topology domains, may have changed."""
        labels = {} if node is None else node.metadata.labels or {}
        old = self._labels.get(row, labels)
        if labels == old:
            return Change(0)
        moved = [
            (slot, holders)
            for slot, holders in self._on[row].items()
            if old.get(key := self.terms.key(slot).topology_key) != labels.get(key)
        ]
        for slot, holders in moved:
            self._count(row, slot, -holders)
        self._labels[row] = labels
        for slot, holders in moved:
            self._count(row, slot, holders)
            self.moved |= domain_bit(self.terms.number(slot))
        return Change(0)

    def namespaces_changed(self) -> None:
        self.terms.namespaces_changed()

    def bits(self, against: Int64Array) -> int:
        """Bits that a change carries when the terms in these slots open a domain; see `domain_bit`."""
        return reduce(or_, (domain_bit(self.terms.number(slot)) for slot in against.tolist()), 0)

    def signature(self, namespace: str, labels: Mapping[str, str]) -> Hashable:
        """Key of the terms that match a pod like this: equal for pods that the same terms match."""
        return self.terms.signature(self.against(namespace, labels)) if self.terms else ()

    def against(self, namespace: str, labels: Mapping[str, str]) -> Int64Array:
        """Slots of the terms that match a pod, ascending."""
        # A namespace that has not been seen yet counts as one without labels, as in kube-scheduler.
        return self.terms.matching(namespace, self.tables.namespaces.get(namespace, {}), labels)

    def _enter(self, row: int, key: TermKey) -> int:
        slot = self.terms.take(key)
        self._on.setdefault(row, Counter())[slot] += 1
        self._labels.setdefault(row, self.tables.labels.of_row(row))
        self._count(row, slot, 1)
        return slot

    def _leave(self, row: int, key: TermKey) -> None:
        slot, on_row = self.terms.slot(key), self._on[row]
        self._count(row, slot, -1)
        self.moved |= domain_bit(self.terms.number(slot))
        on_row[slot] -= 1
        if not on_row[slot]:
            del on_row[slot]
            if not on_row:
                del self._on[row], self._labels[row]
        self.terms.drop(slot)

    def _count(self, row: int, slot: int, holders: int) -> None:
        """Add `holders`, which may be negative, to the number of the row's pods that have the term."""
        topology_key = self.terms.key(slot).topology_key
        domain = self._labels[row].get(topology_key)
        if domain is None:
            return
        domains = self._domains.get(topology_key)
        if domains is None:
            domains = self._domains[topology_key] = _TermDomains(self.tables.labels.column(topology_key))
        domains.count(slot, domain, holders)
        if not domains:
            del self._domains[topology_key]


class AntiAffinity(ExistingTerms):
    """Required anti-affinity: the domains from which it excludes other pods."""

    def terms_of(self, template: Template) -> Iterable[Weighted]:
        """Required terms."""
        return ((1, term) for term in template.anti_affinity.required_during_scheduling_ignored_during_execution)

    def closed(self, against: Int64Array, rows: Rows) -> BoolArray:
        """bool[rows], a new array: True if the row lies in a domain with a pod that has one of these terms."""
        closed = np.zeros(count_of(rows, self.tables.capacity), dtype=np.bool_)
        wanted = np.zeros(self.terms.size, dtype=np.bool_)
        wanted[against] = True
        for domains in self._domains.values():
            closed |= domains.among(wanted).take(domains.column.codes[rows])
        return closed


class Preferences(ExistingTerms):
    """Preferred terms of placed pods, and their required affinity, which also counts as a preference for the domain."""

    def __init__(self, tables: Columns, hard_weight: int) -> None:
        """hard_weight: weight of a required affinity term; 0 to leave those terms out."""
        super().__init__(tables)
        self._hard_weight = hard_weight
        self._weights: Int64Array = np.zeros(0, dtype=np.int64)

    def terms_of(self, template: Template) -> Iterable[Weighted]:
        """Preferred terms with their weight, negative for anti-affinity, and required affinity."""
        for_it, against_it = template.affinity, template.anti_affinity
        if self._hard_weight:
            yield from (
                (self._hard_weight, each) for each in for_it.required_during_scheduling_ignored_during_execution
            )
        for preferred in for_it.preferred_during_scheduling_ignored_during_execution:
            yield preferred.weight, preferred.pod_affinity_term
        for preferred in against_it.preferred_during_scheduling_ignored_during_execution:
            yield -preferred.weight, preferred.pod_affinity_term

    def sums(self, matching: Int64Array) -> Int64Array:
        """int64[nodes]: sum of the weights that these terms have on all pods in the row's domains.

        matching: slots of the terms.
        """
        total = np.zeros(self.tables.capacity, dtype=np.int64)
        weights = np.zeros(self.terms.size, dtype=np.int64)
        weights[matching] = self._weights[matching]
        for domains in self._domains.values():
            total += domains.sums(weights).take(domains.column.codes)
        return total

    def _enter(self, row: int, key: TermKey) -> int:
        slot = super()._enter(row, key)
        if slot >= len(self._weights):
            self._weights = resized(self._weights, (self.terms.size,), 0)
        self._weights[slot] = key.weight
        return slot
