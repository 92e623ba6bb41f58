"""Units that each pod holds on each card, counted from nodes and pods like the legacy inspect does. Pure.

docs/develop/protocol.md, "The output of kubectl inspect gpushare", describes which nodes and pods count. A pod that
requests no GPU memory is not shown. Differences from the legacy command:
- A node with an inventory (`gpushare/inventory`) shows each card with its own total, so cards of 16 and 80 units
  differ. On equal, healthy cards this is the legacy figure: the node's allocatable units divided by the number of
  cards. If a card is unhealthy, the legacy command spreads the missing units over all cards.
- On such a node, the UUID in `gpushare/cards` shows which card an index meant, because indexes change when the driver
  renumbers the cards.
- Units on a card that the node does not have are pending; the legacy command leaves them out of the node's sum.
- A node with an inventory, or with pods that hold units, is always shown, with the reason why its cards cannot be used.
  The legacy command shows neither while nothing is allocatable.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from config.protocol import allocation, inventory, names, quantity
from scheduler.tools.inspect.wire import ListedNode, ListedPod

_OUT: Final = frozenset({inventory.Health.UNHEALTHY.value, inventory.Health.SUSPECT.value})


@dataclass(frozen=True, slots=True)
class ListedResources:
    """Names of the memory resource on nodes and pods, and of the nodes' card count."""

    gpu_mem: str = names.GPU_MEM
    gpu_count: str = names.GPU_COUNT


def no_units(reason: str) -> str:
    """Return the text for a card without units in its inventory. reason: `mig`, or "" if unknown."""
    return f"no units to share ({reason})" if reason else "no units to share"


@dataclass(frozen=True, slots=True)
class InspectedCard:
    """One card. total, allocated: units. uuid, model, health, reason: "" on a node without an inventory.

    reason: for a health other than `healthy`, or for missing units. cordoned: by the node's annotation. isolation: kind
    that enforces shares of its memory, "" if nothing does.
    """

    index: int
    total: int
    allocated: int = 0
    uuid: str = ""
    health: str = ""
    model: str = ""
    reason: str = ""
    cordoned: bool = False
    isolation: str = ""

    @property
    def not_offered(self) -> bool:
        """True if the kubelet does not offer its units, because it is unhealthy or suspect."""
        return self.health in _OUT

    @property
    def out(self) -> str:
        """Why the card takes no new pods: `unhealthy (xid-79)`, `suspect`, `cordoned`; "" if it takes some."""
        if self.not_offered:
            return f"{self.health} ({self.reason})" if self.reason else self.health
        return "cordoned" if self.cordoned else ""

    @property
    def without_units(self) -> str:
        """Why the inventory gives it no units: it is split (`mig`), or others use all of its memory; otherwise ""."""
        return "" if self.total or not self.uuid else no_units(self.reason)


@dataclass(frozen=True, slots=True)
class EmptyCards:
    """Cards of a node without their pods. by_uuid: UUID -> index, empty if only totals are known.

    total: allocatable units. unreadable: the node has an inventory, but these are not its cards.
    """

    cards: tuple[InspectedCard, ...]
    by_uuid: Mapping[str, int]
    unit_mib: int | None = None
    total: int = 0
    unreadable: bool = False


def empty_cards(node: ListedNode, resources: ListedResources) -> EmptyCards:
    """Return the cards of the inventory; equal cards without a readable inventory."""
    total = amount(node.status.allocatable, resources.gpu_mem)
    equal = _equal_cards(node, total, amount(node.status.allocatable, resources.gpu_count))
    text = annotations_of(node).get(names.INVENTORY)
    if text is None:
        return equal
    try:
        decoded = inventory.decode(text)
    except inventory.InventoryError:
        return replace(equal, unreadable=True)
    # A column is shown for each index up to the largest of a whole card: an absurd one would fill the terminal.
    if not all(card.parent or card.index < inventory.MAX_CARDS for card in decoded.cards):
        return replace(equal, unreadable=True)
    cordoned = _cordoned(node)
    cards = tuple(
        InspectedCard(
            index=card.index,
            total=card.units,
            uuid=card.uuid,
            health=card.health.value,
            model=card.model,
            reason=card.reason,
            cordoned=card.uuid in cordoned or str(card.index) in cordoned,
            isolation=card.isolation,
        )
        for card in decoded.cards
    )
    return EmptyCards(cards, {card.uuid: card.index for card in cards}, decoded.unit_mib, total)


