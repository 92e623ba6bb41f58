"""The cards of a listed node before anything is held on them, by its inventory or its totals. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from config.protocol import inventory, names, quantity
from scheduler.tools.inspect.wire import ListedNode

_OUT: Final = frozenset({inventory.Health.UNHEALTHY.value, inventory.Health.SUSPECT.value})


@dataclass(frozen=True, slots=True)
class ListedResources:
    """Names of the memory resource on nodes and pods, and of the nodes' card count."""

    gpu_mem: str = names.GPU_MEM
    gpu_count: str = names.GPU_COUNT


def no_units(reason: str) -> str:
    """Text for a card without units, by its inventory. reason: `mig`, or "" if unknown."""
    return f"no units to share ({reason})" if reason else "no units to share"


@dataclass(frozen=True, slots=True)
class InspectedCard:
    """One card. total, allocated: units. uuid, model, health, reason: "" on a node without an inventory.

    reason: of a health other than `healthy`, or of missing units. cordoned: by the node's annotation.
    """

    index: int
    total: int
    allocated: int = 0
    uuid: str = ""
    health: str = ""
    model: str = ""
    reason: str = ""
    cordoned: bool = False

    @property
    def not_offered(self) -> bool:
        """Whether the kubelet does not offer its units: it is unhealthy or suspect."""
        return self.health in _OUT

    @property
    def out(self) -> str:
        """Why it takes no new pods: `unhealthy (xid-79)`, `suspect`, `cordoned`; "" where it takes some."""
        if self.not_offered:
            return f"{self.health} ({self.reason})" if self.reason else self.health
        return "cordoned" if self.cordoned else ""

    @property
    def without_units(self) -> str:
        """Why it has no units, by the inventory: it is split (`mig`), or others use all of its memory; otherwise ""."""
        return "" if self.total or not self.uuid else no_units(self.reason)


@dataclass(frozen=True, slots=True)
class EmptyCards:
    """A node's cards before anything is held. by_uuid: UUID -> index, empty where only totals are known.

    total: allocatable units.
    unreadable: there is an inventory, and these are not the cards in it.
    """

    cards: tuple[InspectedCard, ...]
    by_uuid: Mapping[str, int]
    unit_mib: int | None = None
    total: int = 0
    unreadable: bool = False


def empty_cards(node: ListedNode, resources: ListedResources) -> EmptyCards:
    """Cards of the inventory; equal ones without a readable inventory."""
    total = amount(node.status.allocatable, resources.gpu_mem)
    equal = _equal_cards(node, total, amount(node.status.allocatable, resources.gpu_count))
    text = annotations_of(node).get(names.INVENTORY)
    if text is None:
        return equal
    try:
        decoded = inventory.decode(text)
    except inventory.InventoryError:
        return replace(equal, unreadable=True)
    # A column is shown for each index up to the largest: an absurd one would fill the terminal.
    if not all(card.index < inventory.MAX_CARDS for card in decoded.cards):
        return replace(equal, unreadable=True)
    cordoned = _cordoned(node)
    cards = tuple(
        InspectedCard(
            index=card.index,
            total=card.units,
            uuid=card.uuid,
            health=card.health.value,
            model=card.model,
            reason=card.reason,
            cordoned=card.uuid in cordoned or str(card.index) in cordoned,
        )
        for card in decoded.cards
    )
    return EmptyCards(cards, {card.uuid: card.index for card in cards}, decoded.unit_mib, total)


def _equal_cards(node: ListedNode, total: int, announced: int) -> EmptyCards:
    count, cordoned = min(announced, inventory.MAX_CARDS), _cordoned(node)
    cards = tuple(InspectedCard(index, total // count, cordoned=str(index) in cordoned) for index in range(count))
    return EmptyCards(cards, {}, total=total)


def _cordoned(node: ListedNode) -> frozenset[str]:
    """UUIDs, and indexes as text."""
    return frozenset(entry.strip() for entry in annotations_of(node).get(names.CORDON, "").split(","))


def annotations_of(node: ListedNode) -> Mapping[str, str]:
    """Annotations of the node, {} for none."""
    return node.metadata.annotations or {}


def amount(quantities: Mapping[str, str | int | float] | None, name: str) -> int:
    """A quantity in whole units, >= 0; 0 when it is absent or none."""
    try:
        return max(0, quantity.whole(str((quantities or {}).get(name, 0))))
    except quantity.QuantityError:
        return 0
