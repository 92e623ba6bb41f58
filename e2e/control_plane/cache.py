"""The user's folder for slow-to-build artifacts, with one builder at a time.

`binaries` keeps its programs there; files of Debian packages, downloaded with `apt-get`, are unpacked there without
being installed.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

Say: TypeAlias = Callable[[str], None]


class PackageUnavailable(Exception):
    """`apt-get` or `dpkg` is missing, or the package cannot be downloaded; the message says which, in one line."""


def folder() -> Path:
    """Return its path: `gpushare-scheduler` in the user's cache folder; it may not exist yet."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpushare-scheduler"


def to_stderr(line: str) -> None:
    """Print progress to standard error, the default."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def alone(lock: Path, what: str, say: Say) -> Iterator[None]:
    """Hold the file's lock; the folder of `lock` exists. what: for the line that `say` receives if it has to wait."""
    with lock.open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is {what}: waiting for it")
            fcntl.flock(held, fcntl.LOCK_EX)
        yield


def debian_package(package: str, say: Say) -> Path:
    """Return the folder with the package's files as under `/`; downloaded once and kept. Raises PackageUnavailable."""
    target = folder() / "debian" / package
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with alone(target.parent / f".{package}.lock", f"fetching {package}", say):
        if not target.exists():
            _fetch(package, target)
    return target


def _fetch(package: str, target: Path) -> None:
    """Unpack next to the target and rename, so that a package is complete or missing."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch:
        # As root, apt would switch to its own user, which cannot write here.
        _run(package, ["apt-get", "-o", "APT::Sandbox::User=root", "download", package], Path(scratch))
        (archive,) = Path(scratch).glob("*.deb")
        _run(package, ["dpkg", "-x", archive.name, "files"], Path(scratch))
        (Path(scratch) / "files").rename(target)


def _run(package: str, command: list[str], within: Path) -> None:
    if shutil.which(command[0]) is None:
        message = f"{command[0]} is not on PATH: files of the Debian package {package} are needed"
        raise PackageUnavailable(message)
    answer = subprocess.run(command, cwd=within, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        last_line = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
        message = f"{command[0]} cannot fetch the Debian package {package}: {last_line}"
        raise PackageUnavailable(message)
