"""Storage objects in the wire format, with only the fields that the scheduler reads.

Pure data, like `objects`. Source: the OpenAPI document of Kubernetes 1.36.
"""

import msgspec

from scheduler.kube.objects import (
    ApiObject,
    Int32,
    Int64,
    LabelSelector,
    NodeSelector,
    Quantities,
    ResourceRequirements,
)


class _Wire(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """Immutable wire data, like that of `objects`."""


class PersistentVolumeClaimSpec(_Wire, frozen=True):
    """Specification of a claim. volume_name: its bound or requested volume. storage_class_name: None if unset."""

    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: ResourceRequirements | None = None
    volume_name: str = ""
    storage_class_name: str | None = None
    volume_mode: str = ""
    volume_attributes_class_name: str = ""


class PersistentVolumeClaimStatus(_Wire, frozen=True):
    """Status of a claim. phase: Pending, Bound or Lost."""

    phase: str = ""


class PersistentVolumeClaim(ApiObject, frozen=True):
    """v1.PersistentVolumeClaim."""

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class ClaimReference(_Wire, frozen=True):
    """The claim that a volume is bound to, or reserved for. uid: "" if an operator has written only the name."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(_Wire, frozen=True):
    """Nodes that can use a volume; None for all nodes."""

    required: NodeSelector | None = None


class CsiSource(_Wire, frozen=True):
    """A volume of a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class DiskSource(_Wire, frozen=True):
    """A disk of an old in-tree volume plugin. Its kind determines which field is set; the others are ""."""

    volume_id: str = msgspec.field(default="", name="volumeID")
    pd_name: str = ""
    disk_uri: str = msgspec.field(default="", name="diskURI")


class PersistentVolumeSpec(_Wire, frozen=True):
    """Specification of a volume. claim_ref: None if free. Only sources that count against a node limit are read."""

    capacity: Quantities | None = None
    access_modes: tuple[str, ...] = ()
    claim_ref: ClaimReference | None = None
    storage_class_name: str = ""
    volume_mode: str = ""
    volume_attributes_class_name: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None
    aws_elastic_block_store: DiskSource | None = None
    azure_disk: DiskSource | None = None
    cinder: DiskSource | None = None
    gce_persistent_disk: DiskSource | None = None
    portworx_volume: DiskSource | None = None


class PersistentVolumeStatus(_Wire, frozen=True):
    """Status of a volume. phase: Pending, Available, Bound, Released or Failed."""

    phase: str = ""


class PersistentVolume(ApiObject, frozen=True):
    """v1.PersistentVolume."""

    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class TopologyRequirement(_Wire, frozen=True):
    """A requirement that the label has one of the values."""

    key: str
    values: tuple[str, ...] = ()


class TopologyTerm(_Wire, frozen=True):
    """Requirements, ANDed; an empty term matches no node."""

    match_label_expressions: tuple[TopologyRequirement, ...] = ()


class StorageClass(ApiObject, frozen=True):
    """storage.k8s.io/v1 StorageClass. allowed_topologies: terms, ORed; without terms, every node is allowed."""

    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: tuple[TopologyTerm, ...] = ()


class CsiNodeAllocatable(_Wire, frozen=True):
    """Limit of a driver on a node. count: maximum number of its volumes; None for no limit."""

    count: Int32 | None = None


class CsiNodeDriver(_Wire, frozen=True):
    """A driver on a node."""

    name: str
    allocatable: CsiNodeAllocatable | None = None


class CsiNodeSpec(_Wire, frozen=True):
    """Drivers on a node; the kubelet writes null for none."""

    drivers: tuple[CsiNodeDriver, ...] | None = None


class CSINode(ApiObject, frozen=True):
    """storage.k8s.io/v1 CSINode; its name is the node's."""

    spec: CsiNodeSpec = CsiNodeSpec()


class CsiDriverSpec(_Wire, frozen=True):
    """Specification of a driver.

    storage_capacity: whether CSIStorageCapacity objects report its capacity, which then counts.
    prevent_pod_scheduling_if_missing: whether a node without the driver is unsuitable for pods with its volumes.
    """

    storage_capacity: bool = False
    prevent_pod_scheduling_if_missing: bool | None = None


class CSIDriver(ApiObject, frozen=True):
    """storage.k8s.io/v1 CSIDriver."""

    spec: CsiDriverSpec = CsiDriverSpec()


class CSIStorageCapacity(ApiObject, frozen=True):
    """storage.k8s.io/v1 CSIStorageCapacity. node_topology: labels of the nodes it applies to, None for no node."""

    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: str | Int64 | float | None = None
    maximum_volume_size: str | Int64 | float | None = None


class VolumeAttachmentSource(_Wire, frozen=True):
    """The attached volume."""

    persistent_volume_name: str = ""


class VolumeAttachmentSpec(_Wire, frozen=True):
    """Specification of an attachment. attacher: the driver."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(ApiObject, frozen=True):
    """storage.k8s.io/v1 VolumeAttachment."""

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()
