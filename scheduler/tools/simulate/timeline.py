"""Turns a cluster file into the external steps of a simulation, by time. Pure.

Steps are nodes, card faults, and created pods. A pod's end depends on its placement: see `player.py`.

Cards of a node may fail, disappear and come back, which changes its inventory and totals:

    HEALTHY --an XID of the hardware--> UNHEALTHY
    HEALTHY, UNHEALTHY --lost--> LOST (a lost card reports no XID)
    UNHEALTHY, LOST --back--> HEALTHY

UNHEALTHY: stays in the inventory as unhealthy; `allocatable` shrinks by its units, `capacity` does not, because the
device plugin keeps listing them to the kubelet, as unhealthy. LOST: in neither; the device plugin lists what it finds.
On a node without an inventory, only `allocatable` shrinks.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec.structs import replace as replace_fields

from config.clusterfile.model import DescribedFault
from config.clusterfile.reading import ClusterFile, node_manifests, pod_manifests
from config.protocol import inventory, names, quantity
from config.protocol.inventory import Card, Health, Inventory
from config.protocol.quantity import QuantityError
from config.settings.mistakes import ConfigurationError, Mistake
from scheduler.kube.defaults import decoded, new_node
from scheduler.kube.objects import Node, PodObject, Quantities
from scheduler.pods.gpu_request import ResourceNames

# Errors of an application, not of the card. Source: NVIDIA k8s-device-plugin, internal/rm/health.go, the XIDs that it
# does not count as a failure of the device; their meaning: NVIDIA, "XID Errors", catalog.
APPLICATION_XIDS: Final = frozenset({13, 31, 43, 45, 68, 109})


class Condition(Enum):
    """Condition of a card; see the module."""

    HEALTHY = auto()
    UNHEALTHY = auto()
    LOST = auto()


@dataclass(frozen=True, slots=True)
class CardState:
    """State of a card. reason: why it is UNHEALTHY, one word as in the inventory; "" otherwise."""

    condition: Condition
    reason: str = ""


HEALTHY: Final = CardState(Condition.HEALTHY)
LOST: Final = CardState(Condition.LOST)


def after_xid(state: CardState, xid: int) -> CardState:
    """Return the state of a card after the driver's error `xid`."""
    if xid in APPLICATION_XIDS or state.condition is Condition.LOST:
        return state
    return CardState(Condition.UNHEALTHY, f"xid-{xid}")


