"""A base for the image where no registry is reachable: a file system of Debian's packages, with CPython.

Made once by `mmdebstrap`, kept in the cache folder of the user, one file per recipe.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from e2e.control_plane import cache
from e2e.control_plane.cache import Say, to_stderr

# Of which CPython is that of the public base image.
SUITE: Final = "trixie"
_MIRROR: Final = "http://deb.debian.org/debian"
_PROGRAM: Final = "mmdebstrap"
_RECIPE: Final = (
    "--mode=root",
    "--variant=minbase",
    "--include=python3,python3-venv,ca-certificates",
    *(f"--dpkgopt=path-exclude=/usr/share/{folder}/*" for folder in ("doc", "locale", "man")),
    SUITE,
)


class ImageUnavailable(Exception):
    """This machine, or this user on it, cannot build images; the message says why and what to install, in one line."""


def base(say: Say = to_stderr) -> Path:
    """The file system as a tar file, made where it is not there yet (a minute). Raises ImageUnavailable."""
    folder = cache.folder() / "images"
    target = folder / f"{hashlib.sha256(' '.join((*_RECIPE, _MIRROR)).encode()).hexdigest()[:16]}.tar"
    folder.mkdir(parents=True, exist_ok=True)
    with cache.alone(folder / ".lock", "making the base image", say):
        if not target.exists():
            say(f"making a base image of Debian {SUITE} (once; a minute)")
            _make(target, say)
    return target


def _make(target: Path, say: Say) -> None:
    """Make it beside the target and rename, so that it is there whole or not at all."""
    environment = os.environ | {"SOURCE_DATE_EPOCH": "0", "PATH": f"{_programs(say)}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".make-") as scratch:
        half_made = Path(scratch) / "base.tar"
        command = [_PROGRAM, *_RECIPE, str(half_made), _MIRROR]
        made = subprocess.run(
            command, env=environment | {"TMPDIR": scratch}, capture_output=True, text=True, check=False
        )
        if made.returncode != 0:
            errors = [line for line in made.stderr.splitlines() if line.startswith("E:")] or ["no reason given"]
            message = f"{_PROGRAM} cannot make a base image: {errors[0]}; apt-get install mmdebstrap, and as root"
            raise ImageUnavailable(message)
        half_made.rename(target)


def _programs(say: Say) -> Path:
    """Where mmdebstrap lies, with what it calls."""
    if installed := shutil.which(_PROGRAM):
        return Path(installed).parent
    try:
        return cache.debian_package(_PROGRAM, say) / "usr" / "bin"
    except cache.PackageUnavailable as error:
        message = f"no base image: {error}; apt-get install {_PROGRAM}"
        raise ImageUnavailable(message) from error
