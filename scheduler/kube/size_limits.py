"""Limits on the size of one object, with their reasons; parts over a limit are left out and reported. Pure.

The API server accepts an object of 1.5 MiB (etcd's limit on a request) with 256 KiB of annotations, and limits almost
none of its counts. Each of these limits is several times the size of real workloads, and small enough for decisions
about 5,000 nodes: no decision may block the event loop for 20 ms. An object over a limit costs no more than decoding
its bytes, because nothing beyond the limit is read.
A waiting pod over a limit stays Pending, and none of its requests are read. A pod with a node keeps counting: no limit
ever frees resources in use. All its containers count; if there are too many resource names, they count with cpu,
memory, storage and GPUs only.
Why: docs/develop/decisions/0010-limit-how-much-of-an-object-is-read.md.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from msgspec.structs import replace

from scheduler.kube import pod_parts
from scheduler.kube.objects import Node, PodObject

# Encoded size of a pod's requests: the largest pods of real clusters have a tenth of this.
MOST_BYTES: Final = 65_536
# For an annotation that no rule of ours reads: other rules read short ones, `kubectl apply` writes long ones.
LONGEST_FOREIGN_VALUE: Final = 1024
# A node attaches some forty disks; each claim of a pod is looked up at every attempt.
MOST_VOLUMES: Final = 128
# For a selector in an annotation, in the format of `kubectl -l`: it is compared with every pod of the namespace.
SELECTOR_CHARACTERS: Final = 1024
SELECTOR_REQUIREMENTS: Final = 16
SELECTOR_VALUES: Final = 64  # per requirement
_MOST_LABELS: Final = 128  # stored; every label that a selector names is looked up in them
_MOST_ANNOTATIONS: Final = 64  # stored, like the labels
_MOST_GATES: Final = 64  # one message lists all of them
# A node with many devices offers two dozen. A waiting pod is compared with every node for each of them.
_MOST_RESOURCES: Final = 32


class ExcessError(ValueError):
    """An object is over a limit, and counts as missing. The message is from `excess`."""


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """A limit on the number of some parts of a pod.

    what: plural noun for the parts. count: counts them. without: returns the pod without them.
    """

    what: str
    most: int
    count: Callable[[PodObject], int]
    without: Callable[[PodObject], PodObject]


POD_LIMITS: Final = (
    # A pod of a service mesh has a dozen. All are added up, and each has an entry in the allocation.
    SizeLimit("containers", 256, pod_parts.containers, lambda pod: pod),
    # Each term and each requirement costs an array over all nodes.
    SizeLimit("node affinity terms", 64, pod_parts.node_terms, pod_parts.without_node_affinity),
    SizeLimit("node selector requirements", 128, pod_parts.node_requirements, pod_parts.without_node_affinity),
    # The first query for a key creates a column over all nodes.
    SizeLimit("keys in node selectors", 16, pod_parts.node_keys, pod_parts.without_node_affinity),
    # A hand-written list may have this many host names. Each is looked up once per class of pods.
    SizeLimit("node selector values", 2048, pod_parts.node_values, pod_parts.without_node_affinity),
    # The terms of a running pod are compared with every later pod.
    SizeLimit("pod affinity terms", 64, pod_parts.pod_terms, pod_parts.without_pod_affinity),
    SizeLimit("pod affinity requirements", 128, pod_parts.pod_requirements, pod_parts.without_pod_affinity),
    SizeLimit("pod affinity values", 1024, pod_parts.pod_values, pod_parts.without_pod_affinity),
    # Each is compared with each taint of each distinct set of taints.
    SizeLimit("tolerations", 64, lambda pod: len(pod.spec.tolerations), pod_parts.without_tolerations),
    # Each decision adds up the pods of every domain for each constraint.
    SizeLimit("topology spread constraints", 8, pod_parts.spread_constraints, pod_parts.without_spread),
    # Each constraint counts the pods that match its selector, and is compared with every pod that is added or removed.
    SizeLimit("topology spread requirements", 32, pod_parts.spread_requirements, pod_parts.without_spread),
    SizeLimit("topology spread values", 256, pod_parts.spread_values, pod_parts.without_spread),
    # Every node that has one of these images is examined.
    SizeLimit("image volumes", 64, pod_parts.image_volumes, pod_parts.without_image_volumes),
    # Every node that uses one of these ports is examined.
    SizeLimit("host ports", 128, pod_parts.host_ports, pod_parts.without_ports),
    SizeLimit("volumes", MOST_VOLUMES, lambda pod: len(pod.spec.volumes), pod_parts.without_volumes),
)


def excess(what: str, count: int, most: int) -> str:
    """Text for users: `5000 tolerations (at most 64)`."""
    return f"{count} {what} (at most {most})"


def kept_resources(gpu: Iterable[str]) -> frozenset[str]:
    """Resources that still count for a pod with too many names. gpu: the configured names of GPU resources."""
    return frozenset(("cpu", "memory", "ephemeral-storage", *gpu))


@dataclass(frozen=True, slots=True)
class Excess:
    """Parts of one kind that are over a limit in a pod. told: text for users. without: returns the pod without them."""

    told: str
    without: Callable[[PodObject], PodObject]


def excesses(pod: PodObject, size: int, kept: frozenset[str]) -> tuple[Excess, ...]:
    """Parts of the pod over a limit. Only counts them: no amount, term or value is read.

    size: size of its requests, in bytes. kept: see `kept_resources`, for a pod with too many names.
    """
    found: list[Excess] = []
    if (names := pod_parts.resource_names(pod)) > _MOST_RESOURCES:
        found.append(Excess(excess("resource names", names, _MOST_RESOURCES), partial(_with_resources, kept)))
    for limit in POD_LIMITS:
        if any(limit.without is one.without for one in found):
            continue
        if (count := limit.count(pod)) > limit.most:
            found.append(Excess(excess(limit.what, count, limit.most), limit.without))
    if size > MOST_BYTES and not found:
        told = excess("bytes of requests, selectors and terms", size, MOST_BYTES)
        found.append(Excess(told, partial(_with_resources_alone, kept)))
    return tuple(found)


def fitted(pod: PodObject, found: Iterable[Excess]) -> PodObject:
    """The pod without the parts over a limit. All containers are kept: each may hold memory."""
    for one in found:
        pod = one.without(pod)
    return pod


def _with_resources(kept: frozenset[str], pod: PodObject) -> PodObject:
    return pod_parts.with_resources(pod, kept)


def _with_resources_alone(kept: frozenset[str], pod: PodObject) -> PodObject:
    for without in {limit.without: None for limit in POD_LIMITS}:
        pod = without(pod)
    return pod_parts.with_resources(pod, kept)


# Sizes of real nodes: feature discovery writes some 200 labels, and a pod may require the column of any of them. A card
# in many MIG profiles offers two dozen names, and each is a column over all nodes.
NODE_LIMITS: Final[Sequence[tuple[str, int, Callable[[Node], int]]]] = (
    ("labels", 1024, lambda node: len(node.metadata.labels or ())),
    ("taints", 64, lambda node: len(node.spec.taints)),
    ("resources", 128, lambda node: len(node.status.allocatable or ())),
)


def node_excess(node: Node) -> tuple[str, ...]:
    """Parts of a node over a limit."""
    counted = ((what, count(node), most) for what, most, count in NODE_LIMITS)
    return tuple(excess(what, count, most) for what, count, most in counted if count > most)


def is_slim(pod: PodObject) -> bool:
    """Whether the pod's labels, annotations and gates are all within the limits, as they nearly always are."""
    labels, annotations = pod.metadata.labels, pod.metadata.annotations
    return (
        (not labels or len(labels) <= _MOST_LABELS)
        and (
            not annotations
            or (len(annotations) <= _MOST_ANNOTATIONS and max(map(len, annotations.values())) <= LONGEST_FOREIGN_VALUE)
        )
        and len(pod.spec.scheduling_gates) <= _MOST_GATES
    )


