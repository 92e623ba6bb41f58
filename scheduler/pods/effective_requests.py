"""A pod's total request: the container formula, pod-level resources, overhead, in-place resize.

Pure. Amounts: cpu in thousandths of a core, everything else in whole units (bytes, devices).
Source: k8s.io/component-helpers/resource/helpers.go, PodRequests and its helpers;
for scoring pkg/scheduler/framework/types.go, getNonMissingContainerRequests.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Final, NamedTuple, TypeAlias

from config.protocol import quantity
from config.protocol.container_formula import ContainerKind, init_kind, peak_amounts
from scheduler.kube.objects import (
    Container,
    ContainerStatus,
    PodCondition,
    PodObject,
    PodSpec,
    PodStatus,
    Quantities,
    ResourceRequirements,
)

Amounts: TypeAlias = dict[str, int]

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"
# More than any node has. Absurd amounts are cut off here, so that sums over a node's pods never overflow.
MOST: Final = 2**53
_APPS: Final = repeat(ContainerKind.APP)
# Scoring default of a container without a request. Source: pkg/scheduler/util/pod_resources.go.
DEFAULT_CPU_MILLIS: Final = 100
DEFAULT_MEMORY_BYTES: Final = 200 * 1024 * 1024
_ASSUMED: Final[Amounts] = {CPU: DEFAULT_CPU_MILLIS, MEMORY: DEFAULT_MEMORY_BYTES}
_INFEASIBLE: Final = PodCondition("PodResizePending", "True", "Infeasible")
_AS_ASKED: Final = PodStatus()
_NOTHING: Final[Quantities] = {}


class Resized(NamedTuple):
    """Sizes in a pod's status that differ from its spec.

    containers, init_containers: the containers whose size differs from their request. resources, allocated: sizes of
    the pod as a whole. infeasible: the kubelet has reported that it can never allocate the new size.
    """

    containers: tuple[ContainerStatus, ...]
    init_containers: tuple[ContainerStatus, ...]
    resources: ResourceRequirements | None
    allocated: Quantities | None
    infeasible: bool


def resized(pod: PodObject) -> Resized | None:
    """Return the sizes that differ from the spec; None if there are none, as for nearly every running pod.

    If None, only the spec counts.
    """
    spec, status = pod.spec, pod.status
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return None
    infeasible = bool(status.conditions) and _resize_infeasible(pod)
    containers = _not_as_asked(status.container_statuses, spec.containers, infeasible=infeasible)
    init = _not_as_asked(status.init_container_statuses, spec.init_containers, infeasible=infeasible)
    whole = None
    if spec.resources is not None and (
        infeasible or _differs(status.resources, status.allocated_resources, spec.resources)
    ):
        whole = status.resources
    if not (containers or init or whole):
        return None
    return Resized(containers, init, whole, None if whole is None else status.allocated_resources, infeasible)


def status_of(said: Resized | None) -> PodStatus:
    """Return a status with these sizes."""
    if said is None:
        return _AS_ASKED
    return PodStatus(
        container_statuses=said.containers,
        init_container_statuses=said.init_containers,
        resources=said.resources,
        allocated_resources=said.allocated,
        conditions=(_INFEASIBLE,) if said.infeasible else (),
    )


def amounts(quantities: Quantities | None) -> Amounts:
    """Convert quantities to exact integers, rounded up. Raises QuantityError for an invalid quantity."""
    if not quantities:
        return {}
    return {
        name: quantity.milli(str(text)) if name == CPU else quantity.whole(str(text))
        for name, text in quantities.items()
    }


def is_sidecar(container: Container) -> bool:
    """Return whether it is an init container that keeps running alongside the app containers."""
    return init_kind(container.restart_policy) is not ContainerKind.INIT


def combined(spec: PodSpec, of_container: Callable[[Container], Amounts]) -> Amounts:
    """Return the total by the container formula. of_container: amounts of one container."""
    return peak_amounts(_in_order(spec, of_container))


class Requests(NamedTuple):
    """Total request of a pod.

    amounts: every resource that the pod occupies on its node, each capped at MOST; zero amounts are left out.
    scoring_cpu_millis, scoring_memory_bytes: amounts that scoring uses; there, a container without a request counts as
    a small default.
    """

    amounts: Amounts
    scoring_cpu_millis: int
    scoring_memory_bytes: int


def effective_requests(pod: PodObject) -> Requests:
    """Return the total request of a pod. Reads each container only once. Raises QuantityError."""
    containers = list(_in_order(pod.spec, _by_container(pod)))
    total = peak_amounts(containers)
    whole, overhead = _pod_level(pod, total), amounts(pod.spec.overhead)
    # With a pod-level request, a container gets the scoring default only for resources that nothing in the pod
    # requests.
    said = total.keys() | whole.keys() | overhead.keys() if whole else frozenset[str]()
    assumed = {name: amount for name, amount in _ASSUMED.items() if name not in said}
    all_say = all(assumed.keys() <= own.keys() for own, _ in containers)
    scoring = dict(total) if all_say else peak_amounts((assumed | own, kind) for own, kind in containers)
    for of in (total, scoring):
        of.update(whole)
        _add(of, overhead)
    return Requests(
        {name: min(amount, MOST) for name, amount in total.items() if amount},
        min(scoring.get(CPU, 0), MOST),
        min(scoring.get(MEMORY, 0), MOST),
    )


def _in_order(spec: PodSpec, of_container: Callable[[Container], Amounts]) -> Iterator[tuple[Amounts, ContainerKind]]:
    init = ((of_container(container), init_kind(container.restart_policy)) for container in spec.init_containers)
    apps = zip(map(of_container, spec.containers), _APPS)  # noqa: B905  (the second has no end)
    return chain(init, apps) if spec.init_containers else apps


def _by_container(pod: PodObject) -> Callable[[Container], Amounts]:
    """Return a function that gives the amounts of a container, including its in-place resize."""
    spec, status = pod.spec, pod.status
    if not (status.container_statuses or status.init_container_statuses):
        return lambda container: amounts(_requests(container.resources))
    statuses = {s.name: s for s in status.container_statuses}
    if status.init_container_statuses:
        # An ordinary init container ends before it could be resized.
        sidecars = {c.name for c in spec.init_containers if is_sidecar(c)}
        statuses |= {s.name: s for s in status.init_container_statuses if s.name in sidecars}
    infeasible = bool(status.conditions) and _resize_infeasible(pod)
    return lambda container: _container_requests(container, statuses.get(container.name), infeasible=infeasible)


def _not_as_asked(
    statuses: Sequence[ContainerStatus], containers: Sequence[Container], *, infeasible: bool
) -> tuple[ContainerStatus, ...]:
    """Return the sizes that count in addition to the containers' requests, without the IDs of container instances."""
    sized = [status for status in statuses if status.resources is not None]
    if not sized:
        return ()
    asked: Mapping[str, Container] = {container.name: container for container in containers}
    return tuple(
        ContainerStatus(status.name, resources=status.resources, allocated_resources=status.allocated_resources)
        for status in sized
        if status.name in asked
        and (infeasible or _differs(status.resources, status.allocated_resources, asked[status.name].resources))
    )


