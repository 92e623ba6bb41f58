"""A node's cgroups are made where this machine has them: in every hierarchy of v1, or in the only one of v2."""

from pathlib import Path

import pytest

from e2e.node import node_keeper

NAME = "gpushare-e2e-0"


@pytest.fixture
def cgroups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /sys/fs/cgroup."""
    monkeypatch.setattr(node_keeper, "CGROUPS", tmp_path)
    return tmp_path


def hierarchy(place: Path, **files: str) -> Path:
    place.mkdir(exist_ok=True)
    for name, text in {"cgroup_procs": "", **files}.items():
        (place / name.replace("_", ".", 1)).write_text(text)
    return place


def test_every_hierarchy_of_v1_has_one_and_its_cpuset_the_machines_cpus(cgroups: Path) -> None:
    memory, together = hierarchy(cgroups / "memory"), hierarchy(cgroups / "cpu,cpuacct")
    (cgroups / "cpu").symlink_to(together)
    cpuset = hierarchy(cgroups / "cpuset", cpuset_cpus="0-1\n", cpuset_mems="0\n")
    hierarchy(cgroups / "pids")
    unified = hierarchy(cgroups / "unified", cgroup_controllers="hugetlb\n", cgroup_subtree_control="")

    places = node_keeper.hierarchies()
    assert places == [together, cpuset, memory, cgroups / "pids", unified]
    assert node_keeper.missing_controllers() == []
    node_keeper.make_cgroups([place / NAME for place in places])
    assert all((place / NAME).is_dir() for place in places)
    assert (cpuset / NAME / "cpuset.cpus").read_text() == "0-1\n"
    assert (cpuset / NAME / "cpuset.mems").read_text() == "0\n"
    assert (unified / "cgroup.subtree_control").read_text() == ""


def test_v2_alone_is_one_hierarchy_that_shares_what_a_kubelet_needs(cgroups: Path) -> None:
    hierarchy(cgroups, cgroup_controllers="cpuset cpu io memory hugetlb pids rdma misc\n", cgroup_subtree_control="")
    # Of systemd's: not hierarchies, though they look like those of v1.
    hierarchy(cgroups / "init.scope")
    hierarchy(cgroups / "system.slice")

    assert node_keeper.hierarchies() == [cgroups]
    assert node_keeper.missing_controllers() == []
    node_keeper.make_cgroups([cgroups / NAME])
    assert (cgroups / NAME).is_dir()
    assert (cgroups / "cgroup.subtree_control").read_text() == "+cpu +cpuset +memory +pids +hugetlb"


def test_a_kernel_without_hugetlb_is_not_asked_for_it(cgroups: Path) -> None:
    hierarchy(cgroups, cgroup_controllers="cpuset cpu memory pids\n", cgroup_subtree_control="")
    assert node_keeper.missing_controllers() == []
    node_keeper.make_cgroups([cgroups / NAME])
    assert (cgroups / "cgroup.subtree_control").read_text() == "+cpu +cpuset +memory +pids"


@pytest.mark.parametrize("controllers", ["cpu io pids\n", ""])
def test_what_is_missing_of_v2_is_named(cgroups: Path, controllers: str) -> None:
    hierarchy(cgroups, cgroup_controllers=controllers)
    hierarchy(cgroups / "memory")
    missing = node_keeper.missing_controllers()
    assert missing == [name for name in ("cpu", "cpuset", "memory", "pids") if name not in controllers.split()]
