"""The classes of waiting pods as columns, so that one change is held against all of them at once.

A row on which a class would lack cpu, memory or card units cannot help it, whatever its rules say; a change of a kind
that none of its rules looks at cannot either. Both are compared for every class in one pass over arrays, and only the
classes that are left are asked about.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from scheduler.queue.entry import SortKey
from scheduler.state.amounts import NOTHING, Amount
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, resized

# int64[amounts, rows]: what is left there, see `scheduler.state.amounts`.
Left: TypeAlias = Callable[[RowArray], Int64Array]

NOTHING_ASKED: Final[Int64Array] = np.full(len(Amount), NOTHING, dtype=np.int64)
_FIRST_SLOTS: Final = 64
# Above so many (row, class) pairs, rows are compared by their best amounts: that rules fewer classes out.
_MOST_PAIRS: Final = 262_144


class ClassTable:
    """One slot per class; a free slot wakes on nothing.

    least: int64[amounts, slots], of which a row must have at least so much. wakes_on: int64[slots], bits of Change.
    order: int64[2, slots], the sort key of the best pod. due: bool[slots], to be asked about. since: int64[slots], from
    which opening on, see `OpenRows`. due_anywhere: how many are due, or more.
    """

    def __init__(self, *, measured_by: int) -> None:
        """measured_by: bits of Change that can alter what a row has left of the amounts."""
        self._measured_by = measured_by
        self.least: Int64Array = np.full((len(Amount), _FIRST_SLOTS), NOTHING, dtype=np.int64)
        self.wakes_on: Int64Array = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self.order: Int64Array = np.zeros((2, _FIRST_SLOTS), dtype=np.int64)
        self.due: BoolArray = np.zeros(_FIRST_SLOTS, dtype=np.bool_)
        self.since: Int64Array = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self._free = list(range(_FIRST_SLOTS - 1, -1, -1))

    def take(self, least: Int64Array) -> int:
        """A slot for a new class, not due."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self.least[:, slot] = least
        return slot

    def release(self, slot: int) -> None:
        """The class has no pods left."""
        self.wakes_on[slot] = 0
        self.due[slot] = False
        self._free.append(slot)

    def concerned(self, kinds: int) -> BoolArray:
        """bool[slots]: a change of these kinds can help the class."""
        return np.asarray(self.wakes_on & kinds != 0, dtype=np.bool_)

    def make_due(self, slots: BoolArray, since: int) -> None:
        """Those of `slots` that are not due yet are to be asked about what opened from `since` on."""
        self.since[slots & ~self.due] = since
        self.due |= slots

    def rule_out(self, slots: BoolArray, rows: RowArray, left: Left) -> BoolArray:
        """bool[slots]: those of `slots` to which some of `rows` may have enough left.

        The others wake on what rows have left from now on, which they may have looked at in vain for the first time.
        """
        found = np.flatnonzero(slots)
        enough = np.zeros_like(slots)
        if len(found):
            enough[found] = _some_row_has(left(rows), self.least[:, found])
            self.wakes_on[slots & ~enough] |= self._measured_by
        return enough

    def first_due(self) -> int | None:
        """The due class with the best pod."""
        due = np.flatnonzero(self.due)
        if len(due) <= 1:
            return int(due[0]) if len(due) else None
        priority, arrival = self.order[:, due]
        best = np.flatnonzero(priority == priority.min())
        return int(due[best[arrival[best].argmin()]])

    def sort_key(self, slot: int) -> SortKey:
        """Of the best pod of the class."""
        return int(self.order[0, slot]), int(self.order[1, slot])

    def _grow(self) -> None:
        slots = len(self.due)
        self.least = resized(self.least, (len(Amount), 2 * slots), NOTHING)
        self.wakes_on = resized(self.wakes_on, (2 * slots,), 0)
        self.order = resized(self.order, (2, 2 * slots), 0)
        self.due = resized(self.due, (2 * slots,), 0)
        self.since = resized(self.since, (2 * slots,), 0)
        self._free = list(range(2 * slots - 1, slots - 1, -1))


def _some_row_has(left: Int64Array, least: Int64Array) -> BoolArray:
    """bool[classes]: some row has all that the class asks. left: [amounts, rows]; least: [amounts, classes]."""
    rows, classes = left.shape[1], least.shape[1]
    if rows * classes > _MOST_PAIRS:
        left, rows = left.max(axis=1, keepdims=True), 1
    if rows == 1:
        return np.asarray((left >= least).all(axis=0), dtype=np.bool_)
    enough = np.ones((rows, classes), dtype=np.bool_)
    for of_row, of_class in zip(left, least, strict=True):
        enough &= of_row[:, np.newaxis] >= of_class
    return np.asarray(enough.any(axis=0), dtype=np.bool_)
