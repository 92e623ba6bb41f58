"""The pods of this node, and which cards the scheduler decided for each of their containers. Pure.

docs/protocol.md, "Reading order": the allocation with UUIDs; the allocation alone, by index of the cards that the
node has now; `ALIYUN_COM_GPU_MEM_IDX` with what each container asks. What does not add up is refused, never guessed:
a pod's author may have written it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from config.protocol import allocation, names, quantity
from config.protocol.allocation import Allocation, AllocationError
from config.protocol.container_formula import ContainerKind, init_kind, peak_amounts
from config.protocol.inventory import Card
from scheduler.kube import objects

_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_LONGEST_COUNT: Final = 3
_EMPTY: Final[Mapping[str, str]] = {}


class Undecided(Exception):
    """The cards of a pod cannot be determined; the message names the pod, what was found and what was expected."""


class NoAllocation(Undecided):
    """The pod carries no allocation annotation, or none yet."""


class WrongAllocation(Undecided):
    """The pod carries an allocation that does not fit it or this node. Waiting does not help."""


@dataclass(frozen=True, slots=True)
class PodContainer:
    """index: in `spec.initContainers` (INIT, SIDECAR) or `spec.containers` (APP). units: limit of gpu-mem, >= 0."""

    name: str
    kind: ContainerKind
    index: int
    units: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePod:
    """A pod of this node.

    containers: all of them, in the order in which the kubelet allocates: init containers first.
    gpu_count: the text of the pod's gpu-count, "" when it has none. exclusive: nobody else may use its cards.
    terminating: to be deleted. finished: Succeeded or Failed.
    reported: the kubelet has told the API server of its containers, so it has admitted the pod already.
    """

    uid: str
    namespace: str
    name: str
    containers: tuple[PodContainer, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    gpu_count: str = ""
    exclusive: bool = False
    terminating: bool = False
    finished: bool = False
    reported: bool = False

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} (UID {self.uid})"

    def asking(self) -> tuple[PodContainer, ...]:
        """The containers that ask for gpu-mem."""
        return tuple(container for container in self.containers if container.units > 0)


@dataclass(frozen=True, slots=True)
class Share:
    """What one container has on one card. index, card_units: of the card as the node has it now."""

    uuid: str
    index: int
    units: int
    card_units: int


@dataclass(frozen=True, slots=True)
class CardDecision:
    """Container name -> its shares, by card index, the same units on each; every asking container is there."""

    shares: Mapping[str, tuple[Share, ...]]

    def uuids(self) -> frozenset[str]:
        """Every card of the pod."""
        return frozenset(share.uuid for shares in self.shares.values() for share in shares)


def read_pod(wire: objects.Pod, *, gpu_mem: str = names.GPU_MEM, gpu_count: str = names.GPU_COUNT) -> NodePod:
    """The pod as this node needs it. gpu_mem, gpu_count: the configured names. Raises quantity.QuantityError."""
    meta, spec, status = wire.metadata, wire.spec, wire.status
    annotations, labels = meta.annotations or _EMPTY, meta.labels or _EMPTY
    init = tuple(_container(c, init_kind(c.restart_policy), i, gpu_mem) for i, c in enumerate(spec.init_containers))
    app = tuple(_container(c, ContainerKind.APP, i, gpu_mem) for i, c in enumerate(spec.containers))
    whole = labels.get(names.PLACEMENT_LABEL) == names.PLACEMENT_WHOLE_DEVICE
    return NodePod(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        containers=init + app,
        annotations=annotations,
        gpu_count=annotations.get(gpu_count, labels.get(gpu_count, "")),
        exclusive=whole or annotations.get(names.EXCLUSIVE) == "true",
        terminating=bool(meta.deletion_timestamp),
        finished=status.phase in _FINISHED,
        reported=bool(status.container_statuses or status.init_container_statuses),
    )


def decided(pod: NodePod, cards: Sequence[Card]) -> CardDecision:
    """Which cards each container has. cards: those of this node, as announced now.

    Raises NoAllocation, or WrongAllocation for one that cannot be read, names a card that this node lacks or does not
    share, or gives a container other units than its limit.
    """
    try:
        written = allocation.decode(pod.annotations)
    except AllocationError as error:
        raise _wrong(pod, str(error)) from error
    found = _legacy(pod) if written is None else written
    _refuse_strangers(pod, found)
    by_uuid, by_index = {card.uuid: card for card in cards}, {card.index: card for card in cards}
    shares = {}
    for container in pod.containers:
        units = {index: amount for index, amount in _written_for(found, container).items() if amount}
        _check_units(pod, container, units)
        if units:
            on = {index: _card(pod, found, index, (by_uuid, by_index)) for index in units}
            taken = (Share(card.uuid, card.index, units[index], card.units) for index, card in on.items())
            shares[container.name] = tuple(sorted(taken, key=lambda share: share.index))
            _check_cards(pod, container, shares[container.name])
    return CardDecision(shares)


def _container(wire: objects.Container, kind: ContainerKind, index: int, gpu_mem: str) -> PodContainer:
    # The kubelet allocates by limits alone. Source: cm/devicemanager/manager.go, allocateContainerResources.
    limits = (wire.resources.limits if wire.resources else None) or {}
    return PodContainer(wire.name, kind, index, max(0, quantity.whole(str(limits.get(gpu_mem, 0)))))


def _legacy(pod: NodePod) -> Allocation:
    """What the legacy scheduler's one card index means: every container is on that card."""
    text = pod.annotations.get(names.MEM_IDX)
    if text is None:
        message = f"pod {pod} has no allocation; expected annotation {names.ALLOCATION} or {names.MEM_IDX}"
        raise NoAllocation(message)
    index = allocation.legacy_index(pod.annotations)
    if index is None:
        raise _wrong(pod, f"annotation {names.MEM_IDX} is {text[:64]!r}; expected the index of a card")
    asking = pod.asking()
    return Allocation(
        containers={c.index: {index: c.units} for c in asking if c.kind is ContainerKind.APP},
        init_containers={c.index: {index: c.units} for c in asking if c.kind is not ContainerKind.APP},
        cards={},
    )


