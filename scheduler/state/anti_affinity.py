"""Required anti-affinity terms of pods that have a node, and the topology domains that they keep others out of.

    absent --add--> HELD --remove--> absent
                     | ^
                     +-+ node_changed: the node's labels, and so the domain

Equal terms of many pods are one `Term` with a count per domain. Owned by the event loop; no method awaits.
Source: kube-scheduler, plugins/interpodaffinity/filtering.go, getExistingAntiAffinityCounts, and
framework/types.go, AffinityTerm.Matches.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import numpy as np

from scheduler.kube.objects import PodAffinityTerm
from scheduler.state.arrays import BoolArray, Rows
from scheduler.state.labels import ABSENT, LabelColumn, Labels
from scheduler.state.selectors import Expressions, match, of_label_selector


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


@dataclass(slots=True, eq=False)
class Term:
    """One term of some pods. holders: how many. domains: topology value -> how many of them are there."""

    key: TermKey
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

    def enter(self, domain: str) -> bool:
        """One more pod is in `domain`; whether it is the first."""
        self.domains[domain] += 1
        first = self.domains[domain] == 1
        self._changes += first
        return first

    def leave(self, domain: str) -> bool:
        """One pod less is in `domain`; whether it was the last."""
        self.domains[domain] -= 1
        last = self.domains[domain] == 0
        if last:
            del self.domains[domain]
        self._changes += last
        return last


@dataclass(slots=True)
class _Held:
    """The terms of one pod. domains: where each counts; None where the node lacks the topology key."""

    row: int
    terms: tuple[Term, ...]
    domains: list[str | None]


class AntiAffinity:
    """The terms, and who they keep away.

    epoch: moves when the answer for some row may have changed although that row did not.
    terms_version: moves when `against` may answer differently.
    """

    def __init__(self, labels: Labels, namespaces: Mapping[str, Mapping[str, str]]) -> None:
        """labels: of the nodes. namespaces: labels by name. Both are read only, and stay the caller's."""
        self._labels = labels
        self._namespaces = namespaces
        self._terms: dict[TermKey, Term] = {}
        self._held: dict[str, _Held] = {}
        self._uids_on: dict[int, set[str]] = {}
        self._uses: Counter[str] = Counter()
        self._keys: tuple[str, ...] = ()
        self._keys_version = 0
        self.epoch = 0
        self.terms_version = 0

    def __bool__(self) -> bool:
        """Whether any pod has a term that can match."""
        return bool(self._terms)

    def add(self, uid: str, namespace: str, terms: tuple[PodAffinityTerm, ...], row: int) -> None:
        """A pod with required anti-affinity is on `row`."""
        keys = [key for term in terms if (key := term_key(term, namespace)) is not None]
        held = _Held(row, tuple(self._hold(key) for key in keys), [None] * len(keys))
        self._held[uid] = held
        self._uids_on.setdefault(row, set()).add(uid)
        self._move(held, self._domains(held))

    def remove(self, uid: str) -> None:
        """The pod is gone, or its node is; one that is not here is left alone."""
        held = self._held.pop(uid, None)
        if held is None:
            return
        self._move(held, [None] * len(held.terms))
        for term in held.terms:
            self._release(term)
        others = self._uids_on[held.row]
        others.discard(uid)
        if not others:
            del self._uids_on[held.row]

    def node_changed(self, row: int) -> None:
        """The labels of `row` may be others."""
        for uid in self._uids_on.get(row, ()):
            held = self._held[uid]
            self._move(held, self._domains(held))

    def namespace_changed(self) -> None:
        """A namespace came, went, or has other labels."""
        if any(key.namespace_selector is not None for key in self._terms):
            self.epoch += 1
            self.terms_version += 1

    def signature(self, namespace: str, labels: Mapping[str, str]) -> Hashable:
        """Equal for pods that no term tells apart; () while there are no terms."""
        if not self._terms:
            return ()
        return (self._keys_version, namespace, *(labels.get(key) for key in self._keys))

    def against(self, namespace: str, labels: Mapping[str, str]) -> tuple[Term, ...]:
        """The terms that match a pod."""
        # A namespace that was not seen yet counts as one without labels, as in kube-scheduler.
        about = self._namespaces.get(namespace, {})
        return tuple(term for key, term in self._terms.items() if key.matches(namespace, about, labels))

    def _hold(self, key: TermKey) -> Term:
        term = self._terms.get(key)
        if term is None:
            term = self._terms[key] = Term(key)
            self._uses.update({expression.key for expression in key.selector})
            self._terms_changed()
        term.holders += 1
        return term

    def _release(self, term: Term) -> None:
        term.holders -= 1
        if term.holders:
            return
        del self._terms[term.key]
        self._uses.subtract({expression.key for expression in term.key.selector})
        self._terms_changed()

    def _terms_changed(self) -> None:
        self.terms_version += 1
        self._uses = +self._uses
        keys = tuple(sorted(self._uses))
        if keys != self._keys:
            self._keys = keys
            self._keys_version += 1

    def _domains(self, held: _Held) -> list[str | None]:
        labels = self._labels.of_row(held.row)
        return [labels.get(term.key.topology_key) for term in held.terms]

    def _move(self, held: _Held, domains: list[str | None]) -> None:
        for term, old, new in zip(held.terms, held.domains, domains, strict=True):
            if old == new:
                continue
            if old is not None and term.leave(old):
                self._note(term, old, held.row)
            if new is not None and term.enter(new):
                self._note(term, new, held.row)
        held.domains = domains

    def _note(self, term: Term, domain: str, row: int) -> None:
        """The domain became open or closed. A domain of one node, such as a hostname, touches no other row."""
        column = self._labels.column(term.key.topology_key)
        code = column.values.code(domain)
        own = code is not None and column.codes[row] == code and code != ABSENT
        if column.values.uses(domain) > own:
            self.epoch += 1


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
