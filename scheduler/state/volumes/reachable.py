"""The smallest volume for each node, among thousands with different reach.

    slots in use ──near──▶ slots that some rows may reach ──(slots that suit a claim)──▶ Choice ──next──▶ rank

Slots are ordered by size, then by name; a rank is a position in this order.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

import numpy as np

from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows, resized
from scheduler.state.columns.node_terms import LabelledRows
from scheduler.state.columns.row_masks import count_of
from scheduler.state.columns.vocabulary import Vocabulary
from scheduler.state.volumes.reach import Reach
from scheduler.state.volumes.volume import drop

if TYPE_CHECKING:
    from scheduler.state.columns.labels import LabelColumn

_FIRST_SLOTS: Final = 64
_EVERYWHERE: Final = -1
_OTHER: Final = -2
# Up to this many rows, the slots that they reach are picked out.
_FEW_ROWS: Final = 32
# If fewer than one slot in this many is wanted, sorting the wanted ones costs less than picking them out in order.
_FEW: Final = 8
# With more kinds of reach over several labels, rows are not compared.
_FEW_OTHERS: Final = 8
_LAST: Final = np.iinfo(np.int64).max


class Reachable:
    """Objects with a size, each usable from some nodes.

    sizes: int64[slots]; -1 for an unused slot. Owned by the caller that adds and removes slots.
    """

    def __init__(self) -> None:
        self.sizes: Int64Array = np.full(_FIRST_SLOTS, -1, dtype=np.int64)
        self._ties: Int64Array = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self._free = list(range(_FIRST_SLOTS - 1, -1, -1))
        # By slot: number of the deciding label, or one of the two constants; number of its value.
        self._key_of: RowArray = np.full(_FIRST_SLOTS, _EVERYWHERE, dtype=np.intp)
        self._value_of: RowArray = np.zeros(_FIRST_SLOTS, dtype=np.intp)
        self._keys: list[_ByValue] = []
        self._number_of: dict[str, int] = {}
        self._others: dict[Reach, set[int]] = {}
        self._reach_at: dict[int, Reach] = {}
        # The slots in order, and the position of each; the slots of each label by value, and the numbers of these
        # values. Valid until a slot is added: removed slots keep their position.
        self._order: RowArray | None = None
        self._sizes_in_order: Int64Array = np.zeros(0, dtype=np.int64)
        self.rank: Int64Array = np.zeros(0, dtype=np.int64)
        self._by_key: dict[int, tuple[RowArray, RowArray]] = {}

    @property
    def slots(self) -> int:
        """Number of slots, in use or not."""
        return len(self.sizes)

    def add(self, name: str, size: int, reach: Reach | None) -> int:
        """Add an object and return its slot. reach: None for every node. name: breaks ties, in an arbitrary order."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self.sizes[slot] = size
        self._ties[slot] = int.from_bytes(blake2b(name.encode(), digest_size=7).digest())
        self._order = None
        if reach is None:
            self._key_of[slot], self._value_of[slot] = _EVERYWHERE, 0
        elif len(reach.values) == 1:
            key = self._number_of.setdefault(reach.key, len(self._keys))
            if key == len(self._keys):
                self._keys.append(_ByValue(reach.key))
            self._key_of[slot], self._value_of[slot] = key, self._keys[key].values.take(reach.values[0])
        else:
            self._key_of[slot] = _OTHER
            self._reach_at[slot] = reach
            self._others.setdefault(reach, set()).add(slot)
        return slot

    def remove(self, slot: int) -> None:
        self.sizes[slot] = -1
        self._free.append(slot)
        key = int(self._key_of[slot])
        if key >= 0:
            self._keys[key].values.drop(int(self._value_of[slot]))
        elif key == _OTHER:
            drop(self._others, self._reach_at.pop(slot), slot)

    def near(self, nodes: LabelledRows, rows: Rows) -> RowArray:
        """Slots in order: all that any of the rows can reach, and possibly unused or unreachable ones."""
        order = self._arranged()
        if count_of(rows, nodes.capacity) > _FEW_ROWS:
            return order
        found = []
        for key, (slots, numbers) in self._by_key.items():
            if key == _EVERYWHERE:
                found.append(slots)
                continue
            here = list(set(self._keys[key].numbers(nodes, rows).tolist()))
            begins, ends = np.searchsorted(numbers, here, "left"), np.searchsorted(numbers, here, "right")
            found += [slots[begin:end] for begin, end in zip(begins, ends, strict=True)]
        others = [slot for slots in self._others.values() for slot in slots]
        ranks = self.rank[np.concatenate((*found, np.array(others, dtype=np.intp)))]
        return order[np.sort(ranks)]

    def like(self, nodes: LabelledRows, rows: Rows) -> tuple[RowArray, RowArray] | None:
        """Return (one row per distinct reach, the index of its like for each of `rows`); None if this saves nothing."""
        count = count_of(rows, nodes.capacity)
        if len(self._others) > _FEW_OTHERS:
            return None
        self._arranged()
        kinds = np.zeros(count, dtype=np.int64)
        for key in self._by_key.keys() - {_EVERYWHERE}:
            numbers = self._keys[key].numbers(nodes, rows)
            kinds = np.unique(kinds * (len(self._keys[key].values) + 1) + numbers, return_inverse=True)[1]
        for reach in self._others:
            kinds = np.unique(kinds * 2 + reach.over(nodes, rows), return_inverse=True)[1]
        _, first, places = np.unique(kinds, return_index=True, return_inverse=True)
        if len(first) * 2 > count:
            return None
        return np.arange(nodes.capacity)[rows][first], places

    @property
    def end(self) -> int:
        """A number above every rank."""
        self._arranged()
        return len(self.rank)

    def below(self, size: int) -> int:
        """The highest rank of smaller sizes; -1 if there is none."""
        self._arranged()
        return int(np.searchsorted(self._sizes_in_order, size, "left")) - 1

    def slots_at(self, ranks: Int64Array) -> RowArray:
        """Slots with these ranks; -1 for `end`."""
        order = self._arranged()
        found: RowArray = np.append(order, -1)[np.minimum(ranks, len(order))]
        return found

    def choice(self, slots: RowArray, nodes: LabelledRows, rows: Rows) -> "Choice":
        """Choice among these slots, which are in use and in order."""
        self._arranged()
        keys = self._key_of[slots]
        return Choice(
            len(self.rank),
            self.rank[slots[keys == _EVERYWHERE]],
            [self._composed(key, slots[keys == key], nodes, rows) for key in self._by_key if key != _EVERYWHERE],
            list(self._masked(set(slots[keys == _OTHER].tolist()), nodes, rows)),
        )

    def _composed(self, key: int, slots: RowArray, nodes: LabelledRows, rows: Rows) -> tuple[Int64Array, RowArray]:
        by_value, numbers = self._by_key[key]
        if len(slots) * _FEW < len(by_value):
            composed = np.sort(self._value_of[slots] * np.int64(len(self.rank) + 1) + self.rank[slots])
        else:
            chosen = np.zeros(self.slots, dtype=np.bool_)
            chosen[slots] = True
            kept = chosen[by_value]
            composed = numbers[kept] * np.int64(len(self.rank) + 1) + self.rank[by_value[kept]]
        return np.append(composed, _LAST), self._keys[key].numbers(nodes, rows)

    def _masked(self, slots: set[int], nodes: LabelledRows, rows: Rows) -> Iterator[tuple[Int64Array, BoolArray]]:
        for reach, others in self._others.items() if slots else ():
            among = others & slots
            if among:
                yield np.sort(self.rank[list(among)]), reach.over(nodes, rows)

    def _arranged(self) -> RowArray:
        if self._order is None:
            in_use = np.flatnonzero(self.sizes >= 0)
            self._order = in_use[np.lexsort((self._ties[in_use], self.sizes[in_use]))]
            self._sizes_in_order = self.sizes[self._order]
            self.rank = np.zeros(self.slots, dtype=np.int64)
            self.rank[self._order] = np.arange(len(self._order))
            keys = self._key_of[self._order]
            self._by_key = {}
            for key in np.unique(keys[keys != _OTHER]).tolist():
                slots = self._order[keys == key]
                slots = slots[np.argsort(self._value_of[slots], kind="stable")]
                self._by_key[key] = slots, self._value_of[slots]
        return self._order

    def _grow(self) -> None:
        slots = self.slots
        self.sizes = resized(self.sizes, (2 * slots,), -1)
        self._ties = resized(self._ties, (2 * slots,), 0)
        self._key_of = resized(self._key_of, (2 * slots,), _EVERYWHERE)
        self._value_of = resized(self._value_of, (2 * slots,), 0)
        self._free = list(range(2 * slots - 1, slots - 1, -1))


