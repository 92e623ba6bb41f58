"""Labels of the pods that have a node, as columns: how many pods of each node match a selector, in one pass.

Pods with equal labels share a set of them. Each label is one number, and a set a line of sixteen of them; one of more
labels has several lines. A selector is a table over the numbers, so no pod is compared with it, and no key needs a
column of its own.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

import numpy as np

from scheduler.state.columns.arrays import BoolArray, Int32Array, Int64Array, RowArray, resized
from scheduler.state.columns.selectors import Expression, Operator, match
from scheduler.state.columns.vocabulary import Vocabulary
from scheduler.state.facts.pod_terms import TermKey

_WIDTH: Final = 16
_FIRST_LINES: Final = 64
_NOTHING: Final = -1
_Labels: TypeAlias = tuple[tuple[str, str], ...]


class PodLabels:
    """One entry per pod: its namespace, its labels, its node's row and whether it terminates."""

    def __init__(self) -> None:
        """No pods."""
        self._place_of: dict[str, int] = {}
        self._free: list[int] = list(range(_FIRST_LINES - 1, -1, -1))
        self._sets = _LabelSets()
        self._namespaces: Vocabulary[str] = Vocabulary()
        # By place of a pod: the codes of its labels and of its namespace, its row, NOTHING of a free place, and whether
        # it terminates.
        self._labels: Int32Array = np.zeros(_FIRST_LINES, dtype=np.int32)
        self._namespace: Int32Array = np.zeros(_FIRST_LINES, dtype=np.int32)
        self._row: Int32Array = np.full(_FIRST_LINES, _NOTHING, dtype=np.int32)
        self._terminates: BoolArray = np.zeros(_FIRST_LINES, dtype=np.bool_)

    def enter(self, uid: str, namespace: str, labels: Mapping[str, str], row: int, *, terminates: bool) -> None:
        """A pod that is not there yet."""
        if not self._free:
            self._grow()
        place = self._place_of[uid] = self._free.pop()
        self._labels[place] = self._sets.take(tuple(labels.items()))
        self._namespace[place] = self._namespaces.take(namespace)
        self._row[place] = row
        self._terminates[place] = terminates

    def leave(self, uid: str) -> None:
        """A pod that is there."""
        place = self._place_of.pop(uid)
        self._sets.drop(self._labels.item(place))
        self._namespaces.drop(self._namespace.item(place))
        self._row[place] = _NOTHING
        self._free.append(place)

    def count(
        self, terms: tuple[TermKey, ...], namespaces: Mapping[str, Mapping[str, str]], capacity: int, *, living: bool
    ) -> Int64Array:
        """int64[capacity], by row: pods that match all of `terms`. living: those that terminate do not count.

        namespaces: their labels; one that is not there has none.
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


class _LabelSets:
    """Sets of labels that pods have, each once, by code."""

    def __init__(self) -> None:
        """None."""
        self._sets: Vocabulary[_Labels] = Vocabulary()
        self._lines_of: dict[int, list[int]] = {}
        self._free: list[int] = list(range(_FIRST_LINES - 1, -1, -1))
        self._names: Vocabulary[tuple[str, str]] = Vocabulary()
        self._keys: Vocabulary[str] = Vocabulary()
        # By code of a label, the code of its key.
        self._key_of: Int32Array = np.zeros(_FIRST_LINES, dtype=np.int32)
        # By line: codes of labels, NOTHING where there are fewer; and the code of its set.
        self._line: Int32Array = np.full((_WIDTH, _FIRST_LINES), _NOTHING, dtype=np.int32)
        self._set_of: Int32Array = np.full(_FIRST_LINES, _NOTHING, dtype=np.int32)

    def take(self, labels: _Labels) -> int:
        """The code of a set, used once more."""
        code = self._sets.take(labels)
        if self._sets.uses_of(code) == 1:
            self._enter(code, [self._take(label) for label in labels])
        return code

    def drop(self, code: int) -> None:
        """The set is used once less."""
        self._sets.drop(code)
        if not self._sets.uses_of(code):
            self._leave(code)

    def accepted(self, selector: tuple[Expression, ...], sets: Int32Array) -> BoolArray:
        """bool[len(sets)]: whether the selector accepts each; only these are looked at."""
        # One more, for lines of no set.
        open_to = np.zeros(len(self._sets) + 1, dtype=np.bool_)
        open_to[sets] = True
        for expression in selector:
            lines = np.flatnonzero(open_to[self._set_of])
            found = np.zeros_like(open_to)
            found[self._set_of[lines[self._has(expression, lines)]]] = True
            open_to &= ~found if expression.operator in {Operator.NOT_IN, Operator.DOES_NOT_EXIST} else found
        return open_to[sets]

    def _has(self, expression: Expression, lines: RowArray) -> BoolArray:
        """bool[lines]: one of the labels in each is one that the expression names."""
        wanted = np.zeros(len(self._names) + 1, dtype=np.bool_)
        if expression.operator in {Operator.IN, Operator.NOT_IN}:
            codes = (self._names.code((expression.key, value)) for value in expression.values)
            wanted[[code for code in codes if code is not None]] = True
        elif (key := self._keys.code(expression.key)) is not None:
            wanted[:-1] = self._key_of[: len(self._names)] == key
        found: BoolArray = np.any(wanted[self._line[:, lines]], axis=0)
        return found

    def _enter(self, code: int, labels: list[int]) -> None:
        # A set of no labels has a line, too: it is one that has none of what an expression names.
        lines = self._lines_of[code] = [self._take_line() for _ in range(0, max(1, len(labels)), _WIDTH)]
        for number, line in enumerate(lines):
            part = labels[number * _WIDTH : (number + 1) * _WIDTH]
            self._line[: len(part), line] = part
            self._set_of[line] = code

    def _leave(self, code: int) -> None:
        lines = self._lines_of.pop(code)
        for line in lines:
            for label in self._line[:, line].tolist():
                if label != _NOTHING:
                    self._drop(label)
            self._line[:, line] = _NOTHING
            self._set_of[line] = _NOTHING
        self._free.extend(lines)

    def _take(self, label: tuple[str, str]) -> int:
        code = self._names.take(label)
        if self._names.uses_of(code) == 1:
            if code >= len(self._key_of):
                self._key_of = resized(self._key_of, (2 * code,), 0)
            self._key_of[code] = self._keys.take(label[0])
        return code

    def _drop(self, code: int) -> None:
        self._names.drop(code)
        if not self._names.uses_of(code):
            self._keys.drop(self._key_of.item(code))
            # The code of no key that is in use, until the code of the label is.
            self._key_of[code] = _NOTHING

    def _take_line(self) -> int:
        if not self._free:
            lines = len(self._set_of)
            self._line = resized(self._line, (_WIDTH, 2 * lines), _NOTHING)
            self._set_of = resized(self._set_of, (2 * lines,), _NOTHING)
            self._free = list(range(2 * lines - 1, lines - 1, -1))
        return self._free.pop()
