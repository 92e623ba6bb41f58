"""What a backend brings to the contract suite: a client to be tested, and an operator who moves the cluster."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from scheduler.kube import objects, storage
from scheduler.kube.port import Cluster, PodKey

Manifest: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SeenEvent:
    """An Event as it is stored. count: of its series, 0 when it has none."""

    reason: str
    note: str
    about_uid: str
    count: int


class Operator(Protocol):
    """Changes the cluster by another way than the client under test. Each call has taken effect when it returns."""

    async def create_node(self, manifest: Manifest) -> None:
        """Make a node; it is gone after the test."""
        ...

    async def label_node(self, name: str, labels: Mapping[str, str | None]) -> None:
        """Merge labels; None takes one away."""
        ...

    async def delete_node(self, name: str) -> None:
        """Remove a node."""
        ...

    async def create_pod(self, manifest: Manifest) -> objects.PodObject:
        """Make a pod; what the server made of it."""
        ...

    async def annotate_pod(self, namespace: str, name: str, annotations: Mapping[str, str | None]) -> None:
        """Merge annotations; None takes one away."""
        ...

    async def set_phase(self, namespace: str, name: str, phase: str, reason: str = "") -> None:
        """Report the phase as a kubelet does."""
        ...

    async def delete_pod(self, namespace: str, name: str, grace_s: int = 30) -> None:
        """Ask for the end of a pod."""
        ...

    async def release_pod(self, namespace: str, name: str) -> None:
        """Take the finalizers of a pod away."""
        ...

    async def set_config_map(self, namespace: str, name: str, data: Mapping[str, str]) -> None:
        """Make a ConfigMap or replace its data; it is gone after the test."""
        ...

    async def create_claim(self, manifest: Manifest) -> storage.PersistentVolumeClaim:
        """Make a claim; what the server made of it."""
        ...

    async def create_volume(self, manifest: Manifest) -> storage.PersistentVolume:
        """Make a volume; it is gone after the test."""
        ...

    async def event(self, namespace: str, name: str) -> SeenEvent | None:
        """Read an Event by its own name."""
        ...


@dataclass(frozen=True, slots=True)
class ClusterUnderTest:
    """namespace: there, empty, and of this test alone; names of nodes begin with it."""

    cluster: Cluster
    operator: Operator
    namespace: str

    async def pod(self, name: str = "p", **spec: object) -> objects.PodObject:
        """Make a pod that no scheduler takes."""
        return await self.operator.create_pod(pod_manifest(self.namespace, name, **spec))

    async def read(self, name: str = "p") -> objects.PodObject:
        """The pod as the client under test reads it."""
        found = await self.cluster.pod(self.namespace, name)
        assert found is not None, f"pod {name} is not there"
        return found


def pod_manifest(namespace: str, name: str, **spec: object) -> dict[str, Any]:
    """Make a manifest that a real server accepts. spec: fields of the PodSpec by their own names."""
    container = {"name": "c", "image": "none", "resources": {"limits": {"example.com/gpu": 1}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulerName": "nobody", "containers": [container], **spec},
    }


def node_manifest(name: str, labels: Mapping[str, str] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "status": {"capacity": {"cpu": "8", "example.com/gpu": "2"}},
    }


def claim_manifest(namespace: str, name: str) -> dict[str, Any]:
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "nobody",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def volume_manifest(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "nobody",
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/nowhere"},
        },
    }


def key_of(pod: objects.PodObject) -> PodKey:
    return PodKey(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
