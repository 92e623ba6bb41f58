"""The resources available on each row if all pods below a priority were evicted: an upper bound for preemption.

Pods are counted per row, and recounted when the row changes. So the scheduler does not search a node pod by pod for
every waiting pod if preemption cannot help there.
"""

from operator import attrgetter
from typing import Final

import numpy as np
from cachetools import LRUCache

from scheduler.pods.effective_requests import CPU, EPHEMERAL_STORAGE, MEMORY
from scheduler.pods.gpu_request import GpuRequest
from scheduler.state.amounts import ANY_BIT, NOTHING, Amount, AvailableOnCards, available_on, model_bit, uuid_bit
from scheduler.state.cards.node_inventory import accepted_codes
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows
from scheduler.state.facts.namespace_memory import Priorities
from scheduler.state.tables import Tables

# On nodes with more cards than this, only sums are compared.
_MOST_CARDS: Final = 16
_NONE: Final = -1
# Collecting more changes than this takes longer than one step may take.
_MOST_CHANGES: Final = 4096
# For all priorities together: enough for eight priorities with 8,000 nodes.
_MOST_BYTES: Final = 16 * 1024 * 1024


class AvailableAfterPreemption:
    """Available amounts for pods of one priority. Read it only while the tables show the view of such a pod.

    available: int64[amounts, nodes]; CARD_UNITS: on the best card. free: int64[cards, nodes], free units of the cards
    that can be allocated, -1 for the others. empty: bool[cards, nodes], True if no pod would hold the card.
    """

    def __init__(self, tables: Tables, priority: int) -> None:
        self._tables = tables
        self._priority = priority
        self._version = 0
        self._uncounted: set[int] = set()
        self._begin()

    @property
    def capacity(self) -> int:
        """Number of rows that the arrays can hold."""
        return len(self._wide)

    @property
    def size_bytes(self) -> int:
        return self.available.nbytes + self.free.nbytes + self.empty.nbytes + self._wide.nbytes

    def follow(self, most_pods: int) -> bool:
        """Recount changed rows until about `most_pods` pods are counted. Return whether no changed row is left."""
        self._note_changes()
        looked_at = 0
        while self._uncounted:
            if looked_at > most_pods:
                return False
            row = self._uncounted.pop()
            looked_at += 1 + self._tables.pods_on(row)
            self._count(row)
        return True

    def amounts(self, rows: RowArray) -> Int64Array:
        """Return int64[amounts, rows], the available amounts. Recounts those of `rows` that have changed.

        NOTHING for rows without pods of lower priority.
        """
        self._note_changes()
        for row in self._uncounted.intersection(rows.tolist()):
            self._uncounted.discard(row)
            self._count(row)
        somebody = self._tables.fact(Priorities).lowest[rows] < self._priority
        return np.where(somebody, self.available[:, rows], NOTHING)

    def cards(self, row: int) -> AvailableOnCards:
        """Cards of one row, which must be up to date: `amounts` has counted it."""
        slots = self._tables.cards.slots[row]
        if len(slots) > _MOST_CARDS:
            many = np.full(len(slots), self.available[Amount.CARD_UNITS, row])
            anything = np.full_like(many, ANY_BIT)
            return AvailableOnCards(many, np.ones(len(slots), dtype=np.bool_), anything, anything, anything)
        given = np.flatnonzero(self.free[: len(slots), row] >= 0)
        models = self._tables.cards.stored.model[given, row].tolist()
        return AvailableOnCards(
            free=self.free[given, row],
            empty=self.empty[given, row],
            models=np.array([model_bit(code) for code in models], dtype=np.int64),
            uuids=np.array([uuid_bit(slots[slot].card.uuid) for slot in given.tolist()], dtype=np.int64),
            traits=self._tables.cards.stored.traits[given, row].astype(np.int64),
        )

    def serves(self, rows: Rows, request: GpuRequest) -> BoolArray:
        """bool[rows]: True if enough cards may have the requested memory. rows: already counted."""
        cards = self._tables.cards
        fits = self.free[:, rows] >= request.units_per_card
        if request.exclusive:
            fits &= self.empty[:, rows]
        if request.models:
            accepted = accepted_codes(request.models, cards.model_code)
            shown = cards.stored.model[:_MOST_CARDS, rows]
            fits[: len(shown)] &= accepted[shown]
        if request.traits:
            traits = cards.stored.traits[:_MOST_CARDS, rows]
            fits[: len(traits)] &= traits & np.int8(request.traits) == request.traits
        return np.asarray((np.count_nonzero(fits, axis=0) >= request.cards) | self._wide[rows], dtype=np.bool_)

    def _begin(self) -> None:
        tables, capacity = self._tables, self._tables.capacity
        self._version = tables.changes.version
        self._uncounted = set(np.flatnonzero(tables.valid).tolist())
        self.available: Int64Array = np.zeros((len(Amount), capacity), dtype=np.int64)
        self.free: Int64Array = np.full((_MOST_CARDS, capacity), _NONE, dtype=np.int64)
        self.empty: BoolArray = np.zeros((_MOST_CARDS, capacity), dtype=np.bool_)
        self._wide: BoolArray = np.zeros(capacity, dtype=np.bool_)

    def _note_changes(self) -> None:
        tables = self._tables
        recent = tables.changes.version - self._version <= _MOST_CHANGES
        changed = tables.changes.since(self._version) if recent else None
        if changed is None or self.capacity != tables.capacity:
            self._begin()
        else:
            self._version = tables.changes.version
            self._uncounted.update(changed.rows)
        if self._uncounted:
            rows = np.fromiter(self._uncounted, dtype=np.intp, count=len(self._uncounted))
            # Rows without pods of lower priority are never read, so they are not counted.
            self._uncounted = set(rows[tables.fact(Priorities).lowest[rows] < self._priority].tolist())

    def _count(self, row: int) -> None:
        tables, priority = self._tables, self._priority
        cpu = memory = storage = pods = units = 0
        slots = len(tables.cards.slots[row])
        on, holders, exclusive = [0] * slots, [0] * slots, [0] * slots
        for record in tables.records_on(tables.names[row]):
            if record.pod.priority >= priority or record.pod.mirror:
                continue
            requests = record.pod.template.requests
            cpu += requests.get(CPU, 0)
            memory += requests.get(MEMORY, 0)
            storage += requests.get(EPHEMERAL_STORAGE, 0)
            pods += 1
            if record.held is not None:
                units += record.held.counted
                for slot, held in record.held.places:
                    on[slot] += held
                    holders[slot] += 1
                    exclusive[slot] += record.exclusive
        here = available_on(tables, slice(row, row + 1))[:, 0]
        self.available[:, row] = here + np.array([cpu, memory, storage, pods, 0, units], dtype=np.int64)
        going = np.array([on, holders, exclusive], dtype=np.int64)
        self.available[Amount.CARD_UNITS, row] = self._count_cards(row, going)

    def _count_cards(self, row: int, going: Int64Array) -> int:
        """Available units of the best card.

        going: int64[3, cards]: units, holders, exclusive holders of lower priority.
        """
        stored, slots = self._tables.cards.stored, going.shape[1]
        on, holders, exclusive = going
        given = stored.usable[:slots, row] & (stored.exclusive[:slots, row] == exclusive)
        free = np.where(given, stored.units[:slots, row] - stored.taken[:slots, row] + on, _NONE)
        self._wide[row] = slots > _MOST_CARDS
        self.free[:, row], self.empty[:, row] = _NONE, False
        shown = min(slots, _MOST_CARDS)
        self.free[:shown, row] = free[:shown]
        self.empty[:shown, row] = (stored.holders[:slots, row] == holders)[:shown]
        return int(free.max(initial=_NONE))


class AvailabilityByPriority:
    """Available amounts for recently used priorities."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._kept: LRUCache[int, AvailableAfterPreemption] = LRUCache(_MOST_BYTES, getsizeof=attrgetter("size_bytes"))

    def of(self, priority: int) -> AvailableAfterPreemption:
        """Available amounts for pods of this priority."""
        found = self._kept.get(priority)
        if found is None or found.capacity != self._tables.capacity:
            found = self._kept[priority] = AvailableAfterPreemption(self._tables, priority)
        return found
