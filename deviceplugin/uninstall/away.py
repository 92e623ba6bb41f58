"""Keeps the plugin away while it is uninstalled: by its own lock, wherever there is a directory for it."""

import contextlib
from pathlib import Path
from typing import Self

from deviceplugin import lock
from deviceplugin.lock import InstanceLock


class PluginAway:
    """Leave it to give the lock back. Where there is no directory, no plugin runs, and none is made."""

    def __init__(self, state: Path) -> None:
        """state: the plugin's state directory."""
        self._state = state
        self._lock: InstanceLock | None = None
        self._held = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """The lock is taken by `keep`."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self._held.close()

    def keep(self) -> None:
        """Take the lock, unless it is held; again where the directory was made since, or made once more.

        Raises AlreadyRunning, LockUnknown.
        """
        if self._lock is not None and not self._lock.lost:
            return
        self._held.close()
        self._lock = None
        if self._state.is_dir():
            self._lock = self._held.enter_context(InstanceLock(self._state))

    def look(self) -> None:
        """That no plugin runs, without a change to anything. Raises as `keep`."""
        lock.look(self._state)