def _differs(
    actuated: ResourceRequirements | None, admitted: Quantities | None, asked: ResourceRequirements | None
) -> bool:
    """Return whether an actuated or admitted size differs from the request, or has more entries.

    If False, the largest of the three equals the request.
    """
    if actuated is None:
        return False
    wanted = (_NOTHING if asked is None else asked.requests or _NOTHING).items()
    return not ((actuated.requests or _NOTHING).items() <= wanted and (admitted or _NOTHING).items() <= wanted)


def _resize_infeasible(pod: PodObject) -> bool:
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in pod.status.conditions)


def _container_requests(container: Container, status: ContainerStatus | None, *, infeasible: bool) -> Amounts:
    own = amounts(_requests(container.resources))
    if status is None or status.resources is None:
        return own
    return _while_resized(own, status.resources, status.allocated_resources, infeasible=infeasible)


def _while_resized(
    own: Amounts, actuated: ResourceRequirements, admitted: Quantities | None, *, infeasible: bool
) -> Amounts:
    """Return the largest of the requested, actuated and admitted sizes, while they may differ."""
    occupied = amounts(actuated.requests)
    _raise(occupied, amounts(admitted))
    if not infeasible:
        # If the new size is infeasible, only the actuated and admitted sizes count.
        _raise(occupied, own)
    return occupied


def _requests(resources: ResourceRequirements | None) -> Quantities | None:
    # The API server fills in requests from limits, but manifests read by the simulator have not been there.
    if resources is None:
        return None
    if not resources.limits:
        return resources.requests
    return {**resources.limits, **(resources.requests or {})}


def _pod_level(pod: PodObject, of_containers: Amounts) -> Amounts:
    """Return the pod-level request for the resources that allow one, including its in-place resize.

    of_containers: the sum over the containers, which counts if the pod has only a limit. Source of that rule:
    pkg/apis/core/v1/defaults.go, defaultPodRequests.
    """
    spec, status = pod.spec, pod.status
    if spec.resources is None:
        return {}
    asked = amounts(spec.resources.limits)
    asked.update({name: of_containers[name] for name in (CPU, MEMORY) if name in asked and name in of_containers})
    asked.update(amounts(spec.resources.requests))
    asked = {name: amount for name, amount in asked.items() if name in {CPU, MEMORY} or name.startswith("hugepages-")}
    if status.resources is None:
        return asked
    infeasible = _resize_infeasible(pod)
    occupied = _while_resized(asked, status.resources, status.allocated_resources, infeasible=infeasible)
    # A resource without a pod-level request stays the sum over the containers.
    return {name: occupied.get(name, 0) for name in asked}


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise(peak: Amounts, level: Amounts) -> None:
    for name, amount in level.items():
        if amount > peak.get(name, 0):
            peak[name] = amount
