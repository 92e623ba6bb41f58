"""The folder of the user where what takes long to make is kept, one maker at a time."""

import fcntl
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

Say: TypeAlias = Callable[[str], None]


def folder() -> Path:
    """Where it lies: `gpushare-scheduler` in the user's cache folder; it may not be there yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpushare-scheduler"


def to_stderr(line: str) -> None:
    """Where progress goes unless somebody takes it."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def alone(lock: Path, what: str, say: Say) -> Iterator[None]:
    """Hold the file's lock; the folder of `lock` exists. what: for the line that `say` gets where one has to wait."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is {what}: waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