def _equal_cards(node: ListedNode, total: int, announced: int) -> EmptyCards:
    count, cordoned = min(announced, inventory.MAX_CARDS), _cordoned(node)
    cards = tuple(InspectedCard(index, total // count, cordoned=str(index) in cordoned) for index in range(count))
    return EmptyCards(cards, {}, total=total)


def _cordoned(node: ListedNode) -> frozenset[str]:
    """Return the cordoned cards of the node, each as a UUID or as an index in text form."""
    return frozenset(entry.strip() for entry in annotations_of(node).get(names.CORDON, "").split(","))


def annotations_of(node: ListedNode) -> Mapping[str, str]:
    """Return the annotations of the node; {} if it has none."""
    return node.metadata.annotations or {}


def amount(quantities: Mapping[str, str | int | float] | None, name: str) -> int:
    """Return a quantity in whole units, >= 0; 0 if it is absent or invalid."""
    try:
        return max(0, quantity.whole(str((quantities or {}).get(name, 0))))
    except quantity.QuantityError:
        return 0


_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_ADDRESS_TYPE: Final = "InternalIP"
_UNKNOWN: Final = "unknown"
_USUAL: Final = ListedResources()


@dataclass(frozen=True, slots=True)
class Holder:
    """Pod on the node. units: card index -> units; pending: units that are on no card of the node."""

    namespace: str
    name: str
    units: Mapping[int, int]
    pending: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectedNode:
    """One node.

    address: its InternalIP, or `unknown`. total: allocatable units. cards: by index, which may leave gaps. holders:
    pending ones first, then by their first card, namespace and name. unit_mib: MiB in one unit, None if unknown.
    problem: why none of its cards takes new pods, or "".
    """

    name: str
    address: str
    total: int
    cards: tuple[InspectedCard, ...]
    holders: tuple[Holder, ...]
    unit_mib: int | None = None
    problem: str = ""

    @property
    def pending(self) -> int:
        """Units held on unknown cards."""
        return sum(holder.pending for holder in self.holders)

    @property
    def allocated(self) -> int:
        """Units held, pending ones included."""
        return self.pending + sum(card.allocated for card in self.cards)


def view(
    nodes: Iterable[ListedNode],
    pods: Iterable[ListedPod],
    *,
    with_gpu_memory_only: bool = True,
    resources: ListedResources = _USUAL,
) -> tuple[InspectedNode, ...]:
    """Return the nodes by name, with the units that pods hold.

    By default, these are nodes that have allocatable GPU memory, an inventory, or pods that hold units. A node that
    pods name but `nodes` lacks is shown, too, so that those pods can be found.
    """
    on_node: dict[str, list[ListedPod]] = {}
    for pod in {pod.metadata.uid or (pod.metadata.namespace, pod.metadata.name): pod for pod in pods}.values():
        if pod.status.phase not in _FINISHED and pod.spec.node_name:
            on_node.setdefault(pod.spec.node_name, []).append(pod)
    found = {node.metadata.name: (_node(node, on_node.get(node.metadata.name, []), resources), node) for node in nodes}
    shown = [
        seen
        for seen, node in found.values()
        if not with_gpu_memory_only or seen.total > 0 or seen.holders or names.INVENTORY in annotations_of(node)
    ]
    missing = (_missing(name, pods, resources) for name, pods in on_node.items() if name not in found)
    return tuple(sorted([*shown, *(node for node in missing if node.holders)], key=lambda node: node.name))


def _missing(name: str, pods: Iterable[ListedPod], resources: ListedResources) -> InspectedNode:
    problem = "the node does not exist or cannot be read"
    holders = _holders(pods, EmptyCards((), {}), resources.gpu_mem)
    return InspectedNode(name=name, address=_UNKNOWN, total=0, cards=(), holders=holders, problem=problem)


def _node(node: ListedNode, pods: Iterable[ListedPod], resources: ListedResources) -> InspectedNode:
    empty = empty_cards(node, resources)
    holders = _holders(pods, empty, resources.gpu_mem)
    cards = tuple(
        replace(card, allocated=sum(held.units.get(card.index, 0) for held in holders)) for card in empty.cards
    )
    addresses = [entry.address for entry in node.status.addresses or () if entry.type == _ADDRESS_TYPE]
    address = addresses[0] if addresses else _UNKNOWN
    return InspectedNode(
        name=node.metadata.name,
        address=address,
        total=empty.total,
        cards=cards,
        holders=holders,
        unit_mib=empty.unit_mib,
        problem=_problem(node, empty),
    )


def _problem(node: ListedNode, empty: EmptyCards) -> str:
    """Return the most important problem of the node, or ""."""
    if empty.unreadable:
        return f"its annotation {names.INVENTORY} cannot be read"
    why = [card.out or card.without_units for card in empty.cards]
    if why and all(why):
        return f"no card takes new pods: {', '.join(dict.fromkeys(why))}"
    if empty.total <= 0:
        away = "nothing is allocatable: its device plugin is not running"
        return away if empty.cards else "it announces no GPU memory: there is no device plugin"
    return "the node is cordoned" if node.spec is not None and node.spec.unschedulable else ""


def _holders(pods: Iterable[ListedPod], empty: EmptyCards, gpu_mem: str) -> tuple[Holder, ...]:
    holders = [holder for pod in pods if (holder := _holder(pod, empty, gpu_mem)) is not None]
    holders.sort(key=lambda held: (held.pending == 0, min(held.units, default=-1), held.namespace, held.name))
    return tuple(holders)


def _holder(pod: ListedPod, empty: EmptyCards, gpu_mem: str) -> Holder | None:
    """Return the pod's units; None if it requests no GPU memory."""
    containers = pod.spec.containers or ()
    requested = sum(amount(container.resources.limits, gpu_mem) for container in containers)
    if requested <= 0:
        return None
    annotations = pod.metadata.annotations or {}
    written = _allocated(annotations)
    if not written:
        index = allocation.legacy_index(annotations)
        written = {} if index is None else {index: requested}
    known, units = {card.index for card in empty.cards}, dict[int, int]()
    for index, own in _renumbered(written, annotations, empty).items():
        if index in known:
            units[index] = own
    pending = (sum(written.values()) if written else requested) - sum(units.values())
    return Holder(pod.metadata.namespace, pod.metadata.name, units, pending)


def _allocated(annotations: Mapping[str, str]) -> dict[int, int]:
    """Return card index -> units over all containers; empty if the annotation is absent, empty or unreadable."""
    per_card: dict[int, int] = {}
    for shares in _decoded(annotations, names.ALLOCATION).containers.values():
        for index, units in shares.items():
            per_card[index] = per_card.get(index, 0) + units
    return per_card


def _renumbered(written: Mapping[int, int], annotations: Mapping[str, str], empty: EmptyCards) -> Mapping[int, int]:
    """Return the units by the current indexes of the cards, without cards that the node no longer has."""
    uuids = _decoded(annotations, names.ALLOCATION, names.CARDS).cards
    if not empty.by_uuid or not uuids:
        return written
    now: dict[int, int] = {}
    for index, units in written.items():
        place = empty.by_uuid.get(uuids[index]) if index in uuids else index
        if place is not None:
            now[place] = now.get(place, 0) + units
    return now


def _decoded(annotations: Mapping[str, str], *keys: str) -> allocation.Allocation:
    """Return the allocation in these annotations, ignoring the others; empty if one of them cannot be read."""
    try:
        decoded = allocation.decode({key: annotations[key] for key in keys if key in annotations})
    except allocation.AllocationError:
        decoded = None
    return decoded or allocation.Allocation({}, {}, {})
