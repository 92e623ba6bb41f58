"""A PersistentVolumeClaim as the scheduler sees it.

Source: k8s.io/component-helpers/storage/volume (GetPersistentVolumeClaimClass, AnnSelectedNode, AnnBindCompleted).
"""

from typing import Final, NamedTuple

import msgspec

from config.protocol import quantity
from scheduler.kube import storage
from scheduler.kube.objects import Quantities
from scheduler.kube.size_limits import is_too_large
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.state.columns.selectors import Expressions, of_label_selector

SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
ONE_POD: Final = "ReadWriteOncePod"
FILESYSTEM: Final = "Filesystem"
_STORAGE: Final = "storage"


class Wants(NamedTuple):
    """Requirements of a claim. size: bytes. selector: for the volume's labels, None if it matches no volume."""

    class_name: str
    size: int
    modes: frozenset[str]
    volume_mode: str
    attributes_class: str
    selector: Expressions | None


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """One claim. volume: the volume's name, "" if it has none. bound: whether the binding of the two is complete.

    has_size: whether it requests a size. selected_node: node for which a volume is being created, or "". owner_uid: UID
    of its controller, or "". too_large: its selector is over the size limit.
    """

    uid: str
    version: str
    wants: Wants
    has_size: bool
    volume: str
    bound: bool
    selected_node: str
    lost: bool
    deleting: bool
    one_pod: bool
    owner_uid: str
    too_large: bool


def key_of(claim: storage.PersistentVolumeClaim) -> ClaimKey:
    """Namespace and name."""
    return claim.metadata.namespace, claim.metadata.name


def claim_of(wire: storage.PersistentVolumeClaim) -> Claim:
    """The claim. Raises QuantityError for an invalid size."""
    meta, spec = wire.metadata, wire.spec
    annotations = meta.annotations or {}
    requests = spec.resources.requests if spec.resources is not None else None
    too_large = is_too_large(spec.selector)
    selector: Expressions | None = ()
    if spec.selector is not None:
        selector = None if too_large else of_label_selector(spec.selector)
    wants = Wants(
        class_name=annotations.get(BETA_CLASS, spec.storage_class_name or ""),
        size=size_of(requests),
        modes=frozenset(spec.access_modes),
        volume_mode=spec.volume_mode or FILESYSTEM,
        attributes_class=spec.volume_attributes_class_name,
        selector=selector,
    )
    return Claim(
        uid=meta.uid,
        version=meta.resource_version,
        wants=wants,
        has_size=_STORAGE in (requests or ()),
        volume=spec.volume_name,
        bound=bool(spec.volume_name) and BIND_COMPLETED in annotations,
        selected_node=annotations.get(SELECTED_NODE, ""),
        lost=wire.status.phase == "Lost",
        deleting=bool(meta.deletion_timestamp),
        one_pod=ONE_POD in spec.access_modes,
        owner_uid=next((owner.uid for owner in meta.owner_references if owner.controller), ""),
        too_large=too_large,
    )


def size_of(amounts: Quantities | None) -> int:
    """Bytes of storage, 0 without a size. Raises QuantityError."""
    text = (amounts or {}).get(_STORAGE)
    return 0 if text is None else quantity.whole(str(text))
