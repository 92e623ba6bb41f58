"""The packages: Python's two, and the Helm chart's."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

from e2e.deploy.chart import CHART, Helm
from e2e.release import archives
from e2e.release.clone import Commit
from tests.support.repository import ROOT

_BACKEND: Final = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"


class PackageFailed(Exception):
    """A package cannot be built; the message ends with the end of the output."""


def sdist(sources: Path, into: Path, scratch: Path, commit: Commit) -> Path:
    """The source distribution. sources: as `clone.copy` makes them. scratch: a folder that is there."""
    _call_backend("build_sdist", sources, scratch, commit)
    (made,) = scratch.glob("*.tar.gz")
    # setuptools gives every file the time of the build.
    return archives.repack(made, into / made.name, commit.epoch_s)


def wheel(of: Path, into: Path, scratch: Path, commit: Commit) -> Path:
    """The wheel of a source distribution, so that one that lacks a file is found here."""
    with tarfile.open(of) as archive:
        archive.extractall(scratch, filter="data")
    (sources,) = scratch.iterdir()
    _call_backend("build_wheel", sources, into, commit)
    (made,) = into.glob("*.whl")
    return made


def chart(sources: Path, into: Path, helm: Helm) -> Path:
    """The chart's package; helm gives its files the times that they have."""
    folder = str(sources / CHART.relative_to(ROOT))
    helm("lint", "--strict", folder)
    helm("package", folder, "--destination", str(into))
    (made,) = into.glob("*.tgz")
    return made


def _call_backend(hook: str, sources: Path, into: Path, commit: Commit) -> None:
    """Call the build backend in an interpreter of its own, as pip without isolation does."""
    environment = {"SOURCE_DATE_EPOCH": str(commit.epoch_s), "GPUSHARE_COMMIT": commit.name}
    done = subprocess.run(
        [sys.executable, "-c", _BACKEND, hook, str(into)],
        cwd=sources,
        env=os.environ | environment,
        umask=0o022,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        message = f"{hook}: {done.stdout[-1000:]}{done.stderr[-1000:]}"
        raise PackageFailed(message)
