"""`make release`: `python -m e2e.release [--url PLACE]`.

PLACE: where the archives of kubectl gpushare will be, for krew. A machine that cannot build images makes the rest and
says so; with CI set that is a failure.
"""

import argparse
import os
import shutil
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

from e2e.control_plane import binaries
from e2e.deploy.chart import helm as chart
from e2e.deploy.chart.helm import HelmRefused
from e2e.deploy.image.base_image import ImageUnavailable
from e2e.deploy.image.image_builder import BuildFailed
from e2e.release import krew_archive, steps, version
from e2e.release.steps import Commit, StepFailed
from tests.support.documents.krew import PLACE, Archive, archive_name, krew_manifest
from tests.support.repository import ROOT

DIST: Final = ROOT / "dist"


def main() -> int:
    """Make everything in a scratch folder, and replace `dist/` when all of it is made."""
    parser = argparse.ArgumentParser(prog="make release", description="make what is published of this version")
    parser.add_argument("--url", default=PLACE, help="where the archives of kubectl gpushare will be")
    url = parser.parse_args().url
    try:
        if changed := steps.run("git", "--no-optional-locks", "status", "--porcelain"):
            _say(f"make release: files differ from the commit; commit or remove them:\n{changed[:1000]}")
            return 1
        commit = steps.last_commit()
        with tempfile.TemporaryDirectory(prefix="gpushare-release-") as scratch:
            made = Path(scratch) / "dist"
            made.mkdir()
            has_image = make(Path(scratch), made, commit, url)
            shutil.rmtree(DIST, ignore_errors=True)
            shutil.copytree(made, DIST)
    except (StepFailed, HelmRefused, BuildFailed, binaries.BuildFailed, binaries.GoUnavailable) as error:
        _say(f"make release: {error}")
        return 1
    _say(f"dist/ has {version.current()} of {commit.name}; the next steps: docs/develop/release.md")
    return 0 if has_image or not os.environ.get("CI") else 1


def make(scratch: Path, made: Path, commit: Commit, url: str) -> bool:
    """Write every file into `made`, an empty folder; return whether there is an image among them."""
    sources = steps.sources(scratch / "sources")
    _say("Python packages and the chart")
    wheel = steps.packages(sources, made, commit)
    (scratch / "helm").mkdir()
    steps.chart(sources, made, chart.built(scratch / "helm"))
    installed = steps.environment(wheel, sources, scratch / "environment")
    steps.bill(sources, installed, made / f"gpushare-scheduler-{version.current()}.cdx.json")
    write_plugin(wheel, made, scratch, commit, url)
    _say("the image: minutes")
    try:
        steps.image(sources, made, scratch / "image", commit)
        has_image = True
    except ImageUnavailable as error:
        _say(f"no image: {error}")
        has_image = False
    steps.checksums(made)
    return has_image


def write_plugin(wheel: Path, made: Path, scratch: Path, commit: Commit, url: str) -> None:
    """Write the archives for krew, and the manifest that names them. Raises StepFailed."""
    listed = {}
    for of, platform in krew_archive.PLATFORMS.items():
        archive = made / archive_name(*of)
        folder = scratch / platform
        krew_archive.build(wheel, archive, folder, commit, on=platform, pythons=krew_archive.PYTHONS)
        shutil.rmtree(folder)
        listed[of] = Archive(f"{url}/{archive.name}", sha256(archive.read_bytes()).hexdigest())
        _say(f"{archive.name}: {archive.stat().st_size / 1e6:.0f} MB")
    (made / "gpushare.yaml").write_text(krew_manifest(listed), encoding="utf-8")


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a program


if __name__ == "__main__":
    sys.exit(main())
