"""The generated documents are what their sources say."""

from pathlib import Path

import pytest

from tests.support.documents.generated import FROM_HERE, GENERATED, current
from tests.support.repository import ROOT


@pytest.mark.parametrize("name", GENERATED)
def test_a_generated_document_is_current(name: str) -> None:
    path = ROOT / name
    assert path.read_text(encoding="utf-8") == current(path, GENERATED[name]), f"{name} is out of date: run `make docs`"


def test_what_is_written_by_hand_above_the_marker_stays(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(f"by hand\n\n{FROM_HERE}: a reason -->\n\nold\n", encoding="utf-8")
    assert current(document, lambda: "new\n") == f"by hand\n\n{FROM_HERE}: a reason -->\n\nnew\n"


def test_a_document_without_the_marker_is_generated_as_a_whole(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    assert current(document, lambda: "new\n") == "new\n"
    document.write_text("old\n", encoding="utf-8")
    assert current(document, lambda: "new\n") == "new\n"
