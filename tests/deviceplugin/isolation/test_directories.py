"""Directories that isolation makes for containers: for their users alone, gone with the pod, whatever is in them."""

import os
import stat
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from config.settings.isolation import IsolationMechanism
from deviceplugin.isolation import fill
from deviceplugin.isolation.directories import ContainerDirectories, remove_tree
from tests.support.node.container_shares import share_of
from tests.support.node.deep import nested

MECHANISM = IsolationMechanism.model_validate(
    {
        "mounts": [
            {"directory": "container", "containerPath": "/cache"},
            {"directory": "node", "containerPath": "/locks"},
            {"content": "/lib.so\n", "containerPath": "/etc/ld.so.preload"},
            {"hostPath": "/nowhere/at/all", "containerPath": "/host"},
        ]
    }
)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_each_user_of_a_container_may_write_and_nobody_of_the_node_gets_there(tmp_path: Path) -> None:
    state = tmp_path / "isolation"
    ContainerDirectories(state).make(share_of(name="p"), MECHANISM)
    cache, locks, file, _ = (Path(fill.source(mount, share_of(name="p"), str(state))) for mount in MECHANISM.mounts)
    assert (mode(state), mode(cache), mode(locks), mode(file)) == (0o700, 0o1777, 0o1777, 0o644)
    assert file.read_text() == "/lib.so\n"


def test_made_again_what_is_there_stays(tmp_path: Path) -> None:
    made = ContainerDirectories(tmp_path / "isolation")
    made.make(share_of(name="p"), MECHANISM)
    cache = Path(fill.source(MECHANISM.mounts[0], share_of(name="p"), str(tmp_path / "isolation")))
    (cache / "used").touch()
    made.make(share_of(name="p"), MECHANISM)
    assert (cache / "used").exists()


def test_a_file_with_something_else_in_it_is_written_again(tmp_path: Path) -> None:
    """As a loss of power may leave it."""
    made = ContainerDirectories(tmp_path)
    made.make(share_of(name="p"), MECHANISM)
    file = Path(fill.source(MECHANISM.mounts[2], share_of(name="p"), str(tmp_path)))
    for damaged in (b"", b"\xff\xfe"):
        file.write_bytes(damaged)
        made.make(share_of(name="q"), MECHANISM)
        assert file.read_text() == "/lib.so\n"


@pytest.mark.usefixtures("slow_writes")
def test_containers_that_start_at_once_both_get_a_file_of_the_node(tmp_path: Path) -> None:
    mount = {"content": "/lib.so\n", "containerPath": "/etc/ld.so.preload"}
    mechanism = IsolationMechanism.model_validate({"mounts": [mount]})
    made = ContainerDirectories(tmp_path)
    with ThreadPoolExecutor() as threads:
        for starting in [threads.submit(made.make, share_of(name=name), mechanism) for name in ("p", "q")]:
            starting.result()
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert (file.read_text(), mode(file)) == ("/lib.so\n", 0o644)


def test_what_is_kept_for_a_pod_is_removed_with_it(tmp_path: Path) -> None:
    made = ContainerDirectories(tmp_path / "isolation")
    for name in ("p", "q"):
        made.make(share_of(name=name), MECHANISM)
    outside = tmp_path / "outside"
    outside.mkdir()
    cache = Path(fill.source(MECHANISM.mounts[0], share_of(name="p"), str(tmp_path / "isolation")))
    (cache / "link").symlink_to(outside)
    assert made.remove(["uid-p", "uid-unknown", "../node"]) == ["uid-p"]
    assert (made.present(), outside.exists()) == (["uid-q"], True)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    found = share_of()
    with pytest.raises(OSError, match="cannot be the name of a directory"):
        ContainerDirectories(tmp_path).make(replace(found, pod=replace(found.pod, uid="../x")), MECHANISM)


def test_what_a_container_has_nested_too_deep_goes_with_its_pod(tmp_path: Path) -> None:
    made = ContainerDirectories(tmp_path / "isolation")
    made.make(share_of(name="p"), MECHANISM)
    (cache, *_) = (
        Path(fill.source(mount, share_of(name="p"), str(tmp_path / "isolation"))) for mount in MECHANISM.mounts
    )
    with nested(cache, 3000):
        (uid,) = made.present()
        assert made.remove([uid]) == [uid]
        assert made.present() == []


def test_what_cannot_be_removed_of_one_pod_keeps_that_of_no_other(tmp_path: Path) -> None:
    made = ContainerDirectories(tmp_path)
    (tmp_path / "pods" / "b").mkdir(parents=True)
    (tmp_path / "pods" / "a").symlink_to("b")
    with pytest.raises(OSError, match="pods/a"):
        made.remove(["a", "b"])
    assert made.present() == ["a"]


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
