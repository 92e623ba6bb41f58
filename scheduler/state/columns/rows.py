"""Assignment of rows to nodes, and the sort order of node names.

A deleted node leaves an invalid row, which the next new node takes. Ties between nodes are broken by `rank`, the order
of names, never by row number, because row numbers depend on history.
"""

import numpy as np

from scheduler.state.columns.arrays import FIRST_CAPACITY, BoolArray, Int64Array, resized


class _RowTable:
    """valid: bool[nodes], False for an unused row. names: by row, "" if unused. row_of: node name -> row."""

    def __init__(self) -> None:
        """No nodes; capacity for a few."""
        self.valid: BoolArray = np.zeros(FIRST_CAPACITY, dtype=np.bool_)
        self.names: list[str] = [""] * FIRST_CAPACITY
        self.row_of: dict[str, int] = {}
        self._free = list(range(FIRST_CAPACITY - 1, -1, -1))
        self._rank: Int64Array | None = None

    @property
    def capacity(self) -> int:
        return len(self.names)

    @property
    def full(self) -> bool:
        """Whether a new node needs `grow` first."""
        return not self._free

    @property
    def rank(self) -> Int64Array:
        """int64[nodes]: rank of each node's name in sorted order; unused rows come last."""
        if self._rank is None:
            order = sorted(self.row_of, key=lambda name: name)
            rank = np.full(self.capacity, self.capacity, dtype=np.int64)
            rank[[self.row_of[name] for name in order]] = np.arange(len(order))
            self._rank = rank
        return self._rank

    def take(self, name: str) -> int:
        """Assign a row to a new node, and return it."""
        row = self._free.pop()
        self.row_of[name] = row
        self.names[row] = name
        self.valid[row] = True
        self._rank = None
        return row

    def release(self, name: str) -> int:
        """Release the row of a node, and return it."""
        row = self.row_of.pop(name)
        self.names[row] = ""
        self.valid[row] = False
        self._free.append(row)
        self._rank = None
        return row

    def grow(self) -> int:
        """Double the capacity, and return the new one."""
        old, new = self.capacity, 2 * self.capacity
        self.valid = resized(self.valid, (new,), 0)
        self.names.extend([""] * old)
        self._free.extend(range(new - 1, old - 1, -1))
        self._rank = None
        return new


class Rowed:
    """An object with one row per node."""

    def __init__(self) -> None:
        self._rows = _RowTable()

    @property
    def capacity(self) -> int:
        return self._rows.capacity

    @property
    def valid(self) -> BoolArray:
        """bool[nodes]: True if the row is a node."""
        return self._rows.valid

    @property
    def names(self) -> list[str]:
        """Node names by row, "" for an unused row."""
        return self._rows.names

    @property
    def row_of(self) -> dict[str, int]:
        """Node name -> row; read-only."""
        return self._rows.row_of

    @property
    def rank(self) -> Int64Array:
        """int64[nodes]: ranks of the names in sorted order."""
        return self._rows.rank
