"""Pods and containers by the names of their cgroups. Pure.

/proc/<pid>/cgroup has one line per hierarchy, `number:controllers:path`; cgroup v2 has the one line `0::path`. In such
a path, one name is the pod's, set by the kubelet; the names below it belong to the runtime and the container:

    cgroupfs   /kubepods/burstable/pod<UID>/<container id>
    systemd    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID>.slice/<runtime>-<container id>.scope
    mixed      /system.slice/containerd.service/kubepods-burstable-pod<UID>.slice:cri-containerd:<container id>

systemd replaces each `-` of the UID by `_`. A Guaranteed pod has no class in its path; a kubelet with its own cgroup
root has a longer prefix; a reader in a cgroup namespace sees `/../..` in place of the shared prefix. The UID of a
static pod is the hash of its manifest, 32 hex digits.
Source: Kubernetes, pkg/kubelet/cm/pod_container_manager_linux.go and cgroup_manager_linux.go; cgroups(7).
"""

import re
from dataclasses import dataclass
from typing import Final

_HEX: Final = "[0-9a-f]"
_UID: Final = rf"(?P<uid>{_HEX}{{8}}(?:[-_]{_HEX}{{4}}){{3}}[-_]{_HEX}{{12}}|{_HEX}{{32}})"
_POD: Final = re.compile(rf"(?:.*-)?pod{_UID}(?:\.slice)?(?::[^:]*:(?P<container>{_HEX}{{64}}))?")
_CONTAINER: Final = re.compile(rf"(?:[a-z0-9-]+-)?({_HEX}{{64}})(?:\.scope)?")
_FIELDS: Final = 3


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a process. container_id: without the runtime's name; "" if the path does not contain it."""

    pod_uid: str
    container_id: str


def owner_of(cgroup_text: str) -> Owner | None:
    """Return the owner of the process; None if it is in no pod.

    The name nearest the root counts: a container with rights to its own cgroup may create others below, with any name.
    """
    for line in cgroup_text.splitlines():
        fields = line.split(":", _FIELDS - 1)
        if len(fields) == _FIELDS and (owner := _in_path(fields[2])):
            return owner
    return None


def _in_path(path: str) -> Owner | None:
    names = path.split("/")
    for depth, name in enumerate(names):
        if pod := pod_named(name):
            below = container_named(names[depth + 1]) if depth + 1 < len(names) else ""
            return Owner(pod.pod_uid, pod.container_id or below)
    return None


def pod_named(name: str) -> Owner | None:
    """Return the pod, and possibly the container, whose cgroup has this name; None if it is no pod's."""
    match = _POD.fullmatch(name)
    return Owner(match["uid"].replace("_", "-"), match["container"] or "") if match else None


def container_named(name: str) -> str:
    """Return the ID of the container whose cgroup has this name below its pod's; "" if it is no container's."""
    match = _CONTAINER.fullmatch(name)
    return match[1] if match else ""
