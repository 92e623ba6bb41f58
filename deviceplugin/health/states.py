"""Every card of the node, its health, and its last reading. Pure.

A card that the driver stops naming is kept: as many fake devices as it has units turn unhealthy. They do not
vanish, because containers on other cards may hold them. The card is forgotten at the next boot.

A MIG instance is forgotten as soon as the driver names its parent without it: it was destroyed and will not be back.
An instance shares the hardware of its parent, so it gets the parent's errors, and begins with the parent's health.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from config.protocol.inventory import Health
from deviceplugin.driver.cards import CardFailed, CardReading, DriverCard, DriverCards, SourceFailed, Xid
from deviceplugin.driver.cuda import UNTRIED, CudaAnswer, sentence
from deviceplugin.health import cuda, rules
from deviceplugin.health.cuda import USUAL, CudaTrial, TrialPace
from deviceplugin.health.rules import CardHealth, XidClasses


@dataclass(frozen=True, slots=True)
class HealthChange:
    """A card whose announced health has changed."""

    card: DriverCard
    now: tuple[Health, str]


@dataclass(slots=True)
class CardStates:
    """All cards. xids: classes of errors; None if health is not watched, so that cards always count as healthy.

    driver: its version, "" while it has not answered. healths: by UUID, including missing cards. tries_cuda: whether a
    card has to prove that CUDA starts on it. cuda: the last trial by UUID.
    """

    xids: XidClasses | None
    driver: str = ""
    cards: tuple[DriverCard, ...] = ()
    healths: dict[str, CardHealth] = field(default_factory=dict)
    readings: dict[str, CardReading] = field(default_factory=dict)
    tries_cuda: bool = False
    cuda: dict[str, CudaTrial] = field(default_factory=dict)
    _named: frozenset[str] = frozenset()

    def remember(self, cards: Iterable[DriverCard], healths: Mapping[str, CardHealth] | None = None) -> None:
        """Start with the cards and healths known before the driver has answered.

        If health is not watched, no card would recover, so only releases are kept.
        """
        self.cards = tuple(cards)
        for uuid, health in (healths or {}).items():
            kept = CardHealth(released_s=health.released_s, annotated=health.annotated)
            self.healths[uuid] = kept if self.xids is None else health

    def found(self, found: DriverCards, *, forget: bool) -> None:
        """Record the cards that the driver named. forget: forget earlier cards that it does not name.

        Otherwise such a card is kept; its readings will show that it is missing.
        """
        named = frozenset(card.uuid for card in found.cards)
        self._forget_destroyed(named)
        self._begin_instances(found)
        kept = [card for card in self.cards if card.uuid not in named and (not forget or card.uuid in found.unasked)]
        never_had = max((card.index for card in (*found.cards, *self.cards)), default=-1) + 1
        self._forget_trials(found)
        self.driver = found.driver
        self._named = named | (self._named & _still_in_place(kept, found))
        self.cards = tuple(sorted((*found.cards, *_beside(found.cards, kept, never_had)), key=lambda card: card.index))

    def named(self) -> DriverCards:
        """Return the cards as the driver names them now, without lost ones; none before its first answer."""
        there = (card for card in self.cards if card.uuid in self._named and not self.of(card.uuid).gone)
        return DriverCards(self.driver, tuple(there))

    def xid(self, xid: Xid, now_s: float) -> None:
        """Record an error reported by the driver; an error without a card counts for every card."""
        for card in self.cards:
            if xid.uuid in {"", card.uuid, card.parent} and self.xids is not None:
                self.healths[card.uuid] = rules.after_xid(self.of(card.uuid), xid, now_s, self.xids)

    def answered(self, answers: Mapping[str, CardReading | SourceFailed], now_s: float) -> None:
        """Record the answers by UUID. If every card fails and none is reported missing, the driver is at fault."""
        instances = {card.uuid for card in self.cards if card.parent}
        whole = [answer for uuid, answer in answers.items() if uuid not in instances]
        failures = [answer for answer in whole if isinstance(answer, CardFailed)]
        of_the_driver = len(whole) == len(failures) > 1 and not any(failure.lost for failure in failures)
        for uuid, answer in answers.items():
            if isinstance(answer, CardReading):
                self._reading(uuid, answer, now_s)
            elif isinstance(answer, CardFailed) and not of_the_driver:
                self._failed(uuid, now_s, lost=answer.lost)
            else:
                self.unanswered([uuid], now_s)

    def unanswered(self, uuids: Iterable[str], now_s: float) -> None:
        """Count a missed answer of each card."""
        for uuid in uuids:
            self.readings.pop(uuid, None)
            if self.xids is not None:
                self.healths[uuid] = rules.unanswered(self.of(uuid), now_s)

    def _reading(self, uuid: str, reading: CardReading, now_s: float) -> None:
        self.readings[uuid] = reading
        if self.xids is not None:
            self.healths[uuid] = rules.after_reading(self.of(uuid), reading, now_s)

    def _failed(self, uuid: str, now_s: float, *, lost: bool) -> None:
        self.readings.pop(uuid, None)
        if self.xids is not None:
            self.healths[uuid] = rules.failed(self.of(uuid), now_s, lost=lost)
        if self.of(uuid).gone:
            self.cuda.pop(uuid, None)

    def release(self, uuids: Iterable[str], until_s: float | None) -> None:
        """Release these cards until `until_s`, or reclaim them if it is None."""
        for uuid in uuids:
            self.readings.pop(uuid, None)
            self.cuda.pop(uuid, None)
            self.healths[uuid] = rules.released(self.of(uuid), until_s)

    def released(self) -> dict[str, float]:
        """Return UUID -> end of its release."""
        return {uuid: health.released_s for uuid, health in self.healths.items() if health.released_s is not None}

    def annotate(self, uuids: frozenset[str]) -> None:
        """Record that the annotation `gpushare/release` now names exactly these cards."""
        for uuid in uuids | self.annotated():
            self.healths[uuid] = replace(self.of(uuid), annotated=uuid in uuids)

    def annotated(self) -> frozenset[str]:
        """Return the UUIDs that the annotation named when this or the previous process last checked."""
        return frozenset(uuid for uuid, health in self.healths.items() if health.annotated)

    def cleared(self, uuids: Iterable[str], now_s: float) -> None:
        """Record that an operator has cleared these cards."""
        for uuid in uuids:
            self.healths[uuid] = rules.cleared(self.of(uuid), now_s)

    def of(self, uuid: str) -> CardHealth:
        """Return the health of one card; healthy unless known otherwise."""
        return self.healths.get(uuid, CardHealth())

    def announced(self) -> dict[str, tuple[Health, str]]:
        """Return UUID -> health and reason for the inventory."""
        return {card.uuid: self._announced(card) for card in self.cards}

    def _announced(self, card: DriverCard) -> tuple[Health, str]:
        known = rules.announced(self.of(card.uuid))
        if card.mig:
            return known if known[1] == rules.RELEASED else _HEALTHY  # Its instances show its health.
        reason = self._reason(card.uuid)
        return (Health.SUSPECT, reason) if reason and known[0] is Health.HEALTHY else known

    def _reason(self, uuid: str) -> str:
        if self.xids is None or not self.tries_cuda or uuid in self._instances():
            return ""
        trial = self.cuda.get(uuid)
        if trial is None and self.released():
            trial = _NOT_TRIED  # That may last a day: the cards take pods during that time.
        return cuda.reason_of(trial, self._fabric(uuid))

    def _fabric(self, uuid: str) -> str:
        reading = self.readings.get(uuid)
        return reading.fabric if reading else ""

    def absent(self) -> dict[str, tuple[str, ...]]:
        """Return UUID -> optional facts that the driver fails to report, each `name: why`."""
        read = {uuid: reading.absent for uuid, reading in self.readings.items()}
        return {card.uuid: (*card.absent, *read.get(card.uuid, ())) for card in self.cards}

    def to_try(self, pace: TrialPace = USUAL) -> dict[str, float]:
        """Return UUID -> when to try CUDA, in monotonic seconds, for responsive cards; empty while one is released."""
        if not self.tries_cuda or self.released():
            return {}
        instances = self._instances()
        whole = [uuid for uuid in self._answering() if uuid not in instances]
        return {uuid: cuda.next_s(self.cuda.get(uuid), self._fabric(uuid), pace) for uuid in whole}

    def tried(self, uuid: str, answer: CudaAnswer, now_s: float) -> None:
        """Record a CUDA trial of the card. now_s: monotonic."""
        self.cuda[uuid] = CudaTrial(answer, now_s, self._fabric(uuid))

    def cuda_problem(self) -> str:
        """Return why CUDA starts on none of the responsive cards, and the remedy; "" if one may take pods."""
        reasons = [self._reason(uuid) for uuid in self._answering()]
        if not reasons or "" in reasons or UNTRIED in reasons:
            return ""
        return f"CUDA does not start on any card: {'; '.join(dict.fromkeys(map(sentence, reasons)))}"

    def cuda_problems(self) -> list[str]:
        """Return messages for operators: `cuda_problem`, or the cards on which CUDA does not start."""
        if problem := self.cuda_problem():
            return [problem]
        reasons = {uuid: self._reason(uuid) for uuid in self._answering()}
        return [
            f"card {uuid}: CUDA does not start on it: {sentence(reason)}"
            for uuid, reason in reasons.items()
            if reason not in {"", UNTRIED}
        ]

    def start_problem(self, uuids: Iterable[str]) -> str:
        """Return why CUDA would not start on these cards, or that one is untried; "" if no problem is known."""
        due = self.to_try()
        for uuid in uuids:
            reason = self._reason(uuid)
            if reason == UNTRIED and (uuid in due or not self.driver):
                return f"card {uuid}: {sentence(reason)}"
            if reason not in {"", UNTRIED}:
                return f"card {uuid}: CUDA does not start on it: {sentence(reason)}"
        return ""

    def untried(self) -> bool:
        """Return whether no card may take pods until CUDA has been tried, or until a card has answered."""
        if self.released():
            return False
        healths = [self._announced(card) for card in self.cards if not card.mig]
        reasons = [reason for _, reason in healths]
        return UNTRIED in reasons and all(health is not Health.HEALTHY for health, _ in healths)

    def _answering(self) -> list[str]:
        return [card.uuid for card in self.named().cards if not card.mig and card.uuid in self.readings]

    def _instances(self) -> frozenset[str]:
        """UUIDs of the MIG instances. CUDA is not tried on them: it needs their nodes in this container.

        A container gets its nodes when it starts, so it lacks those of an instance that was created later.
        """
        return frozenset(card.uuid for card in self.cards if card.parent)

    def _forget_destroyed(self, named: frozenset[str]) -> None:
        destroyed = {card.uuid for card in self.cards if card.parent in named and card.uuid not in named}
        self.cards = tuple(card for card in self.cards if card.uuid not in destroyed)
        for uuid in destroyed:
            self.healths.pop(uuid, None)
            self.readings.pop(uuid, None)

    def _begin_instances(self, found: DriverCards) -> None:
        """Give each new instance the health of its parent: other instances do not repair the hardware."""
        before = {card.uuid for card in self.cards}
        for card in found.cards:
            if card.parent in self.healths and card.uuid not in before:
                self.healths.setdefault(card.uuid, self.healths[card.parent])

    def _forget_trials(self, found: DriverCards) -> None:
        """Forget trials that ran with an earlier driver, or on a card whose device node has changed."""
        before = {card.uuid: (card.minor, card.pci) for card in self.cards}
        same = {card.uuid for card in found.cards if before.get(card.uuid) == (card.minor, card.pci)} | found.unasked
        self.cuda = {uuid: trial for uuid, trial in self.cuda.items() if uuid in same and found.driver == self.driver}


_HEALTHY: Final = (Health.HEALTHY, "")
_NOT_TRIED: Final = CudaTrial(CudaAnswer(lacking="a card is released"), 0.0)


def _still_in_place(kept: Iterable[DriverCard], found: DriverCards) -> set[str]:
    """Return cards that were not queried, unless another card has their minor by now."""
    taken = {card.minor for card in found.cards if card.minor is not None}
    return {card.uuid for card in kept if card.uuid in found.unasked and card.minor not in taken}


def _beside(there: Sequence[DriverCard], gone: Sequence[DriverCard], never_had: int) -> list[DriverCard]:
    """Return the missing cards with unique indexes: two cards with one index would make the inventory unreadable.

    Without a lost card, the driver renumbers, so a neighbor may have its index now. never_had: the first index that no
    card has had: a pod that knows its card by index alone must not be led to a missing card.
    """
    taken = {card.index for card in there}
    moved = [card for card in gone if card.index in taken]
    kept = [card for card in gone if card.index not in taken]
    return kept + [replace(card, index=never_had + place) for place, card in enumerate(moved)]


def as_reported(
    before: Mapping[str, tuple[Health, str]], now: Mapping[str, tuple[Health, str]]
) -> dict[str, tuple[Health, str]]:
    """Return UUID -> health; a card keeps its previous one during its first CUDA trial, which takes a second."""
    return {uuid: before.get(uuid, _HEALTHY) if known[1] == UNTRIED else known for uuid, known in now.items()}


def health_changes(
    cards: Sequence[DriverCard], before: Mapping[str, tuple[Health, str]], now: Mapping[str, tuple[Health, str]]
) -> list[HealthChange]:
    """Return the cards whose health has changed; a new card counts as previously healthy."""
    return [
        HealthChange(card, now[card.uuid])
        for card in cards
        if card.uuid in now and before.get(card.uuid, _HEALTHY) != now[card.uuid]
    ]
