"""The resources available on each row (node), laid out for comparison with many classes of pods at once.

A few amounts that nearly every pod requests rule out most rows. On the other rows, cards are examined one by one.
"""

from enum import IntEnum
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np

from scheduler.pods.effective_requests import CPU, EPHEMERAL_STORAGE, MEMORY
from scheduler.state.cards.card_arrays import per_row
from scheduler.state.cards.card_columns import MOST_UNITS
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.columns.resources import NATIVE
from scheduler.state.pod_record import PodRecord
from scheduler.state.tables import Tables


class Amount(IntEnum):
    """Index of each amount in an array of amounts: first the native resources in the order of their columns.

    CARD_UNITS: gpu-mem units of one card. NODE_UNITS: gpu-mem units of the whole node.
    """

    CPU_MILLIS = 0
    MEMORY_BYTES = 1
    EPHEMERAL_STORAGE_BYTES = 2
    PODS = 3
    CARD_UNITS = 4
    NODE_UNITS = 5


class AvailableOnCards(NamedTuple):
    """Cards of one row that can be allocated, one entry each.

    free: units, negative if over-committed. empty: True if no pod holds the card. models, uuids: see `model_bit` and
    `uuid_bit`. traits: as in `CardColumns`.
    """

    free: Int64Array
    empty: BoolArray
    models: Int64Array
    uuids: Int64Array
    traits: Int64Array


# Minimum for an amount that does not matter: less than any row can have available.
NOTHING: Final = int(np.iinfo(np.int64).min)


# A set is stored as bits of one number. If a member's bit is missing, so is the member; otherwise it may be in the set.
BITS: Final = 63
ANY_BIT: Final = -1


def model_bit(code: int) -> int:
    """Bit that stands for the model with this code (`CardColumns.model_code`); all high codes share the last bit."""
    return 1 << min(code, BITS - 1)


def uuid_bit(uuid: str) -> int:
    """Bit that stands for the card with this UUID; several cards share each bit."""
    return 1 << blake2b(uuid.encode(), digest_size=1).digest()[0] % BITS


def row_bits(row: int) -> tuple[int, int]:
    """Return two bits for a row: one for its position in a group of 63 rows, one for the group. Few rows share both."""
    return 1 << row % BITS, 1 << row // BITS % BITS


class AvailableOnRows:
    """Current available amounts of the rows of the tables."""

    def __init__(self, tables: Tables) -> None:
        """tables: read-only."""
        self._tables = tables

    def amounts(self, rows: RowArray) -> Int64Array:
        """Like `available_on`, but an upper bound on rows with booked nominated pods: some pods may ignore those."""
        amounts = available_on(self._tables, rows)
        for place, row in enumerate(rows.tolist() if self._tables.any_nominated else ()):
            for record in self._tables.nominated_on(row):
                amounts[:, place] += _released(record)
        return amounts

    def cards(self, row: int) -> AvailableOnCards:
        """Available cards of one row, without counting booked nominated pods."""
        nominated = list(self._tables.nominated_on(row))
        for record in nominated:
            self._tables.lift(record)
        try:
            return self._cards(row)
        finally:
            for record in nominated:
                self._tables.put_back(record)

    def _cards(self, row: int) -> AvailableOnCards:
        columns = self._tables.cards
        stored, slots = columns.stored, columns.slots[row]
        given = np.flatnonzero(stored.available[: len(slots), row])
        return AvailableOnCards(
            free=stored.free[given, row].astype(np.int64),
            empty=stored.holders[given, row] == 0,
            models=np.array([model_bit(code) for code in stored.model[given, row].tolist()], dtype=np.int64),
            uuids=np.array([uuid_bit(slots[slot].card.uuid) for slot in given.tolist()], dtype=np.int64),
            traits=stored.traits[given, row].astype(np.int64),
        )


def _released(record: PodRecord) -> Int64Array:
    """int64[amounts]: upper bound of what a nominated pod occupies. NODE_UNITS is 0: node totals exclude the pod."""
    template = record.pod.template
    native = [template.requests.get(name, 0) for name in (CPU, MEMORY, EPHEMERAL_STORAGE)]
    on_one_card = MOST_UNITS if record.exclusive else template.gpu_units
    return np.array([*native, 1, on_one_card, 0], dtype=np.int64)


def available_on(tables: Tables, rows: Rows) -> Int64Array:
    """int64[amounts, rows]: available amounts, negative if over-committed. CARD_UNITS: on the best card."""
    resources, cards = tables.resources, tables.cards
    native = resources.allocatable[:NATIVE, rows] - resources.requested[:NATIVE, rows]
    most = []
    for group in cards.groups(rows):
        with cards.viewing(group.width):
            free, available = cards.free[:, group.rows], cards.available[:, group.rows]
        most.append((group, np.where(available, free, -1).max(axis=0)))
    on_one_card = per_row(most, native.shape[1])
    return np.vstack((native, on_one_card[np.newaxis], cards.node_free[rows][np.newaxis]))
