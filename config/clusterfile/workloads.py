"""The fields of Kubernetes manifests that a cluster file reads, and the pods that a workload's controllers create.

Names, labels and owners are those of the controllers of Kubernetes 1.36
(pkg/controller/{deployment,replicaset,statefulset,job}). Their random parts are derived from the names here, so that a
file always yields the same result. Pure.
"""

import hashlib
import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

Manifest: TypeAlias = dict[str, object]
Count: TypeAlias = Annotated[int, Field(ge=0, le=100_000)]

_NAMESPACE: Final = uuid.UUID("6f1d6c1e-0b0e-5d43-9a39-6b8c6f3c2c55")
_SAFE_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"  # alphabet of Kubernetes' names: no vowels, nothing ambiguous
_FINISHED: Final = frozenset({"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"})
_API_VERSIONS: Final = {"ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1"}


class _Open(BaseModel):
    """A model that reads only the fields named in the class; all others pass through untouched."""

    model_config = ConfigDict(frozen=True, extra="allow", alias_generator=to_camel)


class _Metadata(_Open):
    """Metadata of a template."""

    namespace: str = "default"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class NamedMetadata(_Metadata):
    """Metadata of an object that has a name."""

    name: str = Field(min_length=1, max_length=253)
    uid: str = ""


class _Container(_Open):
    name: str = Field(min_length=1)


class _PodSpec(_Open):
    """v1.PodSpec."""

    containers: tuple[_Container, ...] = Field(min_length=1)
    volumes: tuple[Manifest, ...] = ()


class PodManifest(_Open):
    """v1.Pod."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["Pod"] = "Pod"
    metadata: NamedMetadata
    spec: _PodSpec


class _NodeStatus(_Open):
    """v1.NodeStatus."""

    allocatable: dict[str, str | int | float] = {}
    capacity: dict[str, str | int | float] = {}


class _NodeSpec(_Open):
    """v1.NodeSpec."""

    taints: tuple[Manifest, ...] = ()


class NodeManifest(_Open):
    """v1.Node."""

    api_version: Literal["v1"] = "v1"
    kind: Literal["Node"] = "Node"
    metadata: NamedMetadata
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class StorageManifest(_Open):
    """A claim, a volume, or another storage object that decides where a pod may run."""

    kind: str
    metadata: NamedMetadata


class _Template(_Open):
    metadata: _Metadata = _Metadata()
    spec: _PodSpec


class _Ordinals(_Open):
    start: Count = 0


class _WorkloadSpec(_Open):
    """The fields that determine a workload's pods; each kind has some of them."""

    template: _Template
    replicas: Count = 1
    ordinals: _Ordinals = _Ordinals()
    service_name: str = ""
    volume_claim_templates: tuple["_ClaimTemplate", ...] = ()
    parallelism: Count = 1
    completions: Count | None = None
    completion_mode: Literal["NonIndexed", "Indexed"] = "NonIndexed"
    suspend: bool = False


class _ClaimTemplate(_Open):
    metadata: NamedMetadata


class _Condition(_Open):
    type: str = ""
    status: str = ""


class _WorkloadStatus(_Open):
    """Status of a workload in a dump; read for Jobs only."""

    conditions: tuple[_Condition, ...] = ()

    @property
    def finished(self) -> bool:
        return any(one.type in _FINISHED and one.status == "True" for one in self.conditions)


class Workload(_Open):
    """An object whose controller creates pods."""

    api_version: str = ""
    kind: Literal["Deployment", "ReplicaSet", "StatefulSet", "Job"]
    metadata: NamedMetadata
    spec: _WorkloadSpec
    status: _WorkloadStatus = _WorkloadStatus()


def plain(model: BaseModel) -> Manifest:
    """Return the manifest that `model` was read from, without unset fields."""
    return model.model_dump(mode="json", by_alias=True, exclude_unset=True)


def stable_uuid(*names: str) -> str:
    """Return a UUID that is always the same for these names."""
    return str(uuid.uuid5(_NAMESPACE, "/".join(names)))


def pods_of(workload: Workload) -> list[Manifest]:
    """Return the pods that exist at the same time as long as none finishes.

    Returns all of them at once, even if the controller would wait for one to be ready before it creates the next.
    """
    makers = {"StatefulSet": _of_stateful_set, "Job": _of_job}
    return [_manifest(workload, pod) for pod in makers.get(workload.kind, _of_replica_set)(workload)]


@dataclass(frozen=True, slots=True)
class _Pod:
    """Differences of a pod from its template. owner: its controller's kind and name. spec: overrides the template's."""

    name: str
    owner: tuple[str, str]
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    spec: Manifest = field(default_factory=dict)


