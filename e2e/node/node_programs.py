"""The programs of a node of ours, and whether this machine can have one."""

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
    """This machine, or this user on it, cannot have a node; the message says why, in one line."""


def require() -> dict[str, Path]:
    """Programs of a node, by name, built where they are not there yet (minutes when cold).

    Raises NodeUnavailable, binaries.BuildFailed.
    """
    if (missing := lacking()) is not None:
        message = f"{NOT_HERE}: {missing}"
        raise NodeUnavailable(message)
    return programs()


def programs() -> dict[str, Path]:
    """The same, whoever asks: building takes no root."""
    try:
        busybox = cache.debian_package("busybox-static", to_stderr) / "bin" / "busybox"
        return binaries.ensure(binaries.OF_A_NODE) | {"busybox": busybox}
    except (binaries.GoUnavailable, binaries.CompilerUnavailable, cache.PackageUnavailable) as error:
        message = f"{NOT_HERE}: {error}"
        raise NodeUnavailable(message) from error


def lacking(*, root: bool = True) -> str | None:
    """What this machine lacks, apart from what builds the programs; None: nothing. root: whether that counts too."""
    if sys.platform != "linux":
        return "it takes Linux"
    if root and os.geteuid() != 0:
        return "it takes root, whose kubelet, containerd and runc make mounts and cgroups"
    if controllers := node_keeper.missing_controllers():
        return f"{node_keeper.CGROUPS} has no cgroup controller {', '.join(controllers)}, which a kubelet needs"
    missing = [program for program in ("nsenter", "openssl") if shutil.which(program) is None]
    return f"{missing[0]} is not on PATH" if missing else None
