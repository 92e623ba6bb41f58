"""Files and directories that isolation puts into containers: made before a container starts, removed with its pod.

Every method blocks for as long as the disk takes: for a thread.

Removes a directory that containers may have written in: no link is followed, and no depth is too deep.
`shutil.rmtree` calls itself for each level and keeps each one open, so a thousand directories in one another end
whoever clears up. Here what is in a directory is moved up into the topmost one before the directory is removed.

However much there is, little of it is held in memory: a directory is read while it is cleared, and of the directories
that were moved up only some are known by where they were. The others are found in the topmost one, as it is read again
until nothing is in it.
"""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final
from uuid import uuid4

from config.settings.isolation import IsolationMechanism
from deviceplugin.allocation.container_share import ContainerShare
from deviceplugin.files import replace_file
from deviceplugin.isolation import fill

_LONGEST_PATH: Final = 1024
_MOST_KNOWN: Final = 256
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(directory: Path) -> None:
    """Remove the directory with all that is in it. Raises OSError, with the path that cannot be removed."""

    def remove(name: str) -> None:
        known = [(name, f"{directory}/{name}")]
        while known:
            _remove(*known.pop(), top, known)

    with _opened(str(directory), None) as top:
        while _cleared(top, str(directory), remove):
            pass
    directory.rmdir()


def _remove(name: str, path: str, top: int, known: list[tuple[str, str]]) -> None:
    """Remove a directory of the top, after moving those in it up into the top.

    path: where it was before it came into the top, for people. known: gets the name and the path of those that were
    moved, as long as it has few.
    """

    def lift(inner: str) -> None:
        fresh = f".{uuid4().hex}"
        os.rename(inner, fresh, src_dir_fd=opened, dst_dir_fd=top)
        if len(known) < _MOST_KNOWN:
            known.append((fresh, f"{path}/{inner}"[:_LONGEST_PATH]))

    with _naming(path):
        with _opened(name, top) as opened:
            while _cleared(opened, path, lift):
                pass
        os.rmdir(name, dir_fd=top)


def _cleared(opened: int, path: str, take: Callable[[str], None]) -> bool:
    """Remove the entries that can be read at once. Returns whether there were any.

    take: removes a directory, by its name, or takes it elsewhere.
    """
    anything = False
    with os.scandir(opened) as found:
        for entry in found:
            # What is renamed while a directory is read may be read twice.
            with contextlib.suppress(FileNotFoundError), _naming(f"{path}/{entry.name}"):
                if entry.is_dir(follow_symlinks=False):
                    take(entry.name)
                else:
                    os.unlink(entry.name, dir_fd=opened)
                anything = True
    return anything


@contextmanager
def _opened(name: str, top: int | None) -> Iterator[int]:
    descriptor = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """An error has this path, unless it has one from further within."""
    try:
        yield
    except OSError as error:
        within = str(error.filename or "")
        where = within if within.startswith("/") else path
        raise OSError(error.errno, error.strerror, where[:_LONGEST_PATH]) from error


# Nobody gets here from outside: the directory above all of them belongs to root alone.
_OPEN_TO_ALL: Final = 0o1777
_OPEN_TO_ROOT: Final = 0o700
_READABLE: Final = 0o644
# UIDs and names of containers as the API server has them; a static pod's UID is a hash.
_SAFE: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z]{0,252}", re.ASCII)


class ContainerDirectories:
    """Below one directory of the plugin's."""

    def __init__(self, state: Path, mechanism: IsolationMechanism) -> None:
        """state: made when there is something to put into it."""
        self._state = state
        self._mechanism = mechanism
        self._writing = Lock()

    def make(self, share: ContainerShare) -> None:
        """All that the container's mounts need. Raises OSError."""
        made = [mount for mount in self._mechanism.mounts if mount.host_path is None]
        if not made:
            return
        for name in (share.pod.uid, share.container.name):
            if not _SAFE.fullmatch(name):
                raise OSError(f"{name[:64]!r} cannot be the name of a directory")
        self._state.mkdir(mode=_OPEN_TO_ROOT, parents=True, exist_ok=True)
        for mount in made:
            path = Path(fill.source(mount, share, str(self._state)))
            if mount.content is None:
                path.mkdir(parents=True, exist_ok=True)
                path.chmod(_OPEN_TO_ALL)
            else:
                self._write(path, mount.content.encode())

    def _write(self, path: Path, content: bytes) -> None:
        # The file is the same for all containers of the node, and two of them may start at once.
        with self._writing:
            if not path.is_file() or path.read_bytes() != content:
                path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(path, content)
                path.chmod(_READABLE)

    def present(self) -> list[str]:
        """UIDs of the pods for which something is kept. Raises OSError."""
        pods = self._state / fill.PODS
        return sorted(path.name for path in pods.iterdir()) if pods.is_dir() else []

    def remove(self, uids: Iterable[str]) -> list[str]:
        """Remove the directories of these pods; returns the removed ones. Tries all, then raises OSError."""
        pods = self._state / fill.PODS
        gone, problems = [uid for uid in sorted(uids) if _SAFE.fullmatch(uid) and (pods / uid).is_dir()], []
        for uid in gone:
            try:
                remove_tree(pods / uid)
            except OSError as error:
                problems.append(error)
        if problems:
            raise problems[0]
        return gone
