"""Which cards a pod with a node occupies, read from its annotations. Pure.

The order (docs/protocol.md, "Reading order"): the allocation with UUIDs; the allocation alone, by index;
`ALIYUN_COM_GPU_MEM_IDX` with the pod's effective request; otherwise the card is unknown, and the request counts
against every card of the node.
An allocation that does not add up to the ask is not believed: a pod's author may have written it.
"""

from dataclasses import dataclass

from config.protocol import allocation
from config.protocol.allocation import Allocation, AllocationError, Shares
from scheduler.pods.pod import Pod


@dataclass(frozen=True, slots=True)
class CardShare:
    """Units of one card. index: the card's number on its node. uuid: "" where the node announces none."""

    index: int
    uuid: str
    units: int


@dataclass(frozen=True, slots=True)
class Booking:
    """shares: per card, by the container formula; empty when the card is unknown or nothing is asked.

    units: the pod's effective ask. exclusive: the cards are given to nobody else.
    problem: what was wrong with the annotations, for the log.
    """

    units: int
    shares: tuple[CardShare, ...]
    exclusive: bool = False
    problem: str = ""

    @property
    def unknown(self) -> bool:
        """The pod holds GPU memory, nobody knows where."""
        return self.units > 0 and not self.shares


def booking_of(pod: Pod) -> Booking:
    """What the annotations of a bound pod say."""
    units = pod.template.gpu_units
    if units == 0:
        return Booking(0, ())
    exclusive = pod.template.gpu_request is not None and pod.template.gpu_request.exclusive
    problem = ""
    try:
        written = allocation.decode(pod.annotations)
    except AllocationError as error:
        written, problem = None, str(error)
    if written is not None:
        shares = _shares(written, pod.template.sidecars)
        booked = sum(share.units for share in shares)
        if booked == units:
            return Booking(units, shares, exclusive)
        problem = f"the allocation adds up to {booked} units, the pod asks {units}"
    index = allocation.legacy_index(pod.annotations)
    if index is not None:
        return Booking(units, (CardShare(index, "", units),), exclusive, problem)
    return Booking(units, (), exclusive, problem)


def units_per_card(written: Allocation, sidecars: tuple[bool, ...]) -> dict[int, int]:
    """Card index -> units: the larger of (containers + sidecars) and each init container with the sidecars before it.

    sidecars: for each init container of the pod, whether it is one.
    """
    running: dict[int, int] = {}
    peak: dict[int, int] = {}
    for position, is_sidecar in enumerate(sidecars):
        own = written.init_containers.get(position, {})
        together = _sum(running, own)
        peak = _larger(peak, together)
        running = together if is_sidecar else running
    for own in _in_order(written.containers):
        running = _sum(running, own)
    return _larger(peak, running)


def _shares(written: Allocation, sidecars: tuple[bool, ...]) -> tuple[CardShare, ...]:
    per_card = units_per_card(written, sidecars)
    return tuple(CardShare(i, written.cards.get(i, ""), units) for i, units in sorted(per_card.items()) if units)


def _in_order(shares: Shares) -> list[dict[int, int]]:
    return [shares[position] for position in sorted(shares)]


def _sum(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    return {card: one.get(card, 0) + other.get(card, 0) for card in {*one, *other}}


def _larger(one: dict[int, int], other: dict[int, int]) -> dict[int, int]:
    return {card: max(one.get(card, 0), other.get(card, 0)) for card in {*one, *other}}