def _written_for(found: Allocation, container: PodContainer) -> dict[int, int]:
    lists = found.containers if container.kind is ContainerKind.APP else found.init_containers
    return lists.get(container.index, {})


def _refuse_strangers(pod: NodePod, found: Allocation) -> None:
    """An index beyond the pod's containers was written for another pod."""
    apps = sum(container.kind is ContainerKind.APP for container in pod.containers)
    counts = ((found.containers, apps), (found.init_containers, len(pod.containers) - apps))
    for what, (written, count) in zip(("app", "init"), counts, strict=True):
        beyond = sorted(index for index in written if index >= count)
        if beyond:
            raise _wrong(pod, f"the allocation names {what} container {beyond[0]}; the pod has {count}")


def _check_units(pod: NodePod, container: PodContainer, units: Mapping[int, int]) -> None:
    given = sum(units.values())
    if given != container.units:
        message = f"the allocation gives container {container.name} {given} units; its limit is {container.units}"
        raise _wrong(pod, message)


def _card(pod: NodePod, found: Allocation, index: int, known: tuple[dict[str, Card], dict[int, Card]]) -> Card:
    by_uuid, by_index = known
    if found.cards and index not in found.cards:
        raise _wrong(pod, f"annotation {names.CARDS} has no UUID for card {index}, which the allocation names")
    uuid = found.cards.get(index, "")
    card = by_uuid.get(uuid) if uuid else by_index.get(index)
    if card is None:
        have = ", ".join(f"{c.index}: {c.uuid}" for c in by_uuid.values()) or "none"
        name = uuid[:64] or index
        raise _wrong(pod, f"the allocation names card {name}, which is not on this node; its cards are {have}")
    if card.units == 0:
        raise _wrong(pod, f"card {card.uuid} is not shared ({card.reason or 'it has no memory units'})")
    return card


def _check_cards(pod: NodePod, container: PodContainer, shares: Sequence[Share]) -> None:
    if len({share.uuid for share in shares}) < len(shares):
        raise _wrong(pod, f"the allocation gives container {container.name} one card under two indexes")
    if len({share.units for share in shares}) > 1:
        on = ", ".join(f"{share.units} on card {share.index}" for share in shares)
        raise _wrong(pod, f"container {container.name} has {on}; expected the same units on each card")
    text = pod.gpu_count
    if text and not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_COUNT):
        raise _wrong(pod, f"its gpu-count is {text[:64]!r}; expected a number of cards")
    if text and int(text) != len(shares):
        raise _wrong(pod, f"container {container.name} has {len(shares)} cards; the pod's gpu-count is {text}")


def _wrong(pod: NodePod, what: str) -> WrongAllocation:
    return WrongAllocation(f"pod {pod}: {what}")


def units_on_cards(pod: NodePod, decision: CardDecision) -> dict[str, int]:
    """Card UUID -> units that the pod has booked there, by the container formula."""
    return peak_amounts(
        ({share.uuid: share.units for share in decision.shares.get(container.name, ())}, container.kind)
        for container in pod.containers
    )
