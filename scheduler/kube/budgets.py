"""How much of one object is read. Every limit is here, with its reason; what is beyond it is left out, and told. Pure.

The API server takes an object of 1.5 MiB (etcd's limit on a request) with 256 KiB of annotations, and counts next to
nothing of what is in it. Each of these numbers is several times what a real workload has, and what a decision about
5,000 nodes can still afford: no decision may hold the loop for 20 ms. Two pods that are over a budget are not worse
than one: the reader of an object pays for the bytes that it decodes, and for nothing beyond the budget.

A pod that waits and is over a budget stays pending. One that has a node goes on counting: no budget ever frees what
is in use. Its containers are all counted, each with the amounts of `kept` alone where there are too many names.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from msgspec.structs import replace

from scheduler.kube.objects import (
    Affinity,
    Container,
    ContainerStatus,
    LabelSelector,
    Node,
    NodeAffinity,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    Quantities,
    Requirement,
    ResourceRequirements,
)

# Of what a pod asks, as the reader encodes it: the largest pods of real clusters have a tenth of it.
MOST_BYTES: Final = 65_536
# Of an annotation that no rule of ours reads: rules of others read short ones, `kubectl apply` writes long ones.
LONGEST_FOREIGN_VALUE: Final = 1024
# Of a selector in an annotation, as `kubectl -l` takes it: it is held against every pod of the namespace.
SELECTOR_CHARACTERS: Final = 1024
SELECTOR_REQUIREMENTS: Final = 16
SELECTOR_VALUES: Final = 64  # of one requirement
_MOST_LABELS: Final = 128  # every label that a selector names is looked up in them, and they are kept
_MOST_ANNOTATIONS: Final = 64  # they are kept, as the labels are
_MOST_GATES: Final = 64  # all of them are in one message
BYTES: Final = "bytes of requests, selectors and terms"


@dataclass(frozen=True, slots=True)
class Budget:
    """At most so many of something in a pod. what: in the plural. without: the pod less what `count` counts."""

    what: str
    most: int
    count: Callable[[Pod], int]
    without: Callable[[Pod], Pod]


def excess(what: str, count: int, most: int) -> str:
    """For people: `5000 tolerations (at most 64)`."""
    return f"{count} {what} (at most {most})"


class PodBudgets:
    """Of one pod's specification, in the order in which they are told."""

    def __init__(self, kept: Iterable[str]) -> None:
        """kept: resources that a pod with too many names is still counted with, beside cpu, memory and storage."""
        self._kept = frozenset(("cpu", "memory", "ephemeral-storage", *kept))
        self._table = (
            # A pod of a service mesh has a dozen. All are summed up, and each has a place in the allocation.
            Budget("containers", 256, _containers, lambda pod: pod),
            # A node of many devices offers two dozen. A waiting pod is compared with every node in each of them.
            Budget("resource names", 32, _resource_names, self._kept_alone),
            # An array of all nodes is worked out for each term and for each requirement.
            Budget("node affinity terms", 64, _node_terms, _without_node_affinity),
            Budget("node selector requirements", 128, _node_requirements, _without_node_affinity),
            # A column of all nodes is made at the first question about a key.
            Budget("keys in node selectors", 16, _node_keys, _without_node_affinity),
            # As many host names as a list by hand may have. Each is looked up once per class of pods.
            Budget("node selector values", 4096, _node_values, _without_node_affinity),
            # The terms of a pod that runs are held against every pod that comes after it.
            Budget("pod affinity terms", 64, _pod_terms, _without_pod_affinity),
            Budget("pod affinity requirements", 128, _pod_requirements, _without_pod_affinity),
            Budget("pod affinity values", 1024, _pod_values, _without_pod_affinity),
            # Each is held against each taint of each different set of taints.
            Budget("tolerations", 64, lambda pod: len(pod.spec.tolerations), _spec(tolerations=())),
            Budget(
                "topology spread constraints",
                64,
                lambda pod: len(pod.spec.topology_spread_constraints),
                _spec(topology_spread_constraints=()),
            ),
            # Every node on which one of them is taken is looked at.
            Budget("host ports", 128, _host_ports, _without_ports),
        )

    def fitted(self, pod: Pod, size: int) -> tuple[Pod, tuple[str, ...]]:
        """The pod less what is over a budget, and what that was. size: of what it asks, in bytes."""
        found = []
        for budget in self._table:
            count = budget.count(pod)
            if count > budget.most:
                found.append(excess(budget.what, count, budget.most))
                pod = budget.without(pod)
        if size > MOST_BYTES and not found:
            found.append(excess(BYTES, size, MOST_BYTES))
            pod = self._requests_alone(pod)
        return pod, tuple(found)

    def _kept_alone(self, pod: Pod) -> Pod:
        spec = pod.spec
        spec = replace(
            spec,
            containers=tuple(map(self._container, spec.containers)),
            init_containers=tuple(map(self._container, spec.init_containers)),
            overhead=self._amounts(spec.overhead),
            resources=self._requirements(spec.resources),
        )
        status = replace(
            pod.status,
            container_statuses=tuple(map(self._status, pod.status.container_statuses)),
            init_container_statuses=tuple(map(self._status, pod.status.init_container_statuses)),
        )
        return replace(pod, spec=spec, status=status)

    def _requests_alone(self, pod: Pod) -> Pod:
        pod = self._kept_alone(_without_ports(_without_pod_affinity(_without_node_affinity(pod))))
        return _spec(tolerations=(), topology_spread_constraints=())(pod)

    def _container(self, container: Container) -> Container:
        return replace(container, resources=self._requirements(container.resources))

    def _status(self, of: ContainerStatus) -> ContainerStatus:
        resources, admitted = self._requirements(of.resources), self._amounts(of.allocated_resources)
        return replace(of, resources=resources, allocated_resources=admitted)

    def _requirements(self, of: ResourceRequirements | None) -> ResourceRequirements | None:
        return of and ResourceRequirements(self._amounts(of.requests), self._amounts(of.limits))

    def _amounts(self, of: Quantities | None) -> Quantities | None:
        return of and {name: of[name] for name in self._kept if name in of}


