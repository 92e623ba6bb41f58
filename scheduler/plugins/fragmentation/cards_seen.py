"""The free cards of rows, in the form that the packing measure reads, and rows split into chunks."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from scheduler.plugins.fragmentation.workload import FloatArray, PodMix
from scheduler.state.columns.arrays import ALL_ROWS, Int32Array, RowArray, Rows
from scheduler.state.columns.resources import CPU_INDEX
from scheduler.state.tables import Tables

# This many rows fit into the processor's cache.
ROWS_AT_A_TIME: Final = 2_048


class FreeCards(NamedTuple):
    """Free cards of rows that are evaluated together.

    free: float64[cards, rows], free units of each card, 0 if it cannot be allocated. model: int32[cards, rows], code of
    each card's model. cpu: float64[rows], free millis, >= 0.
    """

    free: FloatArray
    model: Int32Array
    cpu: FloatArray

    @classmethod
    def of(cls, tables: Tables, rows: Rows) -> "FreeCards":
        """Current free cards."""
        cards = tables.cards
        free = np.where(cards.available[:, rows], np.maximum(cards.free[:, rows], 0), 0).astype(np.float64)
        return cls(free, cards.model[:, rows], free_cpu(tables, rows))

    def of_rows(self, places: Rows) -> "FreeCards":
        """Free cards of some of the rows."""
        return FreeCards(self.free[:, places], self.model[:, places], self.cpu[places])

    def rooms(self, workload: PodMix) -> FloatArray:
        """float64[rows, 3 x asks]: the fields of Room for each row."""
        free, model, like = workload.kinds_of_cards(self.free, self.model)
        of_kinds = workload.on_cards(free, model)
        found: FloatArray = of_kinds[like[0]]
        for kind in like[1:]:
            found += of_kinds[kind]
        return found


class FreeCardsOf(NamedTuple):
    """Free cards of one row, by slot, as plain Python numbers: for one row these are five times as fast."""

    free: list[int]
    model: list[int]
    cpu: int

    @classmethod
    def row(cls, tables: Tables, row: int) -> "FreeCardsOf":
        """Current free cards of the row."""
        stored, resources = tables.cards.stored, tables.resources
        free = np.where(stored.available[:, row], np.maximum(stored.free[:, row], 0), 0).tolist()
        cpu = resources.allocatable.item(CPU_INDEX, row) - resources.requested.item(CPU_INDEX, row)
        return cls(free, stored.model[:, row].tolist(), max(cpu, 0))


def free_cpu(tables: Tables, rows: Rows) -> FloatArray:
    """float64[rows]: free millis of each, >= 0."""
    resources = tables.resources
    cpu = resources.allocatable[CPU_INDEX, rows] - resources.requested[CPU_INDEX, rows]
    found: FloatArray = np.maximum(cpu, 0).astype(np.float64)
    return found


def seen_in_chunks(tables: Tables, rows: Rows) -> Iterator[tuple[Rows, FreeCards]]:
    """Yield (positions among `rows`, their cards) in chunks of the best size; each row appears once."""
    for group in tables.cards.groups(rows):
        for places, some in in_chunks(group.rows, tables.capacity):
            with tables.cards.viewing(group.width):
                seen = FreeCards.of(tables, some)
            yield (places if group.places is None else group.places[places]), seen


def in_chunks(rows: Rows, capacity: int) -> Iterator[tuple[slice, Rows]]:
    """Yield (positions among `rows`, these rows) in chunks of the best size."""
    if isinstance(rows, slice):
        start, stop, _ = rows.indices(capacity)
        yield from ((slice(some.start - start, some.stop - start), some) for some in slices(start, stop))
    else:
        yield from ((places, rows[places]) for places in slices(0, len(rows)))


def slices(start: int, stop: int) -> Iterator[slice]:
    """Slices of the range from `start` to `stop`, exclusive, in chunks of the best size."""
    return (slice(at, min(at + ROWS_AT_A_TIME, stop)) for at in range(start, stop, ROWS_AT_A_TIME))


def rows_at(rows: Rows, places: Rows = ALL_ROWS) -> RowArray:
    """Rows of the tables. places: positions among `rows`; not a slice if `rows` is a slice without an end."""
    if not isinstance(rows, slice):
        return rows[places]
    if isinstance(places, slice):
        return np.arange(rows.start, rows.stop)[places]
    return places + (rows.start or 0)
