"""The cards that a pod on a node occupies, with the units on each: docs/develop/protocol.md, "Reading order".

    annotations ── read ──▶ WrittenAllocation (the pod's own annotations, whatever cards there are)
                               └── on_cards(the node's cards and unit) ──▶ BookedCards (in the node's unit)

Both programs read allocations only with this code. Numbers in another unit than the node's are rescaled and rounded
up. If their unit is unknown, every card of the node is blocked: a number without its unit frees no memory. An
allocation that does not match the pod's request is not trusted: a pod's author may have written it.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from config.protocol import allocation, names
from config.protocol.allocation import Allocation, AllocationError
from config.protocol.container_formula import ContainerKind, peak_amounts
from config.protocol.inventory import Card, nameless

# Units that a device plugin may have been set to; any other is recognized only if it is the node's own.
_LARGEST_POWER: Final = 20
_USUAL_UNITS_MIB: Final = tuple(2**power for power in range(_LARGEST_POWER, -1, -1))


class Ask(msgspec.Struct, frozen=True):
    """A pod's request. units: over all cards, by the container formula. cards: 0 if the number cannot be read.

    sidecars: for each init container, whether it is one.
    """

    units: int
    cards: int
    sidecars: tuple[bool, ...] = ()


class WrittenAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """The decision in a pod's annotations, in the pod's own unit.

    per_card: card index -> units, by the container formula; empty if the pod's cards are not recorded.
    uuids: card index -> UUID of each of them; if empty, an index means the card that has that index now.
    allocation: units of each container; None if only a card index, or nothing, could be read.
    index_only: the pod has only `ALIYUN_COM_GPU_MEM_IDX`, whose card gets its whole request.
    unit_mib: 0 if not given. device_units: units of the pod's first card, if needed to determine the unit; otherwise 0.
    problem: why the annotations are invalid; "" if they are valid.
    """

    units: int
    per_card: Mapping[int, int]
    uuids: Mapping[int, str]
    allocation: Allocation | None
    unit_mib: int = 0
    device_units: int = 0
    index_only: bool = False
    problem: str = ""

    @property
    def decided(self) -> bool:
        """Whether an annotation names the pod's cards. If so, later changes to the annotations are ignored."""
        return bool(self.per_card)

    def summary(self) -> str:
        """Return text such as `3 on GPU-a`, for the first two cards only."""
        first = [f"{units} on {self.uuids.get(index, f'card {index}')[:64]}" for index, units in self.per_card.items()]
        return ", ".join(first[:2]) + (", …" if len(first) > 2 else "")  # noqa: PLR2004 - as said


_NOTHING: Final = WrittenAllocation(units=0, per_card={}, uuids={}, allocation=None)


class BookedCard(msgspec.Struct, frozen=True, kw_only=True):
    """A card that a pod occupies. index: as in the pod's annotations. lost: the node does not announce the card.

    uuid: of the node's card; from the annotations if the card is lost. units: in the node's unit, rounded up. asked:
    the same amount in the pod's own unit, as the kubelet counts it.
    """

    index: int
    uuid: str
    units: int
    asked: int
    lost: bool = False


class BookedCards(msgspec.Struct, frozen=True, kw_only=True):
    """All cards of a pod. cards: each card once; empty if unknown.

    everywhere: units that count against every card of the node if `cards` is empty; otherwise 0. blocks: every card of
    the node counts as full instead, because the unit of the pod's numbers is unknown. unit_mib: unit of the pod's
    numbers, 0 if unknown. problem: message for users; "" if nothing is wrong.
    """

    cards: tuple[BookedCard, ...] = ()
    everywhere: int = 0
    blocks: bool = False
    unit_mib: int = 0
    problem: str = ""


