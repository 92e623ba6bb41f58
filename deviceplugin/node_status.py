"""Puts together what `/status` answers, and what `/metrics` shows of the cards."""

from collections.abc import Iterable, Mapping, Sequence

from config import inventory
from deviceplugin.cards import Card, Reading
from deviceplugin.metrics import ShownCard
from deviceplugin.pods import NodePod, Undecided, decided
from deviceplugin.reconcile import units_on_cards
from deviceplugin.status import CardStatus


def allocated_units(pods: Iterable[NodePod], cards: Sequence[inventory.Card]) -> dict[str, int]:
    """Card UUID -> units that are decided for live pods; a pod whose decision is missing or wrong counts nowhere."""
    sums: dict[str, int] = {}
    for pod in pods:
        try:
            booked = units_on_cards(pod, decided(pod, cards))
        except Undecided:
            continue
        for uuid, units in booked.items():
            sums[uuid] = sums.get(uuid, 0) + units
    return sums


def card_statuses(
    cards: Sequence[inventory.Card], allocated: Mapping[str, int], readings: Mapping[str, Reading]
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
    found: Sequence[Card],
    cards: Sequence[inventory.Card],
    allocated: Mapping[str, int],
    readings: Mapping[str, Reading],
) -> list[ShownCard]:
    """One for each card that is announced."""
    by_uuid = {card.uuid: card for card in found}
    return [
        ShownCard(by_uuid[card.uuid], card.units, allocated.get(card.uuid, 0), card.health, readings.get(card.uuid))
        for card in cards
        if card.uuid in by_uuid
    ]
