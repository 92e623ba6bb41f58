"""A cluster as the programs see it: the `Cluster` protocol, its data types, and the errors it raises.

`rest/` implements `Cluster` with a real API server, `scheduler.testing.cluster` with a cluster in memory. One contract
suite runs against both.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from config.protocol import names
from scheduler.kube import leases, objects, selecting, storage

# kube-apiserver asks for one second; a day would be a day without bindings.
LONGEST_RETRY_AFTER_S: Final = 30.0

T = TypeVar("T", bound=objects.ApiObject)
T_co = TypeVar("T_co", bound=objects.ApiObject, covariant=True)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A collection to watch. path: relative to the server. field_selector, label_selector: "" for all objects.

    optional: a server may not know it. It then answers 404, which means that there are no objects.
    """

    name: str
    type: type[T]
    path: str
    field_selector: str = ""
    label_selector: str = ""
    optional: bool = False

    @property
    def api_kind(self) -> str:
        """Kind of one object, as the API server writes it."""
        return self.type.API_KIND or self.type.__name__

    @property
    def list_kind(self) -> str:
        """Kind of a list of these objects, as the API server writes it."""
        return f"{self.api_kind}List"


# Finished pods hold no resources: the server leaves them out, and a pod that finishes arrives as Deleted.
PODS: Final = Kind("pods", objects.PodObject, "/api/v1/pods", "status.phase!=Succeeded,status.phase!=Failed")
# These Events say why a pod failed; others do not. Events of kube-scheduler are excluded, whatever its profiles are
# called.
FAILED_PODS: Final = Kind(
    "failed pods", objects.PodObject, "/api/v1/pods", "status.phase=Failed,spec.schedulerName!=default-scheduler"
)
NODES: Final = Kind("nodes", objects.Node, "/api/v1/nodes")
NAMESPACES: Final = Kind("namespaces", objects.Namespace, "/api/v1/namespaces")
DISRUPTION_BUDGETS: Final = Kind(
    "poddisruptionbudgets", objects.PodDisruptionBudget, "/apis/policy/v1/poddisruptionbudgets"
)
CONFIG_MAPS: Final = Kind("configmaps", objects.ConfigMap, f"/api/v1/namespaces/{names.UNHEALTHY_NAMESPACE}/configmaps")
CLAIMS: Final = Kind("persistentvolumeclaims", storage.PersistentVolumeClaim, "/api/v1/persistentvolumeclaims")
VOLUMES: Final = Kind("persistentvolumes", storage.PersistentVolume, "/api/v1/persistentvolumes")
_STORAGE: Final = "/apis/storage.k8s.io/v1"
STORAGE_CLASSES: Final = Kind("storageclasses", storage.StorageClass, f"{_STORAGE}/storageclasses")
CSI_NODES: Final = Kind("csinodes", storage.CSINode, f"{_STORAGE}/csinodes")
CSI_DRIVERS: Final = Kind("csidrivers", storage.CSIDriver, f"{_STORAGE}/csidrivers")
CAPACITIES: Final = Kind("csistoragecapacities", storage.CSIStorageCapacity, f"{_STORAGE}/csistoragecapacities")
ATTACHMENTS: Final = Kind("volumeattachments", storage.VolumeAttachment, f"{_STORAGE}/volumeattachments")
OF_STORAGE: Final[tuple[Kind[Any], ...]] = (
    CLAIMS,
    VOLUMES,
    STORAGE_CLASSES,
    CSI_NODES,
    CSI_DRIVERS,
    CAPACITIES,
    ATTACHMENTS,
)
SERVICES: Final = Kind("services", selecting.Service, "/api/v1/services")
REPLICATION_CONTROLLERS: Final = Kind(
    "replicationcontrollers", selecting.ReplicationController, "/api/v1/replicationcontrollers"
)
REPLICA_SETS: Final = Kind("replicasets", selecting.ReplicaSet, "/apis/apps/v1/replicasets")
STATEFUL_SETS: Final = Kind("statefulsets", selecting.StatefulSet, "/apis/apps/v1/statefulsets")
SELECTING: Final[tuple[Kind[Any], ...]] = (SERVICES, REPLICATION_CONTROLLERS, REPLICA_SETS, STATEFUL_SETS)
# Only `what-if` reads these: an existing pod contains its priority.
PRIORITY_CLASSES: Final = Kind("priorityclasses", objects.PriorityClass, "/apis/scheduling.k8s.io/v1/priorityclasses")


