"""The folder in the user's cache where the local cluster is written down; it is gone when the cluster is.

record.json   its keeper and its folders, for whoever removes them after a keeper that was killed
kubeconfig    of the cluster's administrator
bin/          links to kubectl, its plugins and our programs
faults/n1     link to the socket by which faults happen to the cards of n1; of each node
log           what the keeper says once the cluster is up

The keeper holds a lock on the cache folder while it lives, however it ends.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from e2e.control_plane import cache
from e2e.node import node_keeper


class Record(msgspec.Struct, frozen=True):
    """keeper: its process id. folders: of the control plane and of each node, named as their cgroups."""

    keeper: int
    folders: list[str]


def home() -> Path:
    """The folder; it exists from the start of a cluster to its end."""
    return cache.folder() / "cluster"


@contextmanager
def lock() -> Iterator[bool]:
    """Hold the keeper's lock. Yields False while another process holds it."""
    cache.folder().mkdir(parents=True, exist_ok=True)
    folder, ours = os.open(cache.folder(), os.O_RDONLY), False
    try:
        with suppress(BlockingIOError):
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours = True
        yield ours
    finally:
        os.close(folder)


def write(folders: list[str]) -> None:
    """Write this process down as the keeper of these folders, before anything is made in them."""
    home().mkdir(parents=True, exist_ok=True)
    (home() / "record.json").write_bytes(msgspec.json.encode(Record(os.getpid(), folders)))


def read() -> Record | None:
    """The cluster that was written down last, up or not; None where there is none, or it cannot be read."""
    try:
        return msgspec.json.decode((home() / "record.json").read_bytes(), type=Record)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def clear() -> None:
    """Remove what the last cluster left on this machine, and the folder. The caller holds the lock.

    A clean end leaves nothing. A keeper that is killed takes its servers with it, and `e2e/node/node_keeper.py` clears
    each node. This is for the case that all of them are killed, or the machine was switched off.
    """
    if (last := read()) is not None:
        write(last.folders)
        for folder in last.folders:
            remove(Path(folder))
    forget()


def forget() -> None:
    """Remove the folder."""
    shutil.rmtree(home(), ignore_errors=True)


def remove(folder: Path) -> None:
    """End the processes of a control plane or a node, then remove its cgroups and its folder; mounts go with those."""
    cgroups = [hierarchy / folder.name for hierarchy in node_keeper.hierarchies()]
    node_keeper.end_processes(lambda: {*_named(folder), *node_keeper.in_cgroups(cgroups)})
    for cgroup in cgroups:
        node_keeper.remove_cgroup(cgroup)
    shutil.rmtree(folder, ignore_errors=True)


def _named(folder: Path) -> Iterator[int]:
    """Pids of the processes whose command line names something in the folder, as that of each of its programs does."""
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid():
            with suppress(OSError):
                if os.fsencode(folder) in (process / "cmdline").read_bytes():
                    yield int(process.name)
