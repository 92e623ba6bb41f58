"""Where the local cluster of this user is written down: in the cache folder, and nowhere once it is gone.

cluster.lock          held by the keeper while it lives, however it ends; its process id is in it
cluster/record.json   the folders outside the cache, for who takes them away after a keeper that was killed
cluster/kubeconfig    of the cluster's administrator
cluster/bin/          links to kubectl, its plugins and our programs
cluster/faults/n1     link to the socket by which faults happen to the cards of n1; of each node
cluster/log           what the keeper says once the cluster is up
"""

import fcntl
import os
import shutil
from pathlib import Path
from typing import TextIO

import msgspec

from e2e.control_plane import cache


class Record(msgspec.Struct, frozen=True):
    """folders: of the control plane and of each node, the same names as their cgroups. url: of the API server."""

    folders: list[str]
    url: str


def home() -> Path:
    """The folder; there from the start of a cluster to its end."""
    return cache.folder() / "cluster"


def kubeconfig() -> Path:
    """Of the cluster's administrator."""
    return home() / "kubeconfig"


def programs() -> Path:
    """For the user's PATH."""
    return home() / "bin"


def faults() -> Path:
    """For `gpushare-device-plugin fault --control`: of each node."""
    return home() / "faults"


def log() -> Path:
    """What the keeper says once the cluster is up."""
    return home() / "log"


def taken() -> TextIO | None:
    """The lock, ours until it is closed; None while a keeper holds it."""
    cache.folder().mkdir(parents=True, exist_ok=True)
    while True:
        lock = _lock_file().open("a", encoding="utf-8")
        if not _locked(lock):
            lock.close()
            return None
        if _is_the_file(lock):
            return lock
        # Whoever held it has removed the file since it was opened.
        lock.close()


def remove_lock() -> None:
    """Remove the lock's file. With the lock held, by whoever calls."""
    _lock_file().unlink(missing_ok=True)


def sign(lock: TextIO) -> None:
    """Say in the lock that it is this process that holds it."""
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()


def keeper() -> int | None:
    """Process id of the keeper that is alive; None: there is none."""
    try:
        # Nothing is made by looking, and the file of a keeper that sudo has started may be read by its user.
        with _lock_file().open(encoding="utf-8") as lock:
            if _locked(lock):
                return None
            text = lock.read().strip()
    except FileNotFoundError:
        return None
    return int(text) if text else None


def write(record: Record) -> None:
    """Write it down before anything of it is made."""
    home().mkdir(parents=True, exist_ok=True)
    (home() / "record.json").write_bytes(msgspec.json.encode(record))


def read() -> Record | None:
    """The cluster that was written down last, up or not; None: none, or not to be read."""
    try:
        return msgspec.json.decode((home() / "record.json").read_bytes(), type=Record)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def forget() -> None:
    """Remove the folder."""
    shutil.rmtree(home(), ignore_errors=True)


def _locked(lock: TextIO) -> bool:
    """Take the lock of the open file, unless another process has it."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_the_file(lock: TextIO) -> bool:
    """Whether the open file is still the one at the lock's path."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), _lock_file().stat())
    except FileNotFoundError:
        return False


def _lock_file() -> Path:
    return cache.folder() / "cluster.lock"
