"""Bodies of requests to the API server: bindings, conditions, Events.

Field order and spelling follow Kubernetes 1.36. Frequent bodies are encoded from structs, others from dicts.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from scheduler.kube import leases, objects
from scheduler.kube.events import cut_note
from scheduler.kube.port import Binding, EventRecord, EventSeries, NodeForClaim, PodKey, VolumeForClaim, WantedLease

# The namespace of Events about cluster-scoped objects.
_NO_NAMESPACE: Final = "default"


class _BindingMeta(msgspec.Struct):
    name: str
    namespace: str
    uid: str
    annotations: dict[str, str]


class _Target(msgspec.Struct, rename="camel"):
    """Target of a Binding. kind: the zone and region labels are copied to the pod only if it is Node."""

    name: str
    kind: str = "Node"
    api_version: str = "v1"


class _Binding(msgspec.Struct, rename="camel"):
    metadata: _BindingMeta
    target: _Target
    kind: str = "Binding"
    api_version: str = "v1"


class _Uid(msgspec.Struct):
    uid: str


class _Condition(msgspec.Struct, rename="camel", omit_defaults=True):
    type: str
    status: str
    reason: str | None = None
    message: str | None = None
    last_transition_time: str = ""


class _Conditions(msgspec.Struct):
    conditions: tuple[_Condition]


class _StatusPatch(msgspec.Struct):
    metadata: _Uid
    status: _Conditions


class _EventMeta(msgspec.Struct):
    name: str
    namespace: str


class _Reference(msgspec.Struct, rename="camel", omit_defaults=True):
    kind: str
    name: str
    uid: str
    api_version: str | None = None
    namespace: str = ""


class _Event(msgspec.Struct, rename="camel"):
    metadata: _EventMeta
    event_time: str
    reporting_controller: str
    reporting_instance: str
    action: str
    reason: str
    regarding: _Reference
    note: str
    type: str
    kind: str = "Event"
    api_version: str = "events.k8s.io/v1"


_ENCODER: Final = msgspec.json.Encoder()
# The volume controller clears a volume's claim only if this marks it as set by a program.
_BOUND_BY_CONTROLLER: Final = {"pv.kubernetes.io/bound-by-controller": "yes"}
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"


def pod_path(namespace: str, name: str) -> str:
    """Path of a pod. Names of Kubernetes objects need no quoting."""
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def node_path(name: str) -> str:
    """Path of a node, whose name may come from user input."""
    return f"/api/v1/nodes/{quote(name, safe='')}"


def annotations_patch(annotations: Mapping[str, str | None], version: str) -> bytes:
    """Patch that sets these annotations, or removes those that are None, if the object still has this `version`."""
    return _ENCODER.encode({"metadata": {"annotations": dict(annotations), "resourceVersion": version}})


def events_path(event: EventRecord) -> str:
    """Path of the collection that the event belongs to."""
    return f"/apis/events.k8s.io/v1/namespaces/{event.namespace or _NO_NAMESPACE}/events"


def binding_body(binding: Binding) -> bytes:
    """A v1 Binding; the same bytes for the same binding."""
    pod = binding.pod
    metadata = _BindingMeta(pod.name, pod.namespace, pod.uid, binding.annotations)
    return _ENCODER.encode(_Binding(metadata, _Target(binding.node)))


def volume_path(name: str) -> str:
    """Path of a persistent volume."""
    return f"/api/v1/persistentvolumes/{name}"


def claim_path(namespace: str, name: str) -> str:
    """Path of a claim."""
    return f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"


def volume_patch(wanted: VolumeForClaim) -> bytes:
    """Strategic merge patch that sets the claim.

    Source: component-helpers, storage/volume/pv_helpers.go, GetBindVolumeToClaim.
    """
    # The API server rejects a patch with 409 if it names another resource version than the object has.
    metadata = {"resourceVersion": wanted.version} | ({} if wanted.kept else {"annotations": _BOUND_BY_CONTROLLER})
    claim = {"namespace": wanted.claim_namespace, "name": wanted.claim, "uid": wanted.claim_uid}
    reference = claim | {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    return _ENCODER.encode({"metadata": metadata, "spec": {"claimRef": reference}})


def claim_patch(wanted: NodeForClaim) -> bytes:
    """Strategic merge patch that sets the selected node."""
    annotations = {_SELECTED_NODE: wanted.node}
    return _ENCODER.encode({"metadata": {"resourceVersion": wanted.version, "annotations": annotations}})


def leases_path(namespace: str) -> str:
    """Path of the Leases of a namespace."""
    return f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"


def lease_body(wanted: WantedLease) -> bytes:
    """Body for a new Lease, or a strategic merge patch of the Lease at that version."""
    metadata: dict[str, object] = {"name": wanted.name}
    if wanted.version:
        annotations = {leases.PODS_SEEN: wanted.pods_version}
        metadata = {"resourceVersion": wanted.version, "annotations": annotations}
    kind = {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1"}
    return _ENCODER.encode({"metadata": metadata, "spec": wanted.spec, **kind})


def condition_patch(pod: PodKey, condition: objects.PodCondition, changed_s: float | None) -> bytes:
    """Strategic merge patch that sets one condition of the pod, if it still has this UID.

    changed_s: time of its last transition, in Unix seconds; None to keep the server's time.
    Source: kube-scheduler, util.PatchPodStatus.
    """
    written = _Condition(
        condition.type,
        condition.status,
        condition.reason,
        condition.message,
        "" if changed_s is None else _time(changed_s, "seconds"),
    )
    return _ENCODER.encode(_StatusPatch(_Uid(pod.uid), _Conditions((written,))))


def nomination_patch(pod: PodKey, node: str) -> bytes:
    """Strategic merge patch of status.nominatedNodeName, if the pod still has this UID; "" removes the field."""
    return _ENCODER.encode({"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node or None}})


def deletion_body(pod: PodKey) -> bytes:
    """DeleteOptions for the pod, if it still has this UID, with the pod's own grace period."""
    return _ENCODER.encode(_delete_options(pod))


