"""Directories of containers are removed whatever is in them, and nothing beside them."""

import os
import tracemalloc
from pathlib import Path
from typing import Final

import pytest

from deviceplugin.isolation.directories import remove_tree
from tests.support.node.deep import nested

DEEPER_THAN_CALLS_AND_PATHS: Final = 5000
MANY: Final = 3000
# Bytes: what is known of 256 directories.
MOST_HELD: Final = 500_000


def test_a_directory_goes_with_all_that_is_in_it(tmp_path: Path) -> None:
    for path in ("a/b/c", "a/d", "e"):
        (tmp_path / "top" / path).mkdir(parents=True)
        (tmp_path / "top" / path / "file").touch()
    os.mkfifo(tmp_path / "top" / "pipe")
    remove_tree(tmp_path / "top")
    assert list(tmp_path.iterdir()) == []


def test_no_depth_is_too_deep(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    with nested(tmp_path / "top", DEEPER_THAN_CALLS_AND_PATHS):
        remove_tree(tmp_path / "top")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("levels", [0, 16])
def test_what_a_removal_holds_in_memory_does_not_grow_with_what_there_is(tmp_path: Path, levels: int) -> None:
    (tmp_path / "top").mkdir()
    with nested(tmp_path / "top", levels, name="x" * 250, innermost=MANY):
        tracemalloc.start()
        try:
            remove_tree(tmp_path / "top")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert list(tmp_path.iterdir()) == []
    assert peak < MOST_HELD


def test_links_go_and_what_they_lead_to_stays(tmp_path: Path) -> None:
    (tmp_path / "top" / "in").mkdir(parents=True)
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "file").touch()
    for where in ("top", "top/in"):
        (tmp_path / where / "link").symlink_to(tmp_path / "others")
        (tmp_path / where / "nowhere").symlink_to("none")
    remove_tree(tmp_path / "top")
    assert [path.name for path in tmp_path.rglob("*")] == ["others", "file"]


def test_a_link_in_the_place_of_the_directory_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "file").touch()
    (tmp_path / "link").symlink_to("others")
    with pytest.raises(OSError, match="link"):
        remove_tree(tmp_path / "link")
    assert (tmp_path / "others" / "file").exists()


@pytest.mark.parametrize("path", ["file", "a/file", "a/b/file", "a/b/c/file"])
def test_what_cannot_be_removed_is_named_by_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """As a directory of another user's does, for root without CAP_DAC_OVERRIDE."""
    found = tmp_path / "top" / path
    found.parent.mkdir(parents=True)
    found.touch()
    unlink = os.unlink

    def refused(name: str, *, dir_fd: int | None = None) -> None:
        if name == "file":
            raise PermissionError(13, "Permission denied", name)
        unlink(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", refused)
    with pytest.raises(PermissionError) as failed:
        remove_tree(tmp_path / "top")
    assert (failed.value.filename, failed.value.strerror) == (str(found), "Permission denied")
