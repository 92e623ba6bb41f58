"""Manifests of claims, volumes and storage classes, and tables that hold them."""

from collections.abc import Mapping
from typing import Any, NoReturn

from scheduler.intake.reports import ProblemReports
from scheduler.intake.volume_handlers import VolumeHandlers
from scheduler.kube.defaults import decoded
from scheduler.kube.objects import ObjectMeta
from scheduler.kube.port import CLAIMS, VOLUMES, Changed, Deleted, Kind
from scheduler.kube.problem import Problem
from scheduler.state.tables import Tables

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def claim(name: str, *, size: str = "1Gi", class_name: str = "", **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - as in YAML
    """Return a manifest."""
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {**wanted, "storageClassName": class_name},
    }


def volume(
    name: str,
    *,
    size: str = "1Gi",
    class_name: str = "",
    on: tuple[str, ...] = (),
    key: str = HOSTNAME,
    labels: Mapping[str, str] | None = None,
    **spec: Any,  # noqa: ANN401 - as in YAML
) -> dict[str, Any]:
    """Return a manifest. on: values of the nodes' label `key` from which it can be used; empty: every node."""
    wanted: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, **spec}
    if on:
        wanted["nodeAffinity"] = affinity({key: on})
    return {
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {**wanted, "storageClassName": class_name},
    }


def affinity(*terms: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Return a node affinity. terms: label -> values."""
    return {
        "required": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": key, "operator": "In", "values": list(values)} for key, values in term.items()
                    ]
                }
                for term in terms
            ]
        }
    }


def storage_class(name: str, *, waits: bool = True, provisioner: str = "example.com/p", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as in YAML
    """Return a manifest."""
    mode = "WaitForFirstConsumer" if waits else "Immediate"
    return {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode, **more}


LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")
"""Its volumes are made by hand."""


def with_claims(*names: str) -> dict[str, Any]:
    """Return pod spec fields with these claims."""
    return {
        "volumes": [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": name}} for n, name in enumerate(names)]
    }


def bound(claim_manifest: dict[str, Any], volume_name: str) -> dict[str, Any]:
    """Return the claim with its volume."""
    metadata = {**claim_manifest["metadata"], "annotations": {BIND_COMPLETED: "yes"}}
    return {"metadata": metadata, "spec": {**claim_manifest["spec"], "volumeName": volume_name}}


def show(tables: Tables, kind: Kind[Any], *manifests: Mapping[str, Any]) -> None:
    """Deliver objects as a watch does. A volume is Available, unless its manifest has a phase."""
    extra = {"status": {"phase": "Available"}} if kind is VOLUMES else {}
    found = [Changed(decoded({**extra, **manifest}, kind.type)) for manifest in manifests]
    _handlers(tables).handle(kind, found)


def show_gone(tables: Tables, kind: Kind[Any], name: str) -> None:
    """Deliver a deletion as a watch does."""
    namespace = "default" if kind is CLAIMS else ""
    _handlers(tables).handle(kind, [Deleted(kind.type(metadata=ObjectMeta(name, namespace)))])


def _handlers(tables: Tables) -> VolumeHandlers:
    return VolumeHandlers(tables, _Refusing())


class _Refusing(ProblemReports):
    def problem(self, problem: Problem) -> NoReturn:
        raise AssertionError(problem)
