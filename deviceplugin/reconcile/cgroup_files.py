"""Reads the cgroups of processes, and those of all containers, from the host's files."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from deviceplugin.reconcile.cgroups import Owner, container_named, owner_of, pod_named

# Deeper than any pod, with a cgroup root of the kubelet's own.
_DEEPEST: Final = 8
_MOST: Final = 20_000
# Users may create cgroups below it, any number of them.
_OF_USERS: Final = "user.slice"
# crun puts the processes of a container into this cgroup below the scope.
_OF_CRUN: Final = "container"
_V2: Final = "cgroup.controllers"


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
                if pod := pod_named(name):
                    for owner, own in _of_pod(pod, path):
                        found.setdefault(owner, own)
                elif not container_named(name) and path != f"{root}/{_OF_USERS}":
                    below.append(path)
        level = below
    return found


def existing(cgroups: Iterable[str]) -> frozenset[str]:
    """Return those of these cgroup directories that exist. Blocks."""
    return frozenset(path for path in cgroups if os.path.isdir(path))  # noqa: PTH112 - a path as text


def _of_pod(pod: Owner, path: str) -> Iterator[tuple[Owner, str]]:
    if pod.container_id:
        yield pod, _own(path)
        return
    for name in _children(path):
        if container_id := container_named(name):
            yield replace(pod, container_id=container_id), _own(f"{path}/{name}")


def _own(path: str) -> str:
    """Return the cgroup with the container's processes."""
    inner = f"{path}/{_OF_CRUN}"
    return inner if path.endswith(".scope") and os.path.isdir(inner) else path  # noqa: PTH112 - a path as text


def _children(directory: str) -> list[str]:
    """Return the names of the cgroups in this one; none if it has gone. Names of pods and containers are ASCII."""
    try:
        with os.scandir(directory) as entries:
            return [entry.name for entry in entries if entry.name.isascii() and entry.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
