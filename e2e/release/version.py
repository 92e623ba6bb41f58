"""The version of pyproject.toml, and every other place that names it, checked and rewritten.

    python -m e2e.release.version          list the places that differ
    python -m e2e.release.version 0.2.0    write it everywhere (`make version VERSION=0.2.0`)

One form everywhere: Semantic Versioning, which helm and krew require and Python's packages read too.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

FILES: Final = ("pyproject.toml", "README.md", "deploy/**/*", "docs/**/*", "e2e/kind/**/*")
_FORM: Final = r"\d+\.\d+\.\d+(?:-(?:dev|a|b|rc)\.\d+)?"
_PLACE: Final = re.compile(
    r'(^version = "|^version: |^appVersion: "|^ARG VERSION=|^  version: v|/kubectl-gpushare-v|\bgpushare-scheduler:)'
    rf"({_FORM})",
    re.MULTILINE,
)


def current(root: Path = ROOT) -> str:
    """The version in pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    version: str = project["project"]["version"]
    return version


def found(root: Path) -> Iterator[tuple[Path, set[str]]]:
    """Each file that names a version, and the versions that it names, in order."""
    for path in sorted({path for pattern in FILES for path in root.glob(pattern) if path.is_file()}):
        if named := {match[2] for match in _PLACE.finditer(path.read_text(encoding="utf-8"))}:
            yield path, named


def differing(root: Path, version: str) -> list[str]:
    """A line for each file that names another version."""
    return [
        f"{path.relative_to(root)}: {', '.join(sorted(named - {version}))}, not {version}"
        for path, named in found(root)
        if named != {version}
    ]


def write(root: Path, version: str) -> list[str]:
    """Write it everywhere; return the files that changed. Raises ValueError for an invalid version."""
    if not re.fullmatch(_FORM, version):
        message = f"{version}: not a version such as 0.2.0 or 0.2.0-rc.1"
        raise ValueError(message)
    changed = [path for path, named in found(root) if named != {version}]
    for path in changed:
        text = _PLACE.sub(rf"\g<1>{version}", path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")
    return [path.relative_to(root).as_posix() for path in changed]


def main(arguments: list[str]) -> int:
    """Exit code 1 where something differs, 2 for an invalid version."""
    try:
        lines = write(ROOT, arguments[0]) if arguments else differing(ROOT, current())
    except ValueError as error:
        print(error)  # noqa: T201 - a program
        return 2
    print("\n".join(lines) or f"{current()} everywhere")  # noqa: T201
    return int(bool(lines) and not arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
