"""The rows of the tables as a workload looks at them, and what is kept of that for every row."""

from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

import numpy as np

from scheduler.state.cards.card_columns import CardColumns
from scheduler.state.columns.arrays import ALL_ROWS, BoolArray, Int32Array, RowArray, Rows
from scheduler.state.columns.resources import CPU_INDEX, ResourceColumns
from scheduler.state.packing.workload import FloatArray, Workload

# With fewer rows, what is saved is less than what it costs to compare them.
_WORTH_COMPARING: Final = 128
# So many rows at a time are still in the processor's cache.
ROWS_AT_A_TIME: Final = 2_048
# Odd, and otherwise whatever: for each card, so that sums of different rows differ.
_MOST_CARDS: Final = 256
_FACTORS: Final = np.random.default_rng(1).integers(1 << 62, size=(_MOST_CARDS, 1)) * 2 + 1
_FACTOR_OF_CPU: Final = np.int64(0x1E3779B97F4A7C15)
_MODEL_BITS: Final = 12


class SeenTables(Protocol):
    """The tables, as far as they are read here."""

    cards: CardColumns
    resources: ResourceColumns

    @property
    def capacity(self) -> int:
        """Rows of every column."""


class FreeCards(NamedTuple):
    """Of rows that are judged together.

    free: float64[cards, rows], units of each card that may be given to somebody, else 0. model: int32[cards, rows], its
    code. cpu: float64[rows], free millis, >= 0.
    """

    free: FloatArray
    model: Int32Array
    cpu: FloatArray

    @classmethod
    def of(cls, tables: SeenTables, rows: Rows) -> "FreeCards":
        """As they are now."""
        cards = tables.cards
        free = np.where(cards.available[:, rows], np.maximum(cards.free[:, rows], 0), 0).astype(np.float64)
        return cls(free, cards.model[:, rows], free_cpu(tables, rows))

    def of_rows(self, places: Rows) -> "FreeCards":
        """Of some of them."""
        return FreeCards(self.free[:, places], self.model[:, places], self.cpu[places])

    def rooms(self, workload: Workload) -> FloatArray:
        """float64[rows, 3 x asks]: what Room has of each of them."""
        free, model, like = workload.kinds_of_cards(self.free, self.model)
        of_kinds = workload.on_cards(free, model)
        found: FloatArray = of_kinds[like[0]]
        for kind in like[1:]:
            found += of_kinds[kind]
        return found

    def kinds_of_rows(self, apart: BoolArray | None = None, sides: BoolArray | None = None) -> tuple[Rows, Rows]:
        """(one row of each kind, of each row which of those it is like); all of them where few are alike.

        Most nodes are empty at first, and later full; what holds for one holds for all that have the same free. apart:
        bool[cards, rows], sides: bool[rows], in which rows of a kind are the same, too.
        """
        count = len(self.cpu)
        if count < _WORTH_COMPARING or len(self.free) > _MOST_CARDS:
            return ALL_ROWS, ALL_ROWS
        cells = self.free.astype(np.int64) << _MODEL_BITS | self.model & ((1 << _MODEL_BITS) - 1)
        if apart is not None:
            cells = cells << 1 | apart
        cpu = self.cpu.astype(np.int64)
        if sides is not None:
            cpu = cpu << 1 | sides
        sums = (cells * _FACTORS[: len(cells)]).sum(axis=0) + cpu * _FACTOR_OF_CPU
        _, first, like = np.unique(sums, return_index=True, return_inverse=True)
        if 2 * len(first) > count:
            return ALL_ROWS, ALL_ROWS
        chosen = first[like]
        are_alike = np.array_equal(cells, cells[:, chosen]) and np.array_equal(cpu, cpu[chosen])
        return (first, like) if are_alike else (ALL_ROWS, ALL_ROWS)


class FreeCardsOf(NamedTuple):
    """The same of one row, with Python's numbers: what is done with them costs a fifth. By slot, at every width."""

    free: list[int]
    model: list[int]
    cpu: int

    @classmethod
    def row(cls, tables: SeenTables, row: int) -> "FreeCardsOf":
        """As it is now."""
        stored, resources = tables.cards.stored, tables.resources
        free = np.where(stored.available[:, row], np.maximum(stored.free[:, row], 0), 0).tolist()
        cpu = resources.allocatable.item(CPU_INDEX, row) - resources.requested.item(CPU_INDEX, row)
        return cls(free, stored.model[:, row].tolist(), max(cpu, 0))


def free_cpu(tables: SeenTables, rows: Rows) -> FloatArray:
    """float64[rows]: free millis of each, >= 0."""
    resources = tables.resources
    cpu = resources.allocatable[CPU_INDEX, rows] - resources.requested[CPU_INDEX, rows]
    found: FloatArray = np.maximum(cpu, 0).astype(np.float64)
    return found


def seen_in_chunks(tables: SeenTables, rows: Rows) -> Iterator[tuple[Rows, FreeCards]]:
    """(where among `rows`, their cards), every one of `rows` once, as many at a time as are best judged together."""
    for group in tables.cards.groups(rows):
        for places, some in in_chunks(group.rows, tables.capacity):
            with tables.cards.viewing(group.width):
                seen = FreeCards.of(tables, some)
            yield (places if group.places is None else group.places[places]), seen


def in_chunks(rows: Rows, capacity: int) -> Iterator[tuple[slice, Rows]]:
    """(where among `rows`, these rows), `rows` in parts of as many as are best judged at a time."""
    if isinstance(rows, slice):
        start, stop, _ = rows.indices(capacity)
        yield from ((slice(some.start - start, some.stop - start), some) for some in slices(start, stop))
    else:
        yield from ((places, rows[places]) for places in slices(0, len(rows)))


def slices(start: int, stop: int) -> Iterator[slice]:
    """The numbers from `start` to `stop`, without it, in parts of as many rows as are best judged at a time."""
    return (slice(at, min(at + ROWS_AT_A_TIME, stop)) for at in range(start, stop, ROWS_AT_A_TIME))


def rows_at(rows: Rows, places: Rows = ALL_ROWS) -> RowArray:
    """Rows of the tables, one by one. places: among `rows`; all of them only where a slice has an end."""
    if not isinstance(rows, slice):
        return rows[places]
    if isinstance(places, slice):
        return np.arange(rows.start, rows.stop)[places]
    return places + (rows.start or 0)
