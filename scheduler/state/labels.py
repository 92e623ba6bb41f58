"""Node labels as columns of value codes, made when a key is first asked for.

A key that nobody asks for costs nothing; hostname-like keys would otherwise cost a column of distinct
values each. A key that no node has gets no column, however many pods ask for it. Selectors over these columns
are in `selectors`.
"""

from collections import Counter
from typing import Final

import numpy as np

from scheduler.state.arrays import FIRST_CAPACITY, Int32Array, resized
from scheduler.state.vocabulary import Vocabulary

ABSENT: Final = -1


class LabelColumn:
    """One key. codes: int32[nodes], codes of `values`, ABSENT where the node lacks the key."""

    def __init__(self, capacity: int) -> None:
        """All rows absent."""
        self.codes: Int32Array = np.full(capacity, ABSENT, dtype=np.int32)
        self.values: Vocabulary[str] = Vocabulary()

    def set(self, row: int, value: str | None) -> None:
        """Give `row` a value, or none."""
        old = int(self.codes[row])
        if value is None:
            self.codes[row] = ABSENT
        elif old == ABSENT or self.values.value(old) != value:
            self.codes[row] = self.values.take(value)
        else:
            return
        if old != ABSENT:
            self.values.drop(old)

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` rows."""
        self.codes = resized(self.codes, (capacity,), ABSENT)


class Labels:
    """Labels of every row, and the columns that somebody has asked for."""

    def __init__(self) -> None:
        """No labels."""
        self._of_row: list[dict[str, str]] = [{} for _ in range(FIRST_CAPACITY)]
        self._rows_with: Counter[str] = Counter()
        self._columns: dict[str, LabelColumn] = {}
        self._nowhere = LabelColumn(FIRST_CAPACITY)

    def set_row(self, row: int, labels: dict[str, str]) -> None:
        """Replace the labels of `row`; an empty dict for a row that leaves."""
        old = self._of_row[row]
        if old == labels:
            return
        self._of_row[row] = labels
        self._count_keys(old, labels)
        for key, column in self._columns.items():
            column.set(row, labels.get(key))

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` rows."""
        self._of_row.extend({} for _ in range(capacity - len(self._of_row)))
        self._nowhere.grow(capacity)
        for column in self._columns.values():
            column.grow(capacity)

    def of_row(self, row: int) -> dict[str, str]:
        """The labels of `row`; not to be changed."""
        return self._of_row[row]

    def column(self, key: str) -> LabelColumn:
        """The column of `key`, made now if this is the first question about it; ask again after every change."""
        column = self._columns.get(key)
        if column is not None:
            return column
        if key not in self._rows_with:
            return self._nowhere
        column = self._columns[key] = LabelColumn(len(self._of_row))
        for row, labels in enumerate(self._of_row):
            if key in labels:
                column.set(row, labels[key])
        return column

    def _count_keys(self, old: dict[str, str], new: dict[str, str]) -> None:
        self._rows_with.update(new.keys() - old.keys())
        for key in old.keys() - new.keys():
            self._rows_with[key] -= 1
            if self._rows_with[key] == 0:
                del self._rows_with[key]
                self._columns.pop(key, None)
