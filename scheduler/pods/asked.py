"""All fields of a pod's object that scheduling reads, apart from its identity. Pure.

The values of a template are computed only from these fields, so they cannot depend on a field that is missing from the
fingerprint. Code that needs another label, annotation or field finds it empty until it is added here.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from scheduler.kube import objects
from scheduler.pods import effective_requests, gpu_request
from scheduler.pods.effective_requests import Resized
from scheduler.pods.gpu_request import ResourceNames

_EMPTY: Final[Mapping[str, str]] = {}
_ENCODE: Final = msgspec.msgpack.Encoder().encode
_SOURCE: Final = objects.VolumeSource()
_CLAIM: Final = objects.ResourceClaim()
_IMAGE: Final = "image"


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """Requests of a pod, equal for pods that request the same: no names, no names of volumes, no unread labels.

    volume_kinds: one for each volume. over_limit: its labels, annotations or gates are over the size limit.
    """

    containers: tuple[objects.Container, ...]
    init_containers: tuple[objects.Container, ...]
    overhead: objects.Quantities | None
    resources: objects.ResourceRequirements | None
    node_selector: dict[str, str] | None
    affinity: objects.Affinity | None
    tolerations: tuple[objects.Toleration, ...]
    topology_spread_constraints: tuple[objects.TopologySpreadConstraint, ...]
    workload_ref: objects.SchedulingGroup | None
    resource_claims: int
    volume_kinds: tuple[str, ...]
    volume_images: tuple[str, ...]
    host_network: bool
    host_users: bool | None
    labels: dict[str, str]
    annotations: dict[str, str]
    resized: Resized | None
    over_limit: bool

    def fingerprint(self) -> bytes:
        """Return bytes that are equal only for equal requests."""
        return _ENCODE(self)

    def as_pod(self) -> objects.PodObject:
        """Return a pod with these requests and no other fields."""
        volumes: list[dict[str, str | objects.VolumeSource | None]] = [{kind: _SOURCE} for kind in self.volume_kinds]
        volumes += [{_IMAGE: objects.VolumeSource(reference=reference)} for reference in self.volume_images]
        return objects.PodObject(
            metadata=objects.ObjectMeta("", labels=self.labels, annotations=self.annotations),
            spec=objects.PodSpec(
                containers=self.containers,
                init_containers=self.init_containers,
                overhead=self.overhead,
                resources=self.resources,
                node_selector=self.node_selector,
                affinity=self.affinity,
                tolerations=self.tolerations,
                topology_spread_constraints=self.topology_spread_constraints,
                workload_ref=self.workload_ref,
                volumes=tuple(volumes),
                host_network=self.host_network,
                host_users=self.host_users,
                resource_claims=(_CLAIM,) * self.resource_claims,
            ),
            status=effective_requests.status_of(self.resized),
        )


def image_references(spec: objects.PodSpec) -> Iterator[str]:
    """Yield the image references of image volumes."""
    sources = (volume.get(_IMAGE) for volume in spec.volumes)
    return (source.reference for source in sources if isinstance(source, objects.VolumeSource))


class AskedReader:
    """Converts wire pods to Asked."""

    def __init__(self, resources: ResourceNames) -> None:
        """resources: the configured names of resources and labels. labels, annotations: the keys that are read."""
        self.labels: Final = frozenset(gpu_request.labels_read(resources))
        self.annotations: Final = frozenset(gpu_request.annotations_read(resources))
        # In a fixed order, so that equal pods have equal fingerprints.
        self._labels, self._annotations = tuple(sorted(self.labels)), tuple(sorted(self.annotations))

    def read(self, wire: objects.PodObject, *, over_limit: bool = False) -> Asked:
        """Read the requests of a pod. over_limit: as in Asked."""
        meta, spec = wire.metadata, wire.spec
        labels, annotations = meta.labels or _EMPTY, meta.annotations or _EMPTY
        kinds = [kind for volume in spec.volumes for kind in volume if kind != "name"]
        images: tuple[str, ...] = ()
        if _IMAGE in kinds:
            kinds, images = [kind for kind in kinds if kind != _IMAGE], tuple(sorted(image_references(spec)))
        return Asked(
            spec.containers,
            spec.init_containers,
            spec.overhead,
            spec.resources,
            spec.node_selector,
            spec.affinity,
            spec.tolerations,
            spec.topology_spread_constraints,
            spec.workload_ref,
            len(spec.resource_claims),
            tuple(sorted(kinds)),
            images,
            spec.host_network,
            spec.host_users,
            {key: labels[key] for key in self._labels if key in labels},
            {key: annotations[key] for key in self._annotations if key in annotations},
            effective_requests.resized(wire),
            over_limit,
        )
