"""Free card memory that typical pods cannot use, of the cluster and of each node.

Requests are weighted by their shares alone, whatever the policy: scarcity weights change with every pod, but the
displayed value must keep its meaning. Also works without the policy.

    event loop: Copied.of(tables) ──▶ another thread: each_measured()      or, at once: measured(tables, workload)
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from scheduler.plugins.fragmentation.cards_seen import FreeCards, seen_in_chunks
from scheduler.plugins.fragmentation.row_kinds import alike, kinds_of
from scheduler.plugins.fragmentation.target_workload import TargetWorkload
from scheduler.plugins.fragmentation.workload import PARTS, FloatArray, PodMix, Room
from scheduler.state.cards.node_inventory import GpuState
from scheduler.state.columns.arrays import ALL_ROWS, Rows
from scheduler.state.tables import Tables


class Fragmentation(NamedTuple):
    """Totals of some rows. free: allocatable units of cards. unusable: units among them that a typical pod cannot use.

    unusable is a mean over the usual requests, 0..free; 0 if no request is known.
    """

    free: float
    unusable: float


class Measured(NamedTuple):
    """Fragmentation per row, float64[rows], in units."""

    free: FloatArray
    unusable: FloatArray

    def total(self) -> Fragmentation:
        """Total over these rows."""
        return Fragmentation(float(self.free.sum()), float(self.unusable.sum()))


def of_cards(cards: FreeCards, workload: PodMix) -> Measured:
    """Fragmentation of rows with these cards, actual or hypothetical.

    workload: with shares as weights, see `TargetWorkload.usual`.
    """
    free = cards.free.sum(axis=0)
    if not len(workload.weights):
        return Measured(free, np.zeros_like(free))
    first, like = alike(kinds_of(cards))
    kinds = cards.of_rows(first)
    usable = workload.worth(Room.of(kinds.rooms(workload)), kinds.cpu)[like] / PARTS
    # Weights are rounded to PARTS, so usable memory may exceed free memory by a few PARTS.
    return Measured(free, np.maximum(free - usable, 0.0))


def measured(tables: Tables, workload: PodMix, rows: Rows = ALL_ROWS) -> Measured:
    """Current fragmentation of `rows`, in their order.

    Takes 20 ms for 5,000 nodes of 8 cards: do not measure all rows on the event loop.
    """
    return Copied.of(tables, workload, rows).measured()


def fragmentation_of(tables: Tables, nodes: Sequence[str] | None = None) -> Measured:
    """Current fragmentation of these nodes in their order, for the usual requests; None: all. See `measured`."""
    rows = ALL_ROWS if nodes is None else np.array([tables.row_of[node] for node in nodes], dtype=np.intp)
    return measured(tables, tables.fact(TargetWorkload).usual(), rows)


class Copied(NamedTuple):
    """A copy of the measure's input, unaffected by later changes to the tables.

    workload: see of_cards. rows: number of rows. chunks: (positions among the rows, their cards); each chunk takes a
    few milliseconds.
    """

    workload: PodMix
    rows: int
    chunks: list[tuple[Rows, FreeCards]]

    @classmethod
    def of(cls, tables: Tables, workload: PodMix, rows: Rows = ALL_ROWS) -> "Copied":
        """Copy of the current tables. A node that takes no new pods has no free cards."""
        count = len(range(*rows.indices(tables.capacity))) if isinstance(rows, slice) else len(rows)
        takes_pods = (tables.cards.state[rows] == GpuState.READY) & ~tables.unschedulable[rows]
        found = [
            (places, seen._replace(free=seen.free * takes_pods[places], model=seen.model.copy()))
            for places, seen in seen_in_chunks(tables, rows)
        ]
        return cls(workload, count, found)

    def each_measured(self, into: Measured) -> Iterator[None]:
        """Compute `into` (see `nothing`), one chunk per step."""
        for places, cards in self.chunks:
            into.free[places], into.unusable[places] = of_cards(cards, self.workload)
            yield

    def nothing(self) -> Measured:
        """Result arrays for these rows, all 0."""
        return Measured(np.zeros(self.rows), np.zeros(self.rows))

    def measured(self) -> Measured:
        """Measure all rows without pausing."""
        into = self.nothing()
        for _ in self.each_measured(into):
            pass
        return into
