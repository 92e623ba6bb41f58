"""The programs' view of a cluster: the `Cluster` protocol, its values, and the errors it raises.

`rest/` satisfies `Cluster` with a real API server, `scheduler.testing.cluster` with a cluster in memory;
one contract suite runs against both.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from config.protocol import names
from scheduler.kube import leases, objects, selecting, storage

# kube-apiserver asks for a second; a day would be a day without bindings.
LONGEST_RETRY_AFTER_S: Final = 30.0

T = TypeVar("T", bound=objects.ApiObject)
T_co = TypeVar("T_co", bound=objects.ApiObject, covariant=True)


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A collection to watch. path: below the server's address; field_selector, label_selector: "" for all objects."""

    name: str
    type: type[T]
    path: str
    field_selector: str = ""
    label_selector: str = ""

    @property
    def api_kind(self) -> str:
        """The kind of one of these, as the API server writes it."""
        return self.type.API_KIND or self.type.__name__

    @property
    def list_kind(self) -> str:
        """The kind of a list of these, as the API server writes it."""
        return f"{self.api_kind}List"


# Finished pods hold nothing: the server leaves them out, and a pod that finishes arrives as Deleted.
PODS: Final = Kind("pods", objects.PodObject, "/api/v1/pods", "status.phase!=Succeeded,status.phase!=Failed")
# These Events say why a pod failed; others do not. kube-scheduler's are not ours, whatever the profiles are called.
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
# Read by `what-if` alone: of a pod that exists, its priority is in the pod.
PRIORITY_CLASSES: Final = Kind("priorityclasses", objects.PriorityClass, "/apis/scheduling.k8s.io/v1/priorityclasses")


def lease_kind(namespace: str, name: str) -> Kind[leases.Lease]:
    """One Lease, and no other."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return Kind("leases", leases.Lease, path, f"metadata.name={name}")


_OF_EVERY_POD: Final[tuple[Kind[Any], ...]] = (PODS, NODES, NAMESPACES, CONFIG_MAPS, DISRUPTION_BUDGETS)
KINDS: Final = (*_OF_EVERY_POD, *OF_STORAGE, *SELECTING)


@dataclass(frozen=True, slots=True)
class ListBegins:
    """A complete list follows as Changed events, closed by ListEnds."""


@dataclass(frozen=True, slots=True)
class ListEnds:
    """An object without an event since ListBegins does not exist at `resource_version`."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Changed(Generic[T_co]):
    """The object exists and looks like this (added, modified, or listed)."""

    object: T_co


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T_co]):
    """The object was deleted, or no longer matches the kind's field selector; its last state."""

    object: T_co


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Everything up to `resource_version` has been delivered."""

    resource_version: str


@dataclass(frozen=True, slots=True)
class Undecodable:
    """An object that violates the API. name: "namespace/name" as far as it could be read."""

    name: str
    error: str


WatchEvent: TypeAlias = ListBegins | ListEnds | Changed[T] | Deleted[T] | Bookmark | Undecodable


class PodKey(msgspec.Struct, frozen=True):
    """Identifies one pod: another pod of the same name has another uid."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        """`namespace/name`, as users write it."""
        return f"{self.namespace}/{self.name}"

    def shown_in(self, namespace: str) -> str:
        """The pod, in text for readers of this namespace: by name in its own namespace, elsewhere by uid.

        A tenant who may read Events and pods of one namespace learns no names of others.
        """
        return f"pod {self}" if namespace == self.namespace else f"pod {self.uid} of another namespace"


@dataclass(frozen=True, slots=True)
class Binding:
    """One pod to one node, with the annotations that become part of the pod in the same transaction."""

    pod: PodKey
    node: str
    annotations: dict[str, str]


@dataclass(frozen=True, slots=True)
class VolumeForClaim:
    """Binding of a volume to a claim. version: of the volume, which must not have changed since.

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
    """Node for the new volume of a claim. version: of the claim, which must not have changed since."""

    namespace: str
    claim: str
    version: str
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedLease:
    """Desired state of a Lease. version: of the Lease, which must not have changed since; "" to create it.

    pods_version, page_url: as in `leases.Lease`, None to remove the annotation.
    """

    namespace: str
    name: str
    version: str
    spec: leases.LeaseSpec
    pods_version: str | None = None
    page_url: str | None = None


@dataclass(frozen=True, slots=True)
class LastScheduled:
    """The last work of any scheduler of one name. moment: RFC 3339, of the API server's clock; "" for never.

    version: the latest resource version of its pods, "0" for none.
    """

    moment: str
    version: str


@dataclass(frozen=True, slots=True)
class EventSeries:
    """A repeated event. count: times seen in all, >= 2; last_time_s: Unix seconds of the last."""

    count: int
    last_time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """An events.k8s.io/v1 Event. name: the object's own name, unique in the namespace of its object.

    kind: of its object (Pod or Node; a Node's events live in namespace `default`).
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
    """The API server did not execute the request, or did not confirm it. message: the server's own, in one line."""

    def __init__(self, message: str, status: int = 0) -> None:
        """status: HTTP status, 0 when there was no answer."""
        super().__init__(message)
        self.message = message
        self.status = status