def lease_kind(namespace: str, name: str) -> Kind[leases.Lease]:
    """The kind that contains this Lease only."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return Kind("leases", leases.Lease, path, f"metadata.name={name}")


_OF_EVERY_POD: Final[tuple[Kind[Any], ...]] = (PODS, NODES, NAMESPACES, CONFIG_MAPS, DISRUPTION_BUDGETS)
KINDS: Final = (*_OF_EVERY_POD, *OF_STORAGE, *SELECTING)


@dataclass(frozen=True, slots=True)
class ListBegins:
    """Start of a complete list: Changed events follow, closed by ListEnds."""


@dataclass(frozen=True, slots=True)
class ListEnds:
    """End of a list: an object without an event since ListBegins does not exist at `resource_version`."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Changed(Generic[T_co]):
    """The object exists and looks like this (added, modified, or listed)."""

    object: T_co


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T_co]):
    """The object was deleted, or no longer matches the kind's field selector. object: its last state."""

    object: T_co


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Everything up to `resource_version` has been delivered."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An object that cannot be decoded. name: "namespace/name", or the part of it that could be read."""

    name: str
    error: str


WatchEvent: TypeAlias = ListBegins | ListEnds | Changed[T] | Deleted[T] | Bookmark | Undecodable


class PodKey(msgspec.Struct, frozen=True):
    """Identity of one pod. A different pod with the same name has a different UID."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """`namespace/name`, as users write it."""
        return f"{self.namespace}/{self.name}"

    def shown_in(self, namespace: str) -> str:
        """The pod, in text for readers of this namespace: by name in its own namespace, otherwise by UID.

        A tenant who may read Events and pods of one namespace thus learns no names from other namespaces.
        """
        return f"pod {self}" if namespace == self.namespace else f"pod {self.uid} of another namespace"


@dataclass(frozen=True, slots=True)
class Binding:
    """Assignment of a pod to a node, with the annotations that are added to the pod in the same transaction."""

    pod: PodKey
    node: str
    annotations: dict[str, str]


@dataclass(frozen=True, slots=True)
class VolumeForClaim:
    """Binding of a volume to a claim. version: the volume's version, which must still be current.

    kept: whether an operator has reserved it for the claim by name.
    """

    volume: str
    version: str
    claim_namespace: str
    claim: str
    claim_uid: str
    kept: bool


@dataclass(frozen=True, slots=True)
class NodeForClaim:
    """Node on which a claim's volume is to be created. version: the claim's version, which must still be current."""

    namespace: str
    claim: str
    version: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLease:
    """Desired state of a Lease. version: the Lease's version, which must still be current; "" to create it.

    pods_version: see `leases.Lease`; None to remove the annotation.
    """

    namespace: str
    name: str
    version: str
    spec: leases.LeaseSpec
    pods_version: str | None = None


@dataclass(frozen=True, slots=True)
class LastScheduled:
    """Last activity of any scheduler with a given name. moment: RFC 3339, by the API server's clock; "" for none.

    version: the latest resource version of its pods, "0" if it has none.
    """

    moment: str
    version: str


@dataclass(frozen=True, slots=True)
class EventSeries:
    """A repeated Event. count: number of occurrences, >= 2; last_time_s: Unix seconds of the last one."""

    count: int
    last_time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """An events.k8s.io/v1 Event. name: the Event's name, unique in the namespace of its object.

    kind: its object's kind (Pod or Node; a Node's Events are in namespace `default`).
    type: Normal or Warning. note: at most 1024 bytes of UTF-8. time_s: Unix seconds.
    """

    name: str
    kind: str
    namespace: str
    object_name: str
    object_uid: str
    type: str
    reason: str
    action: str
    note: str
    time_s: float
    reporting_controller: str
    reporting_instance: str


class ApiError(Exception):
    """The API server did not execute the request, or did not confirm it. message: from the server, in one line."""

    def __init__(self, message: str, status: int = 0) -> None:
        """status: HTTP status, 0 if there was no answer."""
        super().__init__(message)
        self.message = message
        self.status = status


class ApiRejected(ApiError):
    """A definite rejection (4xx other than those below): the same request gets the same answer."""


class ApiConflict(ApiRejected):
    """409: the object is not in the state that the request requires."""


class ApiNotFound(ApiRejected):
    """404: evidence that the object is deleted; only the watch proves it."""


class ApiForbidden(ApiRejected):
    """401 (after the credentials were renewed once) or 403: a permission is missing."""


class ApiThrottled(ApiError):
    """429: not executed; retry after `retry_after_s` seconds, 0 if the server named none."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        """retry_after_s: >= 0; a value above LONGEST_RETRY_AFTER_S is ignored."""
        super().__init__(message, 429)
        self.retry_after_s = min(retry_after_s, LONGEST_RETRY_AFTER_S)


class ApiFailed(ApiError):
    """5xx: the request may or may not have taken effect, or may still take effect."""


class ApiSilent(ApiError):
    """No answer from the API server: the request may or may not have taken effect, or may still take effect.

    The request timed out, the connection was lost, or another server answered, such as a load balancer's default
    backend; then `status` is from that answer.
    """


class NotSent(ApiSilent):
    """Not sent, because this replica is not the leader: it cannot take effect."""

    def __init__(self) -> None:
        """Message: this replica is not the leader."""
        super().__init__("not sent: this replica is not the leader now, because it could not renew the Lease")


class WatchExpired(ApiError):
    """410: the resource version is too old; list again."""


class Cluster(Protocol):
    """An API server. Every failure of the server or the network is raised as an ApiError."""

    def watch(self, kind: Kind[T], since: str | None) -> AsyncIterator[list[WatchEvent[T]]]:
        """One watch connection, as batches of events in order. Ends when the server closes it normally.

        since: resource version to continue from; None to begin with a consistent list (ListBegins … ListEnds).
        A batch has at most 256 events, so that handling it does not block the event loop. An empty batch confirms a
        watch from `since`, before any event. Raises WatchExpired if `since` is too old, ApiSilent after a long time
        without any data, even a bookmark.
        """
        ...

    async def last_change(self, kind: Kind[T], since: str) -> str:
        """Version of the latest change of the kind's objects, by a consistent read; `since` if none is later.

        since: resource version to start from. Raises WatchExpired if it is too old, ApiSilent if the server could not
        answer within a few seconds.
        """
        ...

    async def last_scheduled(self, scheduler_name: str) -> LastScheduled:
        """Time when a pod of this scheduler name was last bound, or first reported as unschedulable.

        Uses a consistent read of all pods of this name.
        """
        ...

    async def write_lease(self, wanted: WantedLease, timeout_s: float) -> str:
        """Create or change a Lease. Returns its new resource version.

        Raises ApiConflict if it has changed since, or exists already; ApiNotFound if it was deleted.
        """
        ...

    async def bind(self, binding: Binding, timeout_s: float) -> None:
        """POST the binding once. Returns when the server has confirmed that the pod is bound.

        Raises ApiConflict (already assigned, other UID, being deleted, gated), ApiNotFound, ApiForbidden, ApiThrottled,
        other ApiRejected; ApiFailed or ApiSilent if the outcome is unknown.
        """
        ...

    async def pod(self, namespace: str, name: str) -> objects.PodObject | None:
        """Current state of the pod in the API server (a consistent read); None if it does not exist."""
        ...

    async def bind_volume(self, wanted: VolumeForClaim) -> str:
        """Write the claim into the volume. Returns the volume's new resource version.

        Raises ApiConflict if the volume has changed since, ApiNotFound if it was deleted.
        """
        ...

    async def select_node(self, wanted: NodeForClaim) -> str:
        """Write the node into the claim. Returns the claim's new resource version.

        Raises ApiConflict if the claim has changed since, ApiNotFound if it was deleted.
        """
        ...

    async def set_pod_condition(self, pod: PodKey, condition: objects.PodCondition, *, changed: bool = True) -> None:
        """Merge one condition into the pod's status. Raises ApiConflict if the pod has another UID now.

        changed: whether the condition is new or its status has changed; then its transition time is set to now.
        """
        ...

    async def set_nominated_node(self, pod: PodKey, node: str) -> None:
        """Set the nominated node in the pod's status, "" for none. Raises ApiConflict if it has another UID now."""
        ...

    async def delete_pod(self, pod: PodKey) -> None:
        """Delete the pod, with its own grace period.

        Raises ApiNotFound if it is already deleted, ApiConflict if it has another UID now.
        """
        ...

    async def create_event(self, event: EventRecord) -> None:
        """Create an Event."""
        ...

    async def update_event(self, event: EventRecord, series: EventSeries) -> None:
        """Set the series of an existing Event. Raises ApiNotFound if it has expired."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...
