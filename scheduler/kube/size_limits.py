"""The limit on the size of an object's scheduling terms. Pure.

The API server accepts an object of 1.5 MiB (etcd's limit on a request), and limits almost none of its counts. Each term
costs an array over all nodes, or a comparison with all pods. So one limit, several times the size of real workloads,
keeps every decision about 5,000 nodes below 20 ms. An object over it costs no more than decoding its bytes.
A waiting pod over the limit stays Pending, and none of its requests are read. A pod with a node keeps counting: the
limit never frees resources in use. All its containers count, with cpu, memory, storage and GPUs only.
Why: docs/develop/decisions/0010-limit-how-much-of-an-object-is-read.md.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from scheduler.kube.objects import (
    Affinity,
    Container,
    ContainerStatus,
    Node,
    PodObject,
    Quantities,
    ResourceRequirements,
)

LARGEST: Final = 128
TOO_LARGE: Final = f"scheduling terms larger than {LARGEST}"
# Each counts as one term. A hand-written list may have 2,000 host names.
_VALUES: Final = 32
_BYTES: Final = 512
# For an annotation that no rule of ours reads: other rules read short ones, `kubectl apply` writes long ones.
LONGEST_FOREIGN_VALUE: Final = 1024


class TooLargeError(ValueError):
    """An object is over the limit, and counts as missing."""

    def __init__(self) -> None:
        super().__init__(TOO_LARGE)


def is_too_large(*parts: object) -> bool:
    """Whether the terms in these parts of an object are over the limit."""
    return sum(map(_size, parts)) > LARGEST


def _size(part: object) -> float:
    if isinstance(part, Struct):
        return sum(_size(getattr(part, field)) for field in part.__struct_fields__)
    if isinstance(part, dict):
        return len(part)
    if not isinstance(part, tuple):
        return 0.0
    return len(part) / _VALUES if part and isinstance(part[0], str) else len(part) + sum(map(_size, part))


def is_pod_too_large(pod: PodObject, size_bytes: int) -> bool:
    """Whether the pod is over the limit. Only counts its terms. size_bytes: encoded size of its requests."""
    size = size_bytes / _BYTES
    if size > LARGEST:
        return True
    spec = pod.spec
    containers = (*spec.init_containers, *spec.containers)
    size += len(containers) + len(spec.volumes) + len(_resource_names(pod))
    size += sum(port.host_port > 0 for container in containers for port in container.ports)
    terms = (spec.node_selector, spec.affinity, spec.tolerations, spec.topology_spread_constraints)
    return size + sum(map(_size, terms)) > LARGEST


def _resource_names(pod: PodObject) -> set[str]:
    spec = pod.spec
    named: set[str] = {*(spec.overhead or ())}
    for of in (spec.resources, *(container.resources for container in (*spec.init_containers, *spec.containers))):
        if of is not None:
            named.update(of.requests or (), of.limits or ())
    return named


def kept_resources(gpu: Iterable[str]) -> frozenset[str]:
    """Resources that still count for a pod over the limit. gpu: the configured names of GPU resources."""
    return frozenset(("cpu", "memory", "ephemeral-storage", *gpu))


def without_terms(pod: PodObject, kept: frozenset[str]) -> PodObject:
    """The pod with only the resources named in `kept`. All containers are kept: each may hold memory."""

    def amounts(of: Quantities | None) -> Quantities | None:
        return of and {name: of[name] for name in kept if name in of}

    def requirements(of: ResourceRequirements | None) -> ResourceRequirements | None:
        return of and ResourceRequirements(amounts(of.requests), amounts(of.limits))

    def container(of: Container) -> Container:
        return replace(of, resources=requirements(of.resources), ports=())

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
            node_selector=None,
            affinity=Affinity(),
            tolerations=(),
            topology_spread_constraints=(),
            volumes=(),
        ),
        status=replace(
            said,
            container_statuses=tuple(map(status, said.container_statuses)),
            init_container_statuses=tuple(map(status, said.init_container_statuses)),
        ),
    )


# Sizes of real nodes: feature discovery writes some 200 labels, and a pod may require the column of any of them. A card
# in many MIG profiles offers two dozen names, and each is a column over all nodes.
NODE_LIMITS: Final[Sequence[tuple[str, int, Callable[[Node], int]]]] = (
    ("labels", 1024, lambda node: len(node.metadata.labels or ())),
    ("taints", 64, lambda node: len(node.spec.taints)),
    ("resources", 128, lambda node: len(node.status.allocatable or ())),
)


def node_excess(node: Node) -> tuple[str, ...]:
    """Parts of a node over a limit, as text for users: `5000 taints (at most 64)`."""
    counted = ((what, count(node), most) for what, most, count in NODE_LIMITS)
    return tuple(f"{count} {what} (at most {most})" for what, count, most in counted if count > most)


def is_slim(pod: PodObject) -> bool:
    """Whether labels, annotations and gates are within the limit and short, as they nearly always are."""
    labels, annotations = pod.metadata.labels or (), pod.metadata.annotations or {}
    return len(labels) + len(annotations) + len(pod.spec.scheduling_gates) <= LARGEST and (
        not annotations or max(map(len, annotations.values())) <= LONGEST_FOREIGN_VALUE
    )


def slimmed(pod: PodObject, *, labels: frozenset[str], annotations: frozenset[str]) -> tuple[PodObject, bool]:
    """The pod without long annotations; and whether it is over the limit, so that only the keys below are kept.

    labels, annotations: keys that are always kept.
    """
    meta, gates = pod.metadata, pod.spec.scheduling_gates
    kept_labels = meta.labels or {}
    written = (meta.annotations or {}).items()
    kept = {key: text for key, text in written if len(text) <= LONGEST_FOREIGN_VALUE or key in annotations}
    # Our own Binding adds some of the annotations that are always kept: it must not take a pod over the limit.
    too_large = len(kept_labels) + len(kept.keys() - annotations) + len(gates) > LARGEST
    if too_large:
        kept_labels = {key: kept_labels[key] for key in labels if key in kept_labels}
        kept = {key: kept[key] for key in annotations if key in kept}
    meta = replace(meta, labels=kept_labels, annotations=kept)
    return replace(pod, metadata=meta, spec=replace(pod.spec, scheduling_gates=gates[:LARGEST])), too_large
