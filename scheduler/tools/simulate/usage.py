"""Booked units of each card and node: at the end, maximum, and average over time. Pure.

One meter a card and one a node. Booked as in the scheduler: a pod whose cards are unknown counts on every card of its
node.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from config.protocol.booked_cards import BookedCards
from config.protocol.inventory import Card
from scheduler.state.cards.node_inventory import NodeInventory


@dataclass(slots=True)
class Meter:
    """Units over time. now_s of every call: seconds from the start, never going back."""

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
        """Units over the time from the start to `end_s`, not before the last call; the current use when that is 0."""
        if end_s <= 0.0:
            return float(self.used)
        return (self._unit_seconds + self.used * (end_s - self._since_s)) / end_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CardUse:
    """One card. units: as first seen in the inventory. health: as there now, "lost" when it is not there.

    used, peak, average: units, the average over the whole time, to thousandths.
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
    """A node's cards together. units: of the cards as first seen. pods: with GPU memory, there now."""

    node: str
    units: int
    used: int
    peak: int
    average: float
    pods: int


@dataclass(slots=True)
class _NodeMeters:
    """cards: by UUID, `#index` on a node without an inventory."""

    whole: Meter = field(default_factory=Meter)
    cards: dict[str, tuple[Card, Meter]] = field(default_factory=dict)
    now: dict[str, Card] = field(default_factory=dict)
    pods: int = 0


class CardUsage:
    """Tracks the nodes' cards and the pods' places; each pod is in one place at a time."""

    def __init__(self) -> None:
        self.whole = Meter()  # of all nodes together
        self.units = 0  # all cards that ever existed
        self._nodes: dict[str, _NodeMeters] = {}
        self._booked: dict[str, tuple[str, list[tuple[Meter, int]]]] = {}  # uid -> node, amounts on its meters

    def node_is(self, node: str, inventory: NodeInventory) -> None:
        """The node has these cards now."""
        meters = self._nodes.setdefault(node, _NodeMeters())
        meters.now = {card.uuid: card for card in inventory.cards}
        for card in inventory.cards:
            if card.uuid not in meters.cards:
                meters.cards[card.uuid] = (card, Meter())
                self.units += card.units

    def node_gone(self, node: str) -> None:
        """The node no longer has cards."""
        self._nodes.setdefault(node, _NodeMeters()).now = {}

    def begins(self, uid: str, node: str, booked: BookedCards, now_s: float) -> None:
        """Note a pod's bookings. A card that the node never had is not counted."""
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
        """The pod no longer occupies anything; no effect when it did not."""
        node, given = self._booked.pop(uid, ("", []))
        for meter, units in given:
            meter.add(-units, now_s)
        if given:
            self._nodes[node].pods -= 1

    def cards(self, end_s: float) -> list[CardUse]:
        """Every card that ever existed, by node and index."""
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
        """Every node with cards, by name."""
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
