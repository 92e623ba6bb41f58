"""Required anti-affinity terms of pods that have a node, and the topology domains that they keep others out of.

Equal terms of many pods are one `AwayTerm` with a count per domain. A fact: `facts` says who undoes what.
Source: kube-scheduler, plugins/interpodaffinity/filtering.go, getExistingAntiAffinityCounts, and
framework/types.go, AffinityTerm.Matches.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from scheduler.kube.objects import Node, PodAffinityTerm
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Rows
from scheduler.state.columns.labels import LabelColumn, Labels
from scheduler.state.columns.selectors import Expressions, match, of_label_selector
from scheduler.state.facts.fact import Columns, NodeFact
from scheduler.state.facts.term_index import TermIndex

# (namespace, terms) of one pod.
_Read: TypeAlias = tuple[str, tuple[PodAffinityTerm, ...]]


@dataclass(frozen=True, slots=True)
class TermKey:
    """What a term asks. namespace_selector: None when it has none, () when it takes every namespace."""

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Expressions | None
    selector: Expressions

    def matches(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Whether it keeps a pod with these labels, in that namespace, away."""
        named = namespace in self.namespaces
        selected = self.namespace_selector is not None and match(self.namespace_selector, namespace_labels)
        return (named or selected) and match(self.selector, labels)


@dataclass(slots=True, eq=False, kw_only=True)
class AwayTerm:
    """One term of some pods. number: of no other term, ever.

    holders: how many. domains: topology value -> how many of them are there.
    """

    key: TermKey
    number: int
    holders: int = 0
    domains: Counter[str] = field(default_factory=Counter)
    _changes: int = 0
    _seen: tuple[LabelColumn, int, int] | None = None
    _kept_out: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    def over(self, labels: Labels, rows: Rows) -> BoolArray:
        """bool[rows], the caller's own: the row lies in a domain where a pod with this term is."""
        column = labels.column(self.key.topology_key)
        seen = (column, column.values.version, self._changes)
        if seen != self._seen:
            self._seen = seen
            # The last entry is for rows that lack the topology key: they are in no domain.
            self._kept_out = np.zeros(len(column.values) + 1, dtype=np.bool_)
            codes = [code for value in self.domains if (code := column.values.code(value)) is not None]
            self._kept_out[codes] = True
        return self._kept_out[column.codes[rows]]

    def count(self, domain: str, holders: int) -> None:
        """So many pods more (or fewer) are in `domain`."""
        before = self.domains[domain]
        self.domains[domain] += holders
        if not self.domains[domain]:
            del self.domains[domain]
        self._changes += (before == 0) != (before + holders == 0)


@dataclass(slots=True)
class _Here:
    """A term on one row. domain: where it counts; None where the node lacks the topology key."""

    term: AwayTerm
    holders: int
    domain: str | None


class AntiAffinity(NodeFact[_Read]):
    """The terms of all pods that have a node, and who they keep away.

    terms_version: moves when `against` may answer differently.
    """

    booking_change = Change.DOMAINS

    def __init__(self, tables: Columns) -> None:
        """No terms."""
        super().__init__(tables)
        self._terms: dict[TermKey, AwayTerm] = {}
        self._on: dict[int, dict[TermKey, _Here]] = {}
        # By the namespaces that they name, and those that select namespaces by label.
        self._naming: dict[str, TermIndex[AwayTerm]] = {}
        self._selecting: TermIndex[AwayTerm] = TermIndex()
        self._numbers = 0
        self.terms_version = 0

    def __bool__(self) -> bool:
        """Whether any pod has a term that can match."""
        return bool(self._terms)

    def read(self, pod: Pod) -> _Read | None:
        """The namespace and the required terms of a pod that has any."""
        terms = pod.template.anti_affinity
        return (pod.key.namespace, terms) if terms else None

    def book(self, row: int, read: _Read, sign: int) -> None:
        """As NodeFact."""
        namespace, terms = read
        for written in terms:
            key = term_key(written, namespace)
            if key is not None:
                self._enter(row, key) if sign > 0 else self._leave(row, key)

    def node_changed(self, row: int, node: Node | None) -> Change:
        """The node's labels, and so the domains, may be others."""
        labels = {} if node is None else node.metadata.labels or {}
        moved = False
        for here in self._on.get(row, {}).values():
            domain = labels.get(here.term.key.topology_key)
            if domain != here.domain:
                moved = True
                _count(here.term, here.domain, -here.holders)
                _count(here.term, domain, here.holders)
                here.domain = domain
        return Change.DOMAINS if moved else Change(0)

    def namespaces_changed(self) -> None:
        """A namespace came, went, or has other labels."""
        if any(key.namespace_selector is not None for key in self._terms):
            self.terms_version += 1

    def signature(self, namespace: str, labels: Mapping[str, str]) -> Hashable:
        """Which terms match: equal for pods that none tells apart, whatever other labels terms look at."""
        return tuple(term.number for term in self.against(namespace, labels)) if self._terms else ()

    def against(self, namespace: str, labels: Mapping[str, str]) -> tuple[AwayTerm, ...]:
        """The terms that match a pod, oldest first."""
        # A namespace that was not seen yet counts as one without labels, as in kube-scheduler.
        about = self.tables.namespaces.get(namespace, {})
        naming = self._naming.get(namespace)
        found = {
            term.number: term
            for index in (self._selecting, naming)
            if index is not None
            for term in index.candidates(labels)
            if term.key.matches(namespace, about, labels)
        }
        return tuple(found[number] for number in sorted(found))

    def _enter(self, row: int, key: TermKey) -> None:
        term = self._terms.get(key)
        if term is None:
            self._numbers += 1
            term = self._terms[key] = AwayTerm(key=key, number=self._numbers)
            self.terms_version += 1
            for index in self._indexes(key):
                index.add(key.selector, term)
        on_row = self._on.setdefault(row, {})
        here = on_row.get(key)
        if here is None:
            here = on_row[key] = _Here(term, 0, self.tables.labels.of_row(row).get(key.topology_key))
        term.holders += 1
        here.holders += 1
        _count(term, here.domain, 1)

    def _leave(self, row: int, key: TermKey) -> None:
        here = self._on[row][key]
        term = here.term
        term.holders -= 1
        here.holders -= 1
        _count(term, here.domain, -1)
        if not here.holders:
            del self._on[row][key]
            if not self._on[row]:
                del self._on[row]
        if not term.holders:
            del self._terms[key]
            self.terms_version += 1
            for index in self._indexes(key):
                index.discard(key.selector, term)
            for namespace in key.namespaces:
                if not self._naming[namespace]:
                    del self._naming[namespace]

    def _indexes(self, key: TermKey) -> Iterator[TermIndex[AwayTerm]]:
        """Where a term is looked for."""
        if key.namespace_selector is not None:
            yield self._selecting
        for namespace in key.namespaces:
            yield self._naming.setdefault(namespace, TermIndex())


def _count(term: AwayTerm, domain: str | None, holders: int) -> None:
    if domain is not None:
        term.count(domain, holders)


def term_key(term: PodAffinityTerm, namespace: str) -> TermKey | None:
    """What a term of a pod in `namespace` asks; None when it can match no pod.

    matchLabelKeys and mismatchLabelKeys are not read: the API server has merged them into the selector.
    """
    selector = of_label_selector(term.label_selector)
    if selector is None:
        return None
    own_only = not term.namespaces and term.namespace_selector is None
    names = frozenset({namespace} if own_only else term.namespaces)
    return TermKey(term.topology_key, names, of_label_selector(term.namespace_selector), selector)