def read(annotations: Mapping[str, str], ask: Ask) -> WrittenAllocation:
    """Return the decision in a pod's annotations. Never raises, whatever they contain."""
    if not ask.units:
        return _NOTHING
    written, problem = _allocation(annotations, ask)
    per_card: Mapping[int, int] = {}
    uuids: Mapping[int, str] = {}
    if written is not None:
        per_card = units_per_card(written, ask.sidecars)
        uuids = written.cards
        if uuids and uuids.keys() != per_card.keys():
            uuids = {index: uuids[index] for index in per_card}
    elif (index := allocation.legacy_index(annotations)) is not None and ask.cards == 1:
        # An index locates only one card. A request for several, or for an unreadable number, is also on other cards.
        per_card = {index: ask.units}
    unit_mib = allocation.unit_mib(annotations) if written is None else written.unit_mib
    return WrittenAllocation(
        units=ask.units,
        per_card=per_card,
        uuids=uuids,
        allocation=written,
        unit_mib=unit_mib,
        device_units=0 if unit_mib else allocation.device_units(annotations),
        index_only=written is None,
        problem=problem,
    )


class CardsOfNode:
    """The cards of one node, to find the ones that a pod occupies. unit_mib: MiB per unit of the node, > 0."""

    def __init__(self, cards: Sequence[Card], unit_mib: int) -> None:
        """cards: as announced; UUIDs and indexes are unique."""
        self.cards = cards
        self.unit_mib = unit_mib
        self._by_uuid = {card.uuid: card for card in cards}
        self._by_index = {card.index: card for card in cards}

    def booked(self, written: WrittenAllocation) -> BookedCards:
        """Return the cards of this node that the pod occupies."""
        if written.units == 0:
            return BookedCards(unit_mib=written.unit_mib, problem=written.problem)
        if written.unit_mib == self.unit_mib and len(written.uuids) == 1:
            # By far the most common case: one card, known by its UUID, in the unit of the node.
            (index, uuid), units = next(iter(written.uuids.items())), written.units
            if uuid in self._by_uuid:
                only = BookedCard(index=index, uuid=uuid, units=units, asked=units)
                return BookedCards(cards=(only,), unit_mib=self.unit_mib, problem=written.problem)
        named = self._named(written)
        own_mib = written.unit_mib or self._derived_unit_mib(written, named)
        if not own_mib:
            lost_all = bool(written.uuids) and not any(named.values())
            if written.decided and not lost_all:
                return BookedCards(everywhere=written.units, blocks=True, problem=_unit_problem(written))
            # Nothing has been decided for this pod, or no existing card is concerned.
            own_mib = self.unit_mib
        units = rescaled(written.units, own_mib, self.unit_mib)
        if _unknown(written, named, units):
            problem = written.problem or _unknown_problem(written)
            return BookedCards(everywhere=units, unit_mib=own_mib, problem=problem)
        booked = _booked(written, named, own_mib, self.unit_mib)
        return BookedCards(cards=booked, unit_mib=own_mib, problem=written.problem)

    def _named(self, written: WrittenAllocation) -> dict[int, Card | None]:
        """Return card index as the pod writes it, ascending -> the card; None if the node has no such card."""
        indexes = sorted(written.per_card)
        if not written.uuids:
            return {index: self._by_index.get(index) for index in indexes}
        # A node that announces only totals has no UUIDs: there, a card is known by its index.
        known = self._by_uuid
        return {index: known.get(written.uuids[index]) or known.get(nameless(index)) for index in indexes}

    def _derived_unit_mib(self, written: WrittenAllocation, named: Mapping[int, Card | None]) -> int:
        """Return the unit (in MiB) in which the pod's first card has `device_units`; 0 if that is ambiguous.

        If that card is unknown, it may be any card, so the unit has to be the same for all of them.
        """
        if not written.device_units:
            return 0
        first = next(iter(named.values()), None)
        told = {_unit_of(written.device_units, card, self.unit_mib) for card in ((first,) if first else self.cards)}
        return told.pop() if len(told) == 1 else 0


def on_cards(written: WrittenAllocation, cards: Sequence[Card], unit_mib: int) -> BookedCards:
    """Return the pod's cards on its node. unit_mib: MiB per unit of the node, > 0."""
    return CardsOfNode(cards, unit_mib).booked(written)


