"""Every kind of volume: what kube-scheduler lets through, this scheduler lets through, and both object alike.

Both judge the same pod on the same node, on which a pod already has such a volume and whose limits for attached disks
are used up: so a kind that kube-scheduler binds nevertheless is one that none of its rules looks at.
"""

from collections.abc import AsyncIterator
from typing import Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Admin, Json
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.beside import TIMES_ASKED
from e2e.support.gpu_site import GpuSite, condition, gpu_site, is_bound, is_unschedulable
from tests.support.documents.pod_fields import TABLE, Verdict

THEIRS: Final = "default-scheduler"
CSI_NODES: Final = "/apis/storage.k8s.io/v1/csinodes"
# As the kubelet writes it; before 1.36 kube-scheduler counts volumes of Portworx only where it says so.
MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
# Of the disks of clouds that kube-scheduler counts as volumes of these drivers (csi-translation-lib, plugins).
DRIVERS: Final = (
    "cinder.csi.openstack.org",
    "csi.vsphere.vmware.com",
    "disk.csi.azure.com",
    "ebs.csi.aws.com",
    "file.csi.azure.com",
    "pd.csi.storage.gke.io",
    "pxd.portworx.com",
)
_CLAIM: Final = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def source(kind: str, name: str) -> Json:
    """A volume of that kind, as the API server accepts it. name: of the disk, where the kind has one."""
    sources: dict[str, Json] = {
        "awsElasticBlockStore": {"volumeID": name},
        "azureDisk": {"diskName": name, "diskURI": f"/subscriptions/s/disks/{name}", "kind": "Managed"},
        "azureFile": {"secretName": "s", "shareName": name},
        "cephfs": {"monitors": ["10.0.0.1:6789"]},
        "cinder": {"volumeID": name},
        "configMap": {"name": "c"},
        "csi": {"driver": "ebs.csi.aws.com"},
        "downwardAPI": {},
        "emptyDir": {},
        "ephemeral": {"volumeClaimTemplate": {"spec": _CLAIM}},
        "fc": {"targetWWNs": ["50060e801049cfd1"], "lun": 0},
        "flexVolume": {"driver": "example.com/d"},
        "flocker": {"datasetName": name},
        "gcePersistentDisk": {"pdName": name},
        "gitRepo": {"repository": "https://example.com/r.git"},
        "glusterfs": {"endpoints": "e", "path": name},
        "hostPath": {"path": "/opt"},
        "image": {"reference": "example.com/i:1"},
        "iscsi": {"targetPortal": "10.0.0.1:3260", "iqn": "iqn.2001-04.com.example:d", "lun": 0},
        "nfs": {"server": "10.0.0.1", "path": "/"},
        "persistentVolumeClaim": {"claimName": "c"},
        "photonPersistentDisk": {"pdID": name},
        "portworxVolume": {"volumeID": name},
        "projected": {"sources": []},
        "quobyte": {"registry": "h:1", "volume": name},
        "rbd": {"monitors": ["10.0.0.1:6789"], "image": "i"},
        "scaleIO": {"gateway": "https://h", "system": "s", "secretRef": {"name": "s"}, "volumeName": name},
        "secret": {"secretName": "s"},
        "storageos": {"volumeName": name},
        "vsphereVolume": {"volumePath": name},
    }
    return {"name": "v", kind: sources[kind]}


KINDS: Final = sorted(field.name for field in TABLE["Volume"] if field.name != "name")
LOOKED_AT: Final = {field.name for field in TABLE["Volume"] if field.verdict is Verdict.JUDGED}


@pytest.fixture
async def site(
    kube_scheduler: None, scheduler: SchedulerProcess, admin: Admin, namespace: str
) -> AsyncIterator[GpuSite]:
    del kube_scheduler
    await scheduler.ready()
    async with gpu_site(admin, namespace, scheduler) as made:
        await made.nodes(a=[16])
        drivers = [{"name": name, "nodeID": "a", "allocatable": {"count": 1}} for name in DRIVERS]
        metadata = {"name": "a", "annotations": {MIGRATED: "kubernetes.io/portworx-volume"}}
        await admin.create(CSI_NODES, {"metadata": metadata, "spec": {"drivers": drivers}})
        # kube-scheduler knows the node, too.
        await admin.create(made.pods_path, {"metadata": {"name": "first"}, "spec": spec_of(THEIRS)})
        await made.bound("first")
        await made.delete_pod("first")
        yield made
        await admin.delete(f"{CSI_NODES}/a")


def spec_of(scheduler: str) -> Json:
    """Of a pod without volumes."""
    return {"schedulerName": scheduler, "containers": [{"name": "c", "image": "none"}]}


async def verdict(site: GpuSite, kind: str, scheduler: str, disk: str) -> str:
    """`bound`, or why not."""
    name = f"{kind.lower()}-{scheduler}-{disk}"
    spec = spec_of(scheduler) | {"volumes": [source(kind, disk)]}
    await site.admin.create(site.pods_path, {"metadata": {"name": name}, "spec": spec})
    pod = await site.seen(name, lambda pod: is_bound(pod) or is_unschedulable(pod))
    said: str = "bound" if is_bound(pod) else condition(pod)["message"]
    await site.delete_pod(name)
    return said.replace(name, "<pod>")


async def one_is_there(site: GpuSite, kind: str, disk: str) -> None:
    """A pod on the node has such a volume."""
    spec = {"containers": [{"name": "c", "image": "none"}], "volumes": [source(kind, disk)], "nodeName": "a"}
    name = f"holder-{kind.lower()}"
    await site.admin.create(site.pods_path, {"metadata": {"name": name}, "spec": spec})
    await site.seen(name, is_bound)


async def verdicts(site: GpuSite, kind: str) -> tuple[list[str], list[str]]:
    """Theirs and ours of two disks, as far as both say the same things."""
    theirs = [await verdict(site, kind, THEIRS, disk) for disk in ("shared", "another")]
    ours = [await verdict(site, kind, names.SCHEDULER_NAME, disk) for disk in ("shared", "another")]
    # What follows is of preemption, and with kube-scheduler of resource claims before it.
    ours = [said.partition(" preemption: ")[0] for said in ours]
    return [said[: len(of_ours)] for said, of_ours in zip(theirs, ours, strict=True)], ours


@pytest.mark.parametrize("kind", KINDS)
async def test_both_schedulers_say_the_same_of_every_kind_of_volume(site: GpuSite, kind: str) -> None:
    await one_is_there(site, kind, "shared")

    for _ in range(TIMES_ASKED):
        theirs, ours = await verdicts(site, kind)
        if theirs == ours and (set(ours) == {"bound"}) == (kind not in LOOKED_AT):
            break

    assert theirs == ours
    assert (set(ours) == {"bound"}) == (kind not in LOOKED_AT), ours
