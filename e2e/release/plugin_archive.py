"""The archives by which krew installs `kubectl gpushare`: the program with all that it imports, beside the user's Python.

    kubectl-gpushare     finds a Python that there are libraries for, and starts run.py with it
    run.py
    all/                 the project, and what is the same for every Python
    cpython-311/ …       what is compiled for one
    LICENSE
"""

import shutil
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from e2e.release import archives, plugin_wheels
from e2e.release.clone import Commit
from e2e.release.plugin_wheels import Platform
from tests.support.krew import archive_name

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

from scheduler.cli.kubectl.main import main

sys.exit(main())
"""
_LEFT_OUT: Final = "tests"  # of packages: a third of numpy


def build(
    wheel: Path,
    sources: Path,
    into: Path,
    scratch: Path,
    commit: Commit,
    *,
    platform: Platform,
    pythons: Sequence[str] = plugin_wheels.PYTHONS,
) -> Path:
    """Write the archive of one platform. sources: as `clone.copy` makes them. Raises WheelUnavailable."""
    requirements = (sources / "requirements/runtime.txt").read_text(encoding="utf-8")
    names = plugin_wheels.needed()
    fetched = {
        python: plugin_wheels.fetch(
            plugin_wheels.pins(requirements, names, platform, python), platform, python, scratch / "wheels"
        )
        for python in pythons
    }
    folder = scratch / "archive"
    folder.mkdir()
    _unpack([wheel], folder / "all")
    of_all = set.intersection(*map(set, fetched.values())) if len(fetched) > 1 else set[str]()
    for python, wheels in fetched.items():
        for name in wheels:
            target = "all" if name in of_all else f"cpython-{python.replace('.', '')}"
            if not (target == "all" and python != pythons[0]):
                _unpack([scratch / "wheels" / python / name], folder / target)
    shutil.copyfile(sources / "LICENSE", folder / "LICENSE")
    _write_programs(folder, pythons)
    return archives.pack(folder, into / archive_name(platform.system, platform.architecture), commit.epoch_s)


def _unpack(wheels: Iterable[Path], target: Path) -> None:
    """As an installer does, less the scripts and headers that some packages bring."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as packed:
            kept = [name for name in packed.namelist() if _is_kept(name)]
            packed.extractall(target, members=kept)


def _is_kept(name: str) -> bool:
    first, *folders = Path(name).parts[:-1] or ("",)
    return not first.endswith(".data") and _LEFT_OUT not in folders


def _write_programs(folder: Path, pythons: Sequence[str]) -> None:
    names = [f"python{python}" for python in reversed(pythons)]
    versions = ", ".join(f"Python {python}" for python in pythons)
    launcher = folder / "kubectl-gpushare"
    text = _LAUNCHER.replace("PYTHONS", " ".join(names)).replace("VERSIONS", versions)
    launcher.write_text(text, encoding="utf-8")
    launcher.chmod(0o755)
    (folder / "run.py").write_text(_RUN, encoding="utf-8")
