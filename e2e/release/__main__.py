"""`make release`: `python -m e2e.release [--url PLACE]`.

PLACE: where the archives will lie, for krew. Exit codes: 0 all made; 1 not made; 3 something that a build takes is
missing. Without an image where none can be built, which is said; in CI that is a failure.
"""

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from e2e.control_plane import binaries, cache
from e2e.deploy import chart
from e2e.deploy.base_image import ImageUnavailable
from e2e.deploy.chart import HelmRefused
from e2e.deploy.image_builder import BuildFailed, image_builder
from e2e.release import archives, clone, packages, plugin_archive, plugin_wheels, trial, version
from e2e.release.clone import Commit, NoClone
from e2e.release.packages import PackageFailed
from e2e.release.plugin_wheels import WheelUnavailable
from e2e.release.trial import TrialFailed
from tests.support.documents.krew import PLACE, Archive, archive_name, krew_manifest
from tests.support.repository import ROOT

DIST: Final = ROOT / "dist"
_SHOWN: Final = 10
_NOT_MADE: Final = (
    NoClone,
    PackageFailed,
    HelmRefused,
    WheelUnavailable,
    TrialFailed,
    BuildFailed,
    binaries.BuildFailed,
)


def main() -> int:
    """Make everything beside `dist/`, and put it there when all of it is made."""
    parser = argparse.ArgumentParser(prog="make release", description="make what is published of this version")
    parser.add_argument("--url", default=PLACE, help="where the archives of kubectl gpushare will lie")
    arguments = parser.parse_args()
    try:
        commit = clone.commit()
        if refusal := refused(commit):
            _say(f"make release: {refusal}")
            return 1
        with tempfile.TemporaryDirectory(prefix="gpushare-release-") as scratch:
            made = Path(scratch) / "dist"
            made.mkdir()
            has_image = make(Path(scratch), made, commit, arguments.url)
            shutil.rmtree(DIST, ignore_errors=True)
            shutil.copytree(made, DIST)
    except binaries.GoUnavailable as error:
        _say(f"make release: {error}")
        return 3
    except _NOT_MADE as error:
        _say(f"make release: {error}")
        return 1
    _say(f"dist/ has {version.current()} of {commit.name}; what to do with it: docs/release.md")
    return 0 if has_image or not os.environ.get("CI") else 1


def refused(commit: Commit) -> str:
    """Why nothing is released of this clone; "" where nothing is in the way."""
    if commit.beside:
        return "files differ from the commit; commit them, or take them away:\n  " + "\n  ".join(commit.beside[:_SHOWN])
    if lines := version.differing(ROOT, version.current()):
        return f"not one version (make version VERSION={version.current()}):\n  " + "\n  ".join(lines)
    return ""


def make(scratch: Path, made: Path, commit: Commit, url: str) -> bool:
    """Write every file into `made`, which is empty; whether there is an image among them."""
    sources = clone.copy(ROOT, scratch / "sources", commit.epoch_s)
    _say("packages of Python, and the chart")
    sdist = packages.sdist(sources, made, _new(scratch / "sdist"), commit)
    wheel = packages.wheel(sdist, made, _new(scratch / "wheel"), commit)
    packages.chart(sources, made, chart.built(_new(scratch / "helm")))
    _say("the wheel in an environment of its own")
    programs = trial.install(wheel, sources, scratch / "environment")
    trial.try_programs(programs, version.current())
    trial.write_bill(programs, sources, scratch / "bill", made / f"gpushare-scheduler-{version.current()}.cdx.json")
    write_plugin(wheel, sources, made, scratch, commit, url)
    has_image = write_image(sources, made, scratch, commit)
    archives.write_sums(made)
    return has_image


def write_plugin(  # noqa: PLR0917 - as `make`
    wheel: Path, sources: Path, made: Path, scratch: Path, commit: Commit, url: str
) -> None:
    """The archives for krew, and the manifest that names them."""
    requirements = (sources / "requirements/runtime.txt").read_text(encoding="utf-8")
    listed = {}
    for target in plugin_wheels.PLATFORMS:
        began_s = time.monotonic()
        of = (target.system, target.architecture)
        place = _new(scratch / "-".join(of))
        wheels = plugin_wheels.fetch(requirements, target, plugin_wheels.PYTHONS, place / "wheels")
        archive = plugin_archive.build(
            wheel, wheels, made / archive_name(*of), place / "archive", commit, licence=sources / "LICENSE"
        )
        shutil.rmtree(place)
        listed[of] = Archive(f"{url}/{archive.name}", archives.sha256(archive))
        _say(f"{archive.name}: {archive.stat().st_size / 1e6:.0f} MB, {time.monotonic() - began_s:.0f} s")
    (made / "gpushare.yaml").write_text(krew_manifest(listed), encoding="utf-8")


def write_image(sources: Path, made: Path, scratch: Path, commit: Commit) -> bool:
    """The image of this machine's architecture, with the packages' bill of materials in it, for `docker load`."""
    name = f"gpushare-scheduler:{version.current()}"
    _say(f"the image {name}: minutes")
    try:
        builder = image_builder(_new(scratch / "image"), cache.to_stderr)
        image = builder.build(f"localhost/{name}", commit.name, sources)
    except ImageUnavailable as error:
        _say(f"no image: {error}")
        return False
    archive = scratch / "image.tar"
    builder.save(image, name, archive)
    target = made / f"gpushare-scheduler-{version.current()}-image-{platform.machine()}.tar.gz"
    archives.compress(archive, target, commit.epoch_s)
    return True


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a program


if __name__ == "__main__":
    sys.exit(main())
