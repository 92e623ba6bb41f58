"""Labels of the pods that have a node, as columns: how many pods of each node match a selector, in one pass.

Each label is one number, and a pod a line of sixteen of them; one with more labels has several lines. A selector is a
table over the numbers, so no pod is compared with it, and no key needs a column of its own.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np

from scheduler.state.columns.arrays import BoolArray, Int32Array, Int64Array, RowArray, resized
from scheduler.state.columns.selectors import Expression, Operator, match
from scheduler.state.columns.vocabulary import Vocabulary
from scheduler.state.facts.pod_terms import TermKey

_WIDTH: Final = 16
_FIRST_LINES: Final = 64
_NOTHING: Final = -1


class PodLabels:
    """One entry per pod: its namespace, its labels, its node's row and whether it terminates."""

    def __init__(self) -> None:
        """No pods."""
        self._lines_of: dict[str, list[int]] = {}
        self._free: list[int] = list(range(_FIRST_LINES - 1, -1, -1))
        self._wide = 0
        self._labels: Vocabulary[tuple[str, str]] = Vocabulary()
        self._keys: Vocabulary[str] = Vocabulary()
        self._namespaces: Vocabulary[str] = Vocabulary()
        # By code of a label, the code of its key.
        self._key_of: Int32Array = np.zeros(_FIRST_LINES, dtype=np.int32)
        # By line: codes of labels, NOTHING where there are fewer; the first line of the same pod; and of the pod the
        # code of its namespace, its row, NOTHING of a free line, and whether it terminates.
        self._line: Int32Array = np.full((_WIDTH, _FIRST_LINES), _NOTHING, dtype=np.int32)
        self._first: Int32Array = np.zeros(_FIRST_LINES, dtype=np.int32)
        self._namespace: Int32Array = np.zeros(_FIRST_LINES, dtype=np.int32)
        self._row: Int32Array = np.full(_FIRST_LINES, _NOTHING, dtype=np.int32)
        self._terminates: BoolArray = np.zeros(_FIRST_LINES, dtype=np.bool_)

    def enter(self, uid: str, namespace: str, labels: Mapping[str, str], row: int, *, terminates: bool) -> None:
        """A pod that is not there yet."""
        codes = [self._take(label) for label in labels.items()]
        lines = self._lines_of[uid] = [self._take_line() for _ in range(0, max(1, len(codes)), _WIDTH)]
        self._wide += len(lines) > 1
        for number, line in enumerate(lines):
            part = codes[number * _WIDTH : (number + 1) * _WIDTH]
            self._line[: len(part), line] = part
            self._first[line] = lines[0]
            self._namespace[line] = self._namespaces.take(namespace)
            self._row[line] = row
            self._terminates[line] = terminates

    def leave(self, uid: str) -> None:
        """A pod that is there."""
        lines = self._lines_of.pop(uid)
        self._wide -= len(lines) > 1
        for line in lines:
            for code in self._line[:, line].tolist():
                if code != _NOTHING:
                    self._drop(code)
            self._line[:, line] = _NOTHING
            self._namespaces.drop(int(self._namespace[line]))
            self._row[line] = _NOTHING
        self._free.extend(lines)

    def count(
        self, terms: tuple[TermKey, ...], namespaces: Mapping[str, Mapping[str, str]], capacity: int, *, living: bool
    ) -> Int64Array:
        """int64[capacity], by row: pods that match all of `terms`. living: those that terminate do not count.

        namespaces: their labels; one that is not there has none.
        """
        lines = np.flatnonzero(self._row != _NOTHING)
        if living:
            lines = lines[~self._terminates[lines]]
        for term in terms:
            lines = lines[self._in_scope(term, namespaces)[self._namespace[lines]]]
            for expression in term.selector:
                lines = lines[self._accepted(expression, lines)]
        firsts = lines[self._first[lines] == lines] if self._wide else lines
        return np.bincount(self._row[firsts], minlength=capacity)

    def _in_scope(self, term: TermKey, namespaces: Mapping[str, Mapping[str, str]]) -> BoolArray:
        """bool[codes of namespaces]."""
        in_scope = np.zeros(len(self._namespaces), dtype=np.bool_)
        selector = term.namespace_selector
        for namespace, code in self._namespaces.items():
            in_scope[code] = namespace in term.namespaces or (
                selector is not None and match(selector, namespaces.get(namespace, {}))
            )
        return in_scope

    def _accepted(self, expression: Expression, lines: RowArray) -> BoolArray:
        """bool[lines]: the pod of each of them has labels that the expression accepts."""
        wanted = np.zeros(len(self._labels) + 1, dtype=np.bool_)
        if expression.operator in {Operator.IN, Operator.NOT_IN}:
            codes = (self._labels.code((expression.key, value)) for value in expression.values)
            wanted[[code for code in codes if code is not None]] = True
        elif (key := self._keys.code(expression.key)) is not None:
            wanted[:-1] = self._key_of[: len(self._labels)] == key
        found: BoolArray = np.any(wanted[self._line[:, lines]], axis=0)
        if self._wide:
            of_pod = np.zeros(len(self._row), dtype=np.bool_)
            of_pod[self._first[lines[found]]] = True
            found = of_pod[self._first[lines]]
        return ~found if expression.operator in {Operator.NOT_IN, Operator.DOES_NOT_EXIST} else found

    def _take(self, label: tuple[str, str]) -> int:
        code = self._labels.code(label)
        new = code is None
        code = self._labels.take(label)
        if new:
            if code >= len(self._key_of):
                self._key_of = resized(self._key_of, (2 * code,), 0)
            self._key_of[code] = self._keys.take(label[0])
        return code

    def _drop(self, code: int) -> None:
        label = self._labels.value(code)
        self._labels.drop(code)
        if not self._labels.uses(label):
            self._keys.drop(int(self._key_of[code]))
            # The code of no key that is in use, until the code of the label is.
            self._key_of[code] = _NOTHING

    def _take_line(self) -> int:
        if not self._free:
            lines = len(self._row)
            self._line = resized(self._line, (_WIDTH, 2 * lines), _NOTHING)
            self._first = resized(self._first, (2 * lines,), 0)
            self._namespace = resized(self._namespace, (2 * lines,), 0)
            self._row = resized(self._row, (2 * lines,), _NOTHING)
            self._terminates = resized(self._terminates, (2 * lines,), 0)
            self._free = list(range(2 * lines - 1, lines - 1, -1))
        return self._free.pop()
