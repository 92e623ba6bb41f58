"""The memory of every card: one column per node, one row per card slot.

If a node stops announcing a card while pods hold it, the card is lost. It stays booked under its UUID, outside the
columns: it takes no new pods, and its bookings count against no other card.

A UUID is one card. Two nodes announce the same UUID if the card was moved while the old Node object stayed, if a disk
was copied, or in an attack. If both nodes could use it, the card would be allocated twice. New pods may use it only on
the node where a live pod holds it; if none does, on the node that announced it first; if pods hold it on two nodes, on
neither (`AnnouncedUuids`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np

from config.protocol.booked_cards import BookedCards, CardsOfNode, WrittenAllocation
from config.protocol.inventory import MAX_UNITS, Card, Health
from scheduler.pods.gpu_request import BY_MPS, BY_TURNS, ENFORCED, WHOLE, ComputeMode
from scheduler.pods.pod import Pod
from scheduler.state.cards.card_arrays import CardArrays
from scheduler.state.cards.node_inventory import GpuState, NodeInventory, Out, newly_unhealthy
from scheduler.state.columns.arrays import FIRST_CAPACITY, Int64Array, resized


class AnnouncedUuids:
    """Announced UUIDs and their rows. shared: UUIDs that more than one row announces."""

    def __init__(self) -> None:
        self.shared: set[str] = set()
        self._slot_on: dict[str, dict[int, int]] = {}  # UUID -> row -> slot, in the order of announcement

    def add(self, uuid: str, row: int, slot: int) -> None:
        """Record that the row announces the UUID in this slot."""
        rows = self._slot_on.setdefault(uuid, {})
        rows[row] = slot
        if len(rows) > 1:
            self.shared.add(uuid)

    def discard(self, uuid: str, row: int) -> None:
        """Record that the row does not announce the UUID."""
        rows = self._slot_on.get(uuid)
        if rows is None or rows.pop(row, None) is None:
            return
        if len(rows) == 1:
            self.shared.discard(uuid)
        elif not rows:
            del self._slot_on[uuid]

    def places(self, uuid: str) -> list[tuple[int, int]]:
        """Return (row, slot) of each announcement, earliest first."""
        rows = self._slot_on.get(uuid)
        return [] if rows is None else list(rows.items())

    def owner(self, uuid: str, holding: Collection[int]) -> int | None:
        """Row on which new pods may use the UUID, or None. holding: rows that announce it and whose pods hold it."""
        if len(holding) > 1:
            return None
        return next(iter(holding), None) if holding else next(iter(self._slot_on.get(uuid, ())), None)

    def elsewhere(self, row: int, uuids: Iterable[str]) -> dict[str, list[int]]:
        """Map each of `uuids`, which are cards of `row`, to the other rows that announce it; leave out the rest."""
        if not self.shared:
            return {}
        return {uuid: [other for other in self._slot_on[uuid] if other != row] for uuid in uuids if uuid in self.shared}


# No booking exceeds the largest card, so that sums of many bookings cannot overflow.
MOST_UNITS: Final = MAX_UNITS
LEAST_FREE: Final = -(2**30)
_READY: Final = int(GpuState.READY)
_RIGHT_UNIT: Final = frozenset({GpuState.READY, GpuState.NOT_ALLOCATABLE, GpuState.NOT_REGISTERED, GpuState.WITHHELD})


@dataclass(frozen=True, slots=True)
class CardOnNode:
    """One card of one node. open: True if its node admits new pods to it."""

    card: Card
    open: bool


@dataclass(slots=True)
class LostCard:
    """A card that pods hold although its node does not announce it. index: from the pods' annotations.

    units: held by these pods. holders, exclusive: number of pods, and of exclusive ones among them.
    """

    index: int
    units: int = 0
    holders: int = 0
    exclusive: int = 0


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Booking of a pod. places: (slot, units); every slot of the node if the cards are unknown.

    lost: (UUID, units). counted: units in the node's total, as the kubelet counts them. booked: the parsed allocation.
    """

    booked: BookedCards
    exclusive: bool
    places: tuple[tuple[int, int], ...] = ()
    lost: tuple[tuple[str, int], ...] = ()
    counted: int = 0

    @property
    def unknown(self) -> bool:
        """Whether the pod's cards are unknown."""
        return bool(self.booked.everywhere)

    @property
    def slots(self) -> tuple[int, ...]:
        """Slots that the pod occupies."""
        return tuple(slot for slot, _ in self.places)


