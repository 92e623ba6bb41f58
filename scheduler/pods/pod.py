"""The scheduler's view of a pod: its identity, and the Template that it shares with similar pods.

Pure. `PodReader` turns wire objects into pods. Pods of one template share one `Template` object, so a template's
requests and selectors are computed once, and classes compare by identity.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec
from cachetools import LRUCache

from config.protocol import names
from scheduler.kube import objects
from scheduler.kube.port import PodKey
from scheduler.kube.size_limits import (
    LONGEST_FOREIGN_VALUE,
    is_pod_too_large,
    is_slim,
    kept_resources,
    slimmed,
    without_terms,
)
from scheduler.pods.asked import Asked, AskedReader, image_references
from scheduler.pods.declared_features import required_features
from scheduler.pods.effective_requests import Amounts, effective_requests
from scheduler.pods.gang import Gang, gang_of
from scheduler.pods.gpu_request import GpuRequest, GpuRequestError, ResourceNames, gpu_request_of, gpu_units, sidecars
from scheduler.pods.mistakes import unsupported_rules
from scheduler.pods.pod_volumes import NO_VOLUMES, ClaimKey, PodVolumes, volumes_of


class TransitionError(Exception):
    """A state transition that the pod's state does not allow.

    This is our own bug, so the process ends and restarts clean.
    """


def expect(holds: bool, message: str) -> None:  # noqa: FBT001 - reads like an assertion, which it is
    """Raise TransitionError unless `holds`."""
    if not holds:
        raise TransitionError(message)


# Room for 1,024 templates of the usual size. A key is the data that it stands for, or its digest if that is long.
_LONGEST_KEY: Final = 4096
_KEPT_BYTES: Final = 1024 * _LONGEST_KEY
_DIGEST: Final = 32
_SHARED: Final = 256
_NO_PORTS: Final[frozenset["HostPort"]] = frozenset()
_SELECTORS: Final = frozenset({names.CARD_AFFINITY, names.CARD_ANTI_AFFINITY})
# On a mirror pod, the API server's copy of a static pod. Source: pkg/kubelet/types/pod_update.go, IsMirrorPod.
_MIRROR: Final = "kubernetes.io/config.mirror"
_PROTOCOL: Final = _SELECTORS.union(names.ALLOCATION_KEYS, {_MIRROR})
_EMPTY: Final[Mapping[str, str]] = {}
NO_TERMS: Final = objects.PodAffinity()
_NOTHING_ASKED: Final = objects.PodObject(objects.ObjectMeta(""))
RUNNING: Final = "Running"
_FINISHED: Final = frozenset({"Succeeded", "Failed"})
_NEVER: Final = "Never"
DISRUPTION_TARGET: Final = "DisruptionTarget"
PREEMPTION_BY_SCHEDULER: Final = "PreemptionByScheduler"


@dataclass(frozen=True, slots=True)
class HostPort:
    """Port of the node. ip: "" and "0.0.0.0" mean every address."""

    ip: str
    protocol: str
    port: int


class Template(msgspec.Struct, frozen=True, eq=False, kw_only=True, weakref=True):
    """All fields of a pod that scheduling reads, apart from its identity. Compared by identity, see PodReader.

    requests: all resources except gpu-mem, without zero amounts (cpu in millis, others whole). gpu_units: effective
    gpu-mem request over all cards, even if `gpu_request` could not be read. gpu_request_error: why the GPU request is
    invalid; "" if it is valid. unsupported: requirements without a rule. images: one per container, init containers
    first; volume_images: one per volume that is an image; both with their tags. required_features: names of features
    that the node has to declare.
    over_limit: its terms are over the limit (`scheduler.kube.size_limits`) and left out. Such a waiting pod stays
    Pending, and no other part of it is read.
    """

    requests: Amounts
    scoring_cpu_millis: int
    scoring_memory_bytes: int
    gpu_units: int
    gpu_request: GpuRequest | None
    gpu_request_error: str
    over_limit: bool = False
    unsupported: tuple[str, ...]
    sidecars: tuple[bool, ...]
    node_selector: Mapping[str, str]
    node_affinity: objects.NodeAffinityTerms | None
    tolerations: tuple[objects.Toleration, ...]
    host_ports: frozenset[HostPort]
    affinity: objects.PodAffinity
    anti_affinity: objects.PodAffinity
    spread: tuple[objects.TopologySpreadConstraint, ...]
    images: tuple[str, ...] = ()
    volume_images: tuple[str, ...] = ()
    required_features: frozenset[str] = frozenset()


class Pod(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """One pod. created: RFC 3339, "" if unknown. node_name: "" while it waits. owner_uid: its controller's UID, or "".

    volumes: the pod's own; pods of one template may differ in them. started: when a kubelet first saw the pod, RFC
    3339; "" until then. nominated_node: as in its status, or "". preempts: whether it may preempt. preempted: a
    scheduler is evicting it for another pod. mirror: copy of a static pod, which its kubelet keeps running even if the
    copy is deleted. gang: pods that it starts together with.
    """

    key: PodKey
    template: Template
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    priority: int
    created: str
    scheduler_name: str
    node_name: str
    owner_uid: str
    gates: tuple[str, ...]
    terminating: bool
    finished: bool
    phase: str
    reason: str
    condition: objects.PodCondition | None
    volumes: PodVolumes = NO_VOLUMES

    started: str = ""
    nominated_node: str = ""
    preempts: bool = True
    preempted: bool = False
    mirror: bool = False
    gang: Gang | None = None

    @property
    def claim_keys(self) -> list[ClaimKey]:
        """Keys of the pod's claims."""
        return [(self.key.namespace, claim.name) for claim in self.volumes.claims]