def rescaled(units: int, from_mib: int, to_mib: int) -> int:
    """Convert `units` of `from_mib` MiB to units of `to_mib` MiB, rounded up."""
    return units if from_mib == to_mib else -(-units * from_mib // to_mib)


def units_per_card(written: Allocation, sidecars: Iterable[bool]) -> dict[int, int]:
    """Return card index -> units, by the container formula. sidecars: as in `Ask`."""
    if len(written.containers) == 1 and not written.init_containers:
        own = next(iter(written.containers.values()))
        if all(own.values()):
            return own
    kinds = (ContainerKind.SIDECAR if is_sidecar else ContainerKind.INIT for is_sidecar in sidecars)
    init = ((written.init_containers.get(position, {}), kind) for position, kind in enumerate(kinds))
    return peak_amounts(chain(init, ((own, ContainerKind.APP) for own in written.containers.values())))


def _allocation(annotations: Mapping[str, str], ask: Ask) -> tuple[Allocation | None, str]:
    """Return (shares of each container, or None if the allocation is not trusted; why it is not trusted)."""
    try:
        written = allocation.decode(annotations)
    except AllocationError as error:
        return None, str(error)
    if written is None:
        return None, ""
    per_card = units_per_card(written, ask.sidecars)
    total = sum(per_card.values())
    if total != ask.units:
        return None, f"the allocation adds up to {total} units, but the pod requests {ask.units}"
    if written.cards and not per_card.keys() <= written.cards.keys():
        missing = min(per_card.keys() - written.cards.keys())
        return None, f"annotation {names.CARDS} has no UUID for card {missing}, which the allocation names"
    return written, ""


def _unknown(written: WrittenAllocation, named: Mapping[int, Card | None], units: int) -> bool:
    """Return whether the cards of the pod are unknown. units: the whole pod's, in the node's unit."""
    if written.uuids:
        return False
    if not named or None in named.values():
        return True
    # An index alone is trusted if the whole pod fits on that card.
    return written.index_only and any(card is not None and units > card.units for card in named.values())


def _booked(
    written: WrittenAllocation, named: Mapping[int, Card | None], own_mib: int, unit_mib: int
) -> tuple[BookedCard, ...]:
    # Two indexes may mean one card.
    asked: dict[str, int] = {}
    first: dict[str, int] = {}
    lost: set[str] = set()
    for index, card in named.items():
        uuid = written.uuids[index] if card is None else card.uuid
        asked[uuid] = asked.get(uuid, 0) + written.per_card[index]
        first.setdefault(uuid, index)
        if card is None:
            lost.add(uuid)
    return tuple(
        BookedCard(
            index=first[uuid], uuid=uuid, units=rescaled(units, own_mib, unit_mib), asked=units, lost=uuid in lost
        )
        for uuid, units in asked.items()
    )


def _unit_of(device_units: int, card: Card, unit_mib: int) -> int:
    if device_units == card.units:
        return unit_mib
    size_mib = card.memory_mib or card.units * unit_mib
    # The larger unit if two fit: an overestimate takes no memory that another pod has.
    candidates = sorted({unit_mib, *_USUAL_UNITS_MIB}, reverse=True)
    return next((unit for unit in candidates if _has(size_mib, device_units, unit)), 0)


def _has(size_mib: int, units: int, unit_mib: int) -> bool:
    """Return whether a card of `size_mib` has this number of units of `unit_mib`, give or take an eighth.

    Not exactly, because a driver's reserve differs between versions, and the legacy plugin includes it in the units.
    """
    return 8 * units * unit_mib <= 9 * size_mib and 8 * (units + 1) * unit_mib >= 7 * size_mib


def _unit_problem(written: WrittenAllocation) -> str:
    said = (
        f"{names.MEM_DEV} is {written.device_units}, which matches no memory unit"
        if written.device_units
        else "no annotation gives it"
    )
    return (
        f"the size of its {written.units} units is unknown ({said}; expected {names.UNIT_MIB}): "
        f"every card of its node is blocked"
    )


def _unknown_problem(written: WrittenAllocation) -> str:
    if not written.decided:
        return ""
    if written.index_only:
        return f"its {written.units} units do not fit card {min(written.per_card)}, or its node has no such card"
    return "the allocation names a card by an index that its node does not have"
