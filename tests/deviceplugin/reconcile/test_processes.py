"""Processes are traced to pods by the host's /proc."""

import os
from pathlib import Path

import pytest

from deviceplugin.reconcile.reconciler import owners
from deviceplugin.reconcile.usage import Owner

UID = "0a1b2c3d-0000-4000-8000-00000000000a"
CONTAINER = "c" * 64


def process(proc: Path, pid: int, cgroup: str) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cgroup").write_text(f"0::{cgroup}\n")


def test_a_process_is_traced_to_its_pod_or_to_none(tmp_path: Path) -> None:
    process(tmp_path, 11, f"/kubepods/burstable/pod{UID}/{CONTAINER}")
    process(tmp_path, 12, "/user.slice/user-1000.slice/session-3.scope")
    assert owners(tmp_path, [11, 12]) == {11: Owner(UID, CONTAINER), 12: None}


def test_a_process_that_has_ended_is_left_out(tmp_path: Path) -> None:
    process(tmp_path, 11, "/")
    assert owners(tmp_path, [11, 99]) == {11: None}


def test_a_cgroup_that_is_not_utf8_is_traced_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "11").mkdir()
    (tmp_path / "11" / "cgroup").write_bytes(f"0::/kubepods/pod{UID}/".encode() + b"\xff\n")
    assert owners(tmp_path, [11]) == {11: Owner(UID, "")}


def test_this_machines_own_proc_can_be_read() -> None:
    assert set(owners(Path("/proc"), [os.getpid()])) == {os.getpid()}


def test_a_missing_proc_is_an_error_and_not_the_end_of_every_process(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError, match="expected the host's /proc"):
        owners(tmp_path / "missing", [11])
