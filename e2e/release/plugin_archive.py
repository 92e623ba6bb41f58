"""The archives by which krew installs `kubectl gpushare`: the program, and all that it imports, for any recent Python.

kubectl-gpushare     finds a Python that there are libraries for, and starts run.py with it
run.py
all/                 the project, and what is the same for every Python
cpython-311/ …       what is for one Python alone
LICENSE
"""

import shutil
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from e2e.release import archives
from e2e.release.clone import Commit

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
_LEFT_OUT: Final = "tests"  # of packages: a third of numpy


def build(
    ours: Path, wheels: Mapping[str, Sequence[Path]], target: Path, scratch: Path, commit: Commit, *, licence: Path
) -> Path:
    """Write one platform's archive as `target`.

    ours: the project's wheel. wheels: as `plugin_wheels.fetch` gives them. scratch: a folder that is not there yet.
    """
    _unpack(ours, scratch / "all")
    with_each = Counter(wheel.name for found in wheels.values() for wheel in found)
    for python, found in wheels.items():
        own = scratch / f"cpython-{python.replace('.', '')}"
        own.mkdir()
        for wheel in found:
            _unpack(wheel, scratch / "all" if 1 < with_each[wheel.name] == len(wheels) else own)
    shutil.copyfile(licence, scratch / "LICENSE")
    _write_programs(scratch, [*wheels])
    return archives.pack(scratch, target, commit.epoch_s)


def _unpack(wheel: Path, target: Path) -> None:
    """As an installer does, less the scripts and headers that some packages bring."""
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
