"""A directory that a container may leave: nested so deeply that no path can name the innermost one."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def nested(directory: Path, levels: int, *, name: str = "d", innermost: int = 0) -> Iterator[None]:
    """Create nested directories, with a file in each. Remove them afterwards, because pytest could not.

    name: of each. innermost: number of sibling directories at the lowest level.
    """
    try:
        _nest(directory, levels, name, innermost)
        yield
    finally:
        subprocess.run(["rm", "-rf", directory], check=True)


def _nest(directory: Path, levels: int, name: str, innermost: int) -> None:
    at = os.open(directory, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir(name, dir_fd=at)
        below = os.open(name, os.O_RDONLY, dir_fd=at)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=below))
        os.close(at)
        at = below
    for number in range(innermost):
        os.mkdir(str(number), dir_fd=at)
    os.close(at)
