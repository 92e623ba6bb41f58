"""A pod as the scheduler thinks of it: its identity, and what it has in common with others of its template.

Pure. `PodReader` turns wire objects into these; pods of one template share one `Template` object, so a
template's requests, selectors and asks are worked out once, and classes compare by identity.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec
from cachetools import LRUCache

from config.protocol import names
from scheduler.kube import objects
from scheduler.kube.port import PodKey
from scheduler.pods.effective_requests import Amounts, effective_requests, scoring_requests
from scheduler.pods.gpu_request import GpuRequest, GpuRequestError, ResourceNames, gpu_request_of, gpu_units, sidecars
from scheduler.pods.unsupported import unsupported_rules

_TEMPLATES: Final = 8192
_EMPTY: Final[Mapping[str, str]] = {}
_FINISHED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node. ip: "" and "0.0.0.0" are every address."""

    ip: str
    protocol: str
    port: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Template:
    """What scheduling reads of a pod, apart from who it is. Compared by identity: see PodReader.

    requests: all resources but gpu-mem, zero amounts left out (cpu in millis, others whole).
    gpu_units: effective ask of gpu-mem over all cards, also where `gpu_request` could not be read.
    gpu_request_error: why the GPU request is wrong; "" when it is right. unsupported: requirements without a rule.
    """

    requests: Amounts
    scoring_cpu_millis: int
    scoring_memory_bytes: int
    gpu_units: int
    gpu_request: GpuRequest | None
    gpu_request_error: str
    unsupported: tuple[str, ...]
    unsupported_preferences: tuple[str, ...]
    sidecars: tuple[bool, ...]
    node_selector: Mapping[str, str]
    node_affinity: objects.NodeAffinity | None
    tolerations: tuple[objects.Toleration, ...]
    host_ports: frozenset[HostPort]
    anti_affinity: tuple[objects.PodAffinityTerm, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Pod:
    """One pod. created: RFC 3339, "" unknown. node_name: "" while it waits. owner_uid: of its controller, or ""."""

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


class PodReader:
    """Wire pod -> Pod. Raises QuantityError for an amount that is none."""

    def __init__(self, resources: ResourceNames) -> None:
        """resources: the configured names of what is asked."""
        self._resources = resources
        self._templates: LRUCache[bytes, Template] = LRUCache(maxsize=_TEMPLATES)
        self._encode = msgspec.msgpack.Encoder().encode
        self._labels_read = (resources.gpu_count, names.PLACEMENT_LABEL)
        self._annotations_read = (
            resources.gpu_count,
            names.EXCLUSIVE,
            names.CARD_MODELS,
            names.CARD_UUIDS,
            names.CARD_POLICY,
            names.NODE_POLICY,
        )

    def read(self, wire: objects.Pod) -> Pod:
        """The pod, sharing its Template with every pod read before that asks the same."""
        meta, spec, status = wire.metadata, wire.spec, wire.status
        return Pod(
            key=PodKey(meta.namespace, meta.name, meta.uid),
            template=self._template(wire),
            labels=meta.labels or _EMPTY,
            annotations=meta.annotations or _EMPTY,
            priority=spec.priority,
            created=meta.creation_timestamp,
            scheduler_name=spec.scheduler_name,
            node_name=spec.node_name,
            owner_uid=next((owner.uid for owner in meta.owner_references if owner.controller), ""),
            gates=tuple(gate.name for gate in spec.scheduling_gates),
            terminating=bool(meta.deletion_timestamp),
            finished=status.phase in _FINISHED,
            phase=status.phase,
            reason=status.reason,
            condition=next((c for c in status.conditions if c.type == "PodScheduled"), None),
        )

    def _template(self, wire: objects.Pod) -> Template:
        key = self._fingerprint(wire)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = self._work_out(wire)
        return template

    def _fingerprint(self, wire: objects.Pod) -> bytes:
        """Equal for pods that ask the same; names, volumes' names and unread labels do not enter."""
        meta, spec, status = wire.metadata, wire.spec, wire.status
        labels, annotations = meta.labels or _EMPTY, meta.annotations or _EMPTY
        resized = [s for s in (*status.container_statuses, *status.init_container_statuses) if s.resources]
        return self._encode(
            (
                spec.containers,
                spec.init_containers,
                spec.overhead,
                spec.resources,
                spec.node_selector,
                spec.affinity,
                spec.tolerations,
                spec.topology_spread_constraints,
                spec.scheduling_group,
                len(spec.resource_claims),
                sorted({kind for volume in spec.volumes for kind in volume if kind != "name"}),
                [labels.get(key) for key in self._labels_read],
                [annotations.get(key) for key in self._annotations_read],
                resized,
                status.resources,
                status.allocated_resources,
                [c for c in status.conditions if c.type == "PodResizePending"] if resized or status.resources else (),
            )
        )

    def _work_out(self, wire: objects.Pod) -> Template:
        spec = wire.spec
        gpu_request, gpu_request_error = None, ""
        try:
            gpu_request = gpu_request_of(wire, self._resources)
        except GpuRequestError as error:
            gpu_request_error = str(error)
        requests = effective_requests(wire)
        requests.pop(self._resources.gpu_mem, None)
        cpu_millis, memory_bytes = scoring_requests(wire)
        affinity = spec.affinity or objects.Affinity()
        anti_affinity = affinity.pod_anti_affinity or objects.PodAffinity()
        unsupported = unsupported_rules(wire)
        return Template(
            requests=requests,
            scoring_cpu_millis=cpu_millis,
            scoring_memory_bytes=memory_bytes,
            gpu_units=gpu_units(wire, self._resources.gpu_mem),
            gpu_request=gpu_request,
            gpu_request_error=gpu_request_error,
            unsupported=unsupported.requirements,
            unsupported_preferences=unsupported.preferences,
            sidecars=sidecars(wire),
            node_selector=spec.node_selector or _EMPTY,
            node_affinity=affinity.node_affinity,
            tolerations=spec.tolerations,
            host_ports=_host_ports(spec),
            anti_affinity=anti_affinity.required_during_scheduling_ignored_during_execution,
        )


def _host_ports(spec: objects.PodSpec) -> frozenset[HostPort]:
    # Source: pkg/scheduler/util/utils.go, GetHostPorts: app containers and sidecars.
    running = (*spec.containers, *(c for c in spec.init_containers if c.restart_policy == "Always"))
    return frozenset(
        HostPort(port.host_ip, port.protocol or "TCP", port.host_port)
        for container in running
        for port in container.ports
        if port.host_port > 0
    )