def slimmed(
    pod: PodObject, *, labels: frozenset[str], annotations: frozenset[str], selectors: frozenset[str]
) -> tuple[PodObject, tuple[str, ...]]:
    """The pod with at most the kept number of labels, annotations and gates, and the parts that were over a limit.

    labels, annotations: keys that are always kept. selectors: annotations that are label selectors.
    """
    meta, found = pod.metadata, []
    kept_labels, kept = meta.labels or {}, meta.annotations or {}
    if len(kept_labels) > _MOST_LABELS:
        found.append(excess("labels", len(kept_labels), _MOST_LABELS))
        kept_labels = {key: kept_labels[key] for key in labels if key in kept_labels}
    for key in sorted(selectors & kept.keys()):
        if len(kept[key]) > SELECTOR_CHARACTERS:
            found.append(excess(f"characters of {key}", len(kept[key]), SELECTOR_CHARACTERS))
            annotations -= {key}
    kept = {key: text for key, text in kept.items() if len(text) <= LONGEST_FOREIGN_VALUE or key in annotations}
    # Our own Binding adds some of the annotations that are always kept: it must not take a pod over the limit.
    if (foreign := len(kept.keys() - annotations)) > _MOST_ANNOTATIONS:
        found.append(excess("annotations", foreign, _MOST_ANNOTATIONS))
        kept = {key: kept[key] for key in annotations if key in kept}
    gates = pod.spec.scheduling_gates
    if len(gates) > _MOST_GATES:
        found.append(excess("scheduling gates", len(gates), _MOST_GATES))
        gates = gates[:_MOST_GATES]
    meta = replace(meta, labels=kept_labels, annotations=kept)
    return replace(pod, metadata=meta, spec=replace(pod.spec, scheduling_gates=gates)), tuple(found)
