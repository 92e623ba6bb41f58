"""What pyproject.toml cannot say: a wheel knows the commit that it is built from.

`GPUSHARE_COMMIT` says it where there is no clone, as in deploy/images/Dockerfile; else git is asked. With neither, the
programs tell their version alone (scheduler/process/build_info.py).
"""

import os
import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

DESCRIBE = ["git", "--no-optional-locks", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]


class BuildWithCommit(build_py):
    """The usual build, and one file more."""

    def run(self) -> None:
        """An editable installation asks the clone itself, each time."""
        super().run()
        if not self.editable_mode and (commit := os.environ.get("GPUSHARE_COMMIT") or of_clone(Path(__file__).parent)):
            (Path(self.build_lib) / "scheduler/process/commit.txt").write_text(f"{commit}\n", encoding="utf-8")


def of_clone(clone: Path) -> str:
    """What git says; "" where this is no clone, or git is missing."""
    if not (clone / ".git").exists():
        return ""
    try:
        said = subprocess.run(DESCRIBE, cwd=clone, capture_output=True, text=True, check=True)  # noqa: S603 - as above
        return said.stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


setup(cmdclass={"build_py": BuildWithCommit})
