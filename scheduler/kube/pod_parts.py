"""Counts of the parts of a pod's specification that its author may repeat, and the pod without these parts. Pure."""

from collections.abc import Iterator
from itertools import chain

from msgspec.structs import replace

from scheduler.kube.objects import (
    Affinity,
    Container,
    ContainerStatus,
    LabelSelector,
    NodeAffinityTerms,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodObject,
    PodSpec,
    Quantities,
    Requirement,
    ResourceRequirements,
)


def _all_containers(spec: PodSpec) -> Iterator[Container]:
    return chain(spec.init_containers, spec.containers)


def containers(pod: PodObject) -> int:
    """Number of app and init containers."""
    return len(pod.spec.containers) + len(pod.spec.init_containers)


def resource_names(pod: PodObject) -> int:
    """Number of distinct resource names over all containers and the pod as a whole."""
    spec = pod.spec
    named: set[str] = {*(spec.overhead or ())}
    for of in (spec.resources, *(container.resources for container in _all_containers(spec))):
        if of is not None:
            named.update(of.requests or ())
            named.update(of.limits or ())
    return len(named)


def _written_node_terms(pod: PodObject) -> Iterator[NodeSelectorTerm]:
    affinity = (pod.spec.affinity or Affinity()).node_affinity or NodeAffinityTerms()
    required = affinity.required_during_scheduling_ignored_during_execution
    if required is not None:
        yield from required.node_selector_terms
    yield from (term.preference for term in affinity.preferred_during_scheduling_ignored_during_execution)


def node_terms(pod: PodObject) -> int:
    """Number of required and preferred node affinity terms."""
    return sum(1 for _ in _written_node_terms(pod))


def node_requirements(pod: PodObject) -> int:
    """Number of requirements in the node selector and in all node affinity terms."""
    written = sum(len(term.match_expressions) + len(term.match_fields) for term in _written_node_terms(pod))
    return written + len(pod.spec.node_selector or ())


def node_keys(pod: PodObject) -> int:
    """Number of distinct label keys in the node selector and in all node affinity terms."""
    terms = _written_node_terms(pod)
    return len({*(pod.spec.node_selector or ()), *(one.key for term in terms for one in term.match_expressions)})


def node_values(pod: PodObject) -> int:
    """Number of values in all node affinity terms."""
    terms = _written_node_terms(pod)
    return sum(len(one.values) for term in terms for one in chain(term.match_expressions, term.match_fields))


def _written_pod_terms(pod: PodObject) -> Iterator[PodAffinityTerm]:
    affinity = pod.spec.affinity or Affinity()
    for side in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if side is not None:
            yield from side.required_during_scheduling_ignored_during_execution
            yield from (term.pod_affinity_term for term in side.preferred_during_scheduling_ignored_during_execution)


def _selectors(pod: PodObject) -> Iterator[LabelSelector]:
    for term in _written_pod_terms(pod):
        yield from (selector for selector in (term.label_selector, term.namespace_selector) if selector is not None)


def _spread_selectors(pod: PodObject) -> Iterator[LabelSelector]:
    written = (constraint.label_selector for constraint in pod.spec.topology_spread_constraints)
    return (selector for selector in written if selector is not None)


def pod_terms(pod: PodObject) -> int:
    """Number of affinity and anti-affinity terms, required and preferred."""
    return sum(1 for _ in _written_pod_terms(pod))


def pod_requirements(pod: PodObject) -> int:
    """Number of requirements of all selectors in the pod's affinity and anti-affinity terms."""
    return sum(map(_requirements, _selectors(pod)))


def pod_values(pod: PodObject) -> int:
    """Number of values of all selectors in the pod's affinity terms, plus the namespaces that these terms name."""
    requirements: Iterator[Requirement] = chain.from_iterable(one.match_expressions for one in _selectors(pod))
    return sum(len(one.values) for one in requirements) + sum(len(term.namespaces) for term in _written_pod_terms(pod))