class _Kept(NamedTuple):
    """Template with its approximate memory in bytes, which is about the size of its source.

    counted: whether it holds the amounts of a pod with a node; False for a waiting pod over a limit.
    """

    template: Template
    size: int
    counted: bool


class PodReader:
    """Converts wire objects to Pods. Raises QuantityError for an invalid amount."""

    def __init__(self, resources: ResourceNames, unit_mib: int = 1024) -> None:
        """resources: the configured names of resources and labels.

        unit_mib: MiB in one unit of gpu-mem, for messages.
        """
        self.resources: Final = resources
        self._resources = resources
        self._unit_mib = unit_mib
        self._asked = AskedReader(resources)
        self._kept = kept_resources((resources.gpu_mem, resources.gpu_core))
        # Read at any length, because their readers report an invalid one.
        self._annotations = self._asked.annotations | _PROTOCOL
        # Nearly all pods have equal tolerations, but each template decoded its own copy.
        self._tolerations: LRUCache[tuple[objects.Toleration, ...], tuple[objects.Toleration, ...]] = LRUCache(_SHARED)
        self._kept_whole = frozenset(names.ALLOCATION_KEYS) - self._asked.annotations
        self._templates: LRUCache[bytes, _Kept] = LRUCache(_KEPT_BYTES, getsizeof=lambda kept: kept.size)
        # By digest: every Template of a known pod. `_templates` holds the most recent ones.
        self._in_use: WeakValueDictionary[bytes, Template] = WeakValueDictionary()

    def read(self, wire: objects.PodObject) -> Pod:
        """Read a pod. It shares its Template with every earlier pod that requests the same.

        Terms over the limit (`scheduler.kube.size_limits`) are left out.
        """
        if is_slim(wire):
            return self._read(wire, wire.metadata.annotations)
        wire, over_limit = slimmed(wire, labels=self._asked.labels, annotations=self._annotations)
        # Long annotations that hold requests are in the template.
        kept = {
            key: text
            for key, text in (wire.metadata.annotations or _EMPTY).items()
            if len(text) <= LONGEST_FOREIGN_VALUE or key in self._kept_whole
        }
        return self._read(wire, kept, over_limit=over_limit)

    def _read(self, wire: objects.PodObject, annotations: Mapping[str, str] | None, *, over_limit: bool = False) -> Pod:
        """Read a pod. annotations: the ones to keep. over_limit: as in Asked."""
        meta, spec, status = wire.metadata, wire.spec, wire.status
        return Pod(
            key=PodKey(meta.namespace, meta.name, meta.uid),
            template=self._template(self._asked.read(wire, over_limit=over_limit), spec.node_name),
            labels=meta.labels or _EMPTY,
            annotations=annotations or _EMPTY,
            priority=spec.priority,
            created=meta.creation_timestamp,
            scheduler_name=spec.scheduler_name,
            node_name=spec.node_name,
            owner_uid=next((owner.uid for owner in meta.owner_references if owner.controller), ""),
            gates=tuple(gate.name for gate in spec.scheduling_gates) if spec.scheduling_gates else (),
            terminating=bool(meta.deletion_timestamp),
            finished=status.phase in _FINISHED,
            phase=status.phase,
            reason=status.reason,
            condition=next((c for c in status.conditions if c.type == "PodScheduled"), None),
            volumes=volumes_of(wire) if spec.volumes else NO_VOLUMES,
            started=status.start_time,
            nominated_node=status.nominated_node_name,
            preempts=spec.preemption_policy != _NEVER,
            preempted=any(map(_is_preemption, status.conditions)),
            mirror=_MIRROR in (meta.annotations or _EMPTY),
            gang=gang_of(meta, spec.scheduling_group),
        )

    def _template(self, asked: Asked, node_name: str) -> Template:
        fingerprint = asked.fingerprint()
        size = len(fingerprint)
        # A large key would cost as much as the data it stands for.
        key = fingerprint if size <= _LONGEST_KEY else _digest(fingerprint)
        kept = self._templates.get(key)
        if kept is None and (template := self._in_use.get(_digest(fingerprint))) is not None:
            kept = self._templates[key] = _Kept(template, max(size, _LONGEST_KEY), counted=True)
        if kept is None or (node_name and not kept.counted):
            kept = self._work_out(asked, size, waits=not node_name)
            self._templates[key] = kept
            if kept.counted:
                self._in_use[_digest(fingerprint)] = kept.template
        return kept.template

    def _work_out(self, asked: Asked, size: int, *, waits: bool) -> _Kept:
        """Compute the Template of a pod. size: the fingerprint's size."""
        pod = asked.as_pod()
        too_large = is_pod_too_large(pod, size)
        over_limit = too_large or asked.over_limit
        if over_limit and waits:
            # Adding up its requests would cost more than reading it.
            return _Kept(self._worked_out(_NOTHING_ASKED, over_limit=True), _LONGEST_KEY, counted=False)
        template = self._worked_out(without_terms(pod, self._kept) if too_large else pod, over_limit=over_limit)
        return _Kept(template, max(size, _LONGEST_KEY), counted=True)

    def _worked_out(self, pod: objects.PodObject, *, over_limit: bool) -> Template:
        """Compute a Template. pod: the fields that were read from one pod."""
        spec = pod.spec
        gpu_request, gpu_request_error = None, ""
        try:
            gpu_request = gpu_request_of(pod, self._resources, self._unit_mib)
        except GpuRequestError as error:
            gpu_request_error = str(error)
        requests, cpu_millis, memory_bytes = effective_requests(pod)
        requests.pop(self._resources.gpu_mem, None)
        affinity, containers = spec.affinity or objects.Affinity(), (*spec.init_containers, *spec.containers)
        return Template(
            requests=requests,
            scoring_cpu_millis=cpu_millis,
            scoring_memory_bytes=memory_bytes,
            gpu_units=gpu_units(pod, self._resources.gpu_mem) if gpu_request is None else gpu_request.units,
            gpu_request=gpu_request,
            gpu_request_error=gpu_request_error,
            over_limit=over_limit,
            unsupported=unsupported_rules(pod),
            sidecars=sidecars(pod),
            node_selector=spec.node_selector or _EMPTY,
            node_affinity=affinity.node_affinity,
            tolerations=self._tolerations.setdefault(spec.tolerations, spec.tolerations),
            host_ports=_host_ports(spec),
            affinity=affinity.pod_affinity or NO_TERMS,
            anti_affinity=affinity.pod_anti_affinity or NO_TERMS,
            spread=spec.topology_spread_constraints,
            # A pod over a limit is not scored, and may have thousands of images.
            images=() if over_limit else tuple(_full_name(each.image) for each in containers),
            volume_images=() if over_limit else tuple(map(_full_name, image_references(spec))),
            required_features=required_features(spec),
        )


def _full_name(reference: str) -> str:
    """Add the tag to an image reference: `a.b:5000/c` becomes `a.b:5000/c:latest`. A tag or digest is kept.

    Source: kube-scheduler, plugins/imagelocality/image_locality.go, normalizedImageName.
    """
    return reference if reference.rfind(":") > reference.rfind("/") else f"{reference}:latest"


def _digest(fingerprint: bytes) -> bytes:
    return blake2b(fingerprint, digest_size=_DIGEST).digest()


def _is_preemption(condition: objects.PodCondition) -> bool:
    return (condition.type, condition.status, condition.reason) == (DISRUPTION_TARGET, "True", PREEMPTION_BY_SCHEDULER)


def _host_ports(spec: objects.PodSpec) -> frozenset[HostPort]:
    # Source: pkg/scheduler/util/utils.go, GetHostPorts: app containers and sidecars.
    running = (*spec.containers, *(c for c in spec.init_containers if c.restart_policy == "Always"))
    ports = [
        HostPort(port.host_ip, port.protocol or "TCP", port.host_port)
        for container in running
        for port in container.ports
        if port.host_port > 0
    ]
    # A separate empty set would be larger than many templates.
    return frozenset(ports) if ports else _NO_PORTS
