"""Inventory and totals of a node whose cards fail, vanish and come back. Pure.

    HEALTHY --an XID of the hardware--> UNHEALTHY
    HEALTHY, UNHEALTHY --lost--> LOST (a lost card reports no XID)
    UNHEALTHY, LOST --back--> HEALTHY

UNHEALTHY: stays in the inventory as unhealthy; `allocatable` shrinks by its units, `capacity` does not, because the
device plugin keeps listing them to the kubelet, as unhealthy. LOST: in neither; the device plugin lists what it finds.
On a node without an inventory, only `allocatable` shrinks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from msgspec.structs import replace as replace_fields

from config.protocol import inventory, names, quantity
from config.protocol.inventory import Card, Health, Inventory
from scheduler.kube.objects import Node, Quantities
from scheduler.pods.gpu_request import ResourceNames

# Errors of an application, not of the card. Source: NVIDIA k8s-device-plugin, internal/rm/health.go, the XIDs
# that it does not count as a failure of the device; their meaning: NVIDIA, "XID Errors", catalogue.
APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})


class Condition(Enum):
    """Condition of a card; drawn above."""

    HEALTHY = auto()
    UNHEALTHY = auto()
    LOST = auto()


@dataclass(frozen=True, slots=True)
class CardState:
    """reason: of an UNHEALTHY card, one word as in the inventory; "" otherwise."""

    condition: Condition
    reason: str = ""


HEALTHY: Final = CardState(Condition.HEALTHY)
LOST: Final = CardState(Condition.LOST)


def after_xid(state: CardState, xid: int) -> CardState:
    """State of a card after the driver's error `xid`."""
    if xid in APPLICATION_XIDS or state.condition is Condition.LOST:
        return state
    return CardState(Condition.UNHEALTHY, f"xid-{xid}")


def card_named(node: Node, name: str, resources: ResourceNames) -> Card | None:
    """The card of that index or UUID in `node`'s inventory, or None.

    On a node without an inventory: one of its equal cards, with an index and units only.
    """
    cards = _inventory(node)
    if cards is not None:
        return next((card for card in cards.cards if name in {str(card.index), card.uuid}), None)
    capacity = node.status.capacity
    count = _amount(capacity, resources.gpu_count)
    if not name.isdecimal() or int(name) >= count:
        return None
    return Card(index=int(name), uuid="", model="", memory_mib=0, units=_amount(capacity, resources.gpu_mem) // count)


def with_cards(node: Node, states: Mapping[int, CardState], resources: ResourceNames) -> Node:
    """`node` as it looks when the cards of these indexes are in these states, all others as `node` has them.

    node: as it was described; the health there does not count for cards in `states`.
    """
    cards = [card for index in states if (card := card_named(node, str(index), resources)) is not None]
    described = _inventory(node)
    unhealthy = {card.index for card in cards if described is not None and card.health is Health.UNHEALTHY}
    healthy = {card.index for card in cards if states[card.index].condition is Condition.HEALTHY}
    lost = {card.index for card in cards if states[card.index].condition is Condition.LOST}
    gained = sum(card.units for card in cards if card.index in unhealthy & healthy)
    missing = sum(card.units for card in cards if card.index not in unhealthy | healthy)
    allocatable = _plus(node.status.allocatable, resources.gpu_mem, gained - missing)
    capacity, metadata = node.status.capacity, node.metadata
    if described is not None:
        capacity = _plus(capacity, resources.gpu_mem, -sum(card.units for card in cards if card.index in lost))
        capacity = _plus(capacity, resources.gpu_count, -len(lost))
        allocatable = _plus(allocatable, resources.gpu_count, -len(lost))
        annotations = (metadata.annotations or {}) | {names.INVENTORY: _changed(described, states)}
        metadata = replace_fields(metadata, annotations=annotations)
    return replace_fields(
        node,
        metadata=metadata,
        status=replace_fields(node.status, allocatable=allocatable, capacity=capacity),
    )


def _changed(described: Inventory, states: Mapping[int, CardState]) -> str:
    cards = [_card(card, states[card.index]) if card.index in states else card for card in described.cards]
    return inventory.encode(replace(described, cards=tuple(card for card in cards if card is not None)))


def _card(card: Card, state: CardState) -> Card | None:
    match state.condition:
        case Condition.HEALTHY:
            return replace(card, health=Health.HEALTHY, reason="")
        case Condition.UNHEALTHY:
            return replace(card, health=Health.UNHEALTHY, reason=state.reason)
        case Condition.LOST:
            return None


def _inventory(node: Node) -> Inventory | None:
    """None also for an unreadable text: the scheduler itself reports the error."""
    text = (node.metadata.annotations or {}).get(names.INVENTORY)
    try:
        return None if text is None else inventory.decode(text)
    except inventory.InventoryError:
        return None


def _amount(quantities: Quantities | None, name: str) -> int:
    return quantity.whole(str((quantities or {}).get(name, 0)))


def _plus(quantities: Quantities | None, name: str, units: int) -> Quantities | None:
    """With `units` more, not below 0; a missing quantity stays missing."""
    if quantities is None or name not in quantities or units == 0:
        return quantities
    return quantities | {name: str(max(0, _amount(quantities, name) + units))}
