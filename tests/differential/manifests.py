"""Builders of manifests for scenarios. Every uid follows from the name: the same seed writes the same bytes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec

Manifest: TypeAlias = dict[str, Any]

HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"


@dataclass(slots=True)
class Scenario:
    """A cluster, and the pods asked about, each alone. post_filter: also what preemption would do."""

    name: str
    objects: list[Manifest] = field(default_factory=list)
    probes: list[Manifest] = field(default_factory=list)
    post_filter: bool = False

    def nodes(self) -> list[str]:
        """Names of the nodes."""
        return [each["metadata"]["name"] for each in self.objects if each["kind"] == "Node"]

    def as_json(self) -> bytes:
        """As the oracle reads it: one line."""
        asked = {"name": self.name, "objects": self.objects, "probes": self.probes, "postFilter": self.post_filter}
        return msgspec.json.encode(asked)


def digest(scenarios: Iterable[Scenario]) -> str:
    """Differs where a question does."""
    hashed = sha256()
    for scenario in scenarios:
        hashed.update(sha256(scenario.as_json()).digest())
    return hashed.hexdigest()[:16]


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Manifest] = (),
    unschedulable: bool = False,
    more: Mapping[str, str] | None = None,
    **allocatable: str,
) -> Manifest:
    """A node of 8 cores and 16 GiB. more, allocatable: resources; status_fields go through `with_status`."""
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    amounts |= {key.replace("_", "-"): value for key, value in allocatable.items()} | dict(more or {})
    spec: Manifest = {}
    if taints:
        spec["taints"] = list(taints)
    if unschedulable:
        spec["unschedulable"] = True
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{name}", "labels": {HOSTNAME: name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts},
    }


def taint(key: str, effect: str, value: str = "") -> Manifest:
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def container(
    name: str = "c",
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    **fields: Any,  # noqa: ANN401 - as in YAML
) -> Manifest:
    resources = {key: dict(value) for key, value in (("requests", requests), ("limits", limits)) if value}
    return {
        "name": name,
        "image": "registry.example/app:1",
        **({"resources": resources} if resources else {}),
        **fields,
    }


def pod(
    name: str,
    *,
    namespace: str = "default",
    on: str = "",
    labels: Mapping[str, str] | None = None,
    requests: Mapping[str, str] | None = None,
    containers: Sequence[Manifest] | None = None,
    status: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    **spec: Any,  # noqa: ANN401 - as in YAML
) -> Manifest:
    """A pod; one that runs where `on` names a node. spec: more fields of the spec, as in YAML."""
    given = dict(status or {})
    if on:
        given.setdefault("phase", "Running")
    metadata: Manifest = {"name": name, "namespace": namespace, "uid": f"pod-{namespace}-{name}", **(meta or {})}
    if labels:
        metadata["labels"] = dict(labels)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            "containers": list(containers) if containers else [container(requests=requests)],
            **({"nodeName": on} if on else {}),
            **spec,
        },
        **({"status": given} if given else {}),
    }


def namespace(name: str, labels: Mapping[str, str] | None = None) -> Manifest:
    meta = {"name": name, "uid": f"namespace-{name}", **({"labels": dict(labels)} if labels else {})}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}


def matches(**labels: str) -> Manifest:
    """A label selector."""
    return {"matchLabels": labels}


def expression(key: str, operator: str, *values: str) -> Manifest:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}
