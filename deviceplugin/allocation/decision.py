"""Determines the cards of each container from the scheduler's decision. Pure.

The first decision is final: once it is in the journal, it is followed by UUID, even if annotations or indexes change.
Until then, the annotations are read as the scheduler reads them (`config.protocol.booked_cards`). An inconsistent
allocation is rejected, never guessed at: a pod's author may have written it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from config.protocol import booked_cards, names
from config.protocol.booked_cards import WrittenAllocation, rescaled
from config.protocol.container_formula import ContainerKind, peak_amounts
from config.protocol.inventory import Card
from deviceplugin.allocation.pods import FirstCards, NodePod, PodContainer

_DECIDING: Final = (names.ALLOCATION, names.MEM_IDX)


class Undecided(Exception):
    """The pod's cards cannot be determined; the message names the pod, what was found and what was expected."""


class NoAllocation(Undecided):
    """The pod has no allocation annotation, at least not yet."""


class WrongAllocation(Undecided):
    """The pod carries an allocation that does not fit the pod or this node. Waiting does not help."""


@dataclass(frozen=True, slots=True)
class Share:
    """Units of one container on one card. units, card_units: in the pod's own unit.

    index: the card's current index on the node.
    """

    uuid: str
    index: int
    units: int
    card_units: int


@dataclass(frozen=True, slots=True)
class CardDecision:
    """Cards of each container. shares: container name -> its shares; covers every container that requests cards.

    The shares are ordered by card index and have the same units on each card. unit_mib: MiB per unit of these numbers.
    """

    shares: Mapping[str, tuple[Share, ...]]
    unit_mib: int

    def first_cards(self) -> FirstCards:
        """Return the decision in the form that the journal stores."""
        units = {name: {share.uuid: share.units for share in shares} for name, shares in self.shares.items()}
        return FirstCards(self.unit_mib, units)


def decided(pod: NodePod, cards: Sequence[Card], unit_mib: int) -> CardDecision:
    """Return the cards of each container. cards: the node's, as announced now. unit_mib: the node's unit.

    Raises NoAllocation. Raises WrongAllocation if the allocation cannot be read, names a card that this node lacks or
    does not share, or gives a container units other than its limit.
    """
    first = first_cards(pod, cards, unit_mib)
    by_uuid = {card.uuid: card for card in cards}
    shares = {
        name: tuple(
            sorted(
                (_share(_card(pod, uuid, by_uuid), units, first.unit_mib, unit_mib) for uuid, units in on.items()),
                key=lambda share: share.index,
            )
        )
        for name, on in first.units.items()
    }
    return CardDecision(shares, first.unit_mib)


def first_cards(pod: NodePod, cards: Sequence[Card], unit_mib: int) -> FirstCards:
    """Return the first decision from the journal; without one, the decision in the current annotations.

    It may name cards that the node no longer has. Raises the same errors as `decided` if the allocation cannot be read.
    """
    return pod.first_cards or _read(pod, cards, unit_mib)


def units_on_cards(pod: NodePod, decision: CardDecision, unit_mib: int) -> dict[str, int]:
    """Return card UUID -> units that the pod books there by the container formula, in units of `unit_mib`."""
    own = peak_amounts(
        ({share.uuid: share.units for share in decision.shares.get(container.name, ())}, container.kind)
        for container in pod.containers
    )
    return {uuid: rescaled(units, decision.unit_mib, unit_mib) for uuid, units in own.items()}


def allocated_units(pods: Iterable[NodePod], cards: Sequence[Card], unit_mib: int) -> dict[str, int]:
    """Return card UUID -> units decided for these pods, if known."""
    sums: dict[str, int] = {}
    for pod in pods:
        try:
            booked = units_on_cards(pod, decided(pod, cards, unit_mib), unit_mib)
        except Undecided:
            continue
        for uuid, units in booked.items():
            sums[uuid] = sums.get(uuid, 0) + units
    return sums


def _read(pod: NodePod, cards: Sequence[Card], unit_mib: int) -> FirstCards:
    """Return the decision in the annotations."""
    written = booked_cards.read(pod.annotations, pod.ask())
    if not written.decided:
        _refuse_unreadable(pod, written)
    _refuse_strangers(pod, written)
    of_containers = {container: _written_for(written, container) for container in pod.containers}
    for container, on in of_containers.items():
        _check_units(pod, container, on)
    booked = booked_cards.on_cards(written, cards, unit_mib)
    if not booked.cards:
        raise _wrong(pod, booked.problem)
    uuid_of = {card.index: card.uuid for card in booked.cards} | dict(written.uuids)
    units = {}
    for container, on in of_containers.items():
        if on:
            _check_cards(pod, container, on, uuid_of)
            units[container.name] = {uuid_of[index]: amount for index, amount in on.items()}
    return FirstCards(booked.unit_mib, units)


