"""Which pod a process belongs to, by its cgroups. Pure.

The text is that of /proc/<pid>/cgroup, one line per hierarchy, `number:controllers:path`; cgroup v2 has the one line
`0::path`. On the way down such a path, one name is that of the pod, made by the kubelet, and the names below belong
to the runtime and to the container itself:

    cgroupfs   /kubepods/burstable/pod<UID>/<container id>
    systemd    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID>.slice/<runtime>-<container id>.scope
    mixed      /system.slice/containerd.service/kubepods-burstable-pod<UID>.slice:cri-containerd:<container id>

systemd has `_` for each `-` of the UID. A Guaranteed pod has no class in its path; a kubelet with a cgroup root of its
own has more in front; a reader in a cgroup namespace sees `/../..` instead of what it shares with the process. The UID
of a static pod is the hash of its manifest, 32 hex digits.
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
    """container_id: without the runtime's name; "" where the path does not tell."""

    pod_uid: str
    container_id: str


def owner_of(cgroup_text: str) -> Owner | None:
    """Owner of the process; None if it is in no pod.

    The name nearest the root counts: a container with rights on its own cgroup may make others below, called as it
    likes.
    """
    for line in cgroup_text.splitlines():
        fields = line.split(":", _FIELDS - 1)
        if len(fields) == _FIELDS and (owner := _in_path(fields[2])):
            return owner
    return None


def _in_path(path: str) -> Owner | None:
    names = path.split("/")
    for depth, name in enumerate(names):
        if match := _POD.fullmatch(name):
            below = _CONTAINER.fullmatch(names[depth + 1]) if depth + 1 < len(names) else None
            return Owner(match["uid"].replace("_", "-"), match["container"] or (below[1] if below else ""))
    return None
