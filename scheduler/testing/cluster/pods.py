"""Pods, and the changes that users, other schedulers and kubelets make to them.

    absent --create--> Pending --bind--> Pending, on a node --set_phase--> Running --finish--> Succeeded, Failed
       ^                  |                        |                           |                     |
       +------ delete: without a node, when finished, or with no grace ------------------------------+
       +------ remove ------ being deleted <------ delete, with grace ---------+

A finalizer also keeps a deleted pod until it is released.

Effects of POST pods/{name}/binding and PATCH pods/{name}/status on a pod.
Source: pkg/registry/core/pod/storage/storage.go (setPodNodeAndMetadata), pkg/api/v1/pod/util.go
(UpdatePodCondition), plugin/pkg/admission/podtopologylabels, Kubernetes 1.36.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as replace_fields
from typing import Any, Final, Self

from msgspec.structs import replace

from scheduler.kube.defaults import Identity, decoded, new_pod, timestamp
from scheduler.kube.objects import Node, PodCondition, PodObject
from scheduler.kube.port import ApiConflict, ApiFailed, Binding, LastScheduled, PodKey
from scheduler.testing.cluster.namespaces import Namespaces, Nodes, Verbs
from scheduler.testing.cluster.store import Collection

_IS_SCHEDULED: Final = PodCondition(type="PodScheduled", status="True")
_COPIED_FROM_NODE: Final[tuple[str, ...]] = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def assigned(pod: PodObject, binding: Binding, node: Node | None) -> PodObject:
    """Return the pod as bound to its node, with annotations merged by key. Raises ApiConflict.

    Checks in the same order as the server. node: None if it does not exist, which the server accepts.
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
    conditions = merged(pod.status.conditions, _IS_SCHEDULED)
    return replace(
        pod,
        metadata=metadata,
        spec=replace(pod.spec, node_name=binding.node),
        status=replace(pod.status, nominated_node_name="", conditions=conditions),
    )


def check_uid(pod: PodObject, uid: str) -> None:
    """Raise ApiConflict unless the pod has this UID, or `uid` is empty."""
    if uid and uid != pod.metadata.uid:
        message = (
            f'Operation cannot be fulfilled on pods "{pod.metadata.name}": StorageError: invalid object, '
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod.metadata.uid}"
        )
        raise ApiConflict(message, 409)


def merged(conditions: tuple[PodCondition, ...], condition: PodCondition) -> tuple[PodCondition, ...]:
    """Return the conditions with this one added; it replaces an existing one of its type."""
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
    """Return the labels with the node's zone and region, which override the pod's since Kubernetes 1.35."""
    of_node = (node.metadata.labels if node else None) or {}
    copied = {key: of_node[key] for key in _COPIED_FROM_NODE if key in of_node}
    return {**(pod.metadata.labels or {}), **copied} if copied else pod.metadata.labels


FINISHED: Final = ("Succeeded", "Failed")
_SCHEDULED: Final = "PodScheduled"


@dataclass(frozen=True, slots=True)
class _End:
    """A requested deletion. at_s: its deletionTimestamp. All times are Unix seconds."""

    requested_s: float
    grace_s: float
    at_s: float

    def shortened(self, grace_s: float, now_s: float) -> Self:
        """Return the deletion with this grace period if it is shorter; counted from the first deletion request."""
        if grace_s >= self.grace_s:
            return self
        return replace_fields(self, grace_s=grace_s, at_s=max(now_s, self.requested_s + grace_s))


