"""Files of Debian packages, fetched by `apt-get` and unpacked into the cache: nothing is installed."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from e2e.control_plane import cache
from e2e.control_plane.cache import Say


class PackageUnavailable(Exception):
    """`apt-get` or `dpkg` is missing, or the package cannot be fetched; the message says which, in one line."""


def unpacked(package: str, say: Say) -> Path:
    """Folder that holds the files of the package as `/` would; fetched once and kept. Raises PackageUnavailable."""
    target = cache.folder() / "debian" / package
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with cache.alone(target.parent / f".{package}.lock", f"fetching {package}", say):
        if not target.exists():
            _fetch(package, target)
    return target


def _fetch(package: str, target: Path) -> None:
    """Unpack beside the target and rename, so that a package is there whole or not at all."""
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as scratch:
        # As root, apt would drop to a user of its own, who cannot write here.
        _run(package, ["apt-get", "-o", "APT::Sandbox::User=root", "download", package], Path(scratch))
        (archive,) = Path(scratch).glob("*.deb")
        _run(package, ["dpkg", "-x", archive.name, "files"], Path(scratch))
        (Path(scratch) / "files").rename(target)


def _run(package: str, command: list[str], folder: Path) -> None:
    if shutil.which(command[0]) is None:
        message = f"{command[0]} is not on PATH: files of the Debian package {package} are needed"
        raise PackageUnavailable(message)
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        last_line = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
        message = f"{command[0]} cannot fetch the Debian package {package}: {last_line}"
        raise PackageUnavailable(message)
