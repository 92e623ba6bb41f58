"""Which rows are alike: as much free on each card slot, of the same models, and as much free CPU.

Most nodes are empty at first, and full later: a pod is worth on all of a kind what it is worth on one of them. The kind
of a row is one number, kept while the row stays as it is, so that hundreds of rows are told apart by one sort.

Two rows that differ have one number once in 2^64. Then a row may be scored as the other one is. No pod gets a card that
does not fit for that: which cards fit is compared by itself, see `alike`.
Owned by the event loop; no method awaits.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from config.protocol.inventory import MAX_CARDS
from scheduler.state.columns.arrays import ALL_ROWS, BoolArray, Rows
from scheduler.state.packing.cards_seen import FreeCards, FreeCardsOf, SeenTables
from scheduler.state.packing.distinct import first_of_each

KindArray: TypeAlias = NDArray[np.uint64]
# To compare them costs what it costs to score two or three one by one.
_WORTH_COMPARING: Final = 8
# As many as a card's units leave of 62 with those of its slot, where the three are one number.
_MODEL_BITS: Final = 28
_MIXED_BITS: Final = np.uint64(32)
_64_BITS: Final = (1 << 64) - 1
# Odd, and otherwise whatever: sums of different rows differ.
_DRAWN: Final = np.random.default_rng(1).integers(1 << 62, size=MAX_CARDS + 3, dtype=np.uint64) * 2 + 1
_OF_SLOT: Final = _DRAWN[:MAX_CARDS, np.newaxis]
_OF_CARD, _OF_CPU, _OF_SIDE = _DRAWN[MAX_CARDS:]
# The same as Python's numbers: for one row these take a sixth of the time.
_SLOTS: Final = _DRAWN[:MAX_CARDS].tolist()
_CARD, _CPU = int(_OF_CARD), int(_OF_CPU)


class RowKinds:
    """The kind of every row, as of when it was last worked out."""

    def __init__(self, tables: SeenTables) -> None:
        """Of no row."""
        self._tables = tables
        self._kinds = np.zeros(tables.capacity, dtype=np.uint64)

    def work_out(self, rows: Rows) -> None:
        """As `rows` are now. rows: judged together."""
        self._kinds[rows] = kinds_of(FreeCards.of(self._tables, rows))

    def work_out_row(self, row: int, seen: FreeCardsOf) -> None:
        """As this one row is now."""
        kind = seen.cpu * _CPU
        for slot, free in enumerate(seen.free):
            if free:
                card = (free << _MODEL_BITS | seen.model[slot]) * _CARD & _64_BITS
                kind += (card ^ card >> 32) * _SLOTS[slot]
        self._kinds[row] = kind & _64_BITS

    def of(self, rows: Rows, sides: BoolArray | None = None) -> KindArray:
        """uint64[rows]: one number for each kind. sides: bool[rows], in which rows of a kind are the same, too."""
        kinds = self._kinds[rows]
        return kinds if sides is None else kinds + sides * _OF_SIDE


def kinds_of(seen: FreeCards) -> KindArray:
    """uint64[rows]: one number for each kind."""
    cards = (seen.free.astype(np.uint64) << np.uint64(_MODEL_BITS) | seen.model.astype(np.uint64)) * _OF_CARD
    cards ^= cards >> _MIXED_BITS
    cards *= _OF_SLOT[: len(cards)]
    cards *= seen.free > 0
    found: KindArray = cards.sum(axis=0) + seen.cpu.astype(np.uint64) * _OF_CPU
    return found


def numbered(fits: BoolArray) -> KindArray:
    """uint64[rows]: one number for rows on which the same cards fit. fits: bool[cards, rows]."""
    bits = np.packbits(fits, axis=0)
    found: KindArray = (bits * _OF_SLOT[: len(bits)]).sum(axis=0)
    return found


def alike(kinds: KindArray, fits: BoolArray | None = None) -> tuple[Rows, Rows]:
    """(one place of each kind, of each place which of those it is like); all of them where few are alike.

    kinds: as `RowKinds.of`. fits: bool[cards, rows], in which rows of a kind are the same, too.
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