@dataclass(slots=True)
class _Node:
    """The cards of one row. slot_of: by UUID. lost: by UUID, see LostCard."""

    cards: CardsOfNode = field(default_factory=lambda: CardsOfNode((), 1))
    slot_of: dict[str, int] = field(default_factory=dict)
    lost: dict[str, LostCard] = field(default_factory=dict)


def traits_of(card: Card) -> int:
    """Return the traits of the card, as bits."""
    enforced, whole = ENFORCED if card.isolation else 0, 0 if card.parent else WHOLE
    return enforced | whole | (BY_MPS if card.compute == ComputeMode.MPS else BY_TURNS)


class CardColumns(CardArrays):
    """Columns of the cards of all nodes.

    units: int32[cards, nodes], announced units, 0 where the node has no such slot.
    free: int32[cards, nodes], units less booked; negative when over-committed, LEAST_FREE at least.
    stored.taken: int64[cards, nodes], units booked, however many.
    usable: bool[cards, nodes], takes new pods (healthy, not cordoned, node READY or NOT_ALLOCATABLE, UUID its own).
    available: bool[cards, nodes], usable and held by no exclusive pod.
    unhealthy: bool[cards, nodes], the kubelet's total does not count it.
    out: int8[cards, nodes], an Out: why the node, its operators or the legacy ConfigMap exclude new pods.
    holders, exclusive: int32[cards, nodes], live pods on the card, and how many of them are exclusive.
    model: int32[cards, nodes], code of the model, see `model_code`; 0 where the node has no such slot.
    traits: int8[cards, nodes], traits of the card as bits, as in `pods.gpu_request`; 0 where the node has no such slot.
    state: int8[nodes], a GpuState. allocatable: int64[nodes], the kubelet's total of gpu-mem.
    counted: int64[nodes], requests of live pods that are not on unhealthy cards, as the kubelet counts them: without
    those of nominated pods.
    node_free: int64[nodes], allocatable less counted, negative when over-committed; 0 where the node is not READY.
    total, booked: int64[nodes], all units of the usable cards, and those booked. held: int64[nodes], holders of all
    cards.
    lost: int64[nodes], units that pods hold of cards that the node does not announce, see `lost_cards`.
    unit_mib: int64[nodes], MiB in one unit of the node, 0 where there is none.
    announced: which rows announce a UUID. isolation: number of cards by kind, "" for those without any.
    instances: number of MIG instances.
    turned: rows whose cards became usable or unusable because of another node's cards; the tables record them and
    clear it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.state = np.zeros(FIRST_CAPACITY, dtype=np.int8)
        self.allocatable: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.counted: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.total: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.node_free: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.booked: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.held: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.lost: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.unit_mib: Int64Array = np.zeros(FIRST_CAPACITY, dtype=np.int64)
        self.slots: list[list[CardOnNode]] = [[] for _ in range(FIRST_CAPACITY)]
        self.model_code: dict[str, int] = {}
        self.announced = AnnouncedUuids()
        self.isolation: Counter[str] = Counter()
        self.instances = 0
        self._nodes = [_Node() for _ in range(FIRST_CAPACITY)]
        self.turned: set[int] = set()

    def lay_out(self, row: int, announced: NodeInventory, marked_unhealthy: frozenset[int]) -> None:
        """Replace the cards of `row` with those that its node announces, all free. The caller books the pods again."""
        self._empty(row)
        self._make_wide(row, len(announced.cards))
        self.state[row], self.allocatable[row] = announced.state, announced.allocatable
        self.unit_mib[row] = announced.unit_mib
        self._set_node_free(row)
        slot_of = {card.uuid: slot for slot, card in enumerate(announced.cards)}
        self._nodes[row] = _Node(CardsOfNode(announced.cards, announced.unit_mib), slot_of)
        stored, right_unit = self.stored, announced.state in _RIGHT_UNIT
        for slot, card in enumerate(announced.cards):
            out = announced.out(card, marked_unhealthy)
            is_open = right_unit and out is Out.IN_USE
            self.slots[row].append(CardOnNode(card, is_open))
            stored.units[slot, row] = stored.free[slot, row] = card.units
            stored.unhealthy[slot, row] = card.health is Health.UNHEALTHY
            stored.out[slot, row] = out
            stored.model[slot, row] = self.model_code.setdefault(card.model, 1 + len(self.model_code))
            stored.traits[slot, row] = traits_of(card)
            self.isolation[card.isolation] += 1
            self.instances += bool(card.parent)
            self._use(row, slot, usable=is_open)
            if announced.has_uuids:
                self.announced.add(card.uuid, row, slot)
                self._share(card.uuid)

    def hold(self, row: int, written: WrittenAllocation, *, exclusive: bool, nominated: bool = False) -> Held:
        """Book a pod by its written allocation.

        nominated: the pod counts on its cards, but not in the node's total. The kubelet does not count it yet, and its
        victims are usually still in that total (docs/develop/decisions/0034).
        """
        node = self._nodes[row]
        booked = node.cards.booked(written)
        if booked.everywhere:
            everywhere = min(booked.everywhere, MOST_UNITS)
            places = tuple(
                (slot, card.units if booked.blocks else everywhere) for slot, card in enumerate(node.cards.cards)
            )
            counted = 0 if nominated else written.units
            return self._counted(row, Held(booked=booked, exclusive=exclusive, places=places, counted=counted), 1)
        on, lost, counted, unhealthy = [], [], 0, self.stored.unhealthy
        for card in booked.cards:
            units = min(card.units, MOST_UNITS)
            if card.lost:
                lost.append((card.uuid, units))
                node.lost.setdefault(card.uuid, LostCard(card.index))
            else:
                slot = node.slot_of[card.uuid]
                on.append((slot, units))
                counted += 0 if nominated or unhealthy[slot, row] else card.asked
        held = Held(booked=booked, exclusive=exclusive, places=tuple(on), lost=tuple(lost), counted=counted)
        return self._counted(row, held, 1)

    def can_be_allocated(self, row: int, written: WrittenAllocation) -> bool:
        """Whether the written cards, of at least one unit, exist and take new pods."""
        node = self._nodes[row]
        booked = node.cards.booked(written)
        return not booked.everywhere and all(
            not card.lost and bool(self.stored.usable[node.slot_of[card.uuid], row]) for card in booked.cards
        )

    def release(self, row: int, held: Held) -> None:
        """Undo `hold`."""
        self._counted(row, held, -1)

    def clear(self, row: int) -> None:
        self._empty(row)
        self._make_wide(row, 0)

    def grow(self, capacity: int) -> None:
        self._store(self.height, capacity)
        self.state = resized(self.state, (capacity,), 0)
        self.allocatable = resized(self.allocatable, (capacity,), 0)
        self.counted = resized(self.counted, (capacity,), 0)
        self.total = resized(self.total, (capacity,), 0)
        self.node_free = resized(self.node_free, (capacity,), 0)
        self.booked = resized(self.booked, (capacity,), 0)
        self.held = resized(self.held, (capacity,), 0)
        self.lost = resized(self.lost, (capacity,), 0)
        self.unit_mib = resized(self.unit_mib, (capacity,), 0)
        self.slots.extend([] for _ in range(capacity - len(self.slots)))
        self._nodes.extend(_Node() for _ in range(capacity - len(self._nodes)))

    def lost_cards(self, row: int) -> dict[str, LostCard]:
        """Cards that pods hold and the node does not announce, by UUID; read-only."""
        return self._nodes[row].lost

    def elsewhere(self, row: int) -> dict[str, list[int]]:
        """Map each UUID of this node's cards that other rows also announce to those rows."""
        return self.announced.elsewhere(row, (slot.card.uuid for slot in self.slots[row]))

    def shared_problem(self, row: int, names: Sequence[str]) -> str:
        """Text that names cards of this node that other nodes announce too; "" if there are none. names: by row."""
        for uuid, others in self.elsewhere(row).items():
            other = names[others[0]]
            return f"node {other} also announces card {uuid}; at most one of the two nodes gets new pods on it"
        return ""

    def _empty(self, row: int) -> None:
        stored = self.stored
        for column in (stored.units, stored.free, stored.taken, stored.usable, stored.available, stored.unhealthy):
            column[:, row] = 0
        stored.out[:, row] = stored.holders[:, row] = stored.exclusive[:, row] = 0
        stored.model[:, row] = stored.traits[:, row] = 0
        self.state[row] = GpuState.NO_CARDS
        self.allocatable[row] = self.counted[row] = self.node_free[row] = 0
        self.total[row] = self.booked[row] = self.held[row] = self.lost[row] = self.unit_mib[row] = 0
        self.isolation -= Counter(slot.card.isolation for slot in self.slots[row])
        self.instances -= sum(bool(slot.card.parent) for slot in self.slots[row])
        for slot in self.slots[row]:
            self.announced.discard(slot.card.uuid, row)
            self._share(slot.card.uuid)
        self.slots[row] = []
        self._nodes[row] = _Node()

    def _set_node_free(self, row: int) -> None:
        ready = self.state[row] == _READY
        self.node_free[row] = self.allocatable[row] - self.counted[row] if ready else 0

    def _use(self, row: int, slot: int, *, usable: bool) -> None:
        """Set whether new pods may use the card."""
        stored = self.stored
        if bool(stored.usable[slot, row]) is usable:
            return
        units, sign = int(stored.units[slot, row]), 1 if usable else -1
        stored.usable[slot, row] = usable
        stored.available[slot, row] = usable and stored.exclusive[slot, row] == 0
        self.total[row] += sign * units
        self.booked[row] += sign * int(stored.taken[slot, row])

    def _share(self, uuid: str) -> None:
        """Decide on which row new pods may use a UUID that several rows announce, or announced until now."""
        holders = self.stored.holders
        places = self.announced.places(uuid)
        owner = self.announced.owner(uuid, [row for row, slot in places if holders[slot, row]])
        for row, slot in places:
            usable = self.slots[row][slot].open and owner == row
            if bool(self.stored.usable[slot, row]) is not usable:
                self._use(row, slot, usable=usable)
                self.turned.add(row)

    def _counted(self, row: int, held: Held, sign: int) -> Held:
        stored = self.stored
        free, taken, holders, usable = stored.free, stored.taken, stored.holders, stored.usable
        self.counted[row] += sign * held.counted
        for slot, units in held.places:
            booked = int(taken[slot, row]) + sign * units
            taken[slot, row] = booked
            # Bounded, so that the sum of many absurd bookings cannot overflow: nothing fits either way.
            free[slot, row] = max(int(stored.units[slot, row]) - booked, LEAST_FREE)
            holders[slot, row] += sign
            if held.exclusive:
                stored.exclusive[slot, row] += sign
                stored.available[slot, row] = usable[slot, row] and stored.exclusive[slot, row] == 0
            if usable[slot, row]:
                self.booked[row] += sign * units
        self.held[row] += sign * len(held.places)
        self._set_node_free(row)
        if held.lost:
            self._count_lost(row, held, sign)
        if self.announced.shared:
            for slot in held.slots:
                self._share(self.slots[row][slot].card.uuid)
        return held

    def _count_lost(self, row: int, held: Held, sign: int) -> None:
        lost = self._nodes[row].lost
        for uuid, units in held.lost:
            self.lost[row] += sign * units
            card = lost[uuid]
            card.units += sign * units
            card.holders += sign
            card.exclusive += sign * held.exclusive
            if not card.holders:
                del lost[uuid]


