"""The version, which pyproject.toml has; everything else that names it, checked and rewritten.

    python -m e2e.release.version          say what differs
    python -m e2e.release.version 0.2.0    write it everywhere (`make version VERSION=0.2.0`)

What is generated or rendered (`make docs`, `make manifests`) is written too: those commands then find it as they would
write it.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.documents.krew import semantic
from tests.support.repository import ROOT


class Place(NamedTuple):
    """Where the version stands. paths: as `Path.glob` takes them. pattern: the version is its only group."""

    paths: tuple[str, ...]
    pattern: re.Pattern[str]
    is_semantic: bool = False

    def form(self, version: str) -> str:
        """As it is written here: the package's own form, or Semantic Versioning's, which helm and krew want."""
        return semantic(version).removeprefix("v") if self.is_semantic else version


_CHART: Final = ("deploy/chart/gpushare-scheduler/Chart.yaml",)
_NAMES_THE_IMAGE: Final = ("deploy/**/*", "docs/**/*", "e2e/kind/**/*", "README.md")
PLACES: Final = (
    Place(("pyproject.toml",), re.compile(r'^version = "(.+)"$', re.MULTILINE)),
    Place(_CHART, re.compile(r"^version: (\S+)$", re.MULTILINE), is_semantic=True),
    Place(_CHART, re.compile(r'^appVersion: "(.+)"$', re.MULTILINE)),
    Place(("deploy/images/Dockerfile",), re.compile(r"^ARG VERSION=(\S+)$", re.MULTILINE)),
    Place(("deploy/krew/gpushare.yaml",), re.compile(r"^  version: v(\S+)$", re.MULTILINE), is_semantic=True),
    Place(
        ("deploy/krew/gpushare.yaml",),
        re.compile(r"/kubectl-gpushare-v(\S+?)-(?:linux|darwin)-"),
        is_semantic=True,
    ),
    Place(_NAMES_THE_IMAGE, re.compile(r"\bgpushare-scheduler:(\d[\w.]*\w)")),
)


def current(root: Path = ROOT) -> str:
    """That of the package."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    version: str = project["project"]["version"]
    return version


def found(root: Path, place: Place) -> Iterator[tuple[Path, str]]:
    """Every file that names the version there, and each version that it names."""
    for path in _files(root, place):
        for version in place.pattern.findall(path.read_text(encoding="utf-8")):
            yield path, version


def differing(root: Path, version: str) -> list[str]:
    """A line for each place that names another version, or, by its pattern, none."""
    lines = []
    for place in PLACES:
        there = [*found(root, place)]
        lines += [] if there else [f"{place.paths[0]}: names no version"]
        lines += [
            f"{path.relative_to(root)}: {named}, not {place.form(version)}"
            for path, named in there
            if named != place.form(version)
        ]
    return lines


def write(root: Path, version: str) -> list[Path]:
    """Write it everywhere; the files that changed, in order. Raises ValueError for what is no version."""
    changed = set()
    for place in PLACES:
        form = place.form(version) if place.is_semantic else (semantic(version) and version)
        for path in _files(root, place):
            old = path.read_text(encoding="utf-8")
            new = place.pattern.sub(lambda match, form=form: _replaced(match, form), old)  # type: ignore[misc]
            if new != old:
                path.write_text(new, encoding="utf-8")
                changed.add(path)
    return sorted(changed)


def _files(root: Path, place: Place) -> list[Path]:
    """Its files that hold the pattern, in order."""
    paths = {path for pattern in place.paths for path in root.glob(pattern) if path.is_file()}
    return sorted(path for path in paths if place.pattern.search(path.read_text(encoding="utf-8")))


def _replaced(match: re.Match[str], version: str) -> str:
    start, end = match.start(1) - match.start(), match.end(1) - match.start()
    return f"{match[0][:start]}{version}{match[0][end:]}"


def main(arguments: list[str]) -> int:
    """Exit code 1 where something differs, 2 for what is no version."""
    if not arguments:
        lines = differing(ROOT, current())
        print("\n".join(lines) or f"{current()} everywhere")  # noqa: T201 - a program
        return 1 if lines else 0
    try:
        changed = write(ROOT, arguments[0])
    except ValueError as error:
        print(error)  # noqa: T201
        return 2
    print("\n".join(path.relative_to(ROOT).as_posix() for path in changed) or "nothing differed")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
