"""Which cards a pod with a node occupies, read from its annotations. Pure.

The order (docs/protocol.md, "Reading order"): the allocation with UUIDs; the allocation alone, by index;
`ALIYUN_COM_GPU_MEM_IDX` with the pod's effective request; otherwise the card is unknown, and the request counts
against every card of the node.
An allocation that does not add up to the request is not believed: a pod's author may have written it.
"""

from dataclasses import dataclass
from itertools import chain

from config.protocol import allocation
from config.protocol.allocation import Allocation, AllocationError
from config.protocol.container_formula import ContainerKind, peak_amounts
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
    """Card index -> units, by the container formula.

    sidecars: for each init container of the pod, whether it is one.
    """
    kinds = (ContainerKind.SIDECAR if is_sidecar else ContainerKind.INIT for is_sidecar in sidecars)
    init = ((written.init_containers.get(position, {}), kind) for position, kind in enumerate(kinds))
    return peak_amounts(chain(init, ((own, ContainerKind.APP) for own in written.containers.values())))


def _shares(written: Allocation, sidecars: tuple[bool, ...]) -> tuple[CardShare, ...]:
    per_card = units_per_card(written, sidecars)
    return tuple(CardShare(i, written.cards.get(i, ""), units) for i, units in sorted(per_card.items()))
