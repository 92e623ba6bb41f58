"""The memory of every card: one column per node, one row per card slot.

A card that is missing from the node's announcement while pods hold it stays booked under its UUID in a slot of
its own, as lost: usable by nobody, and counted against no other card.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from config.protocol.inventory import MAX_UNITS, Card, Health, nameless
from scheduler.state.arrays import FIRST_CAPACITY, BoolArray, Int32Array, Int64Array, resized
from scheduler.state.booking import Booking
from scheduler.state.node_inventory import GpuState, NodeInventory

_FIRST_SLOTS: Final = 4
NO_MODEL: Final = -1
# Columns are int32; bookings that absurd would wrap, so each is cut off where it already fills the largest card.
MOST_UNITS: Final = MAX_UNITS
_READY: Final = int(GpuState.READY)


@dataclass(frozen=True, slots=True)
class Slot:
    """One card of one node. lost: pods hold it, the node does not announce it any more."""

    card: Card
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """Where a booking landed. places: (slot, units). unknown: the request counts against every announced slot."""

    places: tuple[tuple[int, int], ...]
    unknown: bool
    units: int
    exclusive: bool

    @property
    def slots(self) -> tuple[int, ...]:
        """The slots that it occupies."""
        return tuple(slot for slot, _ in self.places)


class CardColumns:
    """The columns, and what they mean.

    units: int32[cards, nodes], announced units, 0 where the node has no such slot.
    free: int32[cards, nodes], units less booked; negative when over-committed.
    usable: bool[cards, nodes], takes new pods (healthy, not cordoned, not lost, node READY or NOT_ALLOCATABLE).
    available: bool[cards, nodes], usable and held by no exclusive pod.
    unhealthy: bool[cards, nodes], unhealthy or lost: the kubelet's total does not count it.
    holders, exclusive: int32[cards, nodes], live pods on the card, and how many of them share it with nobody.
    model: int32[cards, nodes], code of the model, see `model_code`.
    places: UUID -> (slot, row) of every announced card of that UUID.
    state: int8[nodes], a GpuState. allocatable: int64[nodes], the kubelet's total of gpu-mem.
    counted: int64[nodes], requests of live pods that are not on unhealthy cards.
    node_free: int64[nodes], allocatable less counted, negative when over-committed; 0 where the node is not READY.
    total, booked: int64[nodes], units of the usable cards, and booked there. held: int64[nodes], holders of all cards.
    """

    def __init__(self) -> None:
        """No cards."""
        shape = (_FIRST_SLOTS, FIRST_CAPACITY)
        self.units: Int32Array = np.zeros(shape, dtype=np.int32)
        self.free: Int32Array = np.zeros(shape, dtype=np.int32)
        self.usable: BoolArray = np.zeros(shape, dtype=np.bool_)
        self.available: BoolArray = np.zeros(shape, dtype=np.bool_)
        self.unhealthy: BoolArray = np.zeros(shape, dtype=np.bool_)
        self.holders: Int32Array = np.zeros(shape, dtype=np.int32)
        self.exclusive: Int32Array = np.zeros(shape, dtype=np.int32)
        self.model: Int32Array = np.full(shape, NO_MODEL, dtype=np.int32)
        self.state = np.zeros(FIRST_CAPACITY, dtype=np.int8)
        self.allocatable: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.counted: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.total: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.node_free: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.booked: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.held: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.slots: list[list[Slot]] = [[] for _ in range(FIRST_CAPACITY)]
        self.model_code: dict[str, int] = {}
        self.places: dict[str, set[tuple[int, int]]] = {}

    def lay_out(self, row: int, announced: NodeInventory, marked_unhealthy: frozenset[int]) -> None:
        """Replace the cards of `row` by what its node announces, all free; bookings follow by `hold`."""
        self.clear(row)
        self.state[row], self.allocatable[row] = announced.state, announced.allocatable
        self._set_node_free(row)
        for card in announced.cards:
            slot = self._append(row, Slot(card))
            self.units[slot, row] = self.free[slot, row] = card.units
            self.unhealthy[slot, row] = card.health is Health.UNHEALTHY
            right_unit = announced.state in {GpuState.READY, GpuState.NOT_ALLOCATABLE}
            if right_unit and announced.takes_new_pods(card, marked_unhealthy):
                self.usable[slot, row] = self.available[slot, row] = True
                self.total[row] += card.units
            self.model[slot, row] = self.model_code.setdefault(card.model, len(self.model_code))
            self.places.setdefault(card.uuid, set()).add((slot, row))

    def hold(self, row: int, booking: Booking) -> Held:
        """Book a pod. A UUID that the node does not announce gets a slot of its own, as lost."""
        shares = []
        for share in booking.shares:
            slot = self._slot_of(row, share.uuid, share.index)
            if slot is None:
                if not share.uuid:
                    return self._counted(row, self._everywhere(row, booking), 1)
                slot = self._append(row, Slot(_lost_card(share.index, share.uuid), lost=True))
                self.unhealthy[slot, row] = True
            shares.append((slot, min(share.units, MOST_UNITS)))
        if booking.unknown:
            return self._counted(row, self._everywhere(row, booking), 1)
        held = Held(tuple(shares), unknown=False, units=booking.units, exclusive=booking.exclusive)
        return self._counted(row, held, 1)

    def release(self, row: int, held: Held) -> bool:
        """Undo `hold`. True when a lost slot has nobody left: the caller lays the row out again."""
        self._counted(row, held, -1)
        slots = self.slots[row]
        return any(slots[slot].lost and self.holders[slot, row] == 0 for slot in held.slots)

    def clear(self, row: int) -> None:
        """No cards on `row`."""
        for column in (
            *(self.units, self.free, self.usable, self.available, self.unhealthy),
            *(self.holders, self.exclusive),
        ):
            column[:, row] = 0
        self.model[:, row] = NO_MODEL
        self.state[row] = GpuState.NO_CARDS
        self.allocatable[row] = self.counted[row] = self.node_free[row] = 0
        self.total[row] = self.booked[row] = self.held[row] = 0
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
        self.node_free = resized(self.node_free, (capacity,), 0)
        self.booked = resized(self.booked, (capacity,), 0)
        self.held = resized(self.held, (capacity,), 0)
        self.slots.extend([] for _ in range(capacity - len(self.slots)))

    def _set_node_free(self, row: int) -> None:
        ready = self.state[row] == _READY
        self.node_free[row] = self.allocatable[row] - self.counted[row] if ready else 0

    def _everywhere(self, row: int, booking: Booking) -> Held:
        units = min(booking.units, MOST_UNITS)
        places = tuple((number, units) for number, slot in enumerate(self.slots[row]) if not slot.lost)
        return Held(places, unknown=True, units=booking.units, exclusive=booking.exclusive)

    def _counted(self, row: int, held: Held, sign: int) -> Held:
        if held.unknown:
            self.counted[row] += sign * held.units
        for slot, units in held.places:
            self.free[slot, row] -= sign * units
            self.holders[slot, row] += sign
            if held.exclusive:
                self.exclusive[slot, row] += sign
                self.available[slot, row] = self.usable[slot, row] and self.exclusive[slot, row] == 0
            if self.usable[slot, row]:
                self.booked[row] += sign * units
            if not held.unknown and not self.unhealthy[slot, row]:
                self.counted[row] += sign * units
        self.held[row] += sign * len(held.places)
        self._set_node_free(row)
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
        self.available = resized(self.available, shape, 0)
        self.unhealthy = resized(self.unhealthy, shape, 0)
        self.holders = resized(self.holders, shape, 0)
        self.exclusive = resized(self.exclusive, shape, 0)
        self.model = resized(self.model, shape, NO_MODEL)


def _lost_card(index: int, uuid: str) -> Card:
    return Card(index=index, uuid=uuid, model="", memory_mib=0, units=0, health=Health.UNHEALTHY, reason="lost")
