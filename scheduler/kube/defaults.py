"""The changes that the API server makes to a new object before it stores it: identity, defaults, status.

Covers only the fields that `objects` decodes. Source: pkg/apis/core/v1/defaults.go, pkg/registry/core/pod/strategy.go
(PrepareForCreate) and the admission plugin DefaultTolerationSeconds, Kubernetes 1.36. TaintNodesByCondition and
ServiceAccount are left out, because the tested clusters run without them.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from scheduler.kube.objects import (
    Container,
    Node,
    ObjectMeta,
    PodCondition,
    PodObject,
    PodSpec,
    PodStatus,
    Quantities,
    ResourceRequirements,
    Toleration,
)

Decoded = TypeVar("Decoded", bound=msgspec.Struct)
Value = TypeVar("Value")

DEFAULT_SCHEDULER: Final = "default-scheduler"
_GATED: Final = PodCondition(
    type="PodScheduled",
    status="False",
    reason="SchedulingGated",
    message="Scheduling is blocked due to non-empty scheduling gates",
)
_TOLERATED_FOR_A_WHILE: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def timestamp(time_s: float) -> str:
    """RFC 3339 in whole seconds, as Kubernetes writes it. time_s: Unix seconds."""
    return datetime.fromtimestamp(int(time_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Identity:
    """Generator of UIDs and creation times; every run yields the same UIDs. now_s: Unix seconds."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._made = 0

    def given_to(self, metadata: ObjectMeta) -> ObjectMeta:
        """Metadata of a new object. A given UID and creation time are kept, so that traces can be replayed."""
        self._made += 1
        return replace(
            metadata,
            uid=metadata.uid or f"{self._made:08x}-0000-4000-8000-000000000000",
            creation_timestamp=metadata.creation_timestamp or timestamp(self.now_s()),
        )


def decoded(source: Decoded | Mapping[str, Any], kind: type[Decoded]) -> Decoded:
    """Return the object, decoded if it is a manifest. Raises msgspec.ValidationError if the manifest is invalid."""
    if isinstance(source, kind):
        return source
    # Through the wire format: msgspec builds raw parts from bytes only.
    return msgspec.json.decode(msgspec.json.encode(source), type=kind)


def merge_patched(old: Mapping[str, Value], patch: Mapping[str, Value | None]) -> dict[str, Value]:
    """Result of a JSON merge patch of a flat object: None removes a key."""
    new = {key: value for key, value in old.items() if key not in patch}
    return new | {key: value for key, value in patch.items() if value is not None}


def new_pod(wanted: PodObject) -> PodObject:
    """The pod with every default and a fresh status; any given status is dropped."""
    metadata = replace(wanted.metadata, namespace=wanted.metadata.namespace or "default", deletion_timestamp="")
    gated = (_GATED,) if wanted.spec.scheduling_gates else ()
    return PodObject(metadata, _spec(wanted.spec), PodStatus(phase="Pending", conditions=gated))


def new_node(wanted: Node) -> Node:
    """The node; allocatable defaults to the capacity."""
    capacity, allocatable = _as_text(wanted.status.capacity), _as_text(wanted.status.allocatable)
    allocatable = capacity if allocatable is None else allocatable
    return replace(wanted, status=replace(wanted.status, allocatable=allocatable, capacity=capacity))


def _as_text(quantities: Quantities | None) -> Quantities | None:
    """Quantities as strings, as a server returns them, even if the manifest has numbers."""
    return None if quantities is None else {name: str(quantity) for name, quantity in quantities.items()}


def _spec(spec: PodSpec) -> PodSpec:
    return replace(
        spec,
        scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
        containers=tuple(map(_container, spec.containers)),
        init_containers=tuple(map(_container, spec.init_containers)),
        tolerations=_tolerations(spec.tolerations),
    )


def _container(container: Container) -> Container:
    """The container; omitted requests equal their limits."""
    resources = container.resources
    if resources is None:
        return container
    limits, requests = _as_text(resources.limits), _as_text(resources.requests)
    if limits:
        requests = {**limits, **(requests or {})}
    return replace(container, resources=ResourceRequirements(requests, limits))


def _tolerations(named: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """The tolerations plus the default ones of 300 s, each unless the pod already tolerates its taint."""
    missing = [key for key in _TOLERATED_FOR_A_WHILE if not any(_covers(toleration, key) for toleration in named)]
    return (*named, *(Toleration(key=key, operator="Exists", effect="NoExecute") for key in missing))


def _covers(toleration: Toleration, key: str) -> bool:
    return toleration.key in {key, ""} and toleration.effect in {"NoExecute", ""}
