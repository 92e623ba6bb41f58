"""The row of bound claims: each pod has a disk of its own, which one zone can use and a node can attach so many of."""

from collections.abc import Iterator
from typing import Final

from e2e.bench import workload
from e2e.bench.race.placed import Placed
from e2e.bench.workload import NAMESPACE, ZONE, ZONES, Json, Size

PER_NODE: Final = 24
"""Disks that a node can attach."""

_DRIVER: Final = "disks.example.com"
_CLASS: Final = "disks"
_STORAGE: Final = "/apis/storage.k8s.io/v1"
_DISK: Final = {"accessModes": ["ReadWriteOnce"], "storageClassName": _CLASS, "volumeMode": "Filesystem"}
_BOUND: Final = {"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes"}


def before(size: Size) -> Iterator[tuple[str, Iterator[Json]]]:
    """What is there before the pods: path and objects, in order. The claims are bound, as their controller does it."""
    numbers = range(size.pods)
    waits = {"metadata": {"name": _CLASS}, "provisioner": _DRIVER, "volumeBindingMode": "WaitForFirstConsumer"}
    yield f"{_STORAGE}/storageclasses", iter([waits])
    yield f"{_STORAGE}/csinodes", (_csi_node(node["metadata"]["name"]) for node in workload.nodes(size))
    yield "/api/v1/persistentvolumes", (_volume(number) for number in numbers)
    yield f"/api/v1/namespaces/{NAMESPACE}/persistentvolumeclaims", (_claim(number) for number in numbers)


def pods(size: Size) -> Iterator[Json]:
    """The workload's pods; the server mounts the disk of the pod's number."""
    for number, pod in enumerate(workload.pods(size)):
        pod["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": f"claim-{number}"}})
        pod["spec"]["containers"][0]["volumeMounts"].append({"name": "data", "mountPath": "/data"})
        yield pod


def out_of_reach(placed: Placed) -> int:
    """Pods in another zone than their disk."""
    return sum(placed.zone_of(pod) != _zone(_number(pod)) for pod in placed.pods)


def nodes_with_too_many(placed: Placed) -> int:
    """Nodes with more disks than they can attach."""
    return sum(count > PER_NODE for count in placed.per_node().values())


def _number(pod: Json) -> int:
    """Of its disk."""
    (name,) = (v["persistentVolumeClaim"]["claimName"] for v in pod["spec"]["volumes"] if "persistentVolumeClaim" in v)
    return int(name.rpartition("-")[2])


def _zone(number: int) -> str:
    return ZONES[number % len(ZONES)]


def _volume(number: int) -> Json:
    within = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [_zone(number)]}]}
    own = {
        "capacity": {"storage": "100Gi"},
        "csi": {"driver": _DRIVER, "volumeHandle": f"disk-{number}"},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": f"claim-{number}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [within]}},
    }
    return {"metadata": {"name": f"disk-{number}"}, "spec": _DISK | own}


def _claim(number: int) -> Json:
    own = {"volumeName": f"disk-{number}", "resources": {"requests": {"storage": "100Gi"}}}
    return {"metadata": {"name": f"claim-{number}", "annotations": _BOUND}, "spec": _DISK | own}


def _csi_node(name: str) -> Json:
    driver = {"name": _DRIVER, "nodeID": name, "topologyKeys": [ZONE], "allocatable": {"count": PER_NODE}}
    return {"metadata": {"name": name}, "spec": {"drivers": [driver]}}
