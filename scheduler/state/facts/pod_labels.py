"""Labels of the pods that have a node, as columns: how many pods of each node match a selector, in one pass.

Pods with equal labels share a set of them, and a selector is held against the sets.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from scheduler.state.columns.arrays import BoolArray, Int32Array, Int64Array, resized
from scheduler.state.columns.label_sets import LabelSets
from scheduler.state.columns.selectors import match
from scheduler.state.columns.vocabulary import Vocabulary
from scheduler.state.facts.pod_terms import TermKey

_FIRST_PLACES: Final = 64
_NOTHING: Final = -1


class PodLabels:
    """One entry per pod: its namespace, its labels, its node's row and whether it terminates."""

    def __init__(self) -> None:
        """No pods."""
        self._place_of: dict[str, int] = {}
        self._free: list[int] = list(range(_FIRST_PLACES - 1, -1, -1))
        self._sets = LabelSets()
        self._namespaces: Vocabulary[str] = Vocabulary()
        # By position of a pod: codes of its labels and namespace, its row, NOTHING at a free position, and whether it
        # terminates.
        self._labels: Int32Array = np.zeros(_FIRST_PLACES, dtype=np.int32)
        self._namespace: Int32Array = np.zeros(_FIRST_PLACES, dtype=np.int32)
        self._row: Int32Array = np.full(_FIRST_PLACES, _NOTHING, dtype=np.int32)
        self._terminates: BoolArray = np.zeros(_FIRST_PLACES, dtype=np.bool_)

    def enter(self, uid: str, namespace: str, labels: Mapping[str, str], row: int, *, terminates: bool) -> None:
        """A pod that is not there yet."""
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
        """int64[capacity], by row: pods that match all of `terms`. living: terminating pods do not count.

        namespaces: their labels; a missing namespace has none.
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
        """bool[codes of namespaces]."""
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
