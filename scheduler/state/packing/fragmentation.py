"""How much free memory of cards no usual pod can use: of the cluster, and of each of its nodes.

Requests count by their shares alone, whatever the policy: how scarce room is for them changes with every pod, and what
is shown must mean the same tomorrow. Works without the policy being on.

    event loop: Copied.of(tables) ──▶ another thread: each_measured()      or, at once: measured(tables, workload)
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from scheduler.state.cards.node_inventory import GpuState
from scheduler.state.columns.arrays import ALL_ROWS, BoolArray, Rows
from scheduler.state.packing import cards_seen
from scheduler.state.packing.cards_seen import FreeCards, seen_in_chunks
from scheduler.state.packing.row_kinds import alike, kinds_of
from scheduler.state.packing.workload import PARTS, FloatArray, PodMix, Room


class Fragmentation(NamedTuple):
    """Of some rows together. free: units of cards that may be given to somebody. unusable: of these, for a usual pod.

    That is the mean over the usual requests, 0..free; 0 where none is known.
    """

    free: float
    unusable: float


class MeasuredTables(cards_seen.SeenTables, Protocol):
    """The tables, as far as they are read here. unschedulable: bool[nodes]."""

    unschedulable: BoolArray


class Measured(NamedTuple):
    """Of each of some rows, float64[rows], in units: what Fragmentation has."""

    free: FloatArray
    unusable: FloatArray

    def total(self) -> Fragmentation:
        """Of these rows together."""
        return Fragmentation(float(self.free.sum()), float(self.unusable.sum()))


def of_cards(cards: FreeCards, workload: PodMix) -> Measured:
    """Of rows with these cards, whether they are so or only supposed to be.

    workload: with shares as weights, see `TargetWorkload.usual`.
    """
    free = cards.free.sum(axis=0)
    if not len(workload.weights):
        return Measured(free, np.zeros_like(free))
    first, like = alike(kinds_of(cards))
    kinds = cards.of_rows(first)
    usable = workload.worth(Room.of(kinds.rooms(workload)), kinds.cpu)[like] / PARTS
    # The weights are rounded to PARTS, so what is usable may exceed what is free by a few of them.
    return Measured(free, np.maximum(free - usable, 0.0))


def measured(tables: MeasuredTables, workload: PodMix, rows: Rows = ALL_ROWS) -> Measured:
    """Of `rows` as they are now, in their order. 20 ms for 5,000 nodes of 8 cards: not on the event loop for all."""
    return Copied.of(tables, workload, rows).measured()


class Copied(NamedTuple):
    """What the measure looks at, which no change of the tables reaches.

    workload: see of_cards. rows: how many. chunks: (where among the rows, their cards), a few milliseconds each.
    """

    workload: PodMix
    rows: int
    chunks: list[tuple[Rows, FreeCards]]

    @classmethod
    def of(cls, tables: MeasuredTables, workload: PodMix, rows: Rows = ALL_ROWS) -> "Copied":
        """As the tables are now. On a node that takes no new pods nothing is free."""
        count = len(range(*rows.indices(tables.capacity))) if isinstance(rows, slice) else len(rows)
        takes_pods = (tables.cards.state[rows] == GpuState.READY) & ~tables.unschedulable[rows]
        found = [
            (places, seen._replace(free=seen.free * takes_pods[places], model=seen.model.copy()))
            for places, seen in seen_in_chunks(tables, rows)
        ]
        return cls(workload, count, found)

    def each_measured(self, into: Measured) -> Iterator[None]:
        """Works `into` out, see `nothing`, a chunk at each step."""
        for places, cards in self.chunks:
            into.free[places], into.unusable[places] = of_cards(cards, self.workload)
            yield

    def nothing(self) -> Measured:
        """Room for the measure of these rows, all 0."""
        return Measured(np.zeros(self.rows), np.zeros(self.rows))

    def measured(self) -> Measured:
        """All of it at once."""
        into = self.nothing()
        for _ in self.each_measured(into):
            pass
        return into
