"""Ensures one instance per node: a lock on a file in the state directory, held while the process lives."""

import contextlib
import fcntl
import os
from pathlib import Path
from typing import Final, Self

FILE: Final = "lock"


class AlreadyRunning(Exception):
    """Another instance holds the lock; the message says where and, if known, which.

    held: that fact alone, without the remedy.
    """

    def __init__(self, lock: Path, holder: str) -> None:
        super().__init__(f"{lock} is locked by another instance (pid {holder}); run one per node")
        self.held = f"{lock} is locked by pid {holder}"


class LockUnknown(Exception):
    """The lock's state cannot be determined; the message says why."""


class InstanceLock:
    """Context that holds the lock; the kernel releases it whenever the process ends, for whatever reason."""

    def __init__(self, directory: Path) -> None:
        """directory: created if it is missing."""
        self._path = directory / FILE
        self._descriptor = -1

    def __enter__(self) -> Self:
        """Take the lock. Raises AlreadyRunning, or LockUnknown if the file cannot be created or locked."""
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            while not self._is_the_file(descriptor := self._locked()):
                os.close(descriptor)
            self._descriptor = descriptor
        except OSError as error:
            message = f"{self._path} cannot be locked: {error.strerror}; choose another directory with stateDir"
            raise LockUnknown(message) from error
        # Only people read it: a full disk must not prevent locking.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, f"{os.getpid()}\n".encode())
        return self

    def _locked(self) -> int:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _lock(descriptor, self._path, fcntl.LOCK_EX)
        return descriptor

    def _is_the_file(self, descriptor: int) -> bool:
        """Return whether the locked file still exists: `uninstall` removes it, and its lock then protects nothing."""
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def __exit__(self, *_: object) -> None:
        """Release the lock; the file stays until `uninstall` removes it."""
        os.close(self._descriptor)


def look(directory: Path) -> None:
    """Check, without any change, whether an instance holds the lock. Raises AlreadyRunning, LockUnknown."""
    path = directory / FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        _lock(descriptor, path, fcntl.LOCK_SH)
        os.close(descriptor)
    except FileNotFoundError:
        return
    except OSError as error:
        raise LockUnknown(f"{path} cannot be examined: {error.strerror}") from error


def _lock(descriptor: int, path: Path, how: int) -> None:
    """Lock the file; close it on failure. Raises AlreadyRunning, OSError."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.read(descriptor, 32).decode(errors="replace").strip()
        os.close(descriptor)
        raise AlreadyRunning(path, holder or "unknown") from error
    except OSError:
        os.close(descriptor)
        raise
