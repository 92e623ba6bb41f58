"""What an API server writes into objects before it stores them for the first time.

Pure. Only the fields that `objects` decodes. Source: pkg/apis/core/v1/defaults.go, pkg/registry/core/pod/strategy.go
(PrepareForCreate) and the admission plugin DefaultTolerationSeconds, Kubernetes 1.36. Not here, since the clusters
tested against run without them: TaintNodesByCondition and ServiceAccount.
"""

from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from scheduler.kube.objects import (
    Container,
    Node,
    NodeStatus,
    Pod,
    PodCondition,
    PodSpec,
    PodStatus,
    Quantities,
    Resources,
    Toleration,
)

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


def new_pod(wanted: Pod) -> Pod:
    """The pod with every default and a fresh status; a status that came with it is dropped."""
    metadata = replace(wanted.metadata, namespace=wanted.metadata.namespace or "default", deletion_timestamp="")
    gated = (_GATED,) if wanted.spec.scheduling_gates else ()
    return Pod(metadata, _spec(wanted.spec), PodStatus(phase="Pending", conditions=gated))


def new_node(wanted: Node) -> Node:
    """The node; what is there may be requested unless it says otherwise."""
    capacity, allocatable = _as_text(wanted.status.capacity), _as_text(wanted.status.allocatable)
    return replace(wanted, status=NodeStatus(capacity if allocatable is None else allocatable, capacity))


def _as_text(quantities: Quantities | None) -> Quantities | None:
    """A server answers with strings, also where the manifest has numbers."""
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
    """Requests that are not named equal their limits."""
    resources = container.resources
    if resources is None:
        return container
    limits, requests = _as_text(resources.limits), _as_text(resources.requests)
    if limits:
        requests = {**limits, **(requests or {})}
    return replace(container, resources=Resources(requests, limits))


def _tolerations(named: tuple[Toleration, ...]) -> tuple[Toleration, ...]:
    """With those of 300 s that every pod gets unless it has some of its own for the same taint."""
    missing = [key for key in _TOLERATED_FOR_A_WHILE if not any(_covers(toleration, key) for toleration in named)]
    return (*named, *(Toleration(key=key, operator="Exists", effect="NoExecute") for key in missing))


def _covers(toleration: Toleration, key: str) -> bool:
    return toleration.key in {key, ""} and toleration.effect in {"NoExecute", ""}
