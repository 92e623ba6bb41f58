"""The wheels that `kubectl gpushare` needs on each platform: what it may import, as pinned for running."""

import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grimp
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

_PROGRAM: Final = "scheduler.tools.kubectl.main"
_OURS: Final = ("scheduler", "config")
# Of glibc, as their wheels' names have it.
_GLIBC_MINORS: Final = (5, 12, 17, 24, 26, 27, 28)


@dataclass(frozen=True, slots=True)
class Platform:
    """As krew selects it, and as wheels name it."""

    system: str
    architecture: str
    tags: tuple[str, ...]

    @property
    def environment(self) -> dict[str, str]:
        """Of the markers of requirements, less the Python."""
        name = {"linux": "Linux", "darwin": "Darwin"}[self.system]
        return {"sys_platform": self.system, "platform_system": name, "platform_python_implementation": "CPython"}


def _linux(architecture: str, machine: str) -> Platform:
    tags = (f"manylinux2014_{machine}", *(f"manylinux_2_{minor}_{machine}" for minor in _GLIBC_MINORS))
    return Platform("linux", architecture, tags)


PLATFORMS: Final = (
    _linux("amd64", "x86_64"),
    _linux("arm64", "aarch64"),
    Platform("darwin", "amd64", ("macosx_11_0_x86_64",)),
    Platform("darwin", "arm64", ("macosx_11_0_arm64",)),
)
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")


class WheelUnavailable(Exception):
    """pip finds no wheel for a platform, or reaches no package index; the message is what it said."""


def needed() -> frozenset[NormalizedName]:
    """Names of the distributions that the program may import, now or later, and of those that these require."""
    graph = grimp.build_graph(*_OURS, include_external_packages=True, cache_dir=None)
    modules = {module.partition(".")[0] for module in graph.find_upstream_modules(_PROGRAM)} - set(_OURS)
    by_module = importlib.metadata.packages_distributions()
    names: set[NormalizedName] = set()
    to_look_at = {canonicalize_name(name) for module in modules for name in by_module.get(module, ())}
    while to_look_at:
        name = to_look_at.pop()
        names.add(name)
        to_look_at |= {*_required(name)} - names
    return frozenset(names)


def _required(name: NormalizedName) -> Iterator[NormalizedName]:
    """On any platform, but not for an extra. Nothing of what is not installed: that is for another platform."""
    try:
        requirements = [Requirement(line) for line in importlib.metadata.requires(name) or ()]
    except importlib.metadata.PackageNotFoundError:
        return
    yield from (canonicalize_name(one.name) for one in requirements if "extra ==" not in str(one.marker))


def pins(requirements: str, names: Collection[NormalizedName], platform: Platform, python: str) -> list[str]:
    """Of a file of pins, the lines of these distributions on that platform, without their markers.

    pip would ask the markers of the Python that it runs with.
    """
    environment = platform.environment | {"python_version": python, "python_full_version": f"{python}.0"}
    lines = []
    for line in requirements.replace("\\\n", " ").splitlines():
        if re.match(r"[a-z]", line):
            head, _, hashes = line.partition(" --hash")
            requirement = Requirement(head)
            holds = requirement.marker is None or requirement.marker.evaluate(environment)
            if holds and canonicalize_name(requirement.name) in names:
                lines.append(f"{requirement.name}{requirement.specifier} --hash{hashes}")
    return lines


def fetch(requirements: str, platform: Platform, pythons: Iterable[str], into: Path) -> dict[str, list[Path]]:
    """By Python: the wheels that pip finds for what is pinned, in order. Raises WheelUnavailable.

    requirements: a file of pins. into: a folder that is not there yet.
    """
    names = needed()
    return {python: _fetch(pins(requirements, names, platform, python), platform, python, into) for python in pythons}


def _fetch(lines: list[str], platform: Platform, python: str, into: Path) -> list[Path]:
    folder = into / python
    folder.mkdir(parents=True)
    listed = into / f"requirements-{python}.txt"
    listed.write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "download"]
    command += ["--no-deps", "--require-hashes", "--only-binary=:all:", "--dest", str(folder), "-r", str(listed)]
    command += ["--implementation=cp", f"--python-version={python}", *(f"--platform={tag}" for tag in platform.tags)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        message = f"{platform.system}/{platform.architecture}, Python {python}: {done.stderr.strip()[-1000:]}"
        raise WheelUnavailable(message)
    return sorted(folder.glob("*.whl"))
