"""A cluster from its operator's view: everything besides our scheduler, synchronous."""

from collections.abc import Callable
from typing import Any, Final

from scheduler.kube.defaults import Identity
from scheduler.kube.leases import Lease
from scheduler.kube.objects import ConfigMap, Namespace, Node, PodDisruptionBudget, PodObject, PriorityClass
from scheduler.kube.port import ApiNotFound, Kind, T
from scheduler.testing.cluster.event_log import EventLog
from scheduler.testing.cluster.namespaces import (
    ConfigMaps,
    Leases,
    Namespaces,
    Nodes,
    PodDisruptionBudgets,
    PriorityClasses,
    Selecting,
)
from scheduler.testing.cluster.pods import Pods
from scheduler.testing.cluster.storage import Storage
from scheduler.testing.cluster.store import Collection, Versions, resource_of

# Size limit of an API server's watch cache: apiserver/pkg/storage/cacher, defaultUpperBoundCapacity.
HISTORY_LIMIT: Final = 102_400
_MADE_BY_THE_SERVER: Final = ("default", "kube-system", "kube-public", "kube-node-lease")


class World:
    """All objects of one cluster.

    now_s: Unix seconds, for timestamps. history_limit: number of past changes of each resource that a watch can get.
    """

    def __init__(self, now_s: Callable[[], float], history_limit: int = HISTORY_LIMIT) -> None:
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
        self.selecting = Selecting(self._versions, history_limit, identity, self.namespaces)
        self._collections |= self.storage.collections | self.selecting.collections
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
        """The collection that a kind shows; raises ApiNotFound for a resource that is not simulated."""
        found: Collection[T] | None = self._collections.get(resource_of(kind))
        if found is None:
            raise ApiNotFound("the server could not find the requested resource", 404)
        return found

    def delete_namespace(self, name: str) -> None:
        """Remove a namespace and its objects, as the namespace controller does; raises ApiNotFound."""
        self.namespaces.collection.existing("", name)
        for pod in [pod for pod in self.pods if pod.metadata.namespace == name]:
            self.pods.remove(name, pod.metadata.name)
        for config_map in [found for found in self.config_maps if found.metadata.namespace == name]:
            self.config_maps.delete(name, config_map.metadata.name)
        self.storage.delete_all(name)
        self.selecting.delete_all(name)
        self.namespaces.remove(name)

    def compact_history(self) -> None:
        """Let every resource version before now expire: a watch from one of them gets 410."""
        for collection in self._collections.values():
            collection.compact()
