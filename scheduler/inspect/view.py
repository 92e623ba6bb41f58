"""Nodes and pods -> who holds how much of which card, as the original's inspect counts it.

Counted are pods with a node that are neither Succeeded nor Failed, terminating ones too. A pod's cards come from the
allocation annotation, else from `ALIYUN_COM_GPU_MEM_IDX`, else it is pending. Where a node announces its cards
(`gpushare/inventory`), each has its own total; otherwise all have the node's total divided by their number. On equal
cards both are the same. Source: PROTOCOL, part 2 G.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from config import allocation, inventory, names, quantity

PENDING: Final = -1
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
Quantities = dict[str, str | int | float]


class _Wire(msgspec.Struct, rename="camel", frozen=True):
    """Wire data, naming only what is read."""


class Metadata(_Wire, frozen=True):
    """The head of an object."""

    name: str
    namespace: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None


class Address(_Wire, frozen=True):
    """One address of a node."""

    type: str = ""
    address: str = ""


class NodeStatus(_Wire, frozen=True):
    """What a node offers, and where it is."""

    allocatable: Quantities | None = None
    addresses: tuple[Address, ...] = ()


class Node(_Wire, frozen=True):
    """v1.Node."""

    metadata: Metadata
    status: NodeStatus = NodeStatus()


class Resources(_Wire, frozen=True):
    """What a container may use."""

    limits: Quantities | None = None


class Container(_Wire, frozen=True):
    """One container."""

    resources: Resources = Resources()


class PodSpec(_Wire, frozen=True):
    """Where a pod is, and what it asks."""

    node_name: str = ""
    containers: tuple[Container, ...] = ()


class PodStatus(_Wire, frozen=True):
    """phase: Pending, Running, Succeeded, Failed, Unknown."""

    phase: str = ""


class Pod(_Wire, frozen=True):
    """v1.Pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


@dataclass(frozen=True, slots=True)
class Card:
    """One card. uuid, health: "" where the node does not announce them. total, allocated: units."""

    index: int
    total: int
    allocated: int
    uuid: str = ""
    health: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """One pod on the node. units: by card index, PENDING for what nobody knows where."""

    name: str
    namespace: str
    units: dict[int, int]

    @property
    def pending(self) -> int:
        """Units on an unknown card."""
        return self.units.get(PENDING, 0)


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node. address: its InternalIP, or `unknown`. total: allocatable units."""

    name: str
    address: str
    total: int
    cards: tuple[Card, ...]
    holders: tuple[Holder, ...] = field(default=())

    @property
    def allocated(self) -> int:
        """Units held, pending ones included."""
        return sum(sum(holder.units.values()) for holder in self.holders)

    @property
    def pending(self) -> int:
        """Units held on unknown cards."""
        return sum(holder.pending for holder in self.holders)

    @property
    def units_per_card(self) -> int:
        """The node's total divided by its cards; 0 without cards."""
        return self.total // len(self.cards) if self.cards else 0


def view(nodes: Iterable[Node], pods: Iterable[Pod], *, only: frozenset[str] = frozenset()) -> tuple[NodeView, ...]:
    """The nodes with GPU memory, or those named in `only`, by name."""
    by_node: dict[str, list[Pod]] = {}
    for pod in {pod.metadata.uid or (pod.metadata.namespace, pod.metadata.name): pod for pod in pods}.values():
        if pod.spec.node_name and pod.status.phase not in _FINISHED:
            by_node.setdefault(pod.spec.node_name, []).append(pod)
    shown = (
        n for n in nodes if (n.metadata.name in only if only else _amount(n.status.allocatable, names.GPU_MEM) > 0)
    )
    return tuple(
        _node(node, by_node.get(node.metadata.name, [])) for node in sorted(shown, key=lambda node: node.metadata.name)
    )


def _node(node: Node, pods: list[Pod]) -> NodeView:
    holders = [Holder(p.metadata.name, p.metadata.namespace, units) for p in pods if (units := _held(p))]
    holders.sort(key=lambda holder: (min(holder.units), holder.namespace, holder.name))
    total = _amount(node.status.allocatable, names.GPU_MEM)
    cards = _cards(node, total)
    known = {card.index for card in cards}
    # A card that the node does not list holds nothing that could be shown: the units are pending.
    holders = [Holder(h.name, h.namespace, _on_known(h.units, known)) for h in holders]
    counted = tuple(
        Card(c.index, c.total, sum(h.units.get(c.index, 0) for h in holders), c.uuid, c.health) for c in cards
    )
    address = next((a.address for a in node.status.addresses if a.type == "InternalIP"), "unknown")
    return NodeView(node.metadata.name, address, total, counted, tuple(holders))


def _on_known(units: dict[int, int], known: set[int]) -> dict[int, int]:
    shown: dict[int, int] = {}
    for index, amount in units.items():
        place = index if index in known else PENDING
        shown[place] = shown.get(place, 0) + amount
    return shown


def _cards(node: Node, total: int) -> tuple[Card, ...]:
    text = (node.metadata.annotations or {}).get(names.INVENTORY)
    if text is not None:
        try:
            announced = inventory.decode(text)
        except inventory.InventoryError:
            announced = None
        if announced is not None:
            return tuple(Card(c.index, c.units, 0, c.uuid, c.health.value) for c in announced.cards)
    count = min(_amount(node.status.allocatable, names.GPU_COUNT), inventory.MAX_CARDS)
    return tuple(Card(index, total // count, 0) for index in range(count))


def _held(pod: Pod) -> dict[int, int]:
    """Units by card index; empty for a pod that asks none."""
    asked = sum(_amount(container.resources.limits, names.GPU_MEM) for container in pod.spec.containers)
    if asked <= 0:
        return {}
    annotations = pod.metadata.annotations or {}
    try:
        written = allocation.decode(annotations)
    except allocation.AllocationError:
        written = None
    if written is not None:
        per_card: dict[int, int] = {}
        for shares in written.containers.values():
            for index, units in shares.items():
                per_card[index] = per_card.get(index, 0) + units
        if per_card:
            return per_card
    known = allocation.legacy_index(annotations)
    return {PENDING if known is None else known: asked}


def _amount(quantities: Quantities | None, name: str) -> int:
    try:
        return max(0, quantity.whole(str((quantities or {}).get(name, 0))))
    except quantity.QuantityError:
        return 0
