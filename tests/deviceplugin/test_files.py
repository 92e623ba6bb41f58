"""A file that is replaced is never half there, and nothing stays beside it."""

from pathlib import Path

import pytest

from deviceplugin.files import replace_file


@pytest.mark.parametrize("name", ["journal.json", "GPU.1", "GPU.tmp", "plain"])
def test_the_text_is_there_and_nothing_beside_it(tmp_path: Path, name: str) -> None:
    for text in (b"first", b"second, and longer"):
        replace_file(tmp_path / name, text)
        assert (tmp_path / name).read_bytes() == text
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_who_has_it_open_goes_on_reading_the_old_text(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    replace_file(file, b"old")
    with file.open("rb") as reader:
        replace_file(file, b"new")
        assert reader.read() == b"old"


def test_a_text_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    replace_file(file, b"old")
    (tmp_path / ".file.json.tmp").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(file, b"new")
    assert file.read_bytes() == b"old"