class CardChanges:
    """Card changes that were seen on the nodes. legacy_nodes: nodes that announce totals but no inventory.

    away_since: maps each node that has cards but no allocatable gpu-mem to the time of the kubelet's last report when
    this was first seen: RFC 3339, "" if unknown.
    """

    def __init__(self) -> None:
        self.legacy_nodes: set[str] = set()
        self.away_since: dict[str, str] = {}
        self._failures: list[tuple[Pod, str]] = []

    def changed(
        self,
        node: str,
        before: NodeInventory | None,
        now: NodeInventory,
        reported_at: str,
        pods: Iterable[tuple[Pod, Held | None]],
    ) -> None:
        """Record that a node announces different cards. pods: its pods, booked on the new cards."""
        (self.legacy_nodes.discard if now.has_uuids else self.legacy_nodes.add)(node)
        if now.state is not GpuState.NOT_ALLOCATABLE:
            self.away_since.pop(node, None)
        else:
            self.away_since.setdefault(node, reported_at)
        failed = newly_unhealthy(before, now)
        for pod, held in pods if failed else ():
            if held is not None and not held.unknown:
                self._failures += [(pod, failed[slot]) for slot in held.slots if slot in failed]

    def gone(self, node: str) -> None:
        """Forget a deleted node."""
        self.legacy_nodes.discard(node)
        self.away_since.pop(node, None)

    def take_failures(self) -> list[tuple[Pod, str]]:
        """Return (pod, its failed card) for cards that became unhealthy since the last call."""
        found, self._failures = self._failures, []
        return found
