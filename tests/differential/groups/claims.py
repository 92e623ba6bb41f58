"""Builders of volumes, claims and what belongs to them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.differential.manifests import HOSTNAME, Manifest, expression

DRIVER: Final = "csi.example.com"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
BOUND: Final = "pv.kubernetes.io/bind-completed"


def storage_class(
    name: str, provisioner: str = DRIVER, *, wait: bool = True, topologies: Sequence[Manifest] = ()
) -> Manifest:
    """topologies: allowed ones."""
    made: Manifest = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "uid": f"class-{name}"},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer" if wait else "Immediate",
    }
    return made | ({"allowedTopologies": list(topologies)} if topologies else {})


def volume(
    name: str,
    *,
    of_class: str = "",
    size: str = "10Gi",
    modes: Sequence[str] = ("ReadWriteOnce",),
    only: Sequence[Manifest] = (),
    claim: str = "",
    labels: Mapping[str, str] | None = None,
    source: Manifest | None = None,
    phase: str = "",
    **spec: Any,  # noqa: ANN401 - as in YAML
) -> Manifest:
    """A volume. only: terms of its node affinity. claim: that it is bound to, or kept for, in `default`."""
    meta: Manifest = {"name": name, "uid": f"volume-{name}"}
    if labels:
        meta["labels"] = dict(labels)
    made: Manifest = {
        "capacity": {"storage": size},
        "accessModes": list(modes),
        **(source or {"csi": {"driver": DRIVER, "volumeHandle": name}}),
        **spec,
    }
    if of_class:
        made["storageClassName"] = of_class
    if only:
        made["nodeAffinity"] = {"required": {"nodeSelectorTerms": list(only)}}
    if claim:
        made["claimRef"] = {"kind": "PersistentVolumeClaim", "namespace": "default", "name": claim}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": meta,
        "spec": made,
        "status": {"phase": phase or ("Bound" if claim else "Available")},
    }


def claim(
    name: str,
    *,
    of_class: str = "",
    size: str = "5Gi",
    modes: Sequence[str] = ("ReadWriteOnce",),
    bound_to: str = "",
    meta: Mapping[str, Any] | None = None,
    phase: str = "",
    **spec: Any,  # noqa: ANN401 - as in YAML
) -> Manifest:
    """A claim in `default`. bound_to: the name of its volume; the binding is complete."""
    metadata: Manifest = {"name": name, "namespace": "default", "uid": f"claim-{name}", **(meta or {})}
    made: Manifest = {"accessModes": list(modes), "resources": {"requests": {"storage": size}}, **spec}
    made["storageClassName"] = of_class
    if bound_to:
        made["volumeName"] = bound_to
        metadata["annotations"] = {BOUND: "yes", **metadata.get("annotations", {})}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": made,
        "status": {"phase": phase or ("Bound" if bound_to else "Pending")},
    }


def csi_driver(*, capacity: bool, needed: bool = False, name: str = DRIVER) -> Manifest:
    spec = {"attachRequired": True, "podInfoOnMount": False, "storageCapacity": capacity}
    if needed:
        spec["preventPodSchedulingIfMissing"] = True
    meta = {"name": name, "uid": f"driver-{name}"}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": meta, "spec": spec}


def csi_node(node: str, limits: Mapping[str, int | None], migrated: str = "") -> Manifest:
    """limits: driver -> volumes at most; None says no number. migrated: in-tree plugins, separated by commas."""
    drivers = [
        {
            "name": driver,
            "nodeID": node,
            "topologyKeys": [HOSTNAME],
            **({} if count is None else {"allocatable": {"count": count}}),
        }
        for driver, count in limits.items()
    ]
    meta: Manifest = {"name": node, "uid": f"csinode-{node}"}
    if migrated:
        meta["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": migrated}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": meta, "spec": {"drivers": drivers}}


def capacity(name: str, of_class: str, *, size: str = "", largest: str = "", on: Manifest | None = None) -> Manifest:
    """A CSIStorageCapacity. on: a label selector of nodes; None for none."""
    made: Manifest = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "kube-system", "uid": f"capacity-{name}"},
        "storageClassName": of_class,
    }
    if on is not None:
        made["nodeTopology"] = on
    return made | {key: text for key, text in (("capacity", size), ("maximumVolumeSize", largest)) if text}


def attachment(name: str, node: str, volume_name: str, driver: str = DRIVER) -> Manifest:
    spec = {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume_name}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": name, "uid": f"attachment-{name}"},
        "spec": spec,
        "status": {"attached": True},
    }


def term(key: str, *values: str) -> Manifest:
    """A term of a volume's node affinity."""
    return {"matchExpressions": [expression(key, "In", *values)]}


def mounted(*claims: str) -> list[Manifest]:
    """Volumes of a pod."""
    return [{"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}} for number, name in enumerate(claims)]
