"""Leases, as their holders write them."""

from collections.abc import Mapping

from msgspec.structs import replace

from scheduler.kube.defaults import Identity
from scheduler.kube.leases import PAGE_URL, PODS_SEEN, Lease
from scheduler.kube.objects import ObjectMeta
from scheduler.kube.port import ApiConflict, WantedLease
from scheduler.testing.cluster.store import Collection


class Leases:
    """Verbs on one collection of Leases."""

    def __init__(self, collection: Collection[Lease], identity: Identity) -> None:
        self.collection = collection
        self._identity = identity

    def find(self, namespace: str, name: str) -> Lease | None:
        """The Lease, or None."""
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
        """Take it away; raises ApiNotFound."""
        self.collection.remove(namespace, name)


def _annotated(old: Mapping[str, str], wanted: WantedLease) -> dict[str, str] | None:
    written = {PODS_SEEN: wanted.pods_version, PAGE_URL: wanted.page_url}
    others = {key: text for key, text in old.items() if key not in written}
    return others | {key: text for key, text in written.items() if text is not None} or None