def spread_constraints(pod: PodObject) -> int:
    """Number of hard and soft topology spread constraints."""
    return len(pod.spec.topology_spread_constraints)


def spread_requirements(pod: PodObject) -> int:
    """Number of requirements of all selectors of the spread constraints, including those that matchLabelKeys adds."""
    keys = sum(len(constraint.match_label_keys) for constraint in pod.spec.topology_spread_constraints)
    return keys + sum(map(_requirements, _spread_selectors(pod)))


def spread_values(pod: PodObject) -> int:
    """Number of values of all selectors of the spread constraints."""
    return sum(len(one.values) for selector in _spread_selectors(pod) for one in selector.match_expressions)


def _requirements(selector: LabelSelector) -> int:
    return len(selector.match_labels or ()) + len(selector.match_expressions)


def image_volumes(pod: PodObject) -> int:
    """Number of image volumes."""
    return sum("image" in volume for volume in pod.spec.volumes)


def host_ports(pod: PodObject) -> int:
    """Number of host ports over all containers."""
    return sum(port.host_port > 0 for container in _all_containers(pod.spec) for port in container.ports)


def without_node_affinity(pod: PodObject) -> PodObject:
    """The pod without node affinity and node selector."""
    affinity = replace(pod.spec.affinity or Affinity(), node_affinity=NodeAffinityTerms())
    return replace(pod, spec=replace(pod.spec, affinity=affinity, node_selector=None))


def without_pod_affinity(pod: PodObject) -> PodObject:
    """The pod without pod affinity and anti-affinity."""
    affinity = replace(pod.spec.affinity or Affinity(), pod_affinity=PodAffinity(), pod_anti_affinity=PodAffinity())
    return replace(pod, spec=replace(pod.spec, affinity=affinity))


def without_ports(pod: PodObject) -> PodObject:
    """The pod without host ports."""
    spec = replace(
        pod.spec,
        containers=tuple(replace(container, ports=()) for container in pod.spec.containers),
        init_containers=tuple(replace(container, ports=()) for container in pod.spec.init_containers),
    )
    return replace(pod, spec=spec)


def without_tolerations(pod: PodObject) -> PodObject:
    """The pod without tolerations."""
    return replace(pod, spec=replace(pod.spec, tolerations=()))


def without_volumes(pod: PodObject) -> PodObject:
    """The pod without volumes."""
    return replace(pod, spec=replace(pod.spec, volumes=()))


def without_image_volumes(pod: PodObject) -> PodObject:
    """The pod without image volumes."""
    volumes = tuple(volume for volume in pod.spec.volumes if "image" not in volume)
    return replace(pod, spec=replace(pod.spec, volumes=volumes))


def without_spread(pod: PodObject) -> PodObject:
    """The pod without topology spread constraints."""
    return replace(pod, spec=replace(pod.spec, topology_spread_constraints=()))


def with_resources(pod: PodObject, kept: frozenset[str]) -> PodObject:
    """The pod with only the resources named in `kept`."""

    def amounts(of: Quantities | None) -> Quantities | None:
        return of and {name: of[name] for name in kept if name in of}

    def requirements(of: ResourceRequirements | None) -> ResourceRequirements | None:
        return of and ResourceRequirements(amounts(of.requests), amounts(of.limits))

    def container(of: Container) -> Container:
        return replace(of, resources=requirements(of.resources))

    def status(of: ContainerStatus) -> ContainerStatus:
        return replace(of, resources=requirements(of.resources), allocated_resources=amounts(of.allocated_resources))

    spec, said = pod.spec, pod.status
    return replace(
        pod,
        spec=replace(
            spec,
            containers=tuple(map(container, spec.containers)),
            init_containers=tuple(map(container, spec.init_containers)),
            overhead=amounts(spec.overhead),
            resources=requirements(spec.resources),
        ),
        status=replace(
            said,
            container_statuses=tuple(map(status, said.container_statuses)),
            init_container_statuses=tuple(map(status, said.init_container_statuses)),
        ),
    )
