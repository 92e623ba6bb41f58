"""Pods and containers by the names of their cgroups.

/proc/<pid>/cgroup has one line per hierarchy, `number:controllers:path`; cgroup v2 has the one line `0::path`. In such
a path, one name is the pod's, set by the kubelet; the names below it belong to the runtime and the container:

    cgroupfs   /kubepods/burstable/pod<UID>/<container id>
    systemd    /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID>.slice/<runtime>-<container id>.scope
    mixed      /system.slice/containerd.service/kubepods-burstable-pod<UID>.slice:cri-containerd:<container id>

systemd replaces each `-` of the UID by `_`. A Guaranteed pod has no class in its path; a kubelet with its own cgroup
root has a longer prefix; a reader in a cgroup namespace sees `/../..` in place of the shared prefix. The UID of a
static pod is the hash of its manifest, 32 hex digits. crun puts processes into a cgroup `container` below the scope.
Source: Kubernetes, pkg/kubelet/cm/pod_container_manager_linux.go and cgroup_manager_linux.go; cgroups(7).
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HEX: Final = "[0-9a-f]"
_UID: Final = rf"(?P<uid>{_HEX}{{8}}(?:[-_]{_HEX}{{4}}){{3}}[-_]{_HEX}{{12}}|{_HEX}{{32}})"
_POD: Final = re.compile(rf"(?:.*-)?pod{_UID}(?:\.slice)?(?::[^:]*:(?P<container>{_HEX}{{64}}))?")
_CONTAINER: Final = re.compile(rf"(?:[a-z0-9-]+-)?({_HEX}{{64}})(?:\.scope)?")
_FIELDS: Final = 3
# Deeper than any pod, with a cgroup root of the kubelet's own.
_DEEPEST: Final = 8
_MOST: Final = 20_000
# Users may create cgroups below it, any number of them.
_OF_USERS: Final = "user.slice"
_OF_CRUN: Final = "container"
_V2: Final = "cgroup.controllers"


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
        if match := _POD.fullmatch(name):
            below = _CONTAINER.fullmatch(names[depth + 1]) if depth + 1 < len(names) else None
            return Owner(_uid(match), match["container"] or (below[1] if below else ""))
    return None


def _uid(match: re.Match[str]) -> str:
    return match["uid"].replace("_", "-")


def owners(host_proc: Path, pids: Iterable[int]) -> dict[int, Owner | None]:
    """Return PID -> owner of the process, None if it is in no pod; a process that has ended is left out.

    host_proc: /proc of the host's PID namespace, which is the driver's. Blocks while files are read. Raises OSError if
    it is missing or may not be read.
    """
    if not host_proc.is_dir():
        raise NotADirectoryError(f"{host_proc} is not a directory; expected the host's /proc")
    found: dict[int, Owner | None] = {}
    for pid in set(pids):
        try:
            text = (host_proc / str(pid) / "cgroup").read_bytes()
        # ProcessLookupError: it ended between opening and reading.
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[pid] = owner_of(text.decode(errors="replace"))
    return found


def container_cgroups(root: Path) -> dict[Owner, str]:
    """Return the cgroup directory of each container of a pod. root: the host's cgroup v2 tree; {} if it is not one.

    It never descends below a container's cgroup, where the container itself may create others. Blocks while
    directories are listed.
    """
    found: dict[Owner, str] = {}
    if not (root / _V2).is_file():
        return found
    level, left = [str(root)], _MOST
    for _ in range(_DEEPEST):
        level = level[:left]
        left -= len(level)
        below: list[str] = []
        for directory in level:
            for name in _children(directory):
                path = f"{directory}/{name}"
                if match := _POD.fullmatch(name):
                    for owner, own in _of_pod(match, path):
                        found.setdefault(owner, own)
                elif not _CONTAINER.fullmatch(name) and path != f"{root}/{_OF_USERS}":
                    below.append(path)
        level = below
    return found


def _of_pod(match: re.Match[str], path: str) -> Iterator[tuple[Owner, str]]:
    if match["container"]:
        yield Owner(_uid(match), match["container"]), _own(path)
        return
    for name in _children(path):
        if of_container := _CONTAINER.fullmatch(name):
            yield Owner(_uid(match), of_container[1]), _own(f"{path}/{name}")


def _own(path: str) -> str:
    """Return the cgroup with the container's processes."""
    inner = f"{path}/{_OF_CRUN}"
    return inner if path.endswith(".scope") and os.path.isdir(inner) else path  # noqa: PTH112 - a path as text


def _children(directory: str) -> list[str]:
    """Return the names of the cgroups in this one; none if it has gone."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
