"""Steps of a release: the commit's files, Python's packages, the chart, the image, checksums."""

import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from e2e.control_plane import cache
from e2e.deploy.chart.helm import CHART, Helm
from e2e.deploy.image.image_builder import image_builder
from e2e.release import version
from tests.support.repository import ROOT

_DESCRIBE: Final = ("describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")


class StepFailed(Exception):
    """A command failed; the message ends with the end of its output."""


@dataclass(frozen=True, slots=True)
class Commit:
    """name: abbreviated, with `-dirty` where tracked files differ from it. epoch_s: when it was made."""

    name: str
    epoch_s: int


def run(*command: str | Path, folder: Path = ROOT, **environment: str) -> str:
    """Run a command and return what it prints. Raises StepFailed."""
    environment = os.environ | environment
    # A fixed umask: modes of what is made do not depend on the user's.
    done = subprocess.run(
        command, cwd=folder, env=environment, umask=0o022, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        message = f"{' '.join(map(str, command[:4]))} …: {done.stdout[-1000:]}{done.stderr[-1000:]}"
        raise StepFailed(message)
    return done.stdout


def uv(*arguments: str | Path, **environment: str) -> str:
    """Run uv as pinned for development. Raises StepFailed."""
    program = Path(sys.executable).with_name("uv")
    return run(program, "--quiet", "--system-certs", *arguments, folder=ROOT, **environment)


def last_commit() -> Commit:
    """The clone's last commit. Raises StepFailed."""
    name = run("git", "--no-optional-locks", *_DESCRIBE).strip()
    return Commit(name, int(run("git", "log", "-1", "--format=%ct")))


def sources(folder: Path) -> Path:
    """Write the files of the last commit into a new folder, each with the commit's time. Raises StepFailed."""
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    run("git", "-c", "tar.umask=0022", "archive", f"--output={archive}", "HEAD")
    run("tar", "--extract", "--no-same-permissions", f"--file={archive}", folder=folder)
    return folder


def packages(of: Path, into: Path, commit: Commit) -> Path:
    """Build the source distribution, and of that the wheel; return the wheel. Raises StepFailed."""
    environment = {"SOURCE_DATE_EPOCH": str(commit.epoch_s), "GPUSHARE_COMMIT": commit.name}
    run(sys.executable, "-m", "build", "--no-isolation", f"--outdir={into}", of, folder=into, **environment)
    (wheel,) = into.glob("*.whl")
    return wheel


def chart(of: Path, into: Path, helm: Helm) -> Path:
    """Package the chart; helm gives its files the times that they have. Raises HelmRefused."""
    folder = str(of / CHART.relative_to(ROOT))
    helm("lint", "--strict", folder)
    helm("package", folder, "--destination", str(into))
    (made,) = into.glob("*.tgz")
    return made


def environment(wheel: Path, of: Path, folder: Path) -> Path:
    """Make an environment of the wheel and the pinned packages, by hash. Raises StepFailed."""
    uv("venv", f"--python={sys.executable}", folder)
    install = ("pip", "install", f"--python={folder}", "--only-binary=:all:")
    uv(*install, "--require-hashes", f"--requirements={of / 'requirements/runtime.txt'}")
    uv(*install, "--no-deps", wheel)
    return folder


def bill(of: Path, packages_in: Path, target: Path) -> None:
    """Write the bill of materials of an environment. Raises StepFailed."""
    requirements = f"--with-requirements={of / 'requirements/image.txt'}"
    uv("run", "--no-project", requirements, "python", of / "deploy/images/sbom.py", packages_in, target)


def image(of: Path, into: Path, folder: Path, commit: Commit) -> None:
    """Write the image of this machine's architecture, for `docker load`. Raises ImageUnavailable, BuildFailed."""
    name = f"gpushare-scheduler:{version.current()}"
    folder.mkdir()
    builder = image_builder(folder, cache.to_stderr)
    target = into / f"gpushare-scheduler-{version.current()}-image-{platform.machine()}.tar"
    builder.save(builder.build(f"localhost/{name}", commit.name, of), name, target)
    run("gzip", "--no-name", target)


def checksums(folder: Path) -> Path:
    """Write `SHA256SUMS` of every other file in the folder. Raises StepFailed."""
    target = folder / "SHA256SUMS"
    files = sorted(path.name for path in folder.iterdir() if path != target)
    target.write_text(run("sha256sum", *files, folder=folder), encoding="utf-8")
    return target
