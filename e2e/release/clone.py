"""The clone that a release is made from: its commit, its time, and a copy of its files that is the same everywhere."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

_DESCRIBE: Final = ("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


class NoClone(Exception):
    """git is missing, or this is no clone; the message says which."""


@dataclass(frozen=True, slots=True)
class Commit:
    """name: abbreviated, with `-dirty` where tracked files differ from it. epoch_s: when it was made.

    beside: files that differ from it, or that git would add, as `git status --porcelain` lists them.
    """

    name: str
    epoch_s: int
    beside: tuple[str, ...] = ()


def commit() -> Commit:
    """The last one; `SOURCE_DATE_EPOCH` takes the place of its time. Raises NoClone."""
    epoch_s = os.environ.get("SOURCE_DATE_EPOCH") or _git(ROOT, "log", "-1", "--format=%ct")
    beside = _git(ROOT, "status", "--porcelain").splitlines()
    return Commit(_git(ROOT, *_DESCRIBE).strip(), int(epoch_s), tuple(beside))


def copy(root: Path, target: Path, epoch_s: int) -> Path:
    """Copy what git knows, or would add, into a new folder: permissions and times do not depend on who runs this.

    Raises NoClone.
    """
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for path in (root / name for name in listed.split("\0") if name):
        if path.is_file():
            copied = target / path.relative_to(root)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copied)
            copied.chmod(0o755 if path.stat().st_mode & 0o100 else 0o644)
            os.utime(copied, (epoch_s, epoch_s))
    return target


def _git(root: Path, *arguments: str) -> str:
    # Looking must not take a lock that the user's own git waits for.
    command = ["git", "--no-optional-locks", *arguments]
    try:
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    except FileNotFoundError as error:
        message = "git is not on PATH: a release is made from a commit"
        raise NoClone(message) from error
    except subprocess.CalledProcessError as error:
        message = f"a release is made from a commit: {error.stderr.strip()}"
        raise NoClone(message) from error
