"""A PersistentVolume as the scheduler sees it.

Sources: k8s.io/component-helpers/storage/volume (GetPersistentVolumeClass, FindMatchingVolume); kube-scheduler,
plugins/volumezone (getPVTopologies); k8s.io/cloud-provider/volume/helpers/zones.go (LabelZonesToSet).
"""

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from scheduler.kube import storage
from scheduler.kube.objects import NodeSelector
from scheduler.kube.size_limits import is_too_large
from scheduler.pods.pod_volumes import AWS, AZURE, CINDER, DRIVERS, GCE, PORTWORX, Attachable, Disk, handle
from scheduler.state.volumes.claim import BETA_CLASS, FILESYSTEM, Wants, size_of

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
# Old label names and their replacements.
BETA_KEYS: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE,
    "failure-domain.beta.kubernetes.io/region": REGION,
}
TOPOLOGY_KEYS: Final = (*BETA_KEYS, ZONE, REGION)
_SEPARATOR: Final = "__"
_NO_LABELS: Final[Mapping[str, str]] = {}

# (label, values): a node with the label has one of the values.
Zone: TypeAlias = tuple[str, frozenset[str]]


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """One volume. affinity: None if every node can use it. claim: the claim that has or reserves it, or None.

    available: by its phase. zones: from its labels. attached: its attachment, None if no limit counts it; by_csi: for a
    CSI volume. too_large: its node affinity is over the size limit.
    """

    name: str
    version: str
    class_name: str
    size: int
    modes: frozenset[str]
    volume_mode: str
    attributes_class: str
    affinity: NodeSelector | None
    claim: storage.ClaimReference | None
    available: bool
    deleting: bool
    labels: Mapping[str, str]
    zones: tuple[Zone, ...]
    attached: Attachable | None
    by_csi: bool
    too_large: bool

    @property
    def is_free(self) -> bool:
        """Whether any claim that it suits may take it."""
        return self.available and self.claim is None and not self.deleting and not self.too_large

    def suits(self, wants: Wants) -> bool:
        """Whether the claim for which it is reserved may get it. Its class and labels do not matter."""
        return (
            self.size >= wants.size
            and self.volume_mode == wants.volume_mode
            and self.attributes_class == wants.attributes_class
            and not self.deleting
        )


def volume_of(wire: storage.PersistentVolume) -> Volume:
    """The volume. Raises QuantityError for an invalid size."""
    meta, spec = wire.metadata, wire.spec
    annotations, labels = meta.annotations or {}, meta.labels or _NO_LABELS
    affinity = None if spec.node_affinity is None else spec.node_affinity.required
    free = wire.status.phase == "Available" and spec.claim_ref is None
    too_large = is_too_large(affinity)
    return Volume(
        name=meta.name,
        version=meta.resource_version,
        class_name=annotations.get(BETA_CLASS, spec.storage_class_name),
        size=size_of(spec.capacity),
        modes=frozenset(spec.access_modes),
        volume_mode=spec.volume_mode or FILESYSTEM,
        attributes_class=spec.volume_attributes_class_name,
        affinity=None if too_large else affinity,
        claim=spec.claim_ref,
        available=wire.status.phase == "Available",
        deleting=bool(meta.deletion_timestamp),
        # Only a free volume is selected by its labels.
        labels=labels if free else _NO_LABELS,
        zones=_zones(labels),
        attached=_attached(spec),
        by_csi=spec.csi is not None,
        too_large=too_large,
    )


def _zones(labels: Mapping[str, str]) -> tuple[Zone, ...]:
    found = []
    for key in TOPOLOGY_KEYS:
        values = [value.strip() for value in labels.get(key, "").split(_SEPARATOR)]
        # An unreadable label is ignored.
        if all(values):
            found.append((key, frozenset(values)))
    return tuple(found)


def _attached(spec: storage.PersistentVolumeSpec) -> Attachable | None:
    if spec.csi is not None:
        return spec.csi.driver, spec.csi.volume_handle
    sources = {
        AWS: spec.aws_elastic_block_store,
        AZURE: spec.azure_disk,
        CINDER: spec.cinder,
        GCE: spec.gce_persistent_disk,
        PORTWORX: spec.portworx_volume,
    }
    for kind, source in sources.items():
        if source is not None:
            return DRIVERS[kind], handle(kind, Disk(source.volume_id, source.pd_name, source.disk_uri))
    return None


_NO_DRIVERS: Final[Mapping[str, int | None]] = {}
KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT", bound=Hashable)


class Attachment(NamedTuple):
    """A volume that a node has attached, or is attaching or detaching."""

    driver: str
    node: str
    volume: str


class Attachments:
    """Attachments by node. Each change returns the affected nodes."""

    def __init__(self) -> None:
        self._drivers: dict[str, Mapping[str, int | None]] = {}
        self._attachments: dict[str, Attachment] = {}
        # Names of attachments, by node and by volume.
        self._of_node: dict[str, set[str]] = {}
        self._of_volume: dict[str, set[str]] = {}

    def set_drivers(self, node: str, limits: Mapping[str, int | None]) -> tuple[str, ...]:
        """Set the drivers on the node, with the number of volumes that it can attach; None for any number."""
        if self.drivers(node) == limits:
            return ()
        if limits:
            self._drivers[node] = limits
        else:
            del self._drivers[node]
        return (node,)

    def set(self, name: str, attachment: Attachment | None) -> tuple[str, ...]:
        """Set an attachment by name; None if it is deleted."""
        old = self._attachments.pop(name, None)
        if old is not None:
            drop(self._of_node, old.node, name)
            drop(self._of_volume, old.volume, name)
        if attachment is not None:
            self._attachments[name] = attachment
            self._of_node.setdefault(attachment.node, set()).add(name)
            self._of_volume.setdefault(attachment.volume, set()).add(name)
        return tuple({one.node for one in (old, attachment) if one is not None})

    def drivers(self, node: str) -> Mapping[str, int | None]:
        """Drivers on the node, with its limits."""
        return self._drivers.get(node, _NO_DRIVERS)

    def of_node(self, node: str) -> Iterator[Attachment]:
        """Attachments of a node."""
        return (self._attachments[name] for name in self._of_node.get(node, ()))

    def nodes_with(self, volume: str) -> frozenset[str]:
        """Nodes to which a volume is attached."""
        return frozenset(self._attachments[name].node for name in self._of_volume.get(volume, ()))


def drop(index: dict[KeyT, set[ValueT]], key: KeyT, value: ValueT) -> None:
    """Remove a value from an index, and its set if that is then empty. No effect if the value is missing."""
    values = index.get(key)
    if values is not None:
        values.discard(value)
        if not values:
            del index[key]
