"""One instance per node."""

import os
from pathlib import Path

import pytest

from deviceplugin.lock import AlreadyRunning, InstanceLock


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
