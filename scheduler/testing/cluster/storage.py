"""Claims, volumes and other storage objects, and the changes that users, operators and provisioners make to them."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec.structs import replace

from scheduler.kube import storage
from scheduler.kube.defaults import Identity, decoded, merge_patched
from scheduler.kube.port import (
    CLAIMS,
    OF_STORAGE,
    VOLUMES,
    ApiConflict,
    Kind,
    NodeForClaim,
    T,
    VolumeForClaim,
)
from scheduler.kube.storage import ClaimReference, PersistentVolume, PersistentVolumeClaim
from scheduler.testing.cluster.namespaces import Namespaces, VerbsOfKinds
from scheduler.testing.cluster.store import Versions

_BOUND_BY_CONTROLLER: Final = {"pv.kubernetes.io/bound-by-controller": "yes"}
_BIND_COMPLETED: Final = {"pv.kubernetes.io/bind-completed": "yes"}
_SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
_NAMESPACED: Final = frozenset({"persistentvolumeclaims", "csistoragecapacities"})
_CLUSTER_SCOPED: Final = frozenset(kind.name for kind in OF_STORAGE) - _NAMESPACED


class Storage(VerbsOfKinds):
    """Verbs on the collections of `port.OF_STORAGE`; each is one write, unless it changes nothing."""

    def __init__(self, versions: Versions, history_limit: int, identity: Identity, namespaces: Namespaces) -> None:
        super().__init__(OF_STORAGE, versions, history_limit, identity, namespaces, cluster_scoped=_CLUSTER_SCOPED)

    def create(self, kind: Kind[T], wanted: T | Mapping[str, Any]) -> T:
        """Create an object from an object or a manifest, and its namespace if missing. Raises ApiConflict."""
        return super().create(kind, _with_phase(decoded(wanted, kind.type)))

    def update(self, kind: Kind[T], namespace: str, name: str, change: Callable[[T], T]) -> T:
        """Replace the object by the result of `change`. Raises ApiNotFound."""
        collection = self.of(kind)
        return collection.replace(change(collection.existing(namespace, name)))

    def bind_volume(self, wanted: VolumeForClaim) -> str:
        """Execute the request. Raises ApiNotFound, ApiConflict."""
        volume = self.of(VOLUMES).existing("", wanted.volume)
        _check(volume, wanted.version, VOLUMES)
        reference = ClaimReference(wanted.claim_namespace, wanted.claim, wanted.claim_uid)
        spec = replace(volume.spec, claim_ref=reference)
        written = replace(_annotated(volume, {} if wanted.kept else _BOUND_BY_CONTROLLER), spec=spec)
        return self.of(VOLUMES).replace(written).metadata.resource_version

    def select_node(self, wanted: NodeForClaim) -> str:
        """Execute the request. Raises ApiNotFound, ApiConflict."""
        claim = self.of(CLAIMS).existing(wanted.namespace, wanted.claim)
        _check(claim, wanted.version, CLAIMS)
        return self.of(CLAIMS).replace(_annotated(claim, {_SELECTED_NODE: wanted.node})).metadata.resource_version

    def bind(self, namespace: str, claim: str, volume: str) -> None:
        """Complete the binding of the two, as the volume controller does."""

        def of_volume(found: PersistentVolume) -> PersistentVolume:
            uid = self.of(CLAIMS).existing(namespace, claim).metadata.uid
            spec = replace(found.spec, claim_ref=ClaimReference(namespace, claim, uid))
            return replace(found, spec=spec, status=replace(found.status, phase="Bound"))

        def of_claim(found: PersistentVolumeClaim) -> PersistentVolumeClaim:
            spec = replace(found.spec, volume_name=volume)
            return replace(_annotated(found, _BIND_COMPLETED), spec=spec, status=replace(found.status, phase="Bound"))

        self.update(VOLUMES, "", volume, of_volume)
        self.update(CLAIMS, namespace, claim, of_claim)

    def annotate_claim(self, namespace: str, name: str, annotations: Mapping[str, str | None]) -> None:
        """Merge annotations; None removes one."""
        self.update(CLAIMS, namespace, name, lambda found: _annotated(found, annotations))


def _with_phase(given: T) -> T:
    """Return the object with an initial phase, unless it has a phase."""
    if isinstance(given, PersistentVolume) and not given.status.phase:
        return replace(given, status=storage.PersistentVolumeStatus("Available"))
    if isinstance(given, PersistentVolumeClaim) and not given.status.phase:
        return replace(given, status=storage.PersistentVolumeClaimStatus("Pending"))
    return given


def _annotated(found: T, annotations: Mapping[str, str | None]) -> T:
    merged = merge_patched(found.metadata.annotations or {}, annotations)
    return replace(found, metadata=replace(found.metadata, annotations=merged))


def _check(found: T, version: str, kind: Kind[T]) -> None:
    if found.metadata.resource_version != version:
        about = f'Operation cannot be fulfilled on {kind.name} "{found.metadata.name}"'
        message = f"{about}: the object has been modified; please apply your changes to the latest version"
        raise ApiConflict(message, 409)
