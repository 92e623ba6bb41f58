"""Services and controllers, as their users change them; none of them does anything here but select pods."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from scheduler.kube.defaults import Identity, decoded
from scheduler.kube.port import SELECTING, Kind, T
from scheduler.testing.cluster.namespaces import Namespaces
from scheduler.testing.cluster.store import Collection, Versions

_DEFAULT: Final = "default"


class Selecting:
    """Verbs on the collections of `port.SELECTING`."""

    def __init__(self, versions: Versions, history_limit: int, identity: Identity, namespaces: Namespaces) -> None:
        self.collections: dict[str, Collection[Any]] = {
            kind.name: Collection(kind.name, versions, history_limit) for kind in SELECTING
        }
        self._identity = identity
        self._namespaces = namespaces

    def create(self, kind: Kind[T], wanted: T | Mapping[str, Any]) -> T:
        """Make one of an object or a manifest, and its namespace if that is missing; raises ApiConflict."""
        given = decoded(wanted, kind.type)
        meta = replace(given.metadata, namespace=given.metadata.namespace or _DEFAULT)
        self._namespaces.ensure(meta.namespace)
        collection: Collection[T] = self.collections[kind.name]
        return collection.create(replace(given, metadata=self._identity.given_to(meta)))

    def delete(self, kind: Kind[T], namespace: str, name: str) -> None:
        """Take it away; raises ApiNotFound."""
        self.collections[kind.name].remove(namespace, name)

    def delete_all(self, namespace: str) -> None:
        """Delete all objects of a namespace."""
        for collection in self.collections.values():
            for found in [one for one in collection if one.metadata.namespace == namespace]:
                collection.remove(namespace, found.metadata.name)
