"""Leases, as their holders write them."""

from msgspec.structs import replace

from scheduler.kube.leases import PODS_SEEN, Lease
from scheduler.kube.objects import ObjectMeta
from scheduler.kube.port import ApiConflict, WantedLease
from scheduler.simulation.defaults import Identity
from scheduler.simulation.store import Collection


class Leases:
    """Verbs on one collection of Leases."""

    def __init__(self, collection: Collection[Lease], identity: Identity) -> None:
        self.collection = collection
        self._identity = identity

    def find(self, namespace: str, name: str) -> Lease | None:
        """None when there is none."""
        return self.collection.find(namespace, name)

    def write(self, wanted: WantedLease) -> str:
        """As `port.Cluster.write_lease`."""
        if not wanted.version:
            metadata = self._identity.given_to(ObjectMeta(name=wanted.name, namespace=wanted.namespace))
            return self.collection.create(Lease(metadata, wanted.spec)).metadata.resource_version
        old = self.collection.existing(wanted.namespace, wanted.name)
        if old.metadata.resource_version != wanted.version:
            message = f'Operation cannot be fulfilled on leases "{wanted.name}": the object has been modified'
            raise ApiConflict(message, 409)
        others = {key: text for key, text in (old.metadata.annotations or {}).items() if key != PODS_SEEN}
        annotations = others if wanted.pods_seen is None else {**others, PODS_SEEN: wanted.pods_seen}
        metadata = replace(old.metadata, annotations=annotations or None)
        return self.collection.replace(Lease(metadata, wanted.spec)).metadata.resource_version

    def delete(self, namespace: str, name: str) -> None:
        """Take it away; raises ApiNotFound."""
        self.collection.remove(namespace, name)
