"""Namespaces and ConfigMaps, as their users change them."""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from scheduler.kube.defaults import Identity, merge_patched
from scheduler.kube.objects import ConfigMap, Namespace, ObjectMeta
from scheduler.testing.cluster.store import Collection


class Namespaces:
    """Verbs on one collection of namespaces."""

    def __init__(self, collection: Collection[Namespace], identity: Identity) -> None:
        self.collection = collection
        self._identity = identity

    def __iter__(self) -> Iterator[Namespace]:
        """Namespaces in order of creation."""
        return iter(self.collection)

    def exists(self, name: str) -> bool:
        """Whether there is one of that name."""
        return self.collection.find("", name) is not None

    def create(self, name: str, labels: Mapping[str, str] | None = None) -> Namespace:
        """Make one, with the label of its name that every namespace gets; raises ApiConflict when it exists."""
        with_name = {**(labels or {}), "kubernetes.io/metadata.name": name}
        return self.collection.create(Namespace(self._identity.given_to(ObjectMeta(name=name, labels=with_name))))

    def ensure(self, name: str) -> None:
        """Make it unless it exists."""
        if not self.exists(name):
            self.create(name)

    def label(self, name: str, labels: Mapping[str, str | None]) -> Namespace:
        """Merge labels, None taking one away; raises ApiNotFound."""
        old = self.collection.existing("", name)
        metadata = replace(old.metadata, labels=merge_patched(old.metadata.labels or {}, labels))
        return self.collection.replace(Namespace(metadata))

    def remove(self, name: str) -> None:
        """Take the object away; raises ApiNotFound."""
        self.collection.remove("", name)


class ConfigMaps:
    """Verbs on one collection of ConfigMaps."""

    def __init__(self, collection: Collection[ConfigMap], identity: Identity, namespaces: Namespaces) -> None:
        self.collection = collection
        self._identity = identity
        self._namespaces = namespaces

    def __iter__(self) -> Iterator[ConfigMap]:
        """ConfigMaps in order of creation."""
        return iter(self.collection)

    def create(self, namespace: str, name: str, data: Mapping[str, str]) -> ConfigMap:
        """Make one, and its namespace if that is missing; raises ApiConflict when it exists."""
        self._namespaces.ensure(namespace)
        metadata = self._identity.given_to(ObjectMeta(name=name, namespace=namespace))
        return self.collection.create(ConfigMap(metadata, dict(data)))

    def update(self, namespace: str, name: str, data: Mapping[str, str]) -> ConfigMap:
        """Replace the data; raises ApiNotFound."""
        return self.collection.replace(replace(self.collection.existing(namespace, name), data=dict(data)))

    def delete(self, namespace: str, name: str) -> None:
        """Take it away; raises ApiNotFound."""
        self.collection.remove(namespace, name)