# What nodes really have: feature discovery writes some 200 labels, and a pod may ask for the column of any of them; a
# card in many MIG profiles offers two dozen names, and each is a column for all nodes.
_NODE_BUDGETS: Final[Sequence[tuple[str, int, Callable[[Node], int]]]] = (
    ("labels", 1024, lambda node: len(node.metadata.labels or ())),
    ("taints", 64, lambda node: len(node.spec.taints)),
    ("resources", 128, lambda node: len(node.status.allocatable or ())),
)


def node_excess(node: Node) -> tuple[str, ...]:
    """What of a node is more than is read."""
    counted = ((what, count(node), most) for what, most, count in _NODE_BUDGETS)
    return tuple(excess(what, count, most) for what, count, most in counted if count > most)


def is_slim(pod: Pod) -> bool:
    """Whether nothing of the pod's labels, annotations and gates has to be left out. For nearly every pod it is so."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    return (
        (not labels or len(labels) <= _MOST_LABELS)
        and (
            not annotations
            or (len(annotations) <= _MOST_ANNOTATIONS and max(map(len, annotations.values())) <= LONGEST_FOREIGN_VALUE)
        )
        and len(pod.spec.scheduling_gates) <= _MOST_GATES
    )


def slimmed(pod: Pod, *, labels: frozenset[str], annotations: frozenset[str]) -> tuple[Pod, tuple[str, ...]]:
    """The pod with no more labels, annotations and gates than are kept, and what of them was over a budget.

    labels, annotations: those that are kept whatever else there is.
    """
    meta, found = pod.metadata, []
    kept_labels, kept = meta.labels or {}, meta.annotations or {}
    if len(kept_labels) > _MOST_LABELS:
        found.append(excess("labels", len(kept_labels), _MOST_LABELS))
        kept_labels = {key: kept_labels[key] for key in labels if key in kept_labels}
    kept = {key: text for key, text in kept.items() if len(text) <= LONGEST_FOREIGN_VALUE or key in annotations}
    if len(kept) > _MOST_ANNOTATIONS:
        found.append(excess("annotations", len(kept), _MOST_ANNOTATIONS))
        kept = {key: kept[key] for key in annotations if key in kept}
    gates = pod.spec.scheduling_gates
    if len(gates) > _MOST_GATES:
        found.append(excess("scheduling gates", len(gates), _MOST_GATES))
        gates = gates[:_MOST_GATES]
    meta = replace(meta, labels=kept_labels, annotations=kept)
    return replace(pod, metadata=meta, spec=replace(pod.spec, scheduling_gates=gates)), tuple(found)


def _all_containers(spec: PodSpec) -> Iterator[Container]:
    return chain(spec.init_containers, spec.containers)


def _containers(pod: Pod) -> int:
    return len(pod.spec.containers) + len(pod.spec.init_containers)


def _resource_names(pod: Pod) -> int:
    spec = pod.spec
    named: set[str] = {*(spec.overhead or ())}
    for of in (spec.resources, *(container.resources for container in _all_containers(spec))):
        if of is not None:
            named.update(of.requests or ())
            named.update(of.limits or ())
    return len(named)


def _written_node_terms(pod: Pod) -> Iterator[NodeSelectorTerm]:
    affinity = (pod.spec.affinity or Affinity()).node_affinity or NodeAffinity()
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None:
        yield from required.node_selector_terms
    yield from (term.preference for term in affinity.preferred_during_scheduling_ignored_during_execution)


def _node_terms(pod: Pod) -> int:
    return sum(1 for _ in _written_node_terms(pod))


def _node_requirements(pod: Pod) -> int:
    written = sum(len(term.match_expressions) + len(term.match_fields) for term in _written_node_terms(pod))
    return written + len(pod.spec.node_selector or ())


def _node_keys(pod: Pod) -> int:
    terms = _written_node_terms(pod)
    return len({*(pod.spec.node_selector or ()), *(one.key for term in terms for one in term.match_expressions)})


def _node_values(pod: Pod) -> int:
    terms = _written_node_terms(pod)
    return sum(len(one.values) for term in terms for one in chain(term.match_expressions, term.match_fields))


def _written_pod_terms(pod: Pod) -> Iterator[PodAffinityTerm]:
    affinity = pod.spec.affinity or Affinity()
    for side in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if side is not None:
            yield from side.required_during_scheduling_ignored_during_execution
            yield from (term.pod_affinity_term for term in side.preferred_during_scheduling_ignored_during_execution)


def _selectors(pod: Pod) -> Iterator[LabelSelector]:
    for term in _written_pod_terms(pod):
        yield from (selector for selector in (term.label_selector, term.namespace_selector) if selector is not None)


def _pod_terms(pod: Pod) -> int:
    return sum(1 for _ in _written_pod_terms(pod))


def _pod_requirements(pod: Pod) -> int:
    return sum(len(selector.match_labels or ()) + len(selector.match_expressions) for selector in _selectors(pod))


def _pod_values(pod: Pod) -> int:
    requirements: Iterator[Requirement] = chain.from_iterable(one.match_expressions for one in _selectors(pod))
    return sum(len(one.values) for one in requirements) + sum(len(term.namespaces) for term in _written_pod_terms(pod))


def _host_ports(pod: Pod) -> int:
    return sum(port.host_port > 0 for container in _all_containers(pod.spec) for port in container.ports)


def _spec(**fields: object) -> Callable[[Pod], Pod]:
    return lambda pod: replace(pod, spec=replace(pod.spec, **fields))


def _without_node_affinity(pod: Pod) -> Pod:
    affinity = replace(pod.spec.affinity or Affinity(), node_affinity=NodeAffinity())
    return _spec(affinity=affinity, node_selector=None)(pod)


def _without_pod_affinity(pod: Pod) -> Pod:
    affinity = replace(pod.spec.affinity or Affinity(), pod_affinity=PodAffinity(), pod_anti_affinity=PodAffinity())
    return _spec(affinity=affinity)(pod)


def _without_ports(pod: Pod) -> Pod:
    spec = pod.spec
    return _spec(
        containers=tuple(replace(container, ports=()) for container in spec.containers),
        init_containers=tuple(replace(container, ports=()) for container in spec.init_containers),
    )(pod)
