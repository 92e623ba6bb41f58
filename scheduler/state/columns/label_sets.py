"""Distinct label sets. One pass finds all sets that a selector accepts, whatever keys the selector names.

Each label is a number. A line holds sixteen labels of a set; a larger set has several lines. A selector becomes a table
over the numbers, so it is not compared with each set, and no key needs a column of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from scheduler.state.columns.arrays import BoolArray, Int32Array, RowArray, resized
from scheduler.state.columns.selectors import Expression, Expressions, Operator
from scheduler.state.columns.vocabulary import Vocabulary

_WIDTH: Final = 16
_FIRST_LINES: Final = 64
_NOTHING: Final = -1
# A comparison takes a twentieth of the time of a table look-up per label.
_FEW_LABELS: Final = 16
_Labels: TypeAlias = tuple[tuple[str, str], ...]


class LabelSets:
    """Label sets by code. Selectors are label selectors: they compare no integers."""

    def __init__(self) -> None:
        self._sets: Vocabulary[_Labels] = Vocabulary()
        self._lines_of: dict[int, list[int]] = {}
        self._free: list[int] = list(range(_FIRST_LINES - 1, -1, -1))
        self._names: Vocabulary[tuple[str, str]] = Vocabulary()
        self._keys: Vocabulary[str] = Vocabulary()
        # By code of a label, the code of its key.
        self._key_of: Int32Array = np.zeros(_FIRST_LINES, dtype=np.int32)
        # By line: codes of labels, padded with NOTHING; and the code of its set.
        self._line: Int32Array = np.full((_WIDTH, _FIRST_LINES), _NOTHING, dtype=np.int32)
        self._set_of: Int32Array = np.full(_FIRST_LINES, _NOTHING, dtype=np.int32)

    def __len__(self) -> int:
        """Length of a table indexed by code: every code is less than this."""
        return len(self._sets)

    def take(self, labels: Mapping[str, str]) -> int:
        """Return the code of a set, and count one more use."""
        as_set = tuple(labels.items())
        code = self._sets.take(as_set)
        if self._sets.uses_of(code) == 1:
            self._enter(code, [self._take(label) for label in as_set])
        return code

    def code(self, labels: Mapping[str, str]) -> int | None:
        """The code of a set; None if it is unused."""
        return self._sets.code(tuple(labels.items()))

    def labels(self, code: int) -> dict[str, str]:
        """Labels of a code in use."""
        return dict(self._sets.value(code))

    def drop(self, code: int) -> None:
        """Remove one use of the set."""
        self._sets.drop(code)
        if not self._sets.uses_of(code):
            self._leave(code)

    def accepted(self, selector: Expressions, sets: Int32Array | RowArray) -> BoolArray:
        """bool[len(sets)]: whether the selector accepts each of these sets."""
        # The extra element is for unused lines.
        open_to = np.zeros(len(self._sets) + 1, dtype=np.bool_)
        open_to[sets] = True
        (lines,) = open_to[self._set_of].nonzero()
        line, set_of = self._line.take(lines, axis=1), self._set_of[lines]
        for expression in selector:
            found = np.zeros_like(open_to)
            found[set_of[self._has(expression, line)]] = True
            open_to &= ~found if expression.operator in {Operator.NOT_IN, Operator.DOES_NOT_EXIST} else found
        return open_to[sets]

    def _has(self, expression: Expression, line: Int32Array) -> BoolArray:
        """bool[lines]: True if the line contains a label that the expression names. line: int32[_WIDTH, lines]."""
        codes = self._named(expression)
        if len(codes) > _FEW_LABELS:
            wanted = np.zeros(len(self._names) + 1, dtype=np.bool_)
            wanted[codes] = True
            return np.asarray(wanted[line].any(axis=0))
        found = np.zeros(line.shape, dtype=np.bool_)
        for code in codes:
            found |= line == code
        return np.asarray(found.any(axis=0))

    def _named(self, expression: Expression) -> Sequence[int]:
        """Codes of the labels that the expression names."""
        if expression.operator in {Operator.IN, Operator.NOT_IN}:
            codes = (self._names.code((expression.key, value)) for value in expression.values)
            return [code for code in codes if code is not None]
        key = self._keys.code(expression.key)
        return [] if key is None else np.flatnonzero(self._key_of[: len(self._names)] == key).tolist()

    def _enter(self, code: int, labels: list[int]) -> None:
        # The empty set has a line, too: it lacks every key of an expression.
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
            # The label's code stands for no key until the code is used again.
            self._key_of[code] = _NOTHING

    def _take_line(self) -> int:
        if not self._free:
            lines = len(self._set_of)
            self._line = resized(self._line, (_WIDTH, 2 * lines), _NOTHING)
            self._set_of = resized(self._set_of, (2 * lines,), _NOTHING)
            self._free = list(range(2 * lines - 1, lines - 1, -1))
        return self._free.pop()