def card_named(node: Node, name: str, resources: ResourceNames) -> Card | None:
    """Return the card with that index or UUID in `node`'s inventory, or None.

    On a node without an inventory: one of its equal cards, with only an index and units.
    """
    cards = _inventory(node)
    if cards is not None:
        return next((card for card in cards.cards if name in {str(card.index), card.uuid}), None)
    capacity = node.status.capacity
    count = _amount(capacity, resources.gpu_count)
    if not name.isdecimal() or int(name) >= count:
        return None
    return Card(index=int(name), uuid="", model="", memory_mib=0, units=_amount(capacity, resources.gpu_mem) // count)


def with_cards(node: Node, states: Mapping[int, CardState], resources: ResourceNames) -> Node:
    """Return `node` with the given states of the cards with these indexes; all others stay as in `node`.

    node: as described in the file; for cards in `states`, the health there is ignored.
    """
    cards = [card for index in states if (card := card_named(node, str(index), resources)) is not None]
    described = _inventory(node)
    unhealthy = {card.index for card in cards if described is not None and card.health is Health.UNHEALTHY}
    healthy = {card.index for card in cards if states[card.index].condition is Condition.HEALTHY}
    lost = {card.index for card in cards if states[card.index].condition is Condition.LOST}
    gained = sum(card.units for card in cards if card.index in unhealthy & healthy)
    missing = sum(card.units for card in cards if card.index not in unhealthy | healthy)
    allocatable = _plus(node.status.allocatable, resources.gpu_mem, gained - missing)
    capacity, metadata = node.status.capacity, node.metadata
    if described is not None:
        capacity = _plus(capacity, resources.gpu_mem, -sum(card.units for card in cards if card.index in lost))
        capacity = _plus(capacity, resources.gpu_count, -len(lost))
        allocatable = _plus(allocatable, resources.gpu_count, -len(lost))
        annotations = (metadata.annotations or {}) | {names.INVENTORY: _changed(described, states)}
        metadata = replace_fields(metadata, annotations=annotations)
    return replace_fields(
        node,
        metadata=metadata,
        status=replace_fields(node.status, allocatable=allocatable, capacity=capacity),
    )


def _changed(described: Inventory, states: Mapping[int, CardState]) -> str:
    cards = [_card(card, states[card.index]) if card.index in states else card for card in described.cards]
    return inventory.encode(replace(described, cards=tuple(card for card in cards if card is not None)))


def _card(card: Card, state: CardState) -> Card | None:
    match state.condition:
        case Condition.HEALTHY:
            return replace(card, health=Health.HEALTHY, reason="")
        case Condition.UNHEALTHY:
            return replace(card, health=Health.UNHEALTHY, reason=state.reason)
        case Condition.LOST:
            return None


def _inventory(node: Node) -> Inventory | None:
    """Return the inventory; None also if its text is unreadable, because the scheduler itself reports that error."""
    text = (node.metadata.annotations or {}).get(names.INVENTORY)
    try:
        return None if text is None else inventory.decode(text)
    except inventory.InventoryError:
        return None


def _amount(quantities: Quantities | None, name: str) -> int:
    return quantity.whole(str((quantities or {}).get(name, 0)))


def _plus(quantities: Quantities | None, name: str, units: int) -> Quantities | None:
    """Add `units`, but not below 0; a missing quantity stays missing."""
    if quantities is None or name not in quantities or units == 0:
        return quantities
    return quantities | {name: str(max(0, _amount(quantities, name) + units))}


K = TypeVar("K", Node, PodObject)


@dataclass(frozen=True, slots=True)
class PodComes:
    """A user creates a pod. runs_s: how long after its start it finishes; None if never."""

    at_s: float
    pod: PodObject
    runs_s: float | None


@dataclass(frozen=True, slots=True)
class NodeIs:
    """A node is created or changed. event: log line."""

    at_s: float
    node: Node
    event: str


@dataclass(frozen=True, slots=True)
class NodeGoes:
    """A node is deleted, with its pods. event: log line."""

    at_s: float
    name: str
    event: str


Step: TypeAlias = PodComes | NodeIs | NodeGoes

_NODES_AND_FAULTS_FIRST: Final = PodComes  # at the same time


def timeline(cluster: ClusterFile, resources: ResourceNames, unit_mib: int) -> list[Step]:
    """Return every step by time, seconds from the start.

    At the same time, nodes precede faults, and faults precede pods.
    resources, unit_mib: as the scheduler is configured. Raises ConfigurationError with every object in the file that an
    API server would reject, and every fault of a missing card.
    """
    mistakes: list[Mistake] = []
    manifests = node_manifests(cluster, unit_mib, gpu_mem=resources.gpu_mem, gpu_count=resources.gpu_count)
    nodes = [new_node(node) for manifest in manifests if (node := _read(cluster, manifest, Node, mistakes)) is not None]
    fault_steps = _FaultSteps({node.metadata.name: node for node in nodes}, resources, mistakes, cluster)
    steps: list[Step] = [NodeIs(0.0, node, f"node {node.metadata.name} joins") for node in nodes]
    for fault in sorted(cluster.faults, key=lambda fault: fault.at_s):
        steps += fault_steps.take(fault)
    steps += _pods(cluster, mistakes)
    if mistakes:
        raise ConfigurationError(mistakes)
    return in_order(steps)


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Sort steps by time; ties as in `timeline`, otherwise stable."""
    return sorted(steps, key=lambda step: (step.at_s, isinstance(step, _NODES_AND_FAULTS_FIRST)))


@dataclass(slots=True)
class _FaultSteps:
    """Steps of faults, in order. described: node name -> node as in the file."""

    described: dict[str, Node]
    resources: ResourceNames
    mistakes: list[Mistake]
    cluster: ClusterFile
    states: dict[str, dict[int, CardState]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def take(self, fault: DescribedFault) -> Iterator[Step]:
        """Yield the steps of a fault; none if it changes nothing, such as a card fault on a deleted node."""
        if fault.node not in self.described:  # unreadable, and listed among the mistakes
            return
        if fault.card is None:
            yield from self._whole_node(fault)
            return
        try:
            step = self._card(fault)
        except QuantityError:
            return  # in the node's totals; the scheduler will report it
        if step is not None:
            yield step

    def _whole_node(self, fault: DescribedFault) -> Iterator[Step]:
        if fault.lost and fault.node not in self.gone:
            self.gone.add(fault.node)
            yield NodeGoes(fault.at_s, fault.node, f"node {fault.node} is lost")
        elif fault.back:
            self.gone.discard(fault.node)
            self.states.pop(fault.node, None)
            event = f"node {fault.node} is back, all its cards healthy"
            yield NodeIs(fault.at_s, self.described[fault.node], event)

    def _card(self, fault: DescribedFault) -> NodeIs | None:
        card = card_named(self.described[fault.node], str(fault.card), self.resources)
        if card is None:
            message = f"node {fault.node} has no card {fault.card}"
            source = self.cluster.source_of(fault, f"fault at {fault.at_s:g} s")
            self.mistakes.append(Mistake("", source, message))
        if card is None or fault.node in self.gone:
            return None
        states, index = self.states.setdefault(fault.node, {}), card.index
        where = f"card {index} of node {fault.node}"
        before = states.get(index, HEALTHY)
        if fault.xid is not None:
            states[index] = after_xid(before, fault.xid)
            harmless = fault.xid in APPLICATION_XIDS
            event = f"{where} reports XID {fault.xid}: " + ("an application error" if harmless else "unhealthy")
        elif fault.lost:
            states[index], event = LOST, f"{where} is lost"
        else:
            states[index], event = HEALTHY, f"{where} is back"
        return NodeIs(fault.at_s, with_cards(self.described[fault.node], states, self.resources), event)


def _pods(cluster: ClusterFile, mistakes: list[Mistake]) -> Iterable[PodComes]:
    wrong: set[int] = set()  # ids of specs: the pods of a group share a spec, and so its mistakes
    for timed in pod_manifests(cluster):
        spec = id(timed.manifest.get("spec"))
        of_pod: list[Mistake] = []
        pod = _read(cluster, timed.manifest, PodObject, of_pod)
        if pod is not None:
            yield PodComes(timed.at_s, pod, timed.runs_s)
        elif spec not in wrong:
            wrong.add(spec)
            mistakes += of_pod


def _read(cluster: ClusterFile, manifest: dict[str, Any], kind: type[K], mistakes: list[Mistake]) -> K | None:
    try:
        return decoded(manifest, kind)
    except msgspec.ValidationError as error:
        metadata = manifest["metadata"]
        label = "/".join(metadata[key] for key in ("namespace", "name") if metadata.get(key))
        message, _, path = str(error).partition(" - at `$.")
        source = cluster.source_of(_entry(cluster, kind, metadata), f"{kind.API_KIND or kind.__name__} {label}")
        mistakes.append(Mistake(path.removesuffix("`"), source, message.lower()))
        return None


def _entry(cluster: ClusterFile, kind: type[Node | PodObject], metadata: Mapping[str, str]) -> object:
    """Return the entry that describes this object."""
    found: Iterator[object] = (
        (group for group in cluster.nodes if metadata["name"] in group.node_names())
        if kind is Node
        else (
            group
            for group in cluster.pods
            if metadata["name"] in group.pod_names() and metadata["namespace"] == group.pod.metadata.namespace
        )
    )
    return next(found, None)
