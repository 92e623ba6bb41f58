"""Hold what belongs to one node, and undo it all once the parent is gone: `python node_keeper.py FOLDER NAME`.

The parent holds the other end of standard input. This process is in a mount
namespace of its own, where the node's programs are started: /run, /var/lib and /var/log are
folders of FOLDER there, and the kernel settings that a kubelet changes are files of it, as is the
boot ID, another one for each boot. In every
cgroup hierarchy (cgroup v2 has one) there is a cgroup NAME for its pods. Says `ready` on standard
output, or in one line why not. At the end it kills every process of the namespace and of those
cgroups, removes the cgroups and turns into the sweeper, which removes FOLDER. Linux, root.

A line on standard input is a reboot: processes, mounts and cgroups end as at the end, /run is
emptied, and everything is made again.
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

CLONE_NEWNS = 0x20000  # of unshare(2), setns(2)
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000  # of mount(2)
CGROUPS = Path("/sys/fs/cgroup")
# Of cgroups: no kubelet starts without these (pkg/kubelet/cm, cgroup_v2_manager_linux.go).
NEEDED = ("cpu", "cpuset", "memory", "pids")
# Nor, with cgroup v2, where the machine has this one and the kubelet's own cgroup has not.
NEEDED_IF_THERE = ("hugetlb",)
SWEEPER = Path(__file__).parents[1] / "control_plane" / "sweeper.py"
GIVE_UP_AFTER_S = 30.0
RETRY_EVERY_S = 0.02

FOLDERS = {"run": "/run", "var-lib": "/var/lib", "var-log": "/var/log"}
# Those that the kubelet sets (pkg/kubelet/cm, setupKernelTunables).
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
    """Make it, say so, wait for the end of standard input, undo it; does not return."""
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
    """Make the node's namespace and cgroups, say so, and wait; whether the parent asks for a reboot."""
    try:
        make_cgroups(cgroups)
        enter_namespace(folder)
        say("ready")
        return bool(sys.stdin.buffer.readline())
    except OSError as error:
        say(f"{error}")
        return False


def end(outside: int, cgroups: list[Path]) -> None:
    """Kill what runs, leave the namespace, remove the cgroups. outside: an open file of the machine's namespace."""
    machine = f"{Path(f'/proc/self/fd/{outside}').readlink()}"
    end_processes(lambda: {*in_namespace(machine), *in_cgroups(cgroups)})
    # Now nothing is left in the namespace, and its mounts go with it.
    check(libc.setns(outside, CLONE_NEWNS), "leave the mount namespace")
    for cgroup in cgroups:
        remove_cgroup(cgroup)


def missing_controllers() -> list[str]:
    """What a kubelet needs and this machine has neither in cgroup v2 nor in a hierarchy of v1."""
    there = controllers_of_v2()
    if there is None:
        there = [path.name for path in CGROUPS.glob("*")]
    return [name for name in NEEDED if name not in there]


def controllers_of_v2() -> list[str] | None:
    """Those of cgroup v2 where it is mounted alone; None where v1 is there too, or nothing."""
    listed = CGROUPS / "cgroup.controllers"
    return listed.read_text().split() if listed.exists() else None


def hierarchies() -> list[Path]:
    """Where the cgroup hierarchies are mounted, which with cgroup v2 alone is one; links to them left out."""
    if controllers_of_v2() is not None:
        return [CGROUPS]
    places = sorted(CGROUPS.glob("*"))
    return [path for path in places if not path.is_symlink() and (path / "cgroup.procs").exists()]


def make_cgroups(cgroups: list[Path]) -> None:
    """Make them ready for processes: in v2 a cgroup has what its parent shares, in v1 a cpuset has no CPUs."""
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
    """Show `source` in that place."""
    check(libc.mount(os.fsencode(source), os.fsencode(place), None, MS_BIND, None), f"mount over {place}")


def check(result: int, what: str) -> None:
    """Raise OSError where a call of the C library failed."""
    if result != 0:
        number = ctypes.get_errno()
        message = f"cannot {what}: {os.strerror(number)}"
        raise OSError(message)


def end_processes(found: Callable[[], set[int]]) -> None:
    """Kill until none is found: a program that is being started may fork between the look and the signal."""
    give_up_at_s = time.monotonic() + GIVE_UP_AFTER_S
    while (pids := found()) and time.monotonic() < give_up_at_s:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(RETRY_EVERY_S)


def in_namespace(outside: str) -> Iterator[int]:
    """Pids of the others in our mount namespace; nobody where we never left the machine's."""
    own = namespace("self")
    if own != outside:
        processes = [entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        yield from (int(pid) for pid in processes if int(pid) != os.getpid() and namespace(pid) == own)


def namespace(process: str) -> str | None:
    """Identity of its mount namespace; None for a process that has ended."""
    try:
        return str(Path(f"/proc/{process}/ns/mnt").readlink())
    except OSError:
        return None


def in_cgroups(cgroups: list[Path]) -> Iterator[int]:
    """Pids of all that is in them and below."""
    for cgroup in cgroups:
        # Not rglob: it fails where a cgroup is removed meanwhile.
        for path, _, _ in os.walk(cgroup):
            with contextlib.suppress(OSError):
                yield from map(int, (Path(path) / "cgroup.procs").read_text().split())


def remove_cgroup(cgroup: Path) -> None:
    """Remove it and those below; the kernel refuses while a process that was killed is on its way out."""
    give_up_at_s = time.monotonic() + GIVE_UP_AFTER_S
    while cgroup.exists() and time.monotonic() < give_up_at_s:
        for path, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):
                Path(path).rmdir()
        if cgroup.exists():
            time.sleep(RETRY_EVERY_S)


def say(line: str) -> None:
    """Tell the parent, if it still listens."""
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
