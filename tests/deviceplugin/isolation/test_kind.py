"""The isolation kind of a node: what `auto` chooses, and that it changes only while no pod has GPU memory."""

from pathlib import Path

import pytest

from config.settings.deviceplugin import Mps
from config.settings.isolation import NONE, mps
from deviceplugin.isolation.kind import FILE, KindFile, NodeKind
from tests.support.node.isolating import kind_of

WITH_MPS = {"driver": NONE, "none": NONE, "mps": mps(Mps())}


def settled(kind: NodeKind, *, limits: bool = False, possible: bool = False, holders: int = 0) -> str:
    kind.settle(limits=limits, possible=possible, holders=holders)
    return kind.now


def test_auto_takes_the_driver_where_it_enforces_and_the_fallback_elsewhere(tmp_path: Path) -> None:
    assert settled(kind_of(tmp_path / "a", "auto", WITH_MPS, "mps"), limits=True) == "driver"
    assert settled(kind_of(tmp_path / "b", "auto", WITH_MPS, "mps"), possible=True) == "mps"
    assert settled(kind_of(tmp_path / "c", "auto")) == "none"


def test_auto_is_undecided_until_the_node_is_known(tmp_path: Path) -> None:
    made = kind_of(tmp_path, "auto", WITH_MPS, "mps")
    assert (made.now, made.mechanism, made.of_card(), made.may_be_mps) == ("", NONE, "", True)


def test_pods_of_unknown_containers_keep_the_fallback_until_they_have_ended(tmp_path: Path) -> None:
    made = kind_of(tmp_path, "auto")
    assert settled(made, limits=True, holders=2) == "none"
    waiting = "isolation driver is supported; the node keeps none until its 2 pods with GPU memory have ended"
    assert made.problem == waiting
    assert (settled(made, limits=True), made.problem) == ("driver", "")


def test_a_node_does_not_leave_the_driver_for_a_spec_that_is_being_written(tmp_path: Path) -> None:
    made = kind_of(tmp_path, "auto", WITH_MPS, "mps")
    settled(made, limits=True, possible=True)
    assert settled(made, limits=False, possible=True) == "driver"
    assert settled(made, limits=False, possible=False) == "mps"


def test_the_next_plugin_keeps_the_kind_while_pods_have_gpu_memory(tmp_path: Path) -> None:
    settled(kind_of(tmp_path, "mps", WITH_MPS))
    after = kind_of(tmp_path, "driver", WITH_MPS)
    assert (settled(after, limits=True, holders=1), after.mechanism.preparation) == ("mps", "mps")
    told = "isolation driver is configured; the node keeps mps until its pod with GPU memory has ended"
    assert after.problem == told
    assert (settled(after, limits=True), after.problem, KindFile(tmp_path).load()) == ("driver", "", "driver")


def test_a_configured_kind_is_taken_at_once_where_none_is_known(tmp_path: Path) -> None:
    assert kind_of(tmp_path, "driver").now == "driver"
    assert KindFile(tmp_path).load() == "driver"


def test_a_kept_kind_that_can_no_longer_be_provided_is_given_up_at_once(tmp_path: Path) -> None:
    KindFile(tmp_path).save("/etc/gone.yaml")
    assert kind_of(tmp_path, "none").now == "none"


@pytest.mark.parametrize("text", [b"", b"[]", b"\xff", b'{"version":2,"kind":"mps"}', b'{"version":1}'])
def test_a_file_that_cannot_be_read_counts_as_missing(tmp_path: Path, text: bytes) -> None:
    (tmp_path / FILE).write_bytes(text)
    assert KindFile(tmp_path).load() == ""


def test_a_kind_that_cannot_be_kept_holds_for_this_plugin(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert kind_of(tmp_path / "file" / "state", "driver").now == "driver"


@pytest.mark.parametrize(
    ("kind", "word"), [("none", ""), ("driver", "driver"), ("mps", "mps"), ("hami-core", "hami-core"), ("/a", "own")]
)
def test_the_inventory_names_what_enforces(tmp_path: Path, kind: str, word: str) -> None:
    assert kind_of(tmp_path, kind, {kind: NONE}).of_card() == word
