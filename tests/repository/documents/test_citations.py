"""What the code cites is there: a document of this repository, and the heading in it."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.support.repository import ROOT

SUFFIXES: Final = {".py", ".md", ".yaml", ".toml"}
NOT_OURS: Final = {".git", ".venv", "build", "dist", "__pycache__"}
# Written for those who built this, and kept outside: nobody who reads the code has them. Split, to name none here.
OUTSIDE: Final = re.compile(
    "|".join((r"(?<!_)\bPROT" + r"OCOL\b", r"\bDES" + r"IGN\b", r"\bPACK" + r"ING\b", r"\bKUBER" + r"NETES\b"))
)
# `docs/develop/protocol.md, "Inventory"`, the two maybe on two lines of a comment.
CITATION: Final = re.compile(r"\b(docs/[\w/-]+\.md)(?:`?,\s+(?:#\s+)?\"([^\"\n]+)\")?")
HEADING: Final = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def cited(text: str) -> Iterator[tuple[str, str]]:
    """(document, heading), "" where the document as a whole is cited."""
    return ((match[1], match[2] or "") for match in CITATION.finditer(text))


def missing(text: str, documents: Mapping[str, frozenset[str]]) -> list[str]:
    """What `text` cites and `documents` (path -> its headings) do not have."""
    return [
        f"{document}, {heading!r}" if document in documents else document
        for document, heading in cited(text)
        if document not in documents or (heading and heading not in documents[document])
    ]


def files() -> list[Path]:
    found = (path for path in ROOT.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    return sorted(path for path in found if not NOT_OURS & set(path.relative_to(ROOT).parts))


DOCUMENTS: Final = {
    path.relative_to(ROOT).as_posix(): frozenset(HEADING.findall(path.read_text(encoding="utf-8")))
    for path in sorted((ROOT / "docs").rglob("*.md"))
}


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        pytest.param('Source: docs/a.md, "One".', [], id="a heading that is there"),
        pytest.param('# See docs/a.md,\n# "One".', [], id="a heading on the next line of a comment"),
        pytest.param('Source: docs/a.md, "Two".', ["docs/a.md, 'Two'"], id="a heading that is not there"),
        pytest.param("`docs/b.md` is its guide.", ["docs/b.md"], id="a document that is not there"),
    ],
)
def test_a_citation_of_what_is_not_there_is_found(text: str, lacks: list[str]) -> None:
    assert missing(text, {"docs/a.md": frozenset({"One"})}) == lacks


def test_every_document_and_heading_that_code_cites_exists() -> None:
    assert DOCUMENTS
    lacking = {
        path.relative_to(ROOT).as_posix(): found
        for path in files()
        if path.suffix == ".py" and path != Path(__file__) and (found := missing(path.read_text("utf-8"), DOCUMENTS))
    }
    assert lacking == {}


def test_no_file_cites_a_document_outside_the_repository() -> None:
    citing = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if OUTSIDE.search(line)
    ]
    assert citing == []
