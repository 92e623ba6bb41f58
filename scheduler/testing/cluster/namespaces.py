"""Namespaces, nodes and the small kinds: ConfigMaps, pod selectors, budgets, PriorityClasses, Leases."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic

from msgspec.structs import replace

from scheduler.kube.defaults import Identity, decoded, merge_patched, new_node
from scheduler.kube.leases import PODS_SEEN, Lease
from scheduler.kube.objects import (
    ConfigMap,
    DisruptionBudgetSpec,
    DisruptionBudgetStatus,
    LabelSelector,
    Namespace,
    Node,
    ObjectMeta,
    PodDisruptionBudget,
    PriorityClass,
    Quantities,
    Taint,
)
from scheduler.kube.port import ApiConflict, Kind, T, WantedLease
from scheduler.testing.cluster.store import Collection, Versions

_DEFAULT: Final = "default"


class Verbs(Generic[T]):
    """Verbs on one collection. Each verb is one write, unless it changes nothing."""

    def __init__(self, collection: Collection[T], identity: Identity) -> None:
        self.collection = collection
        self._identity = identity

    def __len__(self) -> int:
        return len(self.collection)

    def __iter__(self) -> Iterator[T]:
        """Yield the objects in order of creation."""
        return iter(self.collection)


class Namespaces(Verbs[Namespace]):
    """Verbs on one collection of namespaces."""

    def exists(self, name: str) -> bool:
        """Return whether a namespace with this name exists."""
        return self.collection.find("", name) is not None

    def create(self, name: str, labels: Mapping[str, str] | None = None) -> Namespace:
        """Create a namespace, with the name label that every namespace gets. Raises ApiConflict if it exists."""
        with_name = {**(labels or {}), "kubernetes.io/metadata.name": name}
        return self.collection.create(Namespace(self._identity.given_to(ObjectMeta(name=name, labels=with_name))))

    def ensure(self, name: str) -> None:
        if not self.exists(name):
            self.create(name)

    def label(self, name: str, labels: Mapping[str, str | None]) -> Namespace:
        """Merge labels; None removes one. Raises ApiNotFound."""
        old = self.collection.existing("", name)
        metadata = replace(old.metadata, labels=merge_patched(old.metadata.labels or {}, labels))
        return self.collection.replace(Namespace(metadata))

    def remove(self, name: str) -> None:
        """Remove the object. Raises ApiNotFound."""
        self.collection.remove("", name)


class _NamespacedVerbs(Verbs[T]):
    """Verbs on a collection of objects in namespaces."""

    def __init__(self, collection: Collection[T], identity: Identity, namespaces: Namespaces) -> None:
        super().__init__(collection, identity)
        self._namespaces = namespaces

    def add(self, wanted: T) -> T:
        """Create the object as given, and its namespace if missing. Raises ApiConflict if it exists."""
        meta = replace(wanted.metadata, namespace=wanted.metadata.namespace or _DEFAULT)
        self._namespaces.ensure(meta.namespace)
        return self.collection.create(replace(wanted, metadata=self._identity.given_to(meta)))

    def delete(self, namespace: str, name: str) -> None:
        self.collection.remove(namespace, name)


class ConfigMaps(_NamespacedVerbs[ConfigMap]):
    """Verbs on one collection of ConfigMaps."""

    def create(self, namespace: str, name: str, data: Mapping[str, str]) -> ConfigMap:
        """Create a ConfigMap, and its namespace if missing. Raises ApiConflict if it exists."""
        return self.add(ConfigMap(ObjectMeta(name=name, namespace=namespace), dict(data)))

    def update(self, namespace: str, name: str, data: Mapping[str, str]) -> ConfigMap:
        return self.collection.replace(replace(self.collection.existing(namespace, name), data=dict(data)))


class VerbsOfKinds:
    """Verbs on the collections of some kinds. cluster_scoped: names of the kinds without a namespace."""

    def __init__(
        self,
        kinds: Iterable[Kind[Any]],
        versions: Versions,
        history_limit: int,
        identity: Identity,
        namespaces: Namespaces,
        *,
        cluster_scoped: frozenset[str] = frozenset(),
    ) -> None:
        self.collections: dict[str, Collection[Any]] = {
            kind.name: Collection(kind.name, versions, history_limit) for kind in kinds
        }
        self._identity = identity
        self._namespaces = namespaces
        self._cluster_scoped = cluster_scoped

    def of(self, kind: Kind[T]) -> Collection[T]:
        """Return the objects of a kind."""
        found: Collection[T] = self.collections[kind.name]
        return found

    def create(self, kind: Kind[T], wanted: T | Mapping[str, Any]) -> T:
        """Create an object from an object or a manifest, and its namespace if missing. Raises ApiConflict."""
        given = decoded(wanted, kind.type)
        meta = given.metadata
        if kind.name not in self._cluster_scoped:
            meta = replace(meta, namespace=meta.namespace or _DEFAULT)
            self._namespaces.ensure(meta.namespace)
        return self.of(kind).create(replace(given, metadata=self._identity.given_to(meta)))

    def delete(self, kind: Kind[T], namespace: str, name: str) -> None:
        self.of(kind).remove(namespace, name)

    def delete_all(self, namespace: str) -> None:
        """Delete all objects of a namespace."""
        for collection in self.collections.values():
            for found in [one for one in collection if one.metadata.namespace == namespace]:
                collection.remove(namespace, found.metadata.name)


class PodDisruptionBudgets(_NamespacedVerbs[PodDisruptionBudget]):
    """Verbs on one collection of budgets. No controller counts the pods: `allow` sets the allowed disruptions."""

    def create(self, namespace: str, name: str, labels: Mapping[str, str], allowed: int) -> PodDisruptionBudget:
        """Create a budget for the pods with these labels, and its namespace if missing. Raises ApiConflict."""
        spec = DisruptionBudgetSpec(LabelSelector(match_labels=dict(labels)))
        metadata = ObjectMeta(name=name, namespace=namespace)
        return self.add(PodDisruptionBudget(metadata, spec, DisruptionBudgetStatus(allowed)))

    def allow(self, namespace: str, name: str, disruptions: int) -> PodDisruptionBudget:
        """Set the number of further disruptions that are allowed. Raises ApiNotFound."""
        old = self.collection.existing(namespace, name)
        return self.collection.replace(replace(old, status=replace(old.status, disruptions_allowed=disruptions)))


class PriorityClasses(Verbs[PriorityClass]):
    """Verbs on one collection of PriorityClasses. They set no pod's priority: manifests of pods carry it."""

    def create(
        self, name: str, value: int, *, global_default: bool = False, preemption_policy: str = ""
    ) -> PriorityClass:
        """Create a PriorityClass. Raises ApiConflict."""
        made = PriorityClass(self._identity.given_to(ObjectMeta(name)), value, global_default, preemption_policy)
        return self.collection.create(made)