class Pods(Verbs[PodObject]):
    """Verbs on one collection of pods; each is one write, unless it changes nothing."""

    def __init__(
        self, collection: Collection[PodObject], identity: Identity, namespaces: Namespaces, nodes: Nodes
    ) -> None:
        super().__init__(collection, identity)
        self._namespaces = namespaces
        self._nodes = nodes
        self._with_finalizer: set[str] = set()  # UIDs of pods with a finalizer
        self._ends: dict[str, _End] = {}  # by UID, of terminating pods
        self._scheduled: dict[str, str] = {}  # by UID: last transition of the condition PodScheduled

    def find(self, namespace: str, name: str) -> PodObject | None:
        return self.collection.find(namespace, name)

    def create(self, pod: PodObject | Mapping[str, Any]) -> PodObject:
        """Create a pod from an object or a manifest, and its namespace if missing. Raises ApiConflict."""
        wanted = new_pod(decoded(pod, PodObject))
        self._namespaces.ensure(wanted.metadata.namespace)
        made = self.collection.create(replace(wanted, metadata=self._identity.given_to(wanted.metadata)))
        if isinstance(pod, Mapping) and pod["metadata"].get("finalizers"):
            self._with_finalizer.add(made.metadata.uid)
        return made

    def update(self, namespace: str, name: str, change: Callable[[PodObject], PodObject]) -> PodObject:
        """Replace the pod by the result of `change`. Raises ApiNotFound."""
        return self.collection.replace(change(self.collection.existing(namespace, name)))

    def assign(self, binding: Binding) -> PodObject:
        """Apply a POST of this binding. Raises ApiNotFound, ApiConflict."""
        pod = self.collection.existing(binding.pod.namespace, binding.pod.name)
        bound = self.collection.replace(assigned(pod, binding, self._nodes.find(binding.node)))
        self._scheduled[bound.metadata.uid] = timestamp(self._identity.now_s())
        return bound

    def bind(self, namespace: str, name: str, node: str, annotations: Mapping[str, str] | None = None) -> PodObject:
        """Bind as another scheduler or a user does. Raises ApiNotFound, ApiConflict."""
        return self.assign(Binding(PodKey(namespace, name, ""), node, dict(annotations or {})))

    def set_condition(self, key: PodKey, condition: PodCondition) -> PodObject:
        """Merge one condition into the status. Raises ApiNotFound; ApiConflict for another UID."""
        pod = self.collection.existing(key.namespace, key.name)
        check_uid(pod, key.uid)
        conditions = merged(pod.status.conditions, condition)
        if condition.type == _SCHEDULED and condition.status != _status_of(pod.status.conditions):
            self._scheduled[pod.metadata.uid] = timestamp(self._identity.now_s())
        return self.collection.replace(replace(pod, status=replace(pod.status, conditions=conditions)))

    def last_scheduled(self, scheduler_name: str) -> LastScheduled:
        """Return the last scheduling, see `port.Cluster.last_scheduled`."""
        pods = [pod for pod in self.collection if pod.spec.scheduler_name == scheduler_name]
        return LastScheduled(
            max((self._scheduled.get(pod.metadata.uid, "") for pod in pods), default=""),
            str(max((int(pod.metadata.resource_version) for pod in pods), default=0)),
        )

    def nominate(self, key: PodKey, node: str) -> PodObject:
        """Write status.nominatedNodeName. Raises ApiNotFound; ApiConflict for another UID."""
        pod = self.collection.existing(key.namespace, key.name)
        check_uid(pod, key.uid)
        return self.collection.replace(replace(pod, status=replace(pod.status, nominated_node_name=node)))

    def delete_of(self, key: PodKey) -> None:
        """Delete the pod with this UID. Raises ApiNotFound; ApiConflict for another UID."""
        check_uid(self.collection.existing(key.namespace, key.name), key.uid)
        self.delete(key.namespace, key.name)

    def set_phase(self, namespace: str, name: str, phase: str, *, reason: str = "", message: str = "") -> PodObject:
        """Report as the kubelet does: `Running`, or `Failed` with `reason` "OutOfcpu". Raises ApiNotFound."""
        pod = self.collection.existing(namespace, name)
        return self.collection.replace(
            replace(pod, status=replace(pod.status, phase=phase, reason=reason, message=message))
        )

    def finish(
        self, namespace: str, name: str, phase: str = "Succeeded", *, reason: str = "", message: str = ""
    ) -> PodObject:
        """End the pod's containers; the object stays. Raises ValueError unless `phase` is final, ApiNotFound."""
        if phase not in FINISHED:
            text = f"a pod finishes as one of {', '.join(FINISHED)}, not as {phase!r}"
            raise ValueError(text)
        return self.set_phase(namespace, name, phase, reason=reason, message=message)

    def delete(self, namespace: str, name: str, *, grace_s: float = 30.0) -> None:
        """Delete as a user does; a second deletion can only shorten the grace period. Raises ApiNotFound.

        A pod that does not run has no grace period. Without grace period and finalizers, it is deleted at once: a watch
        first gets its deletion request, then its deletion.
        Source: apiserver/pkg/registry/rest/delete.go (BeforeDelete), pkg/registry/core/pod/strategy.go
        (CheckGracefulDelete).
        """
        pod = self.collection.existing(namespace, name)
        uid = pod.metadata.uid
        before = self._ends.get(uid)
        end = self._end(pod, grace_s) if before is None else before.shortened(grace_s, self._identity.now_s())
        if end == before:
            return
        self._ends[uid] = end
        metadata = replace(
            pod.metadata, deletion_timestamp=timestamp(end.at_s), deletion_grace_period_seconds=int(end.grace_s)
        )
        self.collection.replace(replace(pod, metadata=metadata))
        self._remove_when_due(namespace, name, uid)

    def release(self, namespace: str, name: str) -> None:
        """Remove the finalizers, and the pod too if its grace period is over. Raises ApiNotFound."""
        uid = self.collection.existing(namespace, name).metadata.uid
        self._with_finalizer.discard(uid)
        self._remove_when_due(namespace, name, uid)

    def remove(self, namespace: str, name: str) -> None:
        """Remove the pod despite finalizers and grace period. Raises ApiNotFound."""
        self.release(namespace, name)
        if self.find(namespace, name) is not None:
            self.delete(namespace, name, grace_s=0.0)

    def _end(self, pod: PodObject, grace_s: float) -> _End:
        runs = pod.spec.node_name and pod.status.phase not in FINISHED
        now_s = self._identity.now_s()
        return _End(now_s, grace_s, now_s + grace_s) if runs else _End(now_s, 0.0, now_s)

    def _remove_when_due(self, namespace: str, name: str, uid: str) -> None:
        end = self._ends.get(uid)
        if end is not None and end.grace_s == 0 and uid not in self._with_finalizer:
            del self._ends[uid]
            self.collection.remove(namespace, name)


def _status_of(conditions: tuple[PodCondition, ...]) -> str:
    return next((one.status for one in conditions if one.type == _SCHEDULED), "")
