"""The memory of every card: one column per node, one row per card slot.

A card that is missing from the node's announcement while pods hold it stays booked under its UUID in a slot of
its own, as lost: usable by nobody, and counted against no other card.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from config.protocol.inventory import MAX_UNITS, Card, Health
from scheduler.state.arrays import FIRST_CAPACITY, BoolArray, Int32Array, Int64Array, resized
from scheduler.state.booking import Booking
from scheduler.state.node_inventory import GpuState, NodeInventory, nameless

_FIRST_SLOTS: Final = 4
NO_MODEL: Final = -1
# Columns are int32; bookings that absurd would wrap, so each is cut off where it already fills the largest card.
MOST_UNITS: Final = MAX_UNITS


@dataclass(frozen=True, slots=True)
class Slot:
    """One card of one node. lost: pods hold it, the node does not announce it any more."""

    card: Card
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """Where a booking landed. shares: (slot, units). unknown: the ask counts against every announced slot."""

    shares: tuple[tuple[int, int], ...]
    unknown: bool
    units: int
    exclusive: bool


class CardColumns:
    """The columns, and what they mean.

    units: int32[cards, nodes], announced units, 0 where the node has no such slot.
    free: int32[cards, nodes], units less booked; negative when over-committed.
    usable: bool[cards, nodes], takes new pods (healthy, not cordoned, not lost, node READY or NOT_ALLOCATABLE).
    unhealthy: bool[cards, nodes], unhealthy or lost: the kubelet's total does not count it.
    holders, exclusive: int32[cards, nodes], live pods on the card, and how many of them share it with nobody.
    model: int32[cards, nodes], code of the model, see `model_code`.
    places: UUID -> (slot, row) of every announced card of that UUID.
    state: int8[nodes], a GpuState. allocatable: int64[nodes], the kubelet's total of gpu-mem.
    counted: int64[nodes], asks of live pods that are not on unhealthy cards.
    total, left: int64[nodes], units and free units over the usable cards. held: int64[nodes], holders over all cards.
    """

    def __init__(self) -> None:
        """No cards."""
        shape = (_FIRST_SLOTS, FIRST_CAPACITY)
        self.units: Int32Array = np.zeros(shape, dtype=np.int32)
        self.free: Int32Array = np.zeros(shape, dtype=np.int32)
        self.usable: BoolArray = np.zeros(shape, dtype=np.bool_)
        self.unhealthy: BoolArray = np.zeros(shape, dtype=np.bool_)
        self.holders: Int32Array = np.zeros(shape, dtype=np.int32)
        self.exclusive: Int32Array = np.zeros(shape, dtype=np.int32)
        self.model: Int32Array = np.full(shape, NO_MODEL, dtype=np.int32)
        self.state = np.zeros(FIRST_CAPACITY, dtype=np.int8)
        self.allocatable: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.counted: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.total: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.left: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.held: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.slots: list[list[Slot]] = [[] for _ in range(FIRST_CAPACITY)]
        self.model_code: dict[str, int] = {}
        self.places: dict[str, set[tuple[int, int]]] = {}

    def lay_out(self, row: int, announced: NodeInventory, marked_unhealthy: frozenset[int]) -> None:
        """Replace the cards of `row` by what its node announces, all free; bookings follow by `hold`."""
        self.clear(row)
        self.state[row], self.allocatable[row] = announced.state, announced.allocatable
        for card in announced.cards:
            slot = self._append(row, Slot(card))
            self.units[slot, row] = self.free[slot, row] = card.units
            self.unhealthy[slot, row] = card.health is Health.UNHEALTHY
            right_unit = announced.state in {GpuState.READY, GpuState.NOT_ALLOCATABLE}
            if right_unit and announced.takes_new_pods(card, marked_unhealthy):
                self.usable[slot, row] = True
                self.total[row] += card.units
                self.left[row] += card.units
            self.model[slot, row] = self.model_code.setdefault(card.model, len(self.model_code))
            self.places.setdefault(card.uuid, set()).add((slot, row))

    def hold(self, row: int, booking: Booking) -> Held:
        """Book a pod. A UUID that the node does not announce gets a slot of its own, as lost."""
        shares = []
        for share in booking.shares:
            slot = self._slot_of(row, share.uuid, share.index)
            if slot is None:
                if not share.uuid:
                    return self._counted(row, Held((), True, booking.units, booking.exclusive), 1)  # noqa: FBT003
                slot = self._append(row, Slot(_lost_card(share.index, share.uuid), lost=True))
                self.unhealthy[slot, row] = True
            shares.append((slot, min(share.units, MOST_UNITS)))
        held = Held(tuple(shares), booking.unknown, booking.units, booking.exclusive)
        return self._counted(row, held, 1)

    def release(self, row: int, held: Held) -> bool:
        """Undo `hold`. True when a lost slot has nobody left: the caller lays the row out anew."""
        self._counted(row, held, -1)
        slots = self.slots[row]
        return any(slots[slot].lost and self.holders[slot, row] == 0 for slot, _ in held.shares)

    def clear(self, row: int) -> None:
        """No cards on `row`."""
        for column in (self.units, self.free, self.usable, self.unhealthy, self.holders, self.exclusive):
            column[:, row] = 0
        self.model[:, row] = NO_MODEL
        self.state[row] = GpuState.NO_CARDS
        self.allocatable[row] = self.counted[row] = 0
        self.total[row] = self.left[row] = self.held[row] = 0
        for number, slot in enumerate(self.slots[row]):
            self._forget_place(slot.card.uuid, (number, row))
        self.slots[row] = []

    def grow(self, capacity: int) -> None:
        """Make room for `capacity` nodes."""
        self._reshape(self.units.shape[0], capacity)
        self.state = resized(self.state, (capacity,), 0)
        self.allocatable = resized(self.allocatable, (capacity,), 0)
        self.counted = resized(self.counted, (capacity,), 0)
        self.total = resized(self.total, (capacity,), 0)
        self.left = resized(self.left, (capacity,), 0)
        self.held = resized(self.held, (capacity,), 0)
        self.slots.extend([] for _ in range(capacity - len(self.slots)))

    def codes(self, models: Iterable[str]) -> list[int]:
        """Codes of those models that some node has."""
        return [self.model_code[model] for model in models if model in self.model_code]

    def _counted(self, row: int, held: Held, sign: int) -> Held:
        places = held.shares
        if held.unknown:
            units = min(held.units, MOST_UNITS)
            places = tuple((number, units) for number, slot in enumerate(self.slots[row]) if not slot.lost)
            self.counted[row] += sign * held.units
        for slot, units in places:
            self.free[slot, row] -= sign * units
            self.holders[slot, row] += sign
            if held.exclusive:
                self.exclusive[slot, row] += sign
            if self.usable[slot, row]:
                self.left[row] -= sign * units
            if not held.unknown and not self.unhealthy[slot, row]:
                self.counted[row] += sign * units
        self.held[row] += sign * len(places)
        return held

    def _slot_of(self, row: int, uuid: str, index: int) -> int | None:
        # A node that announces totals only has no UUIDs: there a card is known by its index.
        wanted = {uuid, nameless(index)}
        for number, slot in enumerate(self.slots[row]):
            if (slot.card.uuid in wanted) if uuid else (slot.card.index == index and not slot.lost):
                return number
        return None

    def _forget_place(self, uuid: str, place: tuple[int, int]) -> None:
        places = self.places.get(uuid, set())
        places.discard(place)
        if not places:
            self.places.pop(uuid, None)

    def _append(self, row: int, slot: Slot) -> int:
        slots = self.slots[row]
        slots.append(slot)
        if len(slots) > self.units.shape[0]:
            self._reshape(2 * self.units.shape[0], self.units.shape[1])
        return len(slots) - 1

    def _reshape(self, slots: int, nodes: int) -> None:
        shape = (slots, nodes)
        self.units = resized(self.units, shape, 0)
        self.free = resized(self.free, shape, 0)
        self.usable = resized(self.usable, shape, 0)
        self.unhealthy = resized(self.unhealthy, shape, 0)
        self.holders = resized(self.holders, shape, 0)
        self.exclusive = resized(self.exclusive, shape, 0)
        self.model = resized(self.model, shape, NO_MODEL)


def _lost_card(index: int, uuid: str) -> Card:
    return Card(index=index, uuid=uuid, model="", memory_mib=0, units=0, health=Health.UNHEALTHY, reason="lost")
