"""Volumes of a pod that restrict its nodes. Pure.

Sources: k8s.io/component-helpers/storage/ephemeral (VolumeClaimName); kube-scheduler, plugins/volumerestrictions
(isVolumeConflict); k8s.io/csi-translation-lib/plugins, for the drivers that replaced volume plugins.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

import msgspec

from scheduler.kube import objects
from scheduler.kube.size_limits import LARGEST

# (namespace, name) of a PersistentVolumeClaim.
ClaimKey: TypeAlias = tuple[str, str]
# (driver, handle): an attachment on a node.
Attachable: TypeAlias = tuple[str, str]

CLAIM: Final = "persistentVolumeClaim"
EPHEMERAL: Final = "ephemeral"
AWS: Final = "awsElasticBlockStore"
AZURE: Final = "azureDisk"
CINDER: Final = "cinder"
GCE: Final = "gcePersistentDisk"
PORTWORX: Final = "portworxVolume"
# CSI driver that attaches volumes of each kind.
DRIVERS: Final = {
    AWS: "ebs.csi.aws.com",
    AZURE: "disk.csi.azure.com",
    CINDER: "cinder.csi.openstack.org",
    GCE: "pd.csi.storage.gke.io",
    PORTWORX: "pxd.portworx.com",
}
_ISCSI: Final = "iscsi"
_RBD: Final = "rbd"
JUDGED: Final = frozenset({CLAIM, EPHEMERAL, _ISCSI, _RBD, *DRIVERS})


class PodClaim(NamedTuple):
    """A claim that a pod uses. ephemeral: created only for this pod, by the controller of ephemeral volumes."""

    name: str
    ephemeral: bool


class DiskUse(NamedTuple):
    """Disk that two pods on a node may share only if both read it."""

    disk: str
    read_only: bool


class PodVolumes(msgspec.Struct, frozen=True):
    """Volumes of a pod. claims: in the order of the volumes.

    attached: disks that the pod names itself, without a claim, and that its node has to attach.
    """

    claims: tuple[PodClaim, ...] = ()
    disks: tuple[DiskUse, ...] = ()
    attached: tuple[Attachable, ...] = ()


NO_VOLUMES: Final = PodVolumes()


def volumes_of(pod: objects.PodObject) -> PodVolumes:
    """Return the volumes of the pod; none if it has more volumes than are read."""
    volumes = pod.spec.volumes
    if not any(kind in JUDGED for volume in volumes for kind in volume) or len(volumes) > LARGEST:
        return NO_VOLUMES
    claims: list[PodClaim] = []
    disks: list[DiskUse] = []
    attached: list[Attachable] = []
    for volume in volumes:
        for kind, source in volume.items():
            if not isinstance(source, objects.VolumeSource) or kind not in JUDGED:
                continue
            if kind == CLAIM:
                claims.append(PodClaim(source.claim_name, ephemeral=False))
            elif kind == EPHEMERAL:
                claims.append(PodClaim(f"{pod.metadata.name}-{volume.get('name', '')}", ephemeral=True))
            else:
                disks.extend(_disks(kind, source))
            if kind in DRIVERS:
                attached.append((DRIVERS[kind], handle(kind, source)))
    return PodVolumes(tuple(claims), tuple(disks), tuple(attached))


class Disk(NamedTuple):
    """Name of a disk in the old volume kinds; fields of the other kinds are ""."""

    volume_id: str
    pd_name: str
    disk_uri: str


def handle(kind: str, source: objects.VolumeSource | Disk) -> str:
    """Return the CSI handle of a disk; different disks have different handles."""
    if kind == GCE:
        return source.pd_name
    if kind == AZURE:
        return source.disk_uri
    # aws://<zone>/<id>, or only the id.
    return source.volume_id.rpartition("/")[2] if kind == AWS else source.volume_id


def _disks(kind: str, source: objects.VolumeSource) -> Iterator[DiskUse]:
    """Yield the disk uses of a volume. Two uses of the same disk conflict; a Ceph disk has one use for each monitor."""
    if kind == GCE:
        yield DiskUse(f"{kind} {source.pd_name}", source.read_only)
    elif kind == AWS:
        # Even two readers cannot share one.
        yield DiskUse(f"{kind} {source.volume_id}", read_only=False)
    elif kind == _ISCSI:
        yield DiskUse(f"{kind} {source.iqn}", source.read_only)
    elif kind == _RBD:
        # kube-apiserver fills in a missing pool.
        for monitor in dict.fromkeys(source.monitors):
            yield DiskUse(f"{kind} {monitor} {source.pool} {source.image}", source.read_only)