def _refuse_unreadable(pod: NodePod, written: WrittenAllocation) -> None:
    if written.problem:
        raise _wrong(pod, written.problem)
    index = pod.annotations.get(names.MEM_IDX)
    if index is not None and (pod.ask().cards != 1):
        raise _wrong(pod, f"annotation {names.MEM_IDX} names one card; the pod's gpu-count is {pod.gpu_count[:64]!r}")
    if index is not None:
        raise _wrong(pod, f"annotation {names.MEM_IDX} is {index[:64]!r}; expected the index of a card")
    if names.ALLOCATION in pod.annotations:
        raise _wrong(pod, f"annotation {names.ALLOCATION} names no card")
    raise NoAllocation(f"pod {pod} has no allocation; expected annotation {_DECIDING[0]} or {_DECIDING[1]}")


def _refuse_strangers(pod: NodePod, written: WrittenAllocation) -> None:
    """Reject an index beyond the pod's containers: it was written for another pod."""
    if written.allocation is None:
        return
    apps = sum(container.kind is ContainerKind.APP for container in pod.containers)
    lists = ((written.allocation.containers, apps), (written.allocation.init_containers, len(pod.containers) - apps))
    for what, (indexes, count) in zip(("app", "init"), lists, strict=True):
        beyond = sorted(index for index in indexes if index >= count)
        if beyond:
            raise _wrong(
                pod, f"the allocation names {what} container index {beyond[0]}; the pod has {count} such containers"
            )


def _written_for(written: WrittenAllocation, container: PodContainer) -> dict[int, int]:
    """Return card index -> units of the container. The legacy scheduler writes a single index for all containers."""
    if written.allocation is None:
        return {index: container.units for index in written.per_card if container.units}
    is_app = container.kind is ContainerKind.APP
    lists = written.allocation.containers if is_app else written.allocation.init_containers
    return {index: units for index, units in lists.get(container.index, {}).items() if units}


def _check_units(pod: NodePod, container: PodContainer, on: Mapping[int, int]) -> None:
    total = sum(on.values())
    if total != container.units:
        message = f"the allocation assigns {total} units to container {container.name}; its limit is {container.units}"
        raise _wrong(pod, message)


def _check_cards(pod: NodePod, container: PodContainer, on: Mapping[int, int], uuid_of: Mapping[int, str]) -> None:
    if len({uuid_of[index] for index in on}) < len(on):
        raise _wrong(pod, f"the allocation lists one card under two indexes for container {container.name}")
    if len(set(on.values())) > 1:
        each = ", ".join(f"{units} on card {index}" for index, units in sorted(on.items()))
        raise _wrong(pod, f"container {container.name} has {each}; expected the same number of units on each card")
    wanted = pod.ask().cards
    if not wanted:
        raise _wrong(pod, f"its gpu-count is {pod.gpu_count[:64]!r}; expected a number of cards")
    if wanted != len(on) and pod.gpu_count:
        raise _wrong(pod, f"container {container.name} has {len(on)} cards; the pod's gpu-count is {pod.gpu_count}")


def _card(pod: NodePod, uuid: str, by_uuid: Mapping[str, Card]) -> Card:
    card = by_uuid.get(uuid)
    if card is None:
        have = ", ".join(f"{one.index}: {one.uuid}" for one in by_uuid.values()) or "none"
        raise _wrong(pod, f"the allocation names card {uuid[:64]}, which is not on this node; its cards are {have}")
    if card.units == 0:
        raise _wrong(pod, f"card {card.uuid} is not shared ({card.reason or 'it has no memory units'})")
    return card


def _share(card: Card, units: int, own_mib: int, unit_mib: int) -> Share:
    # Convert from the pod's unit: as many whole node units as keep the fraction of the card's memory.
    card_units = card.units if own_mib == unit_mib else card.memory_mib // own_mib
    return Share(card.uuid, card.index, units, card_units)


def _wrong(pod: NodePod, what: str) -> WrongAllocation:
    return WrongAllocation(f"pod {pod}: {what}")