def _of_replica_set(workload: Workload) -> Iterator[_Pod]:
    name, labels = workload.metadata.name, {}
    if workload.kind == "Deployment":  # which creates a ReplicaSet
        labels = {"pod-template-hash": _template_hash(workload)}
        name = f"{name}-{labels['pod-template-hash']}"
    for number in range(workload.spec.replicas):
        yield _Pod(f"{name}-{_suffix(name, number)}", ("ReplicaSet", name), labels)


def _of_stateful_set(workload: Workload) -> Iterator[_Pod]:
    name, spec = workload.metadata.name, workload.spec
    revision = {"controller-revision-hash": f"{name}-{_template_hash(workload)}"}
    for ordinal in range(spec.ordinals.start, spec.ordinals.start + spec.replicas):
        pod = f"{name}-{ordinal}"
        labels = {"statefulset.kubernetes.io/pod-name": pod, "apps.kubernetes.io/pod-index": str(ordinal)}
        claims: list[Manifest] = [
            {"name": claim.metadata.name, "persistentVolumeClaim": {"claimName": f"{claim.metadata.name}-{pod}"}}
            for claim in spec.volume_claim_templates
        ]
        over: Manifest = {"hostname": pod, "subdomain": spec.service_name} if spec.service_name else {}
        over |= {"volumes": [*spec.template.spec.volumes, *claims]} if claims else {}
        yield _Pod(pod, ("StatefulSet", name), labels | revision, spec=over)


def claims_of(workload: Workload) -> Iterator[Manifest]:
    """Yield the claims that the StatefulSet controller creates from templates, one per pod and template.

    Source: pkg/controller/statefulset/stateful_set_utils.go, getPersistentVolumeClaims.
    """
    spec, namespace = workload.spec, workload.metadata.namespace
    for ordinal in range(spec.ordinals.start, spec.ordinals.start + spec.replicas):
        for template in spec.volume_claim_templates:
            name = f"{template.metadata.name}-{workload.metadata.name}-{ordinal}"
            metadata = plain(template.metadata) | {"name": name, "namespace": namespace}
            yield plain(template) | {"kind": "PersistentVolumeClaim", "metadata": metadata}


def _of_job(workload: Workload) -> Iterator[_Pod]:
    name, spec = workload.metadata.name, workload.spec
    wanted = spec.parallelism if spec.completions is None else spec.completions
    labels = dict.fromkeys(("batch.kubernetes.io/job-name", "job-name"), name)
    labels |= dict.fromkeys(("batch.kubernetes.io/controller-uid", "controller-uid"), _uid(workload, "Job", name))
    for number in range(0 if spec.suspend or workload.status.finished else min(spec.parallelism, wanted)):
        suffix = _suffix(name, number)
        if spec.completion_mode == "NonIndexed":
            yield _Pod(f"{name}-{suffix}", ("Job", name), labels)
            continue
        index = {"batch.kubernetes.io/job-completion-index": str(number)}
        over: Manifest = {"hostname": f"{name}-{number}"}
        yield _Pod(f"{name}-{number}-{suffix}", ("Job", name), labels | index, index, over)


def _manifest(workload: Workload, pod: _Pod) -> Manifest:
    template = workload.spec.template
    kind, owner = pod.owner
    reference = {
        "apiVersion": _API_VERSIONS[kind],
        "kind": kind,
        "name": owner,
        "uid": _uid(workload, kind, owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        **plain(template.metadata),
        "name": pod.name,
        "namespace": workload.metadata.namespace,
        "labels": template.metadata.labels | pod.labels,
        "annotations": template.metadata.annotations | pod.annotations,
        "ownerReferences": [reference],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": plain(template.spec) | pod.spec}


def _uid(workload: Workload, kind: str, name: str) -> str:
    given = workload.metadata.uid if workload.kind == kind else ""
    return given or stable_uuid(kind, workload.metadata.namespace, name)


def _template_hash(workload: Workload) -> str:
    text = json.dumps(plain(workload.spec.template), sort_keys=True)
    return _letters(_digest(text), 10)


def _suffix(name: str, number: int) -> str:
    """Return five letters. Numbers below 27**5 give different ones, because the factor is coprime to 27."""
    return _letters((_digest(name) + number * 7_654_321) % len(_SAFE_LETTERS) ** 5, 5)


def _digest(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def _letters(value: int, count: int) -> str:
    letters = ""
    for _ in range(count):
        value, letter = divmod(value, len(_SAFE_LETTERS))
        letters += _SAFE_LETTERS[letter]
    return letters
