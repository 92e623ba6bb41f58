"""A cluster as its operator sees it: everything except our scheduler. All methods are synchronous.

Also holds the Events that clients have written, in order, under the server's rules. A note that is too long is cut, as
a client does before sending; other invalid Events are rejected. Source of the rules: pkg/apis/core/validation/events.go
(validateV1EventSeries and similar functions), Kubernetes 1.36.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from scheduler.kube.defaults import Identity
from scheduler.kube.events import cut_note
from scheduler.kube.leases import Lease
from scheduler.kube.objects import ConfigMap, Namespace, Node, PodDisruptionBudget, PodObject, PriorityClass
from scheduler.kube.port import SELECTING, ApiConflict, ApiNotFound, ApiRejected, EventRecord, EventSeries, Kind, T
from scheduler.testing.cluster.namespaces import (
    ConfigMaps,
    Leases,
    Namespaces,
    Nodes,
    PodDisruptionBudgets,
    PriorityClasses,
    VerbsOfKinds,
)
from scheduler.testing.cluster.pods import Pods
from scheduler.testing.cluster.storage import Storage
from scheduler.testing.cluster.store import Collection, Versions, resource_of

_FIELD_BYTES: Final = 128
# IsDNS1123Subdomain of apimachinery, pkg/api/validate/content/dns.go.
_NAME_BYTES: Final = 253
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An Event. series: None until it was seen a second time."""

    record: EventRecord
    series: EventSeries | None = None


class EventLog:
    """The written Events. namespace_exists: checked before an Event is created."""

    def __init__(self, namespace_exists: Callable[[str], bool]) -> None:
        self._namespace_exists = namespace_exists
        self._events: dict[tuple[str, str], StoredEvent] = {}

    def __len__(self) -> int:
        return len(self._events)

    def __iter__(self) -> Iterator[StoredEvent]:
        """Yield the Events in order of creation."""
        return iter(self._events.values())

    def about(self, namespace: str, name: str) -> list[StoredEvent]:
        """Return the Events about one object, in order of creation; reads every Event."""
        return [e for e in self if (e.record.namespace, e.record.object_name) == (namespace, name)]

    def create(self, record: EventRecord) -> None:
        """Store a new event. Raises ApiRejected, ApiNotFound (no such namespace), ApiConflict (the name is taken)."""
        if problem := _problem(record):
            raise ApiRejected(f'Event "{record.name}" is invalid: {problem}', 422)
        key = _key(record)
        if not self._namespace_exists(key[0]):
            raise ApiNotFound(f'namespaces "{key[0]}" not found', 404)
        if key in self._events:
            raise ApiConflict(f'events.events.k8s.io "{record.name}" already exists', 409)
        self._events[key] = StoredEvent(replace(record, note=cut_note(record.note)))

    def update(self, record: EventRecord, series: EventSeries) -> None:
        """Set the series. Raises ApiNotFound."""
        key = _key(record)
        if key not in self._events:
            raise ApiNotFound(f'events.events.k8s.io "{record.name}" not found', 404)
        self._events[key] = replace(self._events[key], series=series)

    def expire(self) -> None:
        """Drop every event, as the server does an hour after the last write to each."""
        self._events.clear()


def _key(record: EventRecord) -> tuple[str, str]:
    return record.namespace or "default", record.name


def _problem(record: EventRecord) -> str | None:
    """Return the first error for which a server would reject the Event. Lengths are in bytes, as in Go's `len`."""
    if len(record.name) > _NAME_BYTES or not _NAME.fullmatch(record.name):
        return f'metadata.name: Invalid value: "{record.name}"'
    fields = {
        "reportingController": record.reporting_controller,
        "reportingInstance": record.reporting_instance,
        "action": record.action,
        "reason": record.reason,
    }
    for name, value in fields.items():
        if not value:
            return f"{name}: Required value"
        if len(value.encode()) > _FIELD_BYTES:
            return f"{name}: can have at most {_FIELD_BYTES} characters"
    if record.type not in {"Normal", "Warning"}:
        return f'type: Invalid value: "{record.type}"'
    return None


# Size limit of an API server's watch cache: apiserver/pkg/storage/cacher, defaultUpperBoundCapacity.
HISTORY_LIMIT: Final = 102_400
_MADE_BY_THE_SERVER: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class World:
    """All objects of one cluster.

    now_s: Unix seconds, for timestamps. history_limit: number of past changes per resource that a watch can get.
    serves: optional kinds that the server knows.
    """

    def __init__(
        self, now_s: Callable[[], float], history_limit: int = HISTORY_LIMIT, serves: Iterable[Kind[Any]] = ()
    ) -> None:
        self._versions = Versions()
        identity = Identity(now_s)
        nodes = Collection[Node]("nodes", self._versions, history_limit)
        pods = Collection[PodObject]("pods", self._versions, history_limit)
        namespaces = Collection[Namespace]("namespaces", self._versions, history_limit)
        config_maps = Collection[ConfigMap]("configmaps", self._versions, history_limit)
        budgets = Collection[PodDisruptionBudget]("poddisruptionbudgets", self._versions, history_limit)
        leases = Collection[Lease]("leases", self._versions, history_limit)
        classes = Collection[PriorityClass]("priorityclasses", self._versions, history_limit)
        self.namespaces = Namespaces(namespaces, identity)
        self.storage = Storage(self._versions, history_limit, identity, self.namespaces)
        own = (nodes, pods, namespaces, config_maps, budgets, classes, leases)
        self._collections: dict[str, Collection[Any]] = {collection.resource: collection for collection in own}
        self.selecting = VerbsOfKinds(SELECTING, self._versions, history_limit, identity, self.namespaces)
        self.optional = VerbsOfKinds(serves, self._versions, history_limit, identity, self.namespaces)
        self._collections |= self.storage.collections | self.selecting.collections | self.optional.collections
        self.config_maps = ConfigMaps(config_maps, identity, self.namespaces)
        self.disruption_budgets = PodDisruptionBudgets(budgets, identity, self.namespaces)
        self.leases = Leases(leases, identity)
        self.priority_classes = PriorityClasses(classes, identity)
        self.nodes = Nodes(nodes, identity)
        self.pods = Pods(pods, identity, self.namespaces, self.nodes)
        self.events = EventLog(self.namespaces.exists)
        for name in _MADE_BY_THE_SERVER:
            self.namespaces.create(name)

    @property
    def version(self) -> int:
        return self._versions.last

    def collection(self, kind: Kind[T]) -> Collection[T]:
        """Return the collection that a kind shows. Raises ApiNotFound for a resource that is not simulated."""
        found: Collection[T] | None = self._collections.get(resource_of(kind))
        if found is None:
            raise ApiNotFound("the server could not find the requested resource", 404)
        return found

    def delete_namespace(self, name: str) -> None:
        """Remove a namespace and its objects, as the namespace controller does. Raises ApiNotFound."""
        self.namespaces.collection.existing("", name)
        for pod in [pod for pod in self.pods if pod.metadata.namespace == name]:
            self.pods.remove(name, pod.metadata.name)
        for config_map in [found for found in self.config_maps if found.metadata.namespace == name]:
            self.config_maps.delete(name, config_map.metadata.name)
        self.storage.delete_all(name)
        self.selecting.delete_all(name)
        self.optional.delete_all(name)
        self.namespaces.remove(name)

    def compact_history(self) -> None:
        """Expire every resource version before the current one: a watch from an older one gets 410."""
        for collection in self._collections.values():
            collection.compact()
