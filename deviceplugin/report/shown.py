"""Cards and containers as `/metrics` and `/status` show them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from config.protocol import inventory
from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardReading, DriverCard
from deviceplugin.report.status import CardStatus


@dataclass(frozen=True, slots=True)
class ShownCard:
    """A card as it is now. units: announced; allocated_units: decided for live pods. reading: None while unknown."""

    card: DriverCard
    units: int
    allocated_units: int
    health: Health
    reading: CardReading | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownContainer:
    """A container on one card; with several cards there is one of these for each. used_mib: None where not known."""

    card: DriverCard
    namespace: str
    pod: str
    container: str
    requested_units: int
    used_mib: int | None = None


def card_statuses(
    cards: Sequence[inventory.Card], allocated: Mapping[str, int], readings: Mapping[str, CardReading]
) -> tuple[CardStatus, ...]:
    """One for each card."""
    return tuple(
        CardStatus(
            index=card.index,
            uuid=card.uuid,
            model=card.model,
            memory_mib=card.memory_mib,
            units=card.units,
            allocated_units=allocated.get(card.uuid, 0),
            health=card.health.value,
            used_mib=readings[card.uuid].used_mib if card.uuid in readings else None,
            reason=card.reason,
        )
        for card in cards
    )


def shown_cards(
    found: Sequence[DriverCard],
    cards: Sequence[inventory.Card],
    allocated: Mapping[str, int],
    readings: Mapping[str, CardReading],
) -> list[ShownCard]:
    """One for each card that is announced."""
    by_uuid = {card.uuid: card for card in found}
    return [
        ShownCard(by_uuid[card.uuid], card.units, allocated.get(card.uuid, 0), card.health, readings.get(card.uuid))
        for card in cards
        if card.uuid in by_uuid
    ]
