"""The documents as a site, in `build/site/html`: `make docs-site`.

    python -m tests.support.documents.documents_site

mkdocs reads one folder, but the documents are in several, next to files that they link to. So mkdocs gets a copy of
them with the same paths: links that work on a git host work on the site. A broken link ends the build.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

CONFIGURATION: Final = "docs/site/mkdocs.yaml"
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_SEVERAL: Final = re.compile(r"^( *)- (\S*\*\S*)$", re.MULTILINE)
# The theme authors' remarks about versions that are not installed here.
_QUIET: Final = {"NO_MKDOCS_2_WARNING": "1"}


class SiteFailed(Exception):
    """mkdocs found an error; the message is its output."""


def build(root: Path, folder: Path) -> Path:
    """Build the site of the repository `root` in `folder` from scratch. Return its pages' folder. Raises SiteFailed."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in documents(root):
        copied = folder / "sources" / path.relative_to(root)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copied)
    (folder / "mkdocs.yaml").write_text(_configuration(root), encoding="utf-8")
    done = subprocess.run(
        # Not `--quiet`: it would also hide warnings from the count.
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(folder / "mkdocs.yaml")],
        env=os.environ | _QUIET,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).splitlines()
        raise SiteFailed("\n".join(line for line in lines if not line.startswith("INFO")))
    return folder / "html"


def documents(root: Path) -> list[Path]:
    """Return all files below `docs`, those that the configuration names, and those that these link to, in order."""
    named = [root / name for name in re.findall(r"\S+\.md$", _configuration(root), re.MULTILINE)]
    waiting = {
        *(path for path in (root / "docs").rglob("*") if path.is_file()),
        *(one for one in named if one.exists()),
    }
    waiting.discard(root / CONFIGURATION)
    found: set[Path] = set()
    while waiting:
        path = waiting.pop()
        found.add(path)
        waiting |= {*_linked(root, path)} - found
    return sorted(found)


def _linked(root: Path, document: Path) -> Iterator[Path]:
    """Yield the repository files that a document links to."""
    if document.suffix == ".md":
        for target in _LINK.findall(document.read_text(encoding="utf-8")):
            path = (document.parent / target.partition("#")[0]).resolve()
            if path.is_file() and path.is_relative_to(root):
                yield path


def _configuration(root: Path) -> str:
    """Return the configuration with existing files in place of each line with a `*`, and with the two folders."""

    def listed(line: re.Match[str]) -> str:
        return "\n".join(f"{line[1]}- {path.relative_to(root)}" for path in sorted(root.glob(line[2])))

    text = (root / CONFIGURATION).read_text(encoding="utf-8")
    return f"{_SEVERAL.sub(listed, text)}docs_dir: sources\nsite_dir: html\n"


def main() -> int:
    """Build the site. Return exit code 1 if something is wrong with the documents."""
    try:
        pages = build(ROOT, ROOT / "build" / "site")
    except SiteFailed as error:
        print(error)  # noqa: T201 - a program
        return 1
    print(f"the documents: {(pages / 'index.html').relative_to(ROOT)}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
