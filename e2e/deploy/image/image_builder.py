"""The image of `deploy/images`, built without a docker daemon: by buildah, on the base of `base_image`.

buildah is that of the machine, or files of Debian's packages, which it sees in a mount namespace of its own as if they
were installed. Linux, root.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from e2e.control_plane import cache
from e2e.control_plane.cache import Say, to_stderr
from e2e.deploy.image import base_image
from e2e.deploy.image.base_image import ImageUnavailable
from tests.support.repository import ROOT

DOCKERFILE: Final = "deploy/images/Dockerfile"
# As Dockerfiles name it: what is in the store comes before any registry.
_BASE: Final = "localhost/python:3.13-slim"
_BUILDAH: Final = ("buildah", "libgpgme11", "libassuan0")
# It keeps a cache in /var/lib whatever it is told: not in the machine's. $1: folders over /usr, maybe none.
_PREPARED: Final = """
set -e
mount -t tmpfs tmpfs /var/lib
[ -z "$1" ] || mount -t overlay overlay -o "lowerdir=$1" /usr
shift
exec "$@"
"""
_ANY_SIGNATURE: Final = {"default": [{"type": "insecureAcceptAnything"}]}
_IMPORT: Final = "FROM scratch\nADD base.tar /\nENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
_BUILD_WITHIN_S: Final = 1200.0
_CA: Final = "/run/ca-of-the-machine.crt"
_SEEN_BY_PIP: Final = ("index-url", "extra-index-url", "trusted-host", "proxy")


class BuildFailed(Exception):
    """buildah failed; the message ends with the end of its output."""


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """layers: sha256 of each, uncompressed. configuration: as the OCI image specification has it."""

    name: str
    layers: list[str]
    configuration: dict[str, Any]


class ImageBuilder:
    """buildah with a store of its own; made by `image_builder`."""

    def __init__(self, folder: Path, prefix: Sequence[str]) -> None:
        self._folder = folder
        own = {"root": "store", "runroot": "run", "registries-conf": "registries.conf"}
        self._buildah = [*prefix, "buildah", *(f"--{flag}={folder / name}" for flag, name in own.items())]
        self._policy = folder / "policy.json"
        self._policy.write_text(json.dumps(_ANY_SIGNATURE), encoding="utf-8")
        (folder / "registries.conf").write_text("unqualified-search-registries = []\n", encoding="utf-8")

    def take_base(self, archive: Path) -> None:
        """Bring a file system in, as the image that `build` starts from."""
        context = self._folder / "base"
        context.mkdir()
        shutil.copy(archive, context / "base.tar")
        (context / "Dockerfile").write_text(_IMPORT, encoding="utf-8")
        self._run("build", "--timestamp=0", f"--tag={_BASE}", str(context))

    def build(self, name: str, commit: str, sources: Path = ROOT) -> BuiltImage:
        """Build the image of a checkout, or of a copy of one, every step of it. Raises BuildFailed."""
        return self._build(
            name,
            f"--build-arg=BASE={_BASE}",
            f"--build-arg=COMMIT={commit}",
            f"--file={sources / DOCKERFILE}",
            f"--ignorefile={sources / DOCKERFILE}.dockerignore",
            str(sources),
        )

    def build_folder(self, name: str, folder: Path) -> BuiltImage:
        """Build the folder's own Dockerfile. Raises BuildFailed."""
        return self._build(name, str(folder))

    def _build(self, name: str, *arguments: str) -> BuiltImage:
        files = pip_files(self._folder / "pip.conf")
        mounted = [f"--volume={source}:{place}:ro" for place, source in files.items()]
        own = ["--isolation=chroot", "--network=host", "--pull=never", "--timestamp=0", f"--tag={name}"]
        self._run("build", *own, *mounted, *arguments)
        told = json.loads(self._run("inspect", "--type=image", name))["OCIv1"]
        return BuiltImage(name, told["rootfs"]["diff_ids"], told["config"])

    def save(self, image: BuiltImage, name: str, archive: Path) -> None:
        """Write an archive that `ctr images import` takes; the image has that name in it."""
        self._run("push", image.name, f"docker-archive:{archive}:{name}")

    def _run(self, command: str, *arguments: str) -> str:
        policy = [f"--signature-policy={self._policy}"] if command in {"build", "push"} else []
        done = subprocess.run(
            [*self._buildah, "--storage-driver=overlay", command, *policy, *arguments],
            env=os.environ | {"TMPDIR": str(self._folder)},
            capture_output=True,
            text=True,
            check=False,
            timeout=_BUILD_WITHIN_S,
        )
        if done.returncode != 0:
            message = f"buildah {command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            raise BuildFailed(message)
        return done.stdout


def image_builder(folder: Path, say: Say = to_stderr) -> ImageBuilder:
    """A builder that keeps what it makes in `folder`. Raises ImageUnavailable."""
    if sys.platform != "linux" or os.geteuid() != 0:
        message = "no image built here: without a docker daemon that takes Linux and root"
        raise ImageUnavailable(message)
    made = ImageBuilder(folder, _prefix(say))
    made.take_base(base_image.base(say))
    return made


def _prefix(say: Say) -> list[str]:
    """What stands before `buildah` on a command line: a mount namespace, with its packages if it is not installed."""
    try:
        missing = () if shutil.which("buildah") else _BUILDAH
        packages = [cache.debian_package(name, say) / "usr" for name in missing]
    except cache.PackageUnavailable as error:
        message = f"no image built here: {error}; apt-get install buildah"
        raise ImageUnavailable(message) from error
    lower = ":".join(map(str, (*packages, "/usr"))) if packages else ""
    return ["unshare", "--mount", "--propagation=private", "sh", "-c", _PREPARED, "sh", lower]


def pip_files(configuration: Path) -> dict[str, Path]:
    """Files that let pip in a container fetch from where pip here does, by place; writes the first one."""
    told = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    settings = dict(line.split("=", 1) for line in told.splitlines() if "=" in line)
    here = {key.rpartition(".")[2]: value.strip("'\"") for key, value in settings.items()}
    kept = {key: value for key, value in here.items() if key in _SEEN_BY_PIP}
    files = {"/etc/pip.conf": configuration}
    if "cert" in here:
        kept["cert"] = _CA
        files[_CA] = Path(here["cert"])
    lines = ["[global]", *(f"{key} = {value}" for key, value in kept.items())]
    configuration.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return files
