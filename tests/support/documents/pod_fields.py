"""Every field of a pod's spec in Kubernetes 1.29 to 1.37, and how this scheduler treats it.

`make docs` writes the table of docs/develop/pod-fields.md from here. One `test_pod_fields.py` holds the table to the
code, the other to the OpenAPI document of a real kube-apiserver: a field missing here fails there. Parts of a spec are
listed if their fields decide where a pod may run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

import msgspec

from scheduler.kube import objects
from scheduler.pods.pod_volumes import JUDGED


class Verdict(StrEnum):
    """Treatment of a field. JUDGED: read and obeyed. REFUSED: a pod with it waits, with a message that says so.

    KUBELET: could rule nodes out, but does not here; the kubelet fails the pod if necessary. IRRELEVANT: does not
    affect where the pod may run.
    """

    JUDGED = "evaluated"
    REFUSED = "rejected"
    KUBELET = "left to the kubelet"
    IRRELEVANT = "irrelevant"


@dataclass(frozen=True, slots=True)
class Field:
    """A field. If it is not obeyed, example: a pod's spec that has it; words: the scheduler's name for it.

    first, last: the minor versions of Kubernetes 1 that have it, if not all of the above.
    Source: api/openapi-spec/swagger.json of kubernetes v1.29.6 to v1.37.2.
    """

    name: str
    verdict: Verdict
    why: str
    example: Mapping[str, Any] = field(default_factory=dict)
    words: str = ""
    first: int = 0
    last: int = 1_000_000

    def exists_in(self, minor: int) -> bool:
        """Return whether Kubernetes 1.`minor` has it."""
        return self.first <= minor <= self.last


def judged(name: str, why: str, *, first: int = 0) -> Field:
    """Return a field that is read and obeyed."""
    return Field(name, Verdict.JUDGED, why, first=first)


def irrelevant(why: str, *names: str, first: int = 0) -> tuple[Field, ...]:
    """Return fields that do not affect where the pod may run, for one reason."""
    return tuple(Field(name, Verdict.IRRELEVANT, why, first=first) for name in names)


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

_INSIDE: Final = "of the container's own life on its node"
_POD_INSIDE: Final = "of the pod's own life on its node"
_NAMES: Final = "names and addresses that the pod sees"
_ADMITTED: Final = "turned into other fields when the pod was admitted"
_POD_SPEC: Final = (
    judged("affinity", "node affinity; the other kinds: see their parts"),
    judged("containers", "what they request, their host ports, and their images"),
    judged("initContainers", "what they request; sidecars count with the containers"),
    judged("nodeName", "a pod that has one occupies that node"),
    judged("nodeSelector", "NodeAffinity"),
    judged("overhead", "counted with the requests"),
    judged("priority", "the order in which pods are tried"),
    judged("resources", "requests of the pod as a whole take the place of its containers'", first=32),
    judged(
        "runtimeClassName",
        "by the device plugin, in environment mode; for scheduling, admission turned it into other fields",
    ),
    judged("schedulerName", "pods that name another scheduler are left alone"),
    judged("schedulingGates", "a pod waits until its last gate is removed"),
    judged("tolerations", "TaintToleration"),
    judged("volumes", "by kind: see there"),
    judged("topologySpreadConstraints", "PodTopologySpread"),
    Field(
        "resourceClaims",
        Verdict.REFUSED,
        "dynamic resource allocation is not built",
        {"resourceClaims": [{"name": "r", "resourceClaimName": "r"}]},
        "resource claims",
    ),
    judged("schedulingGroup", "the pods of a PodGroup start together", first=36),
    Field(
        "workloadRef",
        Verdict.REFUSED,
        "the earlier form of schedulingGroup",
        {"workloadRef": {"name": "w", "podGroup": "g"}},
        "workload references",
        first=35,
        last=35,
    ),
    judged("preemptionPolicy", "`Never`: it preempts no pod"),
    *irrelevant(f"{_ADMITTED}: priority", "priorityClassName"),
    judged("hostNetwork", "NodeDeclaredFeatures, with hostUsers; every port of a container is a host port"),
    judged("hostIPC", "by the device plugin, where isolation needs it"),
    judged("hostUsers", "NodeDeclaredFeatures: false with hostNetwork needs a feature of the node"),
    Field("os", Verdict.KUBELET, "ignored by kube-scheduler too: a label selector chooses the system"),
    *irrelevant("requests nothing, and is added to a running pod", "ephemeralContainers"),
    *irrelevant(
        _POD_INSIDE,
        "activeDeadlineSeconds",
        "hostPID",
        "readinessGates",
        "restartPolicy",
        "securityContext",
        "shareProcessNamespace",
        "terminationGracePeriodSeconds",
    ),
    *irrelevant(
        _NAMES,
        "dnsConfig",
        "dnsPolicy",
        "enableServiceLinks",
        "hostAliases",
        "hostname",
        "setHostnameAsFQDN",
        "subdomain",
    ),
    *irrelevant(_NAMES, "hostnameOverride", first=34),
    *irrelevant("who is asked before an eviction", "evictionResponders", first=37),
    *irrelevant(
        "as whom the pod runs and pulls its images",
        "automountServiceAccountToken",
        "imagePullSecrets",
        "serviceAccount",
        "serviceAccountName",
    ),
)

_CONTAINER: Final = (
    judged("name", "finds the container's status, for a resize in place"),
    judged("ports", "host ports"),
    judged("resources", "requests; limits where there are none"),
    judged("restartPolicy", "Always makes an init container a sidecar"),
    judged("image", "ImageLocality, as a score"),
    judged("restartPolicyRules", "NodeDeclaredFeatures: RestartAllContainers needs a feature of the node", first=34),
    *irrelevant(
        _INSIDE,
        "args",
        "command",
        "env",
        "envFrom",
        "imagePullPolicy",
        "lifecycle",
        "livenessProbe",
        "readinessProbe",
        "resizePolicy",
        "securityContext",
        "startupProbe",
        "stdin",
        "stdinOnce",
        "terminationMessagePath",
        "terminationMessagePolicy",
        "tty",
        "workingDir",
    ),
    *irrelevant("mounts what `volumes` lists", "volumeDevices", "volumeMounts"),
)

_PARTS: Final = {
    "ContainerPort": (
        judged("hostIP", "two pods may take one port on different addresses"),
        judged("hostPort", "NodePorts"),
        judged("protocol", "part of the port's identity"),
        *irrelevant("a port of the pod, not of the node", "containerPort", "name"),
    ),
    "ResourceRequirements": (
        judged("limits", "gpu-mem is read here; others if the request is missing"),
        judged("requests", "every resource, in every form of a quantity"),
        *irrelevant("chooses among `resourceClaims`", "claims"),
    ),
    "Affinity": (
        judged("nodeAffinity", "NodeAffinity"),
        judged("podAffinity", "InterPodAffinity"),
        judged("podAntiAffinity", "InterPodAffinity"),
    ),
    "NodeAffinity": (
        judged(_PREFERRED, "NodeAffinity, as a score"),
        judged(_REQUIRED, "NodeAffinity"),
    ),
    "NodeSelectorTerm": (
        judged("matchExpressions", "NodeAffinity, every operator"),
        judged("matchFields", "NodeAffinity, metadata.name"),
    ),
    "PodAffinity": (
        judged(_PREFERRED, "InterPodAffinity, as a score"),
        judged(_REQUIRED, "InterPodAffinity"),
    ),
    "PodAntiAffinity": (
        judged(_PREFERRED, "InterPodAffinity, as a score"),
        judged(_REQUIRED, "InterPodAffinity"),
    ),
    "PodAffinityTerm": (
        *(
            judged(name, "InterPodAffinity")
            for name in ("labelSelector", "namespaceSelector", "namespaces", "topologyKey")
        ),
        *(
            judged(name, "InterPodAffinity: the API server puts them into the selector")
            for name in ("matchLabelKeys", "mismatchLabelKeys")
        ),
    ),
    "Toleration": (
        *(judged(name, "TaintToleration") for name in ("effect", "key", "operator", "value")),
        *irrelevant("how long the pod may stay after a taint has come", "tolerationSeconds"),
    ),
    "TopologySpreadConstraint": tuple(
        judged(name, "PodTopologySpread")
        for name in (
            "labelSelector",
            "matchLabelKeys",
            "maxSkew",
            "minDomains",
            "nodeAffinityPolicy",
            "nodeTaintsPolicy",
            "topologyKey",
            "whenUnsatisfiable",
        )
    ),
    "Volume": (
        *irrelevant("what containers call it", "name"),
        *irrelevant(
            "made on whatever node the pod runs",
            "configMap",
            "downwardAPI",
            "emptyDir",
            "hostPath",
            "projected",
            "secret",
        ),
        *irrelevant("made on whatever node the pod runs; ImageLocality prefers those that have it", "image", first=31),
        *irrelevant(
            "mounted by the kubelet of whatever node the pod runs on; no rule of kube-scheduler looks at it",
            "azureFile",
            "cephfs",
            "csi",
            "fc",
            "flexVolume",
            "flocker",
            "gitRepo",
            "glusterfs",
            "nfs",
            "photonPersistentDisk",
            "quobyte",
            "scaleIO",
            "storageos",
            "vsphereVolume",
        ),
        judged("persistentVolumeClaim", "VolumeBinding, VolumeZone, VolumeRestrictions, NodeVolumeLimits"),
        judged("ephemeral", "VolumeBinding and NodeVolumeLimits, as the claim that is made for it"),
        *(judged(kind, "VolumeRestrictions") for kind in ("iscsi", "rbd")),
        *(
            judged(kind, "VolumeRestrictions and NodeVolumeLimits")
            for kind in ("awsElasticBlockStore", "gcePersistentDisk")
        ),
        *(judged(kind, "NodeVolumeLimits") for kind in ("azureDisk", "cinder", "portworxVolume")),
    ),
}

TABLE: Final[Mapping[str, tuple[Field, ...]]] = {"PodSpec": _POD_SPEC, "Container": _CONTAINER, **_PARTS}
"""By schema of `io.k8s.api.core.v1`: every field of it."""

STRUCTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "PodSpec": objects.PodSpec,
    "Container": objects.Container,
    "ContainerPort": objects.ContainerPort,
    "ResourceRequirements": objects.ResourceRequirements,
    "Affinity": objects.Affinity,
    "NodeAffinity": objects.NodeAffinityTerms,
    "NodeSelectorTerm": objects.NodeSelectorTerm,
    "PodAffinity": objects.PodAffinity,
    "PodAntiAffinity": objects.PodAffinity,
    "PodAffinityTerm": objects.PodAffinityTerm,
    "Toleration": objects.Toleration,
    "TopologySpreadConstraint": objects.TopologySpreadConstraint,
}
"""What each schema is decoded to; of volumes the kinds are keys."""


def read_fields(schema: str) -> set[str]:
    """Return the wire names of the fields that the scheduler decodes."""
    if schema == "Volume":
        return set(JUDGED)
    return {field.encode_name for field in msgspec.structs.fields(STRUCTS[schema])}


def with_verdict(*verdicts: Verdict) -> list[tuple[str, Field]]:
    """Return (schema, field) of every field with one of the verdicts."""
    return [(schema, field) for schema, fields in TABLE.items() for field in fields if field.verdict in verdicts]


def markdown() -> str:
    """Return the part of docs/develop/pod-fields.md that is generated from the table."""
    return "\n".join(line for schema, fields in TABLE.items() for line in _section(schema, fields))


def _section(schema: str, fields: tuple[Field, ...]) -> list[str]:
    by_reason: dict[tuple[Verdict, str, str, str], list[str]] = {}
    for one in sorted(fields, key=lambda one: (list(Verdict).index(one.verdict), one.name)):
        words = f"`{one.words}`" if one.words else ""
        words = "`volumes of kind …`" if schema == "Volume" and words else words
        by_reason.setdefault((one.verdict, one.why, words, _versions(one)), []).append(f"`{one.name}`")
    rows = [
        f"| {', '.join(names)}{versions} | {v} | {why} | {words} |"
        for (v, why, words, versions), names in by_reason.items()
    ]
    return [
        f"## {schema}",
        "",
        "| field | verdict | why | in the message or the log |",
        "|---|---|---|---|",
        *rows,
        "",
    ]


def _versions(one: Field) -> str:
    """Return the text after the name: `, from 1.34`, or "" for a field that every version has."""
    if one.first == one.last:
        return f", in 1.{one.first}"
    return f", from 1.{one.first}" if one.first else ""
