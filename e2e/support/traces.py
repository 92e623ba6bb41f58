"""What a node of ours may leave on its machine, or change there: looked for by those who say that it does not."""

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
    """The machine's kernel settings that a kubelet would change."""
    return {setting: (Path("/proc/sys") / setting).read_text() for setting in node_keeper.SETTINGS}


def shared_folders() -> list[str]:
    """Those of the folders that a node usually makes on its machine which are there."""
    return [folder for folder in SHARED_FOLDERS if Path(folder).exists()]


def mount_namespace(pid: int) -> str:
    """Identity of the mount namespace of a process. Raises OSError for one that has ended."""
    return str(Path(f"/proc/{pid}/ns/mnt").readlink())


def _is_inside(process: Path, folder: Path, namespace: str) -> bool:
    """Whether a process is in that mount namespace. Its number alone does not tell: the kernel uses it again."""
    inside = mount_namespace(int(process.name)) == namespace
    return inside and folder.name in (process / "mountinfo").read_text()


def left_of(folder: Path, namespace: str = "") -> list[str]:
    """What there still is of the node with that folder: files, processes, mounts, cgroups."""
    found = [str(folder)] if folder.exists() else []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                command_line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                if str(folder) in command_line or _is_inside(process, folder, namespace):
                    found.append(f"{process.name} {command_line}")
            except OSError:  # ended in the meantime, or not ours to look into
                continue
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if folder.name in line]
    return found + [str(path) for path in (place / folder.name for place in node_keeper.hierarchies()) if path.exists()]


def gone(folder: Path, namespace: str, *, within_s: float = 20.0) -> list[str]:
    """What is left when there is nothing any more, or the time is over."""
    give_up_at_s = time.monotonic() + within_s
    while (left := left_of(folder, namespace)) and time.monotonic() < give_up_at_s:
        time.sleep(_LOOK_EVERY_S)
    return left
