"""What isolation makes for containers: open to their users and to nobody else, and gone with the pod."""

import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from config.settings.isolation import NONE, IsolationMechanism
from deviceplugin.isolation import fill
from deviceplugin.isolation.directories import ContainerDirectories
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
    ContainerDirectories(state, MECHANISM).make(share_of(name="p"))
    cache, locks, file, _ = (Path(fill.source(mount, share_of(name="p"), str(state))) for mount in MECHANISM.mounts)
    assert (mode(state), mode(cache), mode(locks), mode(file)) == (0o700, 0o1777, 0o1777, 0o644)
    assert file.read_text() == "/lib.so\n"


def test_made_again_what_is_there_stays(tmp_path: Path) -> None:
    made = ContainerDirectories(tmp_path / "isolation", MECHANISM)
    made.make(share_of(name="p"))
    cache = Path(fill.source(MECHANISM.mounts[0], share_of(name="p"), str(tmp_path / "isolation")))
    (cache / "used").touch()
    made.make(share_of(name="p"))
    assert (cache / "used").exists()


def test_a_file_with_something_else_in_it_is_written_again(tmp_path: Path) -> None:
    """As a loss of power may leave it."""
    made = ContainerDirectories(tmp_path, MECHANISM)
    made.make(share_of(name="p"))
    file = Path(fill.source(MECHANISM.mounts[2], share_of(name="p"), str(tmp_path)))
    for damaged in (b"", b"\xff\xfe"):
        file.write_bytes(damaged)
        made.make(share_of(name="q"))
        assert file.read_text() == "/lib.so\n"


@pytest.mark.usefixtures("slow_writes")
def test_containers_that_start_at_once_both_get_a_file_of_the_node(tmp_path: Path) -> None:
    mount = {"content": "/lib.so\n", "containerPath": "/etc/ld.so.preload"}
    mechanism = IsolationMechanism.model_validate({"mounts": [mount]})
    made = ContainerDirectories(tmp_path, mechanism)
    with ThreadPoolExecutor() as threads:
        for starting in [threads.submit(made.make, share_of(name=name)) for name in ("p", "q")]:
            starting.result()
    (file,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert (file.read_text(), mode(file)) == ("/lib.so\n", 0o644)


def test_what_is_kept_for_a_pod_is_removed_with_it(tmp_path: Path) -> None:
    made = ContainerDirectories(tmp_path / "isolation", MECHANISM)
    for name in ("p", "q"):
        made.make(share_of(name=name))
    outside = tmp_path / "outside"
    outside.mkdir()
    cache = Path(fill.source(MECHANISM.mounts[0], share_of(name="p"), str(tmp_path / "isolation")))
    (cache / "link").symlink_to(outside)
    assert made.remove(["uid-p", "uid-unknown", "../node"]) == ["uid-p"]
    assert (made.present(), outside.exists()) == (["uid-q"], True)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    found = share_of()
    with pytest.raises(OSError, match="cannot be the name of a directory"):
        ContainerDirectories(tmp_path, MECHANISM).make(replace(found, pod=replace(found.pod, uid="../x")))


def test_without_isolation_nothing_is_made(tmp_path: Path) -> None:
    made = ContainerDirectories(tmp_path / "isolation", NONE)
    made.make(share_of())
    assert (list(tmp_path.iterdir()), made.present(), made.remove(["uid-p"])) == ([], [], [])


def test_what_a_container_has_nested_too_deep_goes_with_its_pod(tmp_path: Path) -> None:
    made = ContainerDirectories(tmp_path / "isolation", MECHANISM)
    made.make(share_of(name="p"))
    (cache, *_) = (
        Path(fill.source(mount, share_of(name="p"), str(tmp_path / "isolation"))) for mount in MECHANISM.mounts
    )
    with nested(cache, 3000):
        (uid,) = made.present()
        assert made.remove([uid]) == [uid]
        assert made.present() == []


def test_what_cannot_be_removed_of_one_pod_keeps_that_of_no_other(tmp_path: Path) -> None:
    made = ContainerDirectories(tmp_path, MECHANISM)
    (tmp_path / "pods" / "b").mkdir(parents=True)
    (tmp_path / "pods" / "a").symlink_to("b")
    with pytest.raises(OSError, match="pods/a"):
        made.remove(["a", "b"])
    assert made.present() == ["a"]
