"""Peak amount that a pod occupies, computed from what each container uses while it runs. Pure.

Source: the Kubernetes rule for containers, k8s.io/component-helpers/resource/helpers.go, AggregateContainerRequests.
"""

from collections.abc import Hashable, Iterable, Mapping
from enum import StrEnum
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)
_ALWAYS: Final = "Always"


class ContainerKind(StrEnum):
    """INIT: ends before the next container starts. SIDECAR: an init container that keeps running. APP: the rest."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


def init_kind(restart_policy: str) -> ContainerKind:
    """Return the kind of a container in `spec.initContainers`. restart_policy: the container's own, "" if unset."""
    return _SIDECAR if restart_policy == _ALWAYS else _INIT


# An enum lookup costs as much as an addition, and this runs for every container of every pod.
_INIT, _SIDECAR, _APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def peak_amounts(containers: Iterable[tuple[Mapping[K, int], ContainerKind]]) -> dict[K, int]:
    """Return, for each key, the larger of (apps + sidecars) and any init container plus the sidecars before it.

    containers: each container's amounts, by resource or by card, and its kind, in start order: all of
    `spec.initContainers`, then all of `spec.containers`. Keys that are never above 0 are left out.
    """
    running: dict[K, int] = {}
    peak: dict[K, int] = {}
    for own, kind in containers:
        if kind is _APP:
            for key, amount in own.items():
                running[key] = running.get(key, 0) + amount
            continue
        for key, amount in own.items():
            together = running.get(key, 0) + amount
            if together > peak.get(key, 0):
                peak[key] = together
            if kind is _SIDECAR:
                running[key] = together
    for key, amount in running.items():
        if amount > peak.get(key, 0):
            peak[key] = amount
    return peak
