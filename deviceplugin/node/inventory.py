"""The announcement of a node's cards: the inventory, with operators' cordons. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from config.protocol import inventory, names
from config.protocol.inventory import Health, Inventory
from config.settings.scheduler import Resources
from deviceplugin.driver.cards import MIG, DriverCard

MEMORY_UNKNOWN: Final = "memory-unknown"
_HEALTHY: Final = (Health.HEALTHY, "")
_USABLE: Final = frozenset({Health.HEALTHY, Health.CORDONED})
_WHOLE_CORE: Final = 100


@dataclass(frozen=True, slots=True)
class Terms:
    """Rules for counting memory. unit_mib: MiB per memory unit, >= 1.

    unified_memory_mib: for a card whose driver reports none; 0 if unknown. count_reserved: memory that the driver
    reserves counts as the card's, although programs cannot use it.
    """

    unit_mib: int
    unified_memory_mib: int
    count_reserved: bool = False


@dataclass(frozen=True, slots=True)
class NodePatch:
    """Desired state of the node object. annotations: by key; None removes one. capacity: by resource name."""

    annotations: Mapping[str, str | None] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.annotations or self.capacity)


def memory_mib(card: DriverCard, terms: Terms) -> int:
    """Return the shared MiB of the card; 0 if neither the driver nor the configuration gives them.

    The driver reports no memory if the GPU shares the processor's memory.
    """
    reserved_mib = card.reserved_mib if terms.count_reserved else 0
    return card.memory_mib + reserved_mib or terms.unified_memory_mib


def node_inventory(  # noqa: PLR0917  (each a different type: none can take another's place)
    driver: str,
    cards: Sequence[DriverCard],
    healths: Mapping[str, tuple[Health, str]],
    cordoned: frozenset[str],
    terms: Terms,
    outside_mib: Mapping[str, int],
) -> Inventory:
    """Return the cards as announced, ordered by index.

    healths: UUID -> health and its reason; a missing card is healthy. cordoned: UUIDs. outside_mib: UUID -> MiB that
    unregistered processes use, which are not allocated. A card in MIG mode, or with unknown memory, is listed with 0
    units and the reason. A cordon of a card in MIG mode holds for its instances.
    """
    listed = (
        _card(
            card,
            healths.get(card.uuid, _HEALTHY),
            terms,
            outside_mib.get(card.uuid, 0),
            cordoned=bool({card.uuid, card.parent} & cordoned),
        )
        for card in cards
    )
    return Inventory(terms.unit_mib, driver, tuple(sorted(listed, key=lambda card: card.index)))


def cordoned_uuids(text: str, cards: Sequence[DriverCard]) -> tuple[frozenset[str], str]:
    """Return the cards that a comma-separated list of UUIDs and indexes names, and the list with UUIDs only.

    Only indexes change: a list without indexes is returned unchanged, so that it is not written again, and a card that
    is currently missing stays cordoned. Source: docs/develop/protocol.md, "Cordon".
    """
    uuids = {card.uuid for card in cards}
    by_index = {str(card.index): card.uuid for card in cards}
    found: set[str] = set()
    parts = text.split(",")
    for place, part in enumerate(parts):
        word = part.strip()
        uuid = word if word in uuids else by_index.get(word)
        if uuid is not None:
            found.add(uuid)
            parts[place] = part.replace(word, uuid)
    return frozenset(found), ",".join(parts)


def unknown_names(text: str, cards: Sequence[DriverCard]) -> list[str]:
    """Return the entries of a comma-separated list that name no card of this node, in order."""
    known = {card.uuid for card in cards} | {str(card.index) for card in cards}
    return [word for part in text.split(",") if (word := part.strip()) and word not in known]


def announcement(found: Inventory, resources: Resources, *, gpu_core: bool) -> NodePatch:
    """Return the inventory as an annotation, and the node's capacity of all its cards, unhealthy or not.

    gpu_core: also announce 100 for each card that has units and is healthy or cordoned; the scheduler handles cordons.
    """
    capacity = {resources.gpu_count: len(found.cards)}
    if gpu_core:
        usable = sum(card.units > 0 and card.health in _USABLE for card in found.cards)
        capacity[resources.gpu_core] = _WHOLE_CORE * usable
    return NodePatch({names.INVENTORY: inventory.encode(found)}, capacity)


def _card(
    card: DriverCard, known: tuple[Health, str], terms: Terms, outside_mib: int, *, cordoned: bool
) -> inventory.Card:
    health, reason = known
    usable_mib = memory_mib(card, terms)
    if card.mig:
        # Before any other reason: it is a fact about the card, and outlives its health.
        reason = MIG
    elif not usable_mib:
        reason = reason or MEMORY_UNKNOWN
    return inventory.Card(
        index=card.index,
        uuid=card.uuid,
        # One word, as in the label nvidia.com/gpu.product of NVIDIA's GPU feature discovery: pods list it by name.
        model="-".join(card.model.split()),
        memory_mib=usable_mib,
        units=0 if card.mig else max(0, usable_mib - outside_mib) // terms.unit_mib,
        health=Health.CORDONED if cordoned and health is Health.HEALTHY else health,
        reason=reason,
        numa=card.numa,
        pci=card.pci,
        links=dict(card.links),
        parent=card.parent,
    )