class Choice:
    """The slots, among given ones, that each row can reach, in order."""

    def __init__(
        self,
        end: int,
        everywhere: Int64Array,
        by_value: list[tuple[Int64Array, RowArray]],
        others: list[tuple[Int64Array, BoolArray]],
    ) -> None:
        """end: a number above every rank; stands for no rank. everywhere: ranks that every row reaches, ascending.

        by_value: for each label, (`value * (end + 1) + rank` of each slot, ascending, then a number above all; the
        value of each row, -1 for none). others: for each other reach, (its ranks, ascending; bool[rows]).
        """
        self.end = end
        self._everywhere = np.append(everywhere, end)
        self._by_value = by_value
        self._others = [(np.append(ranks, end), rows) for ranks, rows in others]

    def next(self, after: Int64Array, places: RowArray | slice) -> Int64Array:
        """int64[places]: the lowest rank above `after` that each of these rows reaches; `end` for none."""
        best = self._everywhere[np.searchsorted(self._everywhere[:-1], after, "right")]
        for composed, numbers in self._by_value:
            begins = numbers[places] * np.int64(self.end + 1)
            ranks = composed[np.searchsorted(composed, begins + after, "right")] - begins
            best = np.minimum(best, np.where((begins >= 0) & (ranks <= self.end), ranks, self.end))
        for ranks, rows in self._others:
            found = ranks[np.searchsorted(ranks[:-1], after, "right")]
            best = np.minimum(best, np.where(rows[places], found, self.end))
        return np.asarray(best, dtype=np.int64)


class _ByValue:
    """Slots whose reach is decided by one value of one label."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.values: Vocabulary[str] = Vocabulary()
        self._seen: tuple[LabelColumn, int, int] | None = None
        self._numbers: RowArray = np.zeros(0, dtype=np.intp)

    def numbers(self, nodes: LabelledRows, rows: Rows) -> RowArray:
        """intp[rows]: number of each row's value, -1 if no slot has it."""
        column = nodes.labels.column(self._key)
        seen = (column, column.values.version, self.values.version)
        if seen != self._seen:
            self._seen = seen
            self._numbers = np.full(len(column.values) + 1, -1, dtype=np.intp)
            for value, number in self.values.items():
                code = column.values.code(value)
                if code is not None:
                    self._numbers[code] = number
        return self._numbers[column.codes[rows]]
