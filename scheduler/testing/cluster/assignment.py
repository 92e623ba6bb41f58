"""Effects of POST pods/{name}/binding and PATCH pods/{name}/status on a pod.

Pure. Source: pkg/registry/core/pod/storage/storage.go (setPodNodeAndMetadata), pkg/api/v1/pod/util.go
(UpdatePodCondition), plugin/pkg/admission/podtopologylabels, Kubernetes 1.36.
"""

from typing import Final

from msgspec.structs import replace

from scheduler.kube.objects import Node, PodCondition, PodObject
from scheduler.kube.port import ApiConflict, ApiFailed, Binding

_SCHEDULED: Final = PodCondition(type="PodScheduled", status="True")
_COPIED_FROM_NODE: Final[tuple[str, ...]] = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def assigned(pod: PodObject, binding: Binding, node: Node | None) -> PodObject:
    """The pod on its node, annotations merged key by key; raises ApiConflict, in the server's order of checks.

    node: None if it does not exist, which the server accepts.
    """
    if not binding.node:
        raise ApiFailed("target.name: Required value", 500)
    check_uid(pod, binding.pod.uid)
    if (rejection := _rejection(pod)) is not None:
        raise ApiConflict(f'Operation cannot be fulfilled on pods/binding "{pod.metadata.name}": {rejection}', 409)
    metadata = replace(
        pod.metadata,
        annotations={**(pod.metadata.annotations or {}), **binding.annotations},
        labels=_labels(pod, node),
    )
    conditions = merged(pod.status.conditions, _SCHEDULED)
    return replace(
        pod,
        metadata=metadata,
        spec=replace(pod.spec, node_name=binding.node),
        status=replace(pod.status, nominated_node_name="", conditions=conditions),
    )


def check_uid(pod: PodObject, uid: str) -> None:
    """Raise ApiConflict unless the pod has this uid, or `uid` is empty."""
    if uid and uid != pod.metadata.uid:
        message = (
            f'Operation cannot be fulfilled on pods "{pod.metadata.name}": StorageError: invalid object, '
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod.metadata.uid}"
        )
        raise ApiConflict(message, 409)


def merged(conditions: tuple[PodCondition, ...], condition: PodCondition) -> tuple[PodCondition, ...]:
    """The conditions with this one, replacing the one of its type."""
    if any(other.type == condition.type for other in conditions):
        return tuple(condition if other.type == condition.type else other for other in conditions)
    return (*conditions, condition)


def _rejection(pod: PodObject) -> str | None:
    name = pod.metadata.name
    if pod.metadata.deletion_timestamp:
        return f"pod {name} is being deleted, cannot be assigned to a host"
    if pod.spec.node_name:
        return f'pod {name} is already assigned to node "{pod.spec.node_name}"'
    if pod.spec.scheduling_gates:
        return f"pod {name} has non-empty .spec.schedulingGates"
    return None


def _labels(pod: PodObject, node: Node | None) -> dict[str, str] | None:
    """Labels with the zone and region of the node, which override the pod's since 1.35."""
    of_node = (node.metadata.labels if node else None) or {}
    copied = {key: of_node[key] for key in _COPIED_FROM_NODE if key in of_node}
    return {**(pod.metadata.labels or {}), **copied} if copied else pod.metadata.labels
