"""Labels of nodes or of other objects with rows, as columns of value codes, each created when its key is first used.

An unused key costs nothing; hostname-like keys would otherwise cost a column of distinct values each. A key that no
node has gets no column, however many pods name it. Selectors over these columns are in `selectors`.
"""

import re
from collections import Counter
from collections.abc import KeysView, Mapping, Sequence
from typing import Final, cast

import numpy as np

from config.protocol.quantity import MAX_INT64
from scheduler.state.columns.arrays import FIRST_CAPACITY, BoolArray, Int32Array, Int64Array, resized
from scheduler.state.columns.vocabulary import Vocabulary

ABSENT: Final = -1
_NONE: Final[Mapping[str, str]] = {}
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,63}", re.ASCII)


def integer(text: str) -> int | None:
    """The int64 that `text` represents, or None. Source: Go's strconv.ParseInt with base 10."""
    if _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -MAX_INT64 - 1 <= number <= MAX_INT64 else None


class LabelColumn:
    """One key. codes: int32[nodes], codes of `values`, ABSENT where the node lacks the key."""

    def __init__(self, capacity: int) -> None:
        self.codes: Int32Array = np.full(capacity, ABSENT, dtype=np.int32)
        self.values: Vocabulary[str] = Vocabulary()
        self._integers: Int64Array | None = None
        self._writes_one: BoolArray = np.zeros(0, dtype=np.bool_)

    @classmethod
    def of(cls, values: Sequence[str | None]) -> "LabelColumn":
        """A column with these values by row, None if the row lacks the key."""
        column = cls(len(values))
        # Converted in one step, then None is handled: checking each value for None would take most of the time.
        uses: Counter[str | None] = Counter(values)
        uses.pop(None, None)
        column.values = Vocabulary.of(cast("Counter[str]", uses))
        code_of: dict[str | None, int] = {None: ABSENT, **dict(column.values.items())}
        column.codes = np.fromiter(map(code_of.__getitem__, values), dtype=np.int32, count=len(values))
        return column

    def set(self, row: int, value: str | None) -> None:
        """Set the value of `row`; None if it lacks the key."""
        old = int(self.codes[row])
        if value is None:
            self.codes[row] = ABSENT
        elif old == ABSENT or self.values.value(old) != value:
            self.codes[row] = code = self.values.take(value)
            if self._integers is not None and self.values.uses(value) == 1:
                self._note_integer(code, value)
        else:
            return
        if old != ABSENT:
            self.values.drop(old)

    def integers(self) -> tuple[Int64Array, BoolArray]:
        """int64[codes], bool[codes]: the integer of each value, and whether it is an integer.

        Computed once per value, however many selectors use it.
        """
        if self._integers is None:
            self._integers = np.zeros(0, dtype=np.int64)
            for value, code in self.values.items():
                self._note_integer(code, value)
        return self._integers[: len(self.values)], self._writes_one[: len(self.values)]

    def _note_integer(self, code: int, value: str) -> None:
        if self._integers is None or code >= len(self._integers):
            size = max(16, 2 * len(self.values))
            self._integers = resized(
                np.zeros(0, dtype=np.int64) if self._integers is None else self._integers, (size,), 0
            )
            self._writes_one = resized(self._writes_one, (size,), 0)
        number = integer(value)
        self._writes_one[code] = number is not None
        self._integers[code] = number or 0

    def grow(self, capacity: int) -> None:
        self.codes = resized(self.codes, (capacity,), ABSENT)


class Labels:
    """Labels of every row, and the columns of the keys in use."""

    def __init__(self) -> None:
        self._of_row: list[Mapping[str, str]] = [_NONE] * FIRST_CAPACITY
        self._rows_with: Counter[str] = Counter()
        self._columns: dict[str, LabelColumn] = {}
        self._nowhere = LabelColumn(FIRST_CAPACITY)

    def set_row(self, row: int, labels: Mapping[str, str]) -> None:
        """Replace the labels of `row`; an empty dict for a row that is released."""
        old = self._of_row[row]
        if old == labels:
            return
        self._of_row[row] = labels
        self._count_keys(old, labels)
        for key, column in self._columns.items():
            column.set(row, labels.get(key))

    def grow(self, capacity: int) -> None:
        self._of_row.extend([_NONE] * (capacity - len(self._of_row)))
        self._nowhere.grow(capacity)
        for column in self._columns.values():
            column.grow(capacity)

    def of_row(self, row: int) -> Mapping[str, str]:
        """Labels of `row`; read-only."""
        return self._of_row[row]

    def column(self, key: str) -> LabelColumn:
        """Column of `key`, created by the first call for it. Call again after every change."""
        column = self._columns.get(key)
        if column is not None:
            return column
        if key not in self._rows_with:
            return self._nowhere
        column = self._columns[key] = LabelColumn.of([labels.get(key) for labels in self._of_row])
        return column

    def asked(self) -> KeysView[str]:
        """Keys that have columns."""
        return self._columns.keys()

    def _count_keys(self, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        self._rows_with.update(new.keys() - old.keys())
        for key in old.keys() - new.keys():
            self._rows_with[key] -= 1
            if self._rows_with[key] == 0:
                del self._rows_with[key]
                self._columns.pop(key, None)
