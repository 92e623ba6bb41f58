"""The programs of a test node, and whether this machine can run one."""

import os
import shutil
import sys
from pathlib import Path
from typing import Final

from e2e.control_plane import binaries, cache
from e2e.control_plane.cache import to_stderr
from e2e.node import node_keeper

NOT_HERE: Final = "no node of our own on this machine"


class NodeUnavailable(Exception):
    """This machine, or this user, cannot run a node; the message says why, in one line."""


def require() -> dict[str, Path]:
    """Return the programs of a node, by name; missing ones are built (minutes when cold).

    Raises NodeUnavailable, binaries.BuildFailed.
    """
    if (missing := lacking()) is not None:
        message = f"{NOT_HERE}: {missing}"
        raise NodeUnavailable(message)
    return programs()


def programs() -> dict[str, Path]:
    """Return the programs for any user: building does not need root."""
    try:
        busybox = cache.debian_package("busybox-static", to_stderr) / "bin" / "busybox"
        return binaries.ensure(binaries.OF_A_NODE) | {"busybox": busybox}
    except (binaries.GoUnavailable, binaries.CompilerUnavailable, cache.PackageUnavailable) as error:
        message = f"{NOT_HERE}: {error}"
        raise NodeUnavailable(message) from error


def lacking(*, root: bool = True) -> str | None:
    """Return what this machine lacks, except build tools; None if nothing. root: whether missing root rights count."""
    if sys.platform != "linux":
        return "it takes Linux"
    if root and os.geteuid() != 0:
        return "it takes root, whose kubelet, containerd and runc make mounts and cgroups"
    if controllers := node_keeper.missing_controllers():
        return f"{node_keeper.CGROUPS} has no cgroup controller {', '.join(controllers)}, which a kubelet needs"
    missing = [program for program in ("nsenter", "openssl") if shutil.which(program) is None]
    return f"{missing[0]} is not on PATH" if missing else None
