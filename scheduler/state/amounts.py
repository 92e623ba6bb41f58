"""What a row has left of the few amounts that nearly every pod asks for: enough to rule most rows out at a glance."""

from enum import IntEnum
from typing import Final

import numpy as np

from scheduler.state.cards.card_arrays import per_row
from scheduler.state.columns.arrays import Int64Array, Rows
from scheduler.state.columns.resources import NATIVE
from scheduler.state.tables import Tables


class Amount(IntEnum):
    """The place of each in a column of amounts: the native resources in the order of their columns, then the cards.

    CARD_UNITS: gpu-mem units of one card that may be given out. NODE_UNITS: of the node in all.
    """

    CPU_MILLIS = 0
    MEMORY_BYTES = 1
    EPHEMERAL_STORAGE_BYTES = 2
    PODS = 3
    CARD_UNITS = 4
    NODE_UNITS = 5


# Asked of an amount that does not matter: less than any row can have left.
NOTHING: Final = int(np.iinfo(np.int64).min)


def left(tables: Tables, rows: Rows) -> Int64Array:
    """int64[amounts, rows]: what is left there, negative when over-committed. CARD_UNITS: of the card with most."""
    resources, cards = tables.resources, tables.cards
    native = resources.allocatable[:NATIVE, rows] - resources.requested[:NATIVE, rows]
    most = []
    for group in cards.groups(rows):
        with cards.viewing(group.width):
            free, available = cards.free[:, group.rows], cards.available[:, group.rows]
        most.append((group, np.where(available, free, -1).max(axis=0)))
    on_one_card = per_row(most, native.shape[1])
    return np.vstack((native, on_one_card[np.newaxis], cards.node_free[rows][np.newaxis]))
