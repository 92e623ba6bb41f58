"""Counts of matching pods per node for each query of a rule, kept up to date.

A query is counted at its first use, in one pass over the labels of all pods. From then on, each booking updates the
counts of the queries that its pod matches, which are found by the pod's labels.

The labels of pods that have a node are columns, so one pass counts how many pods of each node match a selector.
Pods with equal labels share a label set, and selectors are compared with the sets.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from cachetools import LRUCache

from scheduler.pods.pod import Pod
from scheduler.state.changes import domain_bit
from scheduler.state.columns.arrays import BoolArray, Int32Array, Int64Array, resized
from scheduler.state.columns.label_sets import LabelSets
from scheduler.state.columns.selectors import Expressions, match
from scheduler.state.columns.vocabulary import Vocabulary
from scheduler.state.facts.fact import Columns, NodeFact
from scheduler.state.facts.pod_terms import PodTerms, TermKey

_FIRST_PLACES: Final = 64
_NOTHING: Final = -1


class _PodLabels:
    """Columns with one entry per pod: its namespace, its labels, its node's row and whether it is terminating."""

    def __init__(self) -> None:
        self._place_of: dict[str, int] = {}
        self._free: list[int] = list(range(_FIRST_PLACES - 1, -1, -1))
        self._sets = LabelSets()
        self._namespaces: Vocabulary[str] = Vocabulary()
        # By position of a pod: codes of its labels and namespace; its row, NOTHING for a free position; whether it is
        # terminating.
        self._labels: Int32Array = np.zeros(_FIRST_PLACES, dtype=np.int32)
        self._namespace: Int32Array = np.zeros(_FIRST_PLACES, dtype=np.int32)
        self._row: Int32Array = np.full(_FIRST_PLACES, _NOTHING, dtype=np.int32)
        self._terminates: BoolArray = np.zeros(_FIRST_PLACES, dtype=np.bool_)

    def enter(self, uid: str, namespace: str, labels: Mapping[str, str], row: int, *, terminates: bool) -> None:
        """Add a pod that is not in the columns yet."""
        if not self._free:
            self._grow()
        place = self._place_of[uid] = self._free.pop()
        self._labels[place] = self._sets.take(labels)
        self._namespace[place] = self._namespaces.take(namespace)
        self._row[place] = row
        self._terminates[place] = terminates

    def leave(self, uid: str) -> None:
        """Remove a pod."""
        place = self._place_of.pop(uid)
        self._sets.drop(self._labels.item(place))
        self._namespaces.drop(self._namespace.item(place))
        self._row[place] = _NOTHING
        self._free.append(place)

    def count(
        self, terms: tuple[TermKey, ...], namespaces: Mapping[str, Mapping[str, str]], capacity: int, *, living: bool
    ) -> Int64Array:
        """int64[capacity], by row: pods that match all of `terms`. living: leave out terminating pods.

        namespaces: the labels of each namespace; a missing one has no labels.
        """
        pods = np.flatnonzero(self._row != _NOTHING)
        if living:
            pods = pods[~self._terminates[pods]]
        for term in terms:
            pods = pods[self._in_scope(term, namespaces)[self._namespace[pods]]]
            if term.selector:
                pods = pods[self._sets.accepted(term.selector, self._labels[pods])]
        return np.bincount(self._row[pods], minlength=capacity)

    def _in_scope(self, term: TermKey, namespaces: Mapping[str, Mapping[str, str]]) -> BoolArray:
        """bool[codes of namespaces]: True for namespaces to which the term applies."""
        in_scope = np.zeros(len(self._namespaces), dtype=np.bool_)
        selector = term.namespace_selector
        for namespace, code in self._namespaces.items():
            in_scope[code] = namespace in term.namespaces or (
                selector is not None and match(selector, namespaces.get(namespace, {}))
            )
        return in_scope

    def _grow(self) -> None:
        places = len(self._row)
        self._labels = resized(self._labels, (2 * places,), 0)
        self._namespace = resized(self._namespace, (2 * places,), 0)
        self._row = resized(self._row, (2 * places,), _NOTHING)
        self._terminates = resized(self._terminates, (2 * places,), 0)
        self._free = list(range(2 * places - 1, places - 1, -1))


# Bytes of cached counts, over all queries: enough for 1,000 queries with 8,000 nodes.
_BUDGET_BYTES: Final = 64 * 1024 * 1024
# Queries whose matching pods are tracked. Waiting classes repeat their query before it is dropped.
_MOST_QUERIES: Final = 16_384


