"""Version of this build, and its commit if known.

installed from a wheel    commit.txt next to this file, written by setup.py when the wheel was built
run from a clone          output of git in the clone at run time

"""

import platform
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Info

_PACKAGE: Final = "gpushare-scheduler"
_UNKNOWN: Final = "unknown"
_COMMIT: Final = Path(__file__).with_name("commit.txt")
_CLONE: Final = Path(__file__).resolve().parents[2]
# `-dirty` if tracked files differ from the commit. The check must not take a lock that the user's own git waits for.
_DESCRIBE: Final = ("git", "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
_ANSWER_WITHIN_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """Build of the package. commit: abbreviated, possibly with `-dirty`; "" if unknown."""

    version: str
    commit: str

    def __str__(self) -> str:
        return f"{self.version} (commit {self.commit})" if self.commit else self.version


@cache
def build_info() -> BuildInfo:
    """Return the running build. In a clone, the first call runs git, which takes some hundredths of a second."""
    try:
        installed = version(_PACKAGE)
    except PackageNotFoundError:
        installed = _UNKNOWN
    return BuildInfo(installed, _commit())


def show(registry: CollectorRegistry) -> None:
    """Add the metric `gpushare_build_info`: always 1, with the build in its labels."""
    build = build_info()
    labels = {"version": build.version, "commit": build.commit, "python": platform.python_version()}
    Info("gpushare_build", "Build of gpushare-scheduler.", registry=registry).info(labels)


def _commit() -> str:
    if _COMMIT.is_file():
        return _COMMIT.read_text(encoding="utf-8").strip()
    return _of_clone() if (_CLONE / ".git").exists() else ""


def _of_clone() -> str:
    """Return git's description; "" without git, or if git does not trust this user with the clone."""
    try:
        said = subprocess.run(  # noqa: S603 - the command is the one above
            _DESCRIBE, cwd=_CLONE, capture_output=True, text=True, check=False, timeout=_ANSWER_WITHIN_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.strip() if said.returncode == 0 else ""
