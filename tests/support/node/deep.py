"""A directory as a container may leave it: so many others in one another that no path names the last."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def nested(directory: Path, levels: int, *, name: str = "d", innermost: int = 0) -> Iterator[None]:
    """They are in the directory, with a file in each. Afterwards it is gone: pytest could not remove it.

    name: of each. innermost: how many directories are beside one another in the last of them.
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
