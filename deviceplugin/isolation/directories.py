"""Files and directories that isolation puts into containers: made before a container starts, removed with its pod.

Every method blocks for as long as the disk takes: for a thread.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from threading import Lock
from typing import Final

from config.settings.isolation import IsolationMechanism
from deviceplugin.allocation.container_share import ContainerShare
from deviceplugin.files import replace_file
from deviceplugin.isolation import fill
from deviceplugin.isolation.trees import remove_tree

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
        """Remove what is kept for these pods; those that were there. What fails keeps no other: then raises OSError."""
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