def eviction_body(pod: PodKey) -> bytes:
    """policy/v1 Eviction of the pod, if it still has this UID, with the pod's own grace period."""
    metadata = {"name": pod.name, "namespace": pod.namespace}
    kind = {"kind": "Eviction", "apiVersion": "policy/v1"}
    return _ENCODER.encode({"metadata": metadata, "deleteOptions": _delete_options(pod), **kind})


def _delete_options(pod: PodKey) -> dict[str, object]:
    return {"preconditions": {"uid": pod.uid}, "kind": "DeleteOptions", "apiVersion": "v1"}


def event_body(event: EventRecord) -> bytes:
    """An events.k8s.io/v1 Event. A note that is too long is cut between two characters."""
    namespace = event.namespace or _NO_NAMESPACE
    # A node has no namespace, and the server compares the two namespaces.
    regarding = _Reference(event.kind, event.object_name, event.object_uid, "v1", _namespace_of_object(event))
    body = _Event(
        _EventMeta(event.name, namespace),
        _time(event.time_s, "microseconds"),
        event.reporting_controller,
        event.reporting_instance,
        event.action,
        event.reason,
        regarding,
        cut_note(event.note),
        event.type,
    )
    return _ENCODER.encode(body)


def series_patch(series: EventSeries) -> bytes:
    """Merge patch that sets the series of an Event."""
    last = _time(series.last_time_s, "microseconds")
    return _ENCODER.encode({"series": {"count": series.count, "lastObservedTime": last}})


def _namespace_of_object(event: EventRecord) -> str:
    return "" if event.kind == "Node" else event.namespace


def _time(unix_s: float, precision: str) -> str:
    """RFC 3339 in UTC: metav1.Time has whole seconds, metav1.MicroTime six digits."""
    moment = dt.datetime.fromtimestamp(unix_s, dt.UTC)
    return moment.isoformat(timespec=precision).removesuffix("+00:00") + "Z"
