"""The nodes and the backlog of pods that the schedulers race over: data only, the same for each.

Nodes are like a server with eight 80-GB cards; pods are like those of Deployments, after admission.
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from config.protocol import names

CARDS_PER_NODE: Final = 8
UNITS_PER_CARD: Final = 79
NAMESPACE: Final = "race"

ZONE: Final = "topology.kubernetes.io/zone"
ZONES: Final = ("r1-a", "r1-b", "r1-c")
HOSTNAME: Final = "kubernetes.io/hostname"

_MODEL: Final = "NVIDIA-A100-SXM4-80GB"
_MEMORY_MIB: Final = 81_559
_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"  # of generated names: no vowels, nothing that looks alike

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Size:
    """How many nodes, how many pods, and from how many templates the pods come, in turn; all >= 1."""

    nodes: int
    pods: int
    templates: int


@dataclass(frozen=True, slots=True)
class WorkloadTemplate:
    """What the pods of one Deployment have in common."""

    app: str
    generation: str
    owner_uid: str
    gpu_mem: int
    cpu_millis: int
    memory_mib: int


def nodes(size: Size) -> Iterator[Json]:
    """Node objects for POST /api/v1/nodes."""
    return (_node(number) for number in range(size.nodes))


def pods(size: Size) -> Iterator[Json]:
    """Pod objects for POST into NAMESPACE."""
    templates = [template(number) for number in range(size.templates)]
    return (pod(number, templates[number % size.templates]) for number in range(size.pods))


def template(number: int) -> WorkloadTemplate:
    """The template of that number; each asks for something else than the 49 before it."""
    digest = hashlib.sha256(f"template {number}".encode()).hexdigest()
    return WorkloadTemplate(
        app=f"inference-{number}",
        generation=digest[:10],
        owner_uid=_uid(f"replica set {number}"),
        gpu_mem=8 + number % 10,
        cpu_millis=500 + 100 * (number % 5),
        memory_mib=2048 + 512 * (number // 10),
    )


def pod(number: int, of: WorkloadTemplate) -> Json:
    """One replica: an app that asks for card memory, and a proxy beside it."""
    name = f"{of.app}-{of.generation}-{_suffix(number)}"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name[:-6], "uid": of.owner_uid}
    return {
        "metadata": {
            "name": name,
            "generateName": name[:-5],
            "labels": {"app": of.app, "pod-template-hash": of.generation, "tier": "inference"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "9090"},
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        },
        "spec": {
            "schedulerName": names.SCHEDULER_NAME,
            "containers": [_app(of), _proxy()],
            "volumes": [_api_access()],
            "tolerations": [_tolerated("not-ready"), _tolerated("unreachable")],
            "serviceAccountName": "default",
            "enableServiceLinks": True,
        },
    }


def cpu_pod(name: str) -> Json:
    """A small pod that asks for no card."""
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "10m"}}}
    return {"metadata": {"name": name}, "spec": {"schedulerName": names.SCHEDULER_NAME, "containers": [container]}}


def _app(of: WorkloadTemplate) -> Json:
    asked = {"cpu": f"{of.cpu_millis}m", "memory": f"{of.memory_mib}Mi"}
    probe = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
    return {
        "name": "server",
        "image": "registry.example.com/inference/server:1.8.2",
        "args": ["--model=/models/base", "--port=8080"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"requests": asked, "limits": asked | {names.GPU_MEM: str(of.gpu_mem)}},
        "readinessProbe": probe,
        "livenessProbe": probe | {"initialDelaySeconds": 30},
        "volumeMounts": [_API_ACCESS_MOUNT],
    }


def _proxy() -> Json:
    return {
        "name": "proxy",
        "image": "registry.example.com/mesh/proxy:2.1.0",
        "ports": [{"name": "metrics", "containerPort": 9090, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": [_API_ACCESS_MOUNT],
    }


_API_ACCESS_MOUNT: Final = {
    "name": "kube-api-access-x7k2p",
    "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    "readOnly": True,
}


def _api_access() -> Json:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": _API_ACCESS_MOUNT["name"], "projected": {"sources": sources, "defaultMode": 420}}


def _tolerated(condition: str) -> Json:
    key = f"node.kubernetes.io/{condition}"
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}


def _node(number: int) -> Json:
    name = f"gpu-node-{number:05d}"
    place = {
        "cpu": "128",
        "memory": "1056489728Ki",
        "ephemeral-storage": "1843Gi",
        "pods": "110",
        names.GPU_MEM: str(CARDS_PER_NODE * UNITS_PER_CARD),
        names.GPU_COUNT: str(CARDS_PER_NODE),
    }
    return {
        "metadata": {
            "name": name,
            "labels": _node_labels(number, name),
            "annotations": {names.INVENTORY: json.dumps(_inventory(name), separators=(",", ":"))},
        },
        "spec": {"providerID": f"example://{name}"},
        "status": {"capacity": place, "allocatable": place, "conditions": _CONDITIONS},
    }


def _node_labels(number: int, name: str) -> dict[str, str]:
    return {
        HOSTNAME: name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "gpu.8xa100",
        "topology.kubernetes.io/region": "r1",
        ZONE: ZONES[number % len(ZONES)],
        "nvidia.com/gpu.product": _MODEL,
        "gpushare": "true",
    }


def _inventory(node: str) -> Json:
    cards = [
        {
            "index": index,
            "uuid": f"GPU-{_uid(f'{node} card {index}')}",
            "model": _MODEL,
            "memoryMiB": _MEMORY_MIB,
            "units": UNITS_PER_CARD,
            "health": "healthy",
            "numa": index // 4,
            "pci": f"0000:{7 + index:02x}:00.0",
        }
        for index in range(CARDS_PER_NODE)
    ]
    return {"version": 1, "unitMiB": 1024, "driver": "580.159.04", "cards": cards}


_CONDITIONS: Final = [
    {"type": "MemoryPressure", "status": "False", "reason": "KubeletHasSufficientMemory"},
    {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure"},
    {"type": "PIDPressure", "status": "False", "reason": "KubeletHasSufficientPID"},
    {"type": "Ready", "status": "True", "reason": "KubeletReady"},
]


def _uid(seed: str) -> str:
    digest = hashlib.sha256(seed.encode()).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:32]))


def _suffix(number: int) -> str:
    """Five letters that differ for different numbers below 27^5, as a ReplicaSet generates them."""
    letters = []
    for _ in range(5):
        number, letter = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[letter])
    return "".join(letters)
