"""Files of the plugin's: replaced whole, with nothing beside them, and one instance per node that locks one."""

import os
from pathlib import Path

import pytest

from deviceplugin.files import replace_file
from deviceplugin.lock import AlreadyRunning, InstanceLock, LockUnknown


def test_each_text_is_there_with_nothing_beside_it_whatever_the_files_are_called(tmp_path: Path) -> None:
    names = ["journal.json", "GPU.tmp", "GPU.1", "plain"]
    for text in (b"first", b"second, and longer"):
        for name in names:
            replace_file(tmp_path / name, text)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys(names, text)


def test_a_text_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "file.json"
    replace_file(file, b"old")
    (tmp_path / ".file.json.tmp").mkdir()
    with pytest.raises(OSError, match="directory"):
        replace_file(file, b"new")
    assert file.read_bytes() == b"old"


def test_a_second_instance_is_told_who_runs(tmp_path: Path) -> None:
    with (
        InstanceLock(tmp_path / "state"),
        pytest.raises(AlreadyRunning, match=rf"another instance \(pid {os.getpid()}\)"),
        InstanceLock(tmp_path / "state"),
    ):
        pass


def test_the_next_instance_takes_it_when_the_first_is_gone(tmp_path: Path) -> None:
    for _ in range(2):
        with InstanceLock(tmp_path):
            assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"


def test_a_full_disk_does_not_prevent_the_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to("/dev/full")
    with InstanceLock(tmp_path), pytest.raises(AlreadyRunning), InstanceLock(tmp_path):
        pass


def test_a_directory_that_cannot_be_used_is_reported_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(LockUnknown, match="choose another directory"), InstanceLock(tmp_path / "state"):
        pass
    (tmp_path / "lock").mkdir()
    with pytest.raises(LockUnknown, match="cannot be locked: Is a directory"), InstanceLock(tmp_path):
        pass


def test_a_lock_on_a_file_that_was_removed_is_nobodys(tmp_path: Path) -> None:
    lock = InstanceLock(tmp_path)
    with lock:
        (tmp_path / "lock").unlink()
        with InstanceLock(tmp_path), pytest.raises(AlreadyRunning), InstanceLock(tmp_path):
            pass
