"""Kubelet features that a pod needs, among those that nodes declare. Pure.

The other features registered by Kubernetes 1.37 are needed only for pod updates, or not at all, except for
VolumeBindMountOptions (alpha), which is not read.
Source: component-helpers, nodedeclaredfeatures/features/registry.go, and InferForScheduling of each.
"""

from collections.abc import Callable, Mapping
from typing import Final

from scheduler.kube.objects import PodSpec


def _restarts_all_containers(spec: PodSpec) -> bool:
    containers = (*spec.containers, *spec.init_containers)
    return any(rule.action == "RestartAllContainers" for each in containers for rule in each.restart_policy_rules)


def _has_users_of_its_own_in_the_hosts_network(spec: PodSpec) -> bool:
    return spec.host_network and spec.host_users is False


FEATURES: Final[Mapping[str, Callable[[PodSpec], bool]]] = {
    "RestartAllContainersOnContainerExits": _restarts_all_containers,
    "UserNamespacesHostNetworkSupport": _has_users_of_its_own_in_the_hosts_network,
}
_NONE: Final[frozenset[str]] = frozenset()


def required_features(spec: PodSpec) -> frozenset[str]:
    """Return names from `FEATURES`."""
    return frozenset(name for name, needs in FEATURES.items() if needs(spec)) or _NONE
