"""Cards in a pod's annotations, or chosen for it by the scheduler. Pure.

`config.protocol.booked_cards` parses the annotations; this module relates them to the scheduler's pods.
"""

from collections.abc import Iterable, Sequence

import msgspec

from config.protocol.allocation import Allocation
from config.protocol.booked_cards import Ask, WrittenAllocation, read
from scheduler.pods.gpu_request import GpuRequest
from scheduler.pods.pod import Pod
from scheduler.state.cards.card_columns import CardOnNode


class CardShare(msgspec.Struct, frozen=True):
    """Units of one card. index: the card's number on its node. uuid: "" if the node announces none."""

    index: int
    uuid: str
    units: int


def written_of(pod: Pod) -> WrittenAllocation:
    """Allocation in the annotations of a bound pod."""
    template = pod.template
    cards = 0 if template.gpu_request is None else template.gpu_request.cards
    return read(pod.annotations, Ask(template.gpu_units, cards, template.sidecars))


def chosen(pod: Pod, shares: Iterable[CardShare], unit_mib: int) -> WrittenAllocation:
    """Allocation that our Binding writes, as `written_of` will read it, but not divided among the containers.

    unit_mib: unit of the node and of `shares`.
    """
    per_card = {share.index: share.units for share in shares}
    uuids = {share.index: share.uuid for share in shares if share.uuid}
    return WrittenAllocation(
        units=pod.template.gpu_units,
        per_card=per_card,
        uuids=uuids,
        allocation=None,
        unit_mib=unit_mib,
    )


def share_of(slot: CardOnNode, request: GpuRequest, *, has_uuids: bool) -> CardShare:
    """Share of the card in `slot` for a pod with this request. has_uuids: whether the card's node announces UUIDs."""
    return CardShare(slot.card.index, slot.card.uuid if has_uuids else "", request.units_per_card)


def allocation_of(request: GpuRequest, shares: Sequence[CardShare], unit_mib: int) -> Allocation:
    """Allocation that gives each container its share of the cards in `shares`. unit_mib: the node's."""
    indexes = [share.index for share in shares]
    return Allocation(
        containers=_per_container(request.containers, indexes),
        init_containers=_per_container(request.init_containers, indexes),
        cards={share.index: share.uuid for share in shares if share.uuid},
        unit_mib=unit_mib,
    )


def _per_container(units: Sequence[int], indexes: Sequence[int]) -> dict[int, dict[int, int]]:
    return {number: dict.fromkeys(indexes, own) for number, own in enumerate(units) if own}


def unknown(written: WrittenAllocation) -> WrittenAllocation:
    """Return the same allocation, but with unknown cards."""
    return WrittenAllocation(units=written.units, per_card={}, uuids={}, allocation=None, unit_mib=written.unit_mib)


def shares_of(written: WrittenAllocation) -> tuple[CardShare, ...]:
    """Shares of cards as written, in the pod's own unit; empty if the cards are unknown."""
    return tuple(
        CardShare(index, written.uuids.get(index, ""), units) for index, units in sorted(written.per_card.items())
    )


def is_exclusive(pod: Pod) -> bool:
    """Whether the pod's cards are closed to all other pods."""
    return pod.template.gpu_request is not None and pod.template.gpu_request.exclusive


def same_decision(one: WrittenAllocation, other: WrittenAllocation) -> bool:
    """Whether both allocations put a pod on the same cards with the same memory."""
    if not one.units and not other.units:
        return True
    same_unit = one.unit_mib == other.unit_mib and (one.unit_mib or one.device_units == other.device_units)
    return bool(same_unit) and (one.per_card, one.uuids) == (other.per_card, other.uuids)
