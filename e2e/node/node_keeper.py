"""Holds the resources of one node, and undoes them once the parent is gone: `python node_keeper.py FOLDER NAME`.

The parent holds the other end of standard input. This process has its own mount namespace, in which the node's programs
are started: there, /run, /var/lib and /var/log are folders of FOLDER. The kernel settings that a kubelet changes are
files of FOLDER too, as is the boot ID, which changes at each boot. Every cgroup hierarchy (cgroup v2 has one) has a
cgroup NAME for its pods. The process prints `ready` on standard output, or one line with the reason for a failure. At
the end it kills every process of the namespace and of those cgroups, removes the cgroups and execs the sweeper, which
removes FOLDER. Linux, root.

A line on standard input means a reboot: processes, mounts and cgroups end as at the end, /run is emptied, and
everything is created again.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

CLONE_NEWNS = 0x20000  # from unshare(2), setns(2)
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000  # of mount(2)
CGROUPS = Path("/sys/fs/cgroup")
# Cgroup controllers without which no kubelet starts (pkg/kubelet/cm, cgroup_v2_manager_linux.go).
NEEDED = ("cpu", "cpuset", "memory", "pids")
# Also required with cgroup v2, if the machine has this one but the kubelet's own cgroup does not.
NEEDED_IF_THERE = ("hugetlb",)
SWEEPER = Path(__file__).parents[1] / "control_plane" / "sweeper.py"
GIVE_UP_AFTER_S = 30.0
RETRY_EVERY_S = 0.02

FOLDERS = {"run": "/run", "var-lib": "/var/lib", "var-log": "/var/log"}
# The settings that the kubelet changes (pkg/kubelet/cm, setupKernelTunables).
SETTINGS = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
BOOT_ID, RANDOM_UUID = Path("/proc/sys/kernel/random/boot_id"), Path("/proc/sys/kernel/random/uuid")

libc = ctypes.CDLL(None, use_errno=True)


def main(folder: Path, name: str) -> None:
    """Create the resources, report that, wait for the end of standard input, undo them; does not return."""
    outside = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    cgroups = [hierarchy / name for hierarchy in hierarchies()]
    runs = True
    while runs:
        runs = keep(folder, cgroups)
        end(outside, cgroups)
        if runs:
            shutil.rmtree(folder / "run")
    os.execv(sys.executable, [sys.executable, "-I", "-S", str(SWEEPER), str(folder)])  # noqa: S606 - no shell


def keep(folder: Path, cgroups: list[Path]) -> bool:
    """Create the node's namespace and cgroups, report that, and wait. Return whether the parent wants a reboot."""
    try:
        make_cgroups(cgroups)
        enter_namespace(folder)
        say("ready")
        return bool(sys.stdin.buffer.readline())
    except OSError as error:
        say(f"{error}")
        return False


def end(outside: int, cgroups: list[Path]) -> None:
    """Kill all processes, leave the namespace, remove the cgroups. outside: an open file of the machine's namespace."""
    machine = f"{Path(f'/proc/self/fd/{outside}').readlink()}"
    end_processes(lambda: {*in_namespace(machine), *in_cgroups(cgroups)})
    # Now the namespace is empty, and its mounts disappear with it.
    check(libc.setns(outside, CLONE_NEWNS), "leave the mount namespace")
    for cgroup in cgroups:
        remove_cgroup(cgroup)


def missing_controllers() -> list[str]:
    """Return the controllers that a kubelet needs and this machine lacks in cgroup v2 and in every v1 hierarchy."""
    there = controllers_of_v2()
    if there is None:
        there = [path.name for path in CGROUPS.glob("*")]
    return [name for name in NEEDED if name not in there]


def controllers_of_v2() -> list[str] | None:
    """Return the controllers of cgroup v2 if only v2 is mounted; None if v1 is mounted too, or nothing."""
    listed = CGROUPS / "cgroup.controllers"
    return listed.read_text().split() if listed.exists() else None


def hierarchies() -> list[Path]:
    """Return the mount points of the cgroup hierarchies, without links; with cgroup v2 alone there is one."""
    if controllers_of_v2() is not None:
        return [CGROUPS]
    places = sorted(CGROUPS.glob("*"))
    return [path for path in places if not path.is_symlink() and (path / "cgroup.procs").exists()]


def make_cgroups(cgroups: list[Path]) -> None:
    """Prepare the cgroups for processes: a v2 cgroup has only its parent's controllers, a v1 cpuset has no CPUs."""
    if shared := [name for name in NEEDED + NEEDED_IF_THERE if name in (controllers_of_v2() or [])]:
        (CGROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in shared))
    for cgroup in cgroups:
        cgroup.mkdir()
        for setting in ("cpuset.cpus", "cpuset.mems"):
            if (cgroup.parent / setting).exists():
                (cgroup / setting).write_text((cgroup.parent / setting).read_text())


def enter_namespace(folder: Path) -> None:
    """Leave the machine's mount namespace for a new one with the node's own files in it."""
    check(libc.unshare(CLONE_NEWNS), "make a mount namespace")
    check(libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None), "keep mounts to ourselves")
    for name, place in FOLDERS.items():
        (folder / name).mkdir(exist_ok=True)
        bind(folder / name, Path(place))
    (folder / "boot-id").write_text(RANDOM_UUID.read_text())
    bind(folder / "boot-id", BOOT_ID)
    for setting in SETTINGS:
        real, copy = Path("/proc/sys") / setting, folder / "sys" / setting
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(real.read_text())
        bind(copy, real)


def bind(source: Path, place: Path) -> None:
    """Bind-mount `source` at that place."""
    check(libc.mount(os.fsencode(source), os.fsencode(place), None, MS_BIND, None), f"mount over {place}")


def check(result: int, what: str) -> None:
    """Raise OSError if a call of the C library failed."""
    if result != 0:
        number = ctypes.get_errno()
        message = f"cannot {what}: {os.strerror(number)}"
        raise OSError(message)


def end_processes(found: Callable[[], set[int]]) -> None:
    """Kill until none is found: a starting program may fork between the check and the signal."""
    give_up_at_s = time.monotonic() + GIVE_UP_AFTER_S
    while (pids := found()) and time.monotonic() < give_up_at_s:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(RETRY_EVERY_S)


def in_namespace(outside: str) -> Iterator[int]:
    """Yield the PIDs of the others in our mount namespace; none if we never left the machine's."""
    own = namespace("self")
    if own != outside:
        processes = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        yield from (int(pid) for pid in processes if int(pid) != os.getpid() and namespace(pid) == own)


def namespace(process: str) -> str | None:
    """Return the identity of its mount namespace; None for a process that has ended."""
    try:
        return str(Path(f"/proc/{process}/ns/mnt").readlink())
    except OSError:
        return None


def in_cgroups(cgroups: list[Path]) -> Iterator[int]:
    """Yield the PIDs of all processes in the cgroups and below."""
    for cgroup in cgroups:
        # Not rglob: it fails if a cgroup is removed meanwhile.
        for path, _, _ in os.walk(cgroup):
            with contextlib.suppress(OSError):
                yield from map(int, (Path(path) / "cgroup.procs").read_text().split())


def remove_cgroup(cgroup: Path) -> None:
    """Remove the cgroup and its children; the kernel refuses while a killed process is still exiting."""
    give_up_at_s = time.monotonic() + GIVE_UP_AFTER_S
    while cgroup.exists() and time.monotonic() < give_up_at_s:
        for path, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):
                Path(path).rmdir()
        if cgroup.exists():
            time.sleep(RETRY_EVERY_S)


def say(line: str) -> None:
    """Send a line to the parent, if it still listens."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
