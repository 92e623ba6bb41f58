"""Removes a directory that containers may have written in: no link is followed, and no depth is too deep.

`shutil.rmtree` calls itself for each level and keeps each one open, so a thousand directories in one another end
whoever clears up. Here what is in a directory is moved up into the topmost one before the directory is removed.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

_LONGEST_TOLD: Final = 4096
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(directory: Path) -> None:
    """Remove the directory with all that is in it. Raises OSError, with the path that cannot be removed."""
    with _opened(str(directory), None) as top:
        left = [(name, f"{directory}/{name}") for name in _cleared(top, str(directory))]
        while left:
            name, path = left.pop()
            left += _lifted(name, path, top)
    directory.rmdir()


def _lifted(name: str, path: str, top: int) -> list[tuple[str, str]]:
    """Remove a directory of the top. Those that were in it: (the name that each has in the top now, where it was).

    path: where it was before it came into the top, for people.
    """
    lifted = []
    with _told(path):
        with _opened(name, top) as opened:
            for inner in _cleared(opened, path):
                fresh = f".{uuid4().hex}"
                os.rename(inner, fresh, src_dir_fd=opened, dst_dir_fd=top)
                lifted.append((fresh, f"{path}/{inner}"[:_LONGEST_TOLD]))
        os.rmdir(name, dir_fd=top)
    return lifted


def _cleared(opened: int, path: str) -> list[str]:
    """Remove all but the directories in it that are not empty; the names of those."""
    with os.scandir(opened) as found:
        entries = list(found)
    left = []
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            left.append(entry.name)
        else:
            with _told(f"{path}/{entry.name}"):
                os.unlink(entry.name, dir_fd=opened)
    return left


@contextmanager
def _opened(name: str, top: int | None) -> Iterator[int]:
    descriptor = os.open(name, _DIRECTORY, dir_fd=top)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """An error has this path, unless it has one from further within."""
    try:
        yield
    except OSError as error:
        within = str(error.filename or "")
        where = within if within.startswith("/") else path
        raise OSError(error.errno, error.strerror, where[:_LONGEST_TOLD]) from error
