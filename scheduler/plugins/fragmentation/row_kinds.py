"""Kinds of equal rows: the same free memory on each card slot, the same models, and the same free CPU.

Most nodes are empty at first and full later, and a pod has the same worth on all rows of a kind. The kind of a row is
one number, stored while the row is unchanged, so that one sort groups hundreds of rows.

Different rows share a number with probability 2^-64. Then a row may get the other's score, but
no pod gets a card that does not fit: fitting cards are compared separately, see `alike`. Owned by the event loop; no
method awaits.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from config.protocol.inventory import MAX_CARDS
from scheduler.plugins.fragmentation.cards_seen import FreeCards, FreeCardsOf
from scheduler.plugins.fragmentation.distinct import first_of_each
from scheduler.state.columns.arrays import ALL_ROWS, BoolArray, Rows
from scheduler.state.tables import Tables

KindArray: TypeAlias = NDArray[np.uint64]
# Comparing rows costs as much as scoring two or three rows one at a time.
_WORTH_COMPARING: Final = 8
# Bits of 62 that are left for the model if units, slot and model are packed into one number.
_MODEL_BITS: Final = 28
_MIXED_BITS: Final = np.uint64(32)
_64_BITS: Final = (1 << 64) - 1
# Odd, otherwise arbitrary, so that sums of different rows differ.
_DRAWN: Final = np.random.default_rng(1).integers(1 << 62, size=MAX_CARDS + 3, dtype=np.uint64) * 2 + 1
_OF_SLOT: Final = _DRAWN[:MAX_CARDS, np.newaxis]
_OF_CARD, _OF_CPU, _OF_SIDE = _DRAWN[MAX_CARDS:]
# Plain Python numbers: for one row they take a sixth of the time.
_SLOTS: Final = _DRAWN[:MAX_CARDS].tolist()
_CARD, _CPU = int(_OF_CARD), int(_OF_CPU)


class RowKinds:
    """Kind of every row, as last computed."""

    def __init__(self, tables: Tables) -> None:
        """No rows."""
        self._tables = tables
        self._kinds = np.zeros(tables.capacity, dtype=np.uint64)

    def work_out(self, rows: Rows) -> None:
        """Recompute `rows`, which are evaluated together."""
        self._kinds[rows] = kinds_of(FreeCards.of(self._tables, rows))

    def work_out_row(self, row: int, seen: FreeCardsOf) -> None:
        """Recompute this one row."""
        kind = seen.cpu * _CPU
        for slot, free in enumerate(seen.free):
            if free:
                card = (free << _MODEL_BITS | seen.model[slot]) * _CARD & _64_BITS
                kind += (card ^ card >> 32) * _SLOTS[slot]
        self._kinds[row] = kind & _64_BITS

    def of(self, rows: Rows, sides: BoolArray | None = None) -> KindArray:
        """uint64[rows]: one number per kind. sides: bool[rows], which must also be equal within a kind."""
        kinds = self._kinds[rows]
        return kinds if sides is None else kinds + sides * _OF_SIDE


def kinds_of(seen: FreeCards) -> KindArray:
    """uint64[rows]: one number per kind."""
    cards = (seen.free.astype(np.uint64) << np.uint64(_MODEL_BITS) | seen.model.astype(np.uint64)) * _OF_CARD
    cards ^= cards >> _MIXED_BITS
    cards *= _OF_SLOT[: len(cards)]
    cards *= seen.free > 0
    found: KindArray = cards.sum(axis=0) + seen.cpu.astype(np.uint64) * _OF_CPU
    return found


def numbered(fits: BoolArray) -> KindArray:
    """uint64[rows]: a number that is equal for rows on which the same cards fit. fits: bool[cards, rows]."""
    bits = np.packbits(fits, axis=0)
    found: KindArray = (bits * _OF_SLOT[: len(bits)]).sum(axis=0)
    return found


def alike(kinds: KindArray, fits: BoolArray | None = None) -> tuple[Rows, Rows]:
    """Return (one position of each kind, index of each position's kind); all positions if few rows are alike.

    kinds: see `RowKinds.of`. fits: bool[cards, rows], which must also be equal within a kind.
    """
    if len(kinds) < _WORTH_COMPARING:
        return ALL_ROWS, ALL_ROWS
    if fits is not None:
        kinds = kinds + numbered(fits)
    first, like = first_of_each(kinds)
    are_few = 2 * len(first) <= len(kinds)
    if not are_few or (fits is not None and not np.array_equal(fits, fits[:, first[like]])):
        return ALL_ROWS, ALL_ROWS
    return first, like
