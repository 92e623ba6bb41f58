"""The archive from which krew installs `kubectl gpushare` on one platform, for any recent CPython.

kubectl-gpushare     starts run.py with the first Python that has a folder here
run.py
all/                 the project, and packages that are the same for every Python
cpython-311/ …       packages for one Python
LICENSE
"""

import re
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from e2e.release.steps import Commit, run, uv
from tests.support.repository import ROOT

# uv's names, by krew's operating system and architecture.
PLATFORMS: Final[Mapping[tuple[str, str], str]] = {
    ("linux", "amd64"): "x86_64-manylinux_2_28",
    ("linux", "arm64"): "aarch64-manylinux_2_28",
    ("darwin", "amd64"): "x86_64-apple-darwin",
    ("darwin", "arm64"): "aarch64-apple-darwin",
}
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
# Packages that only the device plugin imports.
LEFT_OUT: Final = ("grpcio", "nvidia-ml-py", "protobuf")
_MACOS: Final = "11.0"
_PACKED: Final = (
    "--sort=name",
    "--owner=0",
    "--group=0",
    "--numeric-owner",
    "--mode=u=rwX,go=rX",
    "--hard-dereference",
)
_LAUNCHER: Final = """\
#!/bin/sh
# kubectl-gpushare, as krew installs it: with the first Python that there are libraries for.
here=$(dirname "$(readlink -f "$0")")
for python in python3 PYTHONS; do
    "$python" -IS -c 'import os, sys
tag = sys.implementation.cache_tag
sys.exit(bool(sys.abiflags) or not os.path.isdir(os.path.join(sys.argv[1], tag)))' "$here" 2>/dev/null || continue
    exec "$python" -I "$here/run.py" "$@"
done
echo 'kubectl-gpushare: none of these is on PATH: VERSIONS (as python3, or by these names)' >&2
exit 2
"""
_RUN: Final = """\
import sys
from pathlib import Path

here = Path(__file__).resolve().parent
sys.path[:0] = [str(here / "all"), str(here / sys.implementation.cache_tag)]

from scheduler.tools.kubectl.main import main

sys.exit(main())
"""


def build(wheel: Path, target: Path, folder: Path, commit: Commit, *, on: str, pythons: Sequence[str]) -> Path:
    """Write the archive as `target`. folder: a new one. on: a value of PLATFORMS. Raises StepFailed."""
    folder.mkdir()
    pins = folder.with_suffix(".txt")
    pins.write_text(needed((ROOT / "requirements/runtime.txt").read_text(encoding="utf-8")), encoding="utf-8")
    zipfile.ZipFile(wheel).extractall(folder / "all")
    for python in pythons:
        own = folder / f"cpython-{python.replace('.', '')}"
        _install(own, pins, on, python)
        _share(own, folder / "all")
    for tests in [*folder.rglob("tests")]:  # a third of numpy
        shutil.rmtree(tests)
    shutil.copyfile(ROOT / "LICENSE", folder / "LICENSE")
    _write_programs(folder, pythons)
    run("tar", *_PACKED, f"--mtime=@{commit.epoch_s}", "--create", "--gzip", f"--file={target}", ".", folder=folder)
    return target


def needed(requirements: str) -> str:
    """The pins of a requirements file without those of LEFT_OUT."""
    names = "|".join(LEFT_OUT)
    return re.sub(rf"^(?:{names})==(?:.*\\\n)*.*\n", "", requirements, flags=re.MULTILINE)


def _install(folder: Path, pins: Path, platform: str, python: str) -> None:
    how = ("--no-deps", "--only-binary=:all:", "--link-mode=copy", "--require-hashes", f"--requirements={pins}")
    where = (f"--target={folder}", f"--python-platform={platform}", f"--python-version={python}")
    uv("pip", "install", *how, *where, MACOSX_DEPLOYMENT_TARGET=_MACOS)
    shutil.rmtree(folder / "bin", ignore_errors=True)


def _share(own: Path, everybody: Path) -> None:
    """Move the packages that are the same for every Python to the folder that every Python reads."""
    for wheel in own.glob("*.dist-info/WHEEL"):
        if "Root-Is-Purelib: true" in wheel.read_text(encoding="utf-8"):
            listed = (wheel.parent / "RECORD").read_text(encoding="utf-8").splitlines()
            for name in (line.partition(",")[0] for line in listed):
                if (own / name).is_file() and not name.startswith(".."):
                    (everybody / name).parent.mkdir(parents=True, exist_ok=True)
                    (own / name).replace(everybody / name)


def _write_programs(folder: Path, pythons: Sequence[str]) -> None:
    names = " ".join(f"python{python}" for python in reversed(pythons))
    versions = ", ".join(f"Python {python}" for python in pythons)
    launcher = folder / "kubectl-gpushare"
    launcher.write_text(_LAUNCHER.replace("PYTHONS", names).replace("VERSIONS", versions), encoding="utf-8")
    launcher.chmod(0o755)
    (folder / "run.py").write_text(_RUN, encoding="utf-8")
