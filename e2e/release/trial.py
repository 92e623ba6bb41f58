"""The wheel in an environment of its own, with exactly what is pinned: does it run, and what is it made of."""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Final

_SPEED: Final = "1000"
_SHOWN: Final = "no card was ever over-committed"


class TrialFailed(Exception):
    """The wheel cannot be installed, or does not do what it has to; the message ends with the end of the output."""


def install(wheel: Path, sources: Path, folder: Path) -> Path:
    """Make an environment with what requirements/runtime.txt pins, by hash, and the wheel; its `bin`."""
    venv.create(folder)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "--no-input", "install")
    requirements = str(sources / "requirements/runtime.txt")
    _run(*pip, "--quiet", "--no-compile", "--only-binary=:all:", "--require-hashes", "-r", requirements)
    _run(*pip, "--quiet", "--no-deps", "--no-index", str(wheel))
    return python.parent


def try_programs(programs: Path, version: str) -> None:
    """Raises TrialFailed where they tell another version, or the demo does not run to its end."""
    for name in ("gpushare-scheduler", "gpushare-device-plugin"):
        told = _run(str(programs / name), "--version")
        if told.split()[:2] != [name, version]:
            message = f"{name} says that it is {told.strip()}, not {version}"
            raise TrialFailed(message)
    shown = _run(str(programs / "gpushare-scheduler"), "demo", "--speed", _SPEED)
    if _SHOWN not in shown:
        message = f"the demo does not show that {_SHOWN}: {shown[-1000:]}"
        raise TrialFailed(message)


def write_bill(programs: Path, sources: Path, folder: Path, target: Path) -> None:
    """Write the bill of materials of an environment that `install` has made. folder: not there yet."""
    venv.create(folder)
    python = str(folder / "bin" / "python")
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "--no-input", "install")
    _run(*pip, "--quiet", "--require-hashes", "-r", str(sources / "requirements/image.txt"))
    _run(python, str(sources / "deploy/images/sbom.py"), str(programs.parent), str(target))


def _run(*command: str) -> str:
    with tempfile.TemporaryDirectory() as elsewhere:  # where no checkout can be imported
        done = subprocess.run(command, cwd=elsewhere, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = f"{' '.join(command[:4])} …: {done.stdout[-1000:]}{done.stderr[-1000:]}"
        raise TrialFailed(message)
    return done.stdout
