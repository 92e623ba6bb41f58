"""Traces that a test node could leave on its machine, for tests that assert it leaves none."""

import time
from pathlib import Path
from typing import Final

from e2e.node import node_keeper

SHARED_FOLDERS: Final = (
    "/var/lib/kubelet",
    "/run/containerd",
    "/var/log/pods",
    "/usr/libexec/kubernetes",
    "/opt/containerd",
)
_LOOK_EVERY_S: Final = 0.05


def settings() -> dict[str, str]:
    """Return the machine's kernel settings that a kubelet would change."""
    return {setting: (Path("/proc/sys") / setting).read_text() for setting in node_keeper.SETTINGS}


def shared_folders() -> list[str]:
    """Return the existing ones of the folders that a node usually creates on its machine."""
    return [folder for folder in SHARED_FOLDERS if Path(folder).exists()]


def mount_namespace(pid: int) -> str:
    """Return the identity of a process's mount namespace. Raises OSError if it has ended."""
    return str(Path(f"/proc/{pid}/ns/mnt").readlink())


def _is_inside(process: Path, folder: Path, namespace: str) -> bool:
    """Return whether a process is in that mount namespace. A namespace number alone proves nothing: it is reused."""
    inside = mount_namespace(int(process.name)) == namespace
    return inside and folder.name in (process / "mountinfo").read_text()


def left_of(folder: Path, namespace: str = "") -> list[str]:
    """Return the node's remains for that folder: files, processes, mounts, cgroups."""
    found = [str(folder)] if folder.exists() else []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command_line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if str(folder) in command_line or _is_inside(process, folder, namespace):
                    found.append(f"{process.name} {command_line}")
            except OSError:  # it has ended in the meantime, or may not be inspected
                continue
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if folder.name in line]
    return found + [str(path) for path in (place / folder.name for place in node_keeper.hierarchies()) if path.exists()]


def gone(folder: Path, namespace: str, *, within_s: float = 20.0) -> list[str]:
    """Wait until nothing remains or the time is over; return the remains."""
    give_up_at_s = time.monotonic() + within_s
    while (left := left_of(folder, namespace)) and time.monotonic() < give_up_at_s:
        time.sleep(_LOOK_EVERY_S)
    return left
