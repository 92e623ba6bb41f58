"""Every card of the node, its health, and its last reading. Pure.

A card that the driver stops naming is kept, as lost: as many fake devices as it has units turn unhealthy,
instead of vanishing under containers of other cards. It is forgotten at the next boot.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from config.protocol.inventory import Health
from deviceplugin.driver.cards import Back, CardEvent, DriverCard, DriverCards, Lost, Reading
from deviceplugin.health import rules
from deviceplugin.health.rules import CardHealth, XidClasses


@dataclass(frozen=True, slots=True)
class Turn:
    """A card whose announced health has changed."""

    card: DriverCard
    before: tuple[Health, str]
    now: tuple[Health, str]


@dataclass(slots=True)
class CardStates:
    """xids: None where health is not watched: then every card counts as healthy forever.

    driver: its version, "" while it has not answered. healths: by UUID, also of cards that are not there now.
    """

    xids: XidClasses | None
    driver: str = ""
    cards: tuple[DriverCard, ...] = ()
    healths: dict[str, CardHealth] = field(default_factory=dict)
    readings: dict[str, Reading] = field(default_factory=dict)
    _named: frozenset[str] = frozenset()

    def remember(self, cards: Iterable[DriverCard]) -> None:
        """Start with the cards that were known before the driver has answered."""
        self.cards = tuple(cards)

    def found(self, found: DriverCards, now_s: float, *, forget: bool) -> None:
        """The driver named its cards. forget: the earlier ones that it does not name are forgotten.

        A lost card that it names, and did not name before, is back: whoever tells of Back has not known it as lost when
        it was left out once, or was lost before this process began.
        """
        named = frozenset(card.uuid for card in found.cards)
        gone = [] if forget else [card for card in self.cards if card.uuid not in named]
        back = [uuid for uuid in named - self._named if rules.is_lost(self.of(uuid))]
        never_had = max((card.index for card in (*found.cards, *self.cards)), default=-1) + 1
        self.driver, self._named = found.driver, named
        listed = (*found.cards, *_beside(found.cards, gone, never_had))
        self.cards = tuple(sorted(listed, key=lambda card: card.index))
        for card in gone:
            self.event(Lost(card.uuid), now_s)
        for uuid in back:
            self.event(Back(uuid), now_s)

    def named(self) -> DriverCards:
        """The cards as the driver names them now, without those that it has lost; none before it has answered."""
        there = (card for card in self.cards if card.uuid in self._named and not rules.is_lost(self.of(card.uuid)))
        return DriverCards(self.driver, tuple(there))

    def event(self, event: CardEvent, now_s: float) -> None:
        """The driver reported something; of no card in particular, it is taken for every one."""
        if isinstance(event, Lost | Back):
            self.readings.pop(event.uuid, None)
        for card in self.cards:
            if event.uuid in ("", card.uuid) and self.xids is not None:
                self.healths[card.uuid] = rules.after_event(self.of(card.uuid), event, now_s, self.xids)

    def reading(self, uuid: str, reading: Reading, now_s: float) -> None:
        """A card answered."""
        self.readings[uuid] = reading
        if self.xids is not None:
            self.healths[uuid] = rules.after_reading(self.of(uuid), reading, now_s)

    def unanswered(self, uuids: Iterable[str], now_s: float) -> None:
        """These were asked and did not answer."""
        for uuid in uuids:
            self.readings.pop(uuid, None)
            if self.xids is not None:
                self.healths[uuid] = rules.unanswered(self.of(uuid), now_s)

    def cleared(self, uuids: Iterable[str], now_s: float) -> None:
        """An operator has cleared these."""
        for uuid in uuids:
            self.healths[uuid] = rules.cleared(self.of(uuid), now_s)

    def of(self, uuid: str) -> CardHealth:
        """The health of one card; healthy until something else is known."""
        return self.healths.get(uuid, CardHealth())

    def announced(self) -> dict[str, tuple[Health, str]]:
        """UUID -> health and reason as the inventory has them."""
        return {card.uuid: rules.announced(self.of(card.uuid)) for card in self.cards}


def _beside(there: Sequence[DriverCard], gone: Sequence[DriverCard], never_had: int) -> list[DriverCard]:
    """The cards that are gone, each with an index of its own: two of one would make the inventory unreadable.

    The driver renumbers without a lost card, so a neighbour may have its index now. never_had: the first index that
    no card has had: a pod that knows its card by index alone must not be led to one that is gone.
    """
    taken = {card.index for card in there}
    moved = [card for card in gone if card.index in taken]
    kept = [card for card in gone if card.index not in taken]
    return kept + [replace(card, index=never_had + place) for place, card in enumerate(moved)]


def turns(
    cards: Sequence[DriverCard], before: Mapping[str, tuple[Health, str]], now: Mapping[str, tuple[Health, str]]
) -> list[Turn]:
    """The cards whose health has changed; one that was not there before counts as having been healthy."""
    healthy = (Health.HEALTHY, "")
    return [
        Turn(card, before.get(card.uuid, healthy), now[card.uuid])
        for card in cards
        if card.uuid in now and before.get(card.uuid, healthy) != now[card.uuid]
    ]
