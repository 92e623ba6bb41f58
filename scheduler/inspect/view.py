"""Nodes and pods -> who holds how much of which card, as the original's inspect counts it. Pure.

Counted are pods with a node that are neither Succeeded nor Failed, terminating ones too. A pod asks the sum of the
limits of its containers; a pod that asks nothing is not shown. Its cards are those of the allocation annotation, else
that of `ALIYUN_COM_GPU_MEM_IDX`, else it is pending. Source: PROTOCOL, part 2 G.

Where that is silent:
- A node that announces its cards (`gpushare/inventory`) shows each with its own total, so that cards of 16 and 80
  units are told apart. On equal, healthy cards this is the original's figure, the node's allocatable units divided by
  the number of cards; the original would spread what an unhealthy card takes from allocatable over all of them.
- There, the UUID in `gpushare/cards` says which card an index meant: indexes change when the driver renumbers.
- Units on a card that the node does not have are pending; the original leaves them out of the node's sum.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from config.protocol import allocation, inventory, names, quantity
from scheduler.inspect.wire import Node, Pod, Quantities

_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_ADDRESS_TYPE: Final = "InternalIP"


@dataclass(frozen=True, slots=True)
class Card:
    """One card. total, allocated: units. uuid, health: "" where the node does not announce them."""

    index: int
    total: int
    allocated: int = 0
    uuid: str = ""
    health: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """One pod on the node. units: card index -> units; pending: units that are on no card of the node."""

    namespace: str
    name: str
    units: Mapping[int, int]
    pending: int = 0


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node.

    address: its InternalIP, or `unknown`. total: allocatable units. cards: by index, which may leave gaps.
    holders: pending ones first, then by their first card, namespace and name. unit_mib: MiB in one unit, None where the
    node does not say.
    """

    name: str
    address: str
    total: int
    cards: tuple[Card, ...]
    holders: tuple[Holder, ...]
    unit_mib: int | None = None

    @property
    def pending(self) -> int:
        """Units held on unknown cards."""
        return sum(holder.pending for holder in self.holders)

    @property
    def allocated(self) -> int:
        """Units held, pending ones included."""
        return self.pending + sum(card.allocated for card in self.cards)


@dataclass(frozen=True, slots=True)
class _Announced:
    """A node's cards before anything is held. by_uuid: empty where only totals are known."""

    cards: tuple[Card, ...]
    by_uuid: Mapping[str, int]
    unit_mib: int | None = None


def view(nodes: Iterable[Node], pods: Iterable[Pod], *, with_gpu_memory_only: bool = True) -> tuple[NodeView, ...]:
    """The nodes by name, with what is held on them; by default only those that have GPU memory to allocate."""
    on_node: dict[str, list[Pod]] = {}
    for pod in {pod.metadata.uid or (pod.metadata.namespace, pod.metadata.name): pod for pod in pods}.values():
        if pod.status.phase not in _FINISHED:
            on_node.setdefault(pod.spec.node_name, []).append(pod)
    shown = [node for node in nodes if _total(node) > 0 or not with_gpu_memory_only]
    shown.sort(key=lambda node: node.metadata.name)
    return tuple(_node(node, on_node.get(node.metadata.name, [])) for node in shown)


def _node(node: Node, pods: Iterable[Pod]) -> NodeView:
    announced = _announced(node)
    holders = [holder for pod in pods if (holder := _holder(pod, announced)) is not None]
    holders.sort(key=lambda held: (held.pending == 0, min(held.units, default=-1), held.namespace, held.name))
    cards = tuple(
        Card(card.index, card.total, sum(held.units.get(card.index, 0) for held in holders), card.uuid, card.health)
        for card in announced.cards
    )
    addresses = [entry.address for entry in node.status.addresses or () if entry.type == _ADDRESS_TYPE]
    address = addresses[0] if addresses else "unknown"
    return NodeView(node.metadata.name, address, _total(node), cards, tuple(holders), announced.unit_mib)


def _announced(node: Node) -> _Announced:
    """The cards of the inventory; equal ones when there is none that can be read."""
    text = (node.metadata.annotations or {}).get(names.INVENTORY)
    if text is not None:
        try:
            found = inventory.decode(text)
        except inventory.InventoryError:
            return _equal_cards(node)
        # A column is shown for each index up to the largest: an absurd one would fill the terminal.
        if all(card.index < inventory.MAX_CARDS for card in found.cards):
            cards = tuple(Card(card.index, card.units, 0, card.uuid, card.health.value) for card in found.cards)
            return _Announced(cards, {card.uuid: card.index for card in cards}, found.unit_mib)
    return _equal_cards(node)


def _equal_cards(node: Node) -> _Announced:
    count = min(_amount(node.status.allocatable, names.GPU_COUNT), inventory.MAX_CARDS)
    return _Announced(tuple(Card(index, _total(node) // count) for index in range(count)), {})


def _holder(pod: Pod, announced: _Announced) -> Holder | None:
    """None: the pod asks no GPU memory."""
    containers = pod.spec.containers or ()
    asked = sum(_amount(container.resources.limits, names.GPU_MEM) for container in containers)
    if asked <= 0:
        return None
    annotations = pod.metadata.annotations or {}
    written = _allocated(annotations)
    if not written:
        index = allocation.legacy_index(annotations)
        written = {} if index is None else {index: asked}
    known, units = {card.index for card in announced.cards}, dict[int, int]()
    for index, own in _renumbered(written, annotations, announced).items():
        if index in known:
            units[index] = own
    pending = (sum(written.values()) if written else asked) - sum(units.values())
    return Holder(pod.metadata.namespace, pod.metadata.name, units, pending)


def _allocated(annotations: Mapping[str, str]) -> dict[int, int]:
    """Card index -> units over all containers; empty when the annotation is absent, empty or cannot be read."""
    per_card: dict[int, int] = {}
    for shares in _decoded(annotations, names.ALLOCATION).containers.values():
        for index, units in shares.items():
            per_card[index] = per_card.get(index, 0) + units
    return per_card


def _renumbered(written: Mapping[int, int], annotations: Mapping[str, str], announced: _Announced) -> Mapping[int, int]:
    """The units by the indexes that the cards have now; cards that the node has no more are left out."""
    uuids = _decoded(annotations, names.ALLOCATION, names.CARDS).cards
    if not announced.by_uuid or not uuids:
        return written
    now: dict[int, int] = {}
    for index, units in written.items():
        place = announced.by_uuid.get(uuids[index]) if index in uuids else index
        if place is not None:
            now[place] = now.get(place, 0) + units
    return now


def _decoded(annotations: Mapping[str, str], *keys: str) -> allocation.Allocation:
    """What these annotations say, whatever the others hold; nothing when one of them cannot be read."""
    try:
        found = allocation.decode({key: annotations[key] for key in keys if key in annotations})
    except allocation.AllocationError:
        found = None
    return found or allocation.Allocation({}, {}, {})


def _total(node: Node) -> int:
    return _amount(node.status.allocatable, names.GPU_MEM)


def _amount(quantities: Quantities | None, name: str) -> int:
    """A quantity in whole units, >= 0; 0 when it is absent or none."""
    try:
        return max(0, quantity.whole(str((quantities or {}).get(name, 0))))
    except quantity.QuantityError:
        return 0