class Leases(Verbs[Lease]):
    """Verbs on one collection of Leases."""

    def find(self, namespace: str, name: str) -> Lease | None:
        return self.collection.find(namespace, name)

    def write(self, wanted: WantedLease) -> str:
        """Write a Lease, see `port.Cluster.write_lease`."""
        if not wanted.version:
            new = ObjectMeta(name=wanted.name, namespace=wanted.namespace, annotations=_annotated({}, wanted))
            metadata = self._identity.given_to(new)
            return self.collection.create(Lease(metadata, wanted.spec)).metadata.resource_version
        old = self.collection.existing(wanted.namespace, wanted.name)
        if old.metadata.resource_version != wanted.version:
            message = f'Operation cannot be fulfilled on leases "{wanted.name}": the object has been modified'
            raise ApiConflict(message, 409)
        metadata = replace(old.metadata, annotations=_annotated(old.metadata.annotations or {}, wanted))
        return self.collection.replace(Lease(metadata, wanted.spec)).metadata.resource_version

    def delete(self, namespace: str, name: str) -> None:
        self.collection.remove(namespace, name)


def _annotated(old: Mapping[str, str], wanted: WantedLease) -> dict[str, str] | None:
    others = {key: text for key, text in old.items() if key != PODS_SEEN}
    return others | ({} if wanted.pods_version is None else {PODS_SEEN: wanted.pods_version}) or None


class Nodes(Verbs[Node]):
    """Verbs on one collection of nodes."""

    def find(self, name: str) -> Node | None:
        return self.collection.find("", name)

    def add(self, node: Node | Mapping[str, Any]) -> Node:
        """Create a node from an object or a manifest. Raises ApiConflict if the name is taken."""
        wanted = decoded(node, Node)
        named = self._identity.given_to(replace(wanted.metadata, namespace=""))
        return self.collection.create(new_node(replace(wanted, metadata=named)))

    def update(self, name: str, change: Callable[[Node], Node]) -> Node:
        """Replace the node by the result of `change`. Raises ApiNotFound."""
        return self.collection.replace(change(self.collection.existing("", name)))

    def patch(
        self,
        name: str,
        *,
        labels: Mapping[str, str | None] | None = None,
        annotations: Mapping[str, str | None] | None = None,
        taints: Sequence[Taint] | None = None,
        unschedulable: bool | None = None,
        allocatable: Mapping[str, str | None] | None = None,
    ) -> Node:
        """Merge into a node in one write. None as a value removes a key, as an argument changes nothing.

        Raises ApiNotFound.
        """
        node = self.collection.existing("", name)
        spec, status = node.spec, node.status
        if taints is not None:
            spec = replace(spec, taints=tuple(taints))
        if unschedulable is not None:
            spec = replace(spec, unschedulable=unschedulable)
        if allocatable is not None:
            quantities: Quantities = dict(status.allocatable or {})
            status = replace(status, allocatable=merge_patched(quantities, allocatable))
        metadata = node.metadata
        if labels is not None:
            metadata = replace(metadata, labels=merge_patched(metadata.labels or {}, labels))
        if annotations is not None:
            metadata = replace(metadata, annotations=merge_patched(metadata.annotations or {}, annotations))
        return self.collection.replace(Node(metadata, spec, status))

    def delete(self, name: str) -> Node:
        """Remove the node; its pods stay until a controller removes them. Raises ApiNotFound."""
        return self.collection.remove("", name)
