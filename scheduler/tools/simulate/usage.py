"""Booked units of each card and node: at the end, maximum, and average over time. Pure.

There is one meter for each card and one for each node. Units are booked as in the scheduler: a pod whose cards are
unknown counts against every card of its node.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from config.protocol.booked_cards import BookedCards
from config.protocol.inventory import Card
from scheduler.state.cards.node_inventory import NodeInventory


@dataclass(slots=True)
class Meter:
    """Units over time. now_s of every call: seconds from the start, never decreasing."""

    used: int = 0
    peak: int = 0
    _unit_seconds: float = 0.0
    _since_s: float = 0.0

    def add(self, units: int, now_s: float) -> None:
        """Add `units` from now on, or subtract if negative."""
        self._unit_seconds += self.used * (now_s - self._since_s)
        self._since_s = now_s
        self.used += units
        self.peak = max(self.peak, self.used)

    def average(self, end_s: float) -> float:
        """Return the average units from the start to `end_s`; the current units if `end_s` is 0.

        end_s: must not be earlier than the last call's time.
        """
        if end_s <= 0.0:
            return float(self.used)
        return (self._unit_seconds + self.used * (end_s - self._since_s)) / end_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CardUse:
    """Use of one card. units: as first seen in the inventory. health: current, "lost" if it is missing there.

    used, peak, average: units; the average is over the whole time, to thousandths.
    """

    node: str
    index: int
    uuid: str
    model: str
    units: int
    health: str
    used: int
    peak: int
    average: float


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeUse:
    """Combined use of a node's cards. units: of the cards as first seen. pods: current number with GPU memory."""

    node: str
    units: int
    used: int
    peak: int
    average: float
    pods: int


@dataclass(slots=True)
class _NodeMeters:
    """Meters of a node. cards: by UUID, `#index` on a node without an inventory."""

    whole: Meter = field(default_factory=Meter)
    cards: dict[str, tuple[Card, Meter]] = field(default_factory=dict)
    now: dict[str, Card] = field(default_factory=dict)
    pods: int = 0


class CardUsage:
    """Use of the nodes' cards by pods; each pod is on one node at a time."""

    def __init__(self) -> None:
        self.whole = Meter()  # of all nodes together
        self.units = 0  # all cards that ever existed
        self._nodes: dict[str, _NodeMeters] = {}
        self._booked: dict[str, tuple[str, list[tuple[Meter, int]]]] = {}  # uid -> node, amounts on its meters

    def node_is(self, node: str, inventory: NodeInventory) -> None:
        """Set the current cards of the node."""
        meters = self._nodes.setdefault(node, _NodeMeters())
        meters.now = {card.uuid: card for card in inventory.cards}
        for card in inventory.cards:
            if card.uuid not in meters.cards:
                meters.cards[card.uuid] = (card, Meter())
                self.units += card.units

    def node_gone(self, node: str) -> None:
        """Record that the node no longer has cards."""
        self._nodes.setdefault(node, _NodeMeters()).now = {}

    def begins(self, uid: str, node: str, booked: BookedCards, now_s: float) -> None:
        """Record a pod's bookings. A card that the node never had is not counted."""
        if uid in self._booked:
            return
        meters = self._nodes.setdefault(node, _NodeMeters())
        given = [(meter, units) for meter, units in _on_cards(meters, booked)]
        units_of_all = booked.everywhere or sum(card.units for card in booked.cards)
        given += ((meters.whole, units_of_all), (self.whole, units_of_all))
        meters.pods += 1
        self._booked[uid] = (node, given)
        for meter, units in given:
            meter.add(units, now_s)

    def ends(self, uid: str, now_s: float) -> None:
        """Record that the pod no longer occupies any card; no effect if it occupied none."""
        node, given = self._booked.pop(uid, ("", []))
        for meter, units in given:
            meter.add(-units, now_s)
        if given:
            self._nodes[node].pods -= 1

    def cards(self, end_s: float) -> list[CardUse]:
        """Return every card that ever existed, by node and index."""
        return [
            CardUse(
                node=node,
                index=card.index,
                uuid=card.uuid if not card.uuid.startswith("#") else "",
                model=card.model,
                units=card.units,
                health=_health(meters.now.get(card.uuid)),
                used=meter.used,
                peak=meter.peak,
                average=round(meter.average(end_s), 3),
            )
            for node, meters in sorted(self._nodes.items())
            for card, meter in sorted(meters.cards.values(), key=lambda both: both[0].index)
        ]

    def nodes(self, end_s: float) -> list[NodeUse]:
        """Return every node with cards, by name."""
        return [
            NodeUse(
                node=node,
                units=sum(card.units for card, _ in meters.cards.values()),
                used=meters.whole.used,
                peak=meters.whole.peak,
                average=round(meters.whole.average(end_s), 3),
                pods=meters.pods,
            )
            for node, meters in sorted(self._nodes.items())
            if meters.cards
        ]


def _on_cards(meters: _NodeMeters, booked: BookedCards) -> Iterable[tuple[Meter, int]]:
    if booked.everywhere:
        return [(meter, booked.everywhere) for _, meter in meters.cards.values()]
    return [(meters.cards[card.uuid][1], card.units) for card in booked.cards if card.uuid in meters.cards]


def _health(card: Card | None) -> str:
    if card is None:
        return "lost"
    return f"{card.health.value}: {card.reason}" if card.reason else card.health.value
