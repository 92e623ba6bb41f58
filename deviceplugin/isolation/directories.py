"""Files and directories that isolation mounts into containers: created before a container starts, removed with its pod.

Every method blocks on the disk: call it in a thread.

Removes directories that containers may have written to: follows no link, and copes with any depth. `shutil.rmtree`
recurses and keeps each level open, so a thousand nested directories make it fail. Here, subdirectories are moved up
into the topmost directory before their parent is removed.

Memory use stays small: a directory is read while it is being cleared, and only some of the moved directories are
remembered with their original path. The others are found when the topmost directory is read again, until it is empty.
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
    """Remove the directory with its contents. Raises OSError, with the path that cannot be removed."""

    def remove(name: str) -> None:
        known = [(name, f"{directory}/{name}")]
        while known:
            _remove(*known.pop(), top, known)

    with _opened(str(directory), None) as top:
        while _cleared(top, str(directory), remove):
            pass
    directory.rmdir()


def _remove(name: str, path: str, top: int, known: list[tuple[str, str]]) -> None:
    """Remove a subdirectory of the topmost directory, after moving its own subdirectories up into that one.

    path: its original path, for messages. known: receives name and path of moved directories, while it has few entries.
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
    """Remove the entries that can be read at once. Return whether there were any.

    take: removes a directory by its name, or moves it elsewhere.
    """
    anything = False
    with os.scandir(opened) as found:
        for entry in found:
            # An entry that is renamed while its directory is read may be returned twice.
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
    """Put this path into any OSError, unless a deeper level has already put its own there."""
    try:
        yield
    except OSError as error:
        within = str(error.filename or "")
        where = within if within.startswith("/") else path
        raise OSError(error.errno, error.strerror, where[:_LONGEST_PATH]) from error


# Not reachable from outside: only root may enter the directory above.
_OPEN_TO_ALL: Final = 0o1777
_OPEN_TO_ROOT: Final = 0o700
_READABLE: Final = 0o644
# UIDs and names of containers in the API server's format; a static pod's UID is a hash.
_SAFE: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z]{0,252}", re.ASCII)


class ContainerDirectories:
    """Directories of containers below one directory of the plugin."""

    def __init__(self, state: Path) -> None:
        """state: created once something has to be put into it."""
        self.state = state
        self._writing = Lock()

    def make(self, share: ContainerShare, mechanism: IsolationMechanism) -> None:
        """Create everything that the container's mounts need. Raises OSError."""
        made = [mount for mount in mechanism.mounts if mount.host_path is None]
        if not made:
            return
        for name in (share.pod.uid, share.container.name):
            if not _SAFE.fullmatch(name):
                raise OSError(f"{name[:64]!r} cannot be the name of a directory")
        self.state.mkdir(mode=_OPEN_TO_ROOT, parents=True, exist_ok=True)
        for mount in made:
            path = Path(fill.source(mount, share, str(self.state)))
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
        """Return the UIDs of the pods that have directories. Raises OSError."""
        pods = self.state / fill.PODS
        return sorted(path.name for path in pods.iterdir()) if pods.is_dir() else []

    def remove(self, uids: Iterable[str]) -> list[str]:
        """Remove the directories of these pods. Return the removed ones. Tries all, then raises OSError."""
        pods = self.state / fill.PODS
        gone, problems = [uid for uid in sorted(uids) if _SAFE.fullmatch(uid) and (pods / uid).is_dir()], []
        for uid in gone:
            try:
                remove_tree(pods / uid)
            except OSError as error:
                problems.append(error)
        if problems:
            raise problems[0]
        return gone