@dataclass(frozen=True, slots=True)
class Query:
    """Pods that match all of `terms`; there is at least one term. living: leave out terminating pods.

    The terms' topology keys are "" and their weights 1: a query is about pods, wherever they are.
    """

    terms: tuple[TermKey, ...]
    living: bool = False

    @classmethod
    def of(cls, *terms: TermKey) -> "Query":
        """Query of these terms, without their topology keys and weights."""
        return cls(tuple(replace(term, topology_key="", weight=1) for term in terms))

    @property
    def namespaces(self) -> frozenset[str]:
        """Namespaces of the first term, which index the query."""
        return self.terms[0].namespaces

    @property
    def namespace_selector(self) -> Expressions | None:
        """Namespace selector of the first term."""
        return self.terms[0].namespace_selector

    @property
    def selector(self) -> Expressions:
        """Selector of the first term."""
        return self.terms[0].selector

    def matches(self, namespace: str, about: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Whether a pod in this namespace matches. about: the namespace's labels."""
        return all(
            (
                namespace in term.namespaces
                or (term.namespace_selector is not None and match(term.namespace_selector, about))
            )
            and match(term.selector, labels)
            for term in self.terms
        )


class _Read(NamedTuple):
    uid: str
    namespace: str
    labels: Mapping[str, str]
    terminates: bool


class MatchingPods(NodeFact[_Read]):
    """Answers the queries of rules from the labels of every pod that has a node."""

    def __init__(self, tables: Columns) -> None:
        super().__init__(tables)
        self._pods = _PodLabels()
        self._queries: PodTerms[Query] = PodTerms()
        self._asked: OrderedDict[Query, int] = OrderedDict()
        self._counts: LRUCache[int, Int64Array] = LRUCache(_BUDGET_BYTES, getsizeof=lambda counts: counts.nbytes)

    def read(self, pod: Pod) -> _Read:
        """Fields of a pod that a query may read."""
        return _Read(pod.key.uid, pod.key.namespace, pod.labels, pod.terminating)

    def book(self, row: int, read: _Read, sign: int) -> None:
        if sign > 0:
            self._pods.enter(read.uid, read.namespace, read.labels, row, terminates=read.terminates)
        else:
            self._pods.leave(read.uid)
        if not self._asked:
            return
        about = self._about(read.namespace)
        for slot in self._queries.matching(read.namespace, about, read.labels).tolist():
            query = self._queries.key(slot)
            if query.living and read.terminates:
                continue
            if len(query.terms) > 1 and not query.matches(read.namespace, about, read.labels):
                continue
            self.moved |= _bit(self._queries.number(slot), came=sign > 0)
            counts = self._counts.get(slot)
            if counts is not None:
                counts[row] += sign

    def namespaces_changed(self) -> None:
        self._queries.namespaces_changed()
        for query, slot in self._asked.items():
            if any(term.namespace_selector is not None for term in query.terms):
                self._counts.pop(slot, None)

    def grow(self, capacity: int) -> None:
        for slot, counts in list(self._counts.items()):
            self._counts[slot] = resized(counts, (capacity,), 0)

    def counts(self, query: Query) -> Int64Array:
        """int64[nodes]: number of matching pods on each row; read-only, and valid until the next booking."""
        slot = self._slot(query)
        counts = self._counts.get(slot)
        if counts is None:
            capacity = self.tables.capacity
            counts = self._pods.count(query.terms, self.tables.namespaces, capacity, living=query.living)
            self._counts[slot] = counts
        return counts

    def placed(self, query: Query) -> Int64Array:
        """Like `counts`, without nominated pods, which may never arrive."""
        counts = self.counts(query)
        coming = [
            row
            for row, pod in self.tables.nominated()
            if not (query.living and pod.terminating)
            and query.matches(pod.key.namespace, self._about(pod.key.namespace), pod.labels)
        ]
        return counts - np.bincount(coming, minlength=len(counts)) if coming else counts

    def bit(self, query: Query, *, came: bool) -> int:
        """Bit that a change carries when a matching pod is added (came=True) or leaves; see `domain_bit`."""
        return _bit(self._queries.number(self._slot(query)), came=came)

    def _slot(self, query: Query) -> int:
        slot = self._asked.get(query)
        if slot is None:
            slot = self._asked[query] = self._queries.take(query)
            if len(self._asked) > _MOST_QUERIES:
                _, oldest = self._asked.popitem(last=False)
                number = self._queries.number(oldest)
                self.moved |= _bit(number, came=True) | _bit(number, came=False)
                self._counts.pop(oldest, None)
                self._queries.drop(oldest)
        else:
            self._asked.move_to_end(query)
        return slot

    def _about(self, namespace: str) -> Mapping[str, str]:
        return self.tables.namespaces.get(namespace, {})


def _bit(number: int, *, came: bool) -> int:
    return domain_bit(2 * number + came)