class ApiRejected(ApiError):
    """A definite no (4xx other than those below): the same request gets the same answer."""


class ApiConflict(ApiRejected):
    """409: the object is not in the state that the request assumes."""


class ApiNotFound(ApiRejected):
    """404. Evidence that the object is deleted; only the watch proves it."""


class ApiForbidden(ApiRejected):
    """401 (after credentials were renewed once) or 403: a right is missing."""


class ApiThrottled(ApiError):
    """429: not executed; retry after `retry_after_s` seconds, 0 when the server named none."""

    def __init__(self, message: str, retry_after_s: float = 0.0) -> None:
        """retry_after_s: >= 0; a value above LONGEST_RETRY_AFTER_S is ignored."""
        super().__init__(message, 429)
        self.retry_after_s = min(retry_after_s, LONGEST_RETRY_AFTER_S)


class ApiFailed(ApiError):
    """5xx: the request may or may not have taken effect, or may still."""


class ApiSilent(ApiError):
    """No answer from the API server: the request may or may not have taken effect, or may still.

    Time-out, lost connection, or an answer by something else, such as a load balancer's default backend; then `status`
    is from that answer.
    """


class NotSent(ApiSilent):
    """Not sent, because this replica is not the leader: it cannot take effect."""

    def __init__(self) -> None:
        """Message: this replica is not the leader."""
        super().__init__("not sent: this replica is not the leader now, because it could not renew the Lease")


class WatchExpired(ApiError):
    """410: the resource version is too old; list again."""


class Cluster(Protocol):
    """An API server. Every method raises only ApiError for failures of the server or the network."""

    def watch(self, kind: Kind[T], since: str | None) -> AsyncIterator[list[WatchEvent[T]]]:
        """One watch connection, as batches of events in order; ends when the server closes it normally.

        since: resource version to continue from; None: begin with a consistent list (ListBegins … ListEnds).
        A batch is small enough to be handled without holding the event loop (at most 256 events); an empty one confirms
        a watch from `since`, before any event. Raises WatchExpired when `since` is too old, ApiSilent after a long time
        without any data, even a bookmark.
        """
        ...

    async def last_change(self, kind: Kind[T], since: str) -> str:
        """Version of the last change of the kind's objects now, by a consistent read; `since` if there is none later.

        since: resource version to start from. Raises WatchExpired when it is too old, ApiSilent when the server could
        not answer in a few seconds.
        """
        ...

    async def last_scheduled(self, scheduler_name: str) -> LastScheduled:
        """Time when a pod of this scheduler name was last bound, or first reported as unschedulable.

        A consistent read of all pods of this name.
        """
        ...

    async def write_lease(self, wanted: WantedLease, timeout_s: float) -> str:
        """Create or change a Lease; returns its new resource version.

        Raises ApiConflict if it has changed since, or exists already; ApiNotFound if it was deleted.
        """
        ...

    async def bind(self, binding: Binding, timeout_s: float) -> None:
        """POST the binding once. Returns when the server has answered that the pod is bound.

        Raises ApiConflict (already assigned, other uid, being deleted, gated), ApiNotFound, ApiForbidden,
        ApiThrottled, other ApiRejected; ApiFailed or ApiSilent when the outcome is unknown.
        """
        ...

    async def pod(self, namespace: str, name: str) -> objects.PodObject | None:
        """The pod as the API server has it now (a consistent read), None without one."""
        ...

    async def bind_volume(self, wanted: VolumeForClaim) -> str:
        """Write the claim into the volume; returns the volume's new resource version.

        ApiConflict if it has changed since, ApiNotFound.
        """
        ...

    async def select_node(self, wanted: NodeForClaim) -> str:
        """Write the node into the claim; returns the claim's new resource version.

        ApiConflict if it has changed since, ApiNotFound.
        """
        ...

    async def set_pod_condition(self, pod: PodKey, condition: objects.PodCondition, *, changed: bool = True) -> None:
        """Merge one condition into the pod's status; ApiConflict when the pod has another uid now.

        changed: its status was another one, or there was none: this is the time of its transition.
        """
        ...

    async def set_nominated_node(self, pod: PodKey, node: str) -> None:
        """Set the nominated node in the pod's status, "" for none. ApiConflict: it has another uid now."""
        ...

    async def delete_pod(self, pod: PodKey) -> None:
        """Delete the pod, with its own grace period.

        ApiNotFound: already deleted; ApiConflict: it has another uid now.
        """
        ...

    async def create_event(self, event: EventRecord) -> None:
        """Create an Event."""
        ...

    async def update_event(self, event: EventRecord, series: EventSeries) -> None:
        """Set the series of an Event made before; ApiNotFound when it has expired."""
        ...

    async def close(self) -> None:
        """End every connection."""
        ...
