"""Removes a directory that containers may have written in: no link is followed, and no depth is too deep.

`shutil.rmtree` calls itself for each level and keeps each one open, so a thousand directories in one another end
whoever clears up. Here what is in a directory is moved up into the topmost one before the directory is removed.

However much there is, little of it is held in memory: a directory is read while it is cleared, and of the directories
that were moved up only some are known by where they were. The others are found in the topmost one, as it is read again
until nothing is in it.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

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
    """Remove what is in it, as far as it can be read at once; whether there was anything.

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
