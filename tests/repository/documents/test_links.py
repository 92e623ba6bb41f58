"""Links in documents lead to files of the repository, and to headings in them. The build of the site checks more."""

import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tests.support.documents.anchors import FENCED, anchors
from tests.support.documents.documents_site import documents
from tests.support.repository import ROOT

LINK: Final = re.compile(r"\]\((?!\w+:)([^)\s#]*)(?:#([^)\s]*))?\)")
IN_CODE: Final = re.compile(r"`[^`\n]+`")
DOCUMENTS: Final = [path for path in documents(ROOT) if path.suffix == ".md"]


@cache
def anchors_of(document: Path) -> frozenset[str]:
    return frozenset(anchors(document.read_text(encoding="utf-8")))


def broken(document: Path) -> list[str]:
    """Links to a missing file, or to a missing heading of a document."""
    text = IN_CODE.sub("", FENCED.sub("", document.read_text(encoding="utf-8")))
    return [f"{name}#{anchor}" for name, anchor in LINK.findall(text) if not _leads(document, name, anchor)]


def _leads(document: Path, name: str, anchor: str) -> bool:
    target = (document.parent / name).resolve() if name else document
    return target.exists() and (not anchor or target.suffix != ".md" or anchor in anchors_of(target))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(document: Path) -> None:
    assert broken(document) == []


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("# A `heading`: more\n\n```sh\n# a comment\n```\n", encoding="utf-8")
    document = tmp_path / "a.md"
    right = "# Here\n[a](#here) [b](b.md#a-heading-more) [c](b.md) [d](https://x/#y) `[e](none.md)`\n"
    document.write_text(f"{right}[f](none.md) [g](b.md#none)\n[h](b.md#a-comment) [i](#none)\n", encoding="utf-8")
    assert broken(document) == ["none.md#", "b.md#none", "b.md#a-comment", "#none"]
