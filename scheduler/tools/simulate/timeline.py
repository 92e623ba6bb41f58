"""A cluster file -> the external steps of a simulation, by time. Pure.

Steps are nodes, card faults, and created pods. A pod's end depends on its placement: see `player.py`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from config.clusterfile.model import DescribedFault
from config.clusterfile.reading import ClusterFile, node_manifests, pod_manifests
from config.protocol.quantity import QuantityError
from config.settings.mistakes import ConfigurationError, Mistake
from scheduler.kube.defaults import decoded, new_node
from scheduler.kube.objects import Node, PodObject
from scheduler.pods.gpu_request import ResourceNames
from scheduler.tools.simulate.card_faults import (
    APPLICATION_XIDS,
    HEALTHY,
    LOST,
    CardState,
    after_xid,
    card_named,
    with_cards,
)

K = TypeVar("K", Node, PodObject)


@dataclass(frozen=True, slots=True)
class PodComes:
    """A user creates a pod. runs_s: how long after its start it finishes; None: never."""

    at_s: float
    pod: PodObject
    runs_s: float | None


@dataclass(frozen=True, slots=True)
class NodeIs:
    """A node exists with these values, new or changed. event: log line."""

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
    """Every step by time, seconds from the start; at the same time nodes come first, then faults, then pods.

    resources, unit_mib: as the scheduler is configured. Raises ConfigurationError with every object in the file that an
    API server would reject, and every fault of a missing card.
    """
    mistakes: list[Mistake] = []
    manifests = node_manifests(cluster, unit_mib, gpu_mem=resources.gpu_mem, gpu_count=resources.gpu_count)
    nodes = [new_node(node) for manifest in manifests if (node := _read(cluster, manifest, Node, mistakes)) is not None]
    fault_steps = _FaultSteps({node.metadata.name: node for node in nodes}, resources, mistakes, cluster.source_of)
    steps: list[Step] = [NodeIs(0.0, node, f"node {node.metadata.name} joins") for node in nodes]
    for fault in sorted(cluster.faults, key=lambda fault: fault.at_s):
        steps += fault_steps.take(fault)
    steps += _pods(cluster, mistakes)
    if mistakes:
        raise ConfigurationError(mistakes)
    return in_order(steps)


def in_order(steps: Iterable[Step]) -> list[Step]:
    """Steps by time; ties as in `timeline`, otherwise stable."""
    return sorted(steps, key=lambda step: (step.at_s, isinstance(step, _NODES_AND_FAULTS_FIRST)))


@dataclass(slots=True)
class _FaultSteps:
    """Steps of faults, in order. described: node name -> as in the file."""

    described: dict[str, Node]
    resources: ResourceNames
    mistakes: list[Mistake]
    source_of: Callable[[DescribedFault, str], str]
    states: dict[str, dict[int, CardState]] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)

    def take(self, fault: DescribedFault) -> Iterator[Step]:
        """Steps of a fault; none if it changes nothing, such as a card fault on a deleted node."""
        if fault.node not in self.described:  # unreadable, and among the mistakes
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
            source = self.source_of(fault, f"fault at {fault.at_s:g} s")
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
    wrong: set[int] = set()  # ids of specs: the pods of a group share one, and so its mistake
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
    """The entry that describes this object."""
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
