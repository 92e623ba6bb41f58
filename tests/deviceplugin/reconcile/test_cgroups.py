"""The cgroup of a process, read in the host's /proc, tells its pod under every driver and runtime."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.reconcile.cgroup_files import container_cgroups, owners
from deviceplugin.reconcile.cgroups import Owner, owner_of

UID = "0aa4a3c2-9a5e-4a0b-b0d5-6f1b8f4f2c11"
SYSTEMD_UID = UID.replace("-", "_")
STATIC_UID = "c2a3b1a0d4e5f60718293a4b5c6d7e8f"
ID = "3f" * 32
KUBELET_SLICE = "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice"
IN_V1 = f"""\
12:cpu,cpuacct:/kubepods/burstable/pod{UID}/{ID}
4:memory:/kubepods/burstable/pod{UID}/{ID}
1:name=systemd:/kubepods/burstable/pod{UID}/{ID}
0::/
"""


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        pytest.param(IN_V1, Owner(UID, ID), id="v1, cgroupfs"),
        pytest.param(f"0::/kubepods/besteffort/pod{UID}/{ID}\n", Owner(UID, ID), id="v2, cgroupfs"),
        pytest.param(f"0::/kubepods/pod{UID}/{ID}", Owner(UID, ID), id="Guaranteed"),
        pytest.param(
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SYSTEMD_UID}.slice/"
            f"cri-containerd-{ID}.scope\n",
            Owner(UID, ID),
            id="v2, systemd, containerd",
        ),
        pytest.param(
            f"0::/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/crio-{ID}.scope/container\n",
            Owner(UID, ID),
            id="v2, systemd, CRI-O with crun",
        ),
        pytest.param(
            f"9:memory:/kubepods.slice/kubepods-pod{SYSTEMD_UID}.slice/docker-{ID}.scope\n",
            Owner(UID, ID),
            id="v1, systemd, docker",
        ),
        pytest.param(
            f"0::/system.slice/containerd.service/kubepods-burstable-pod{SYSTEMD_UID}.slice:cri-containerd:{ID}\n",
            Owner(UID, ID),
            id="runtime without the systemd driver",
        ),
        pytest.param(
            f"0::{KUBELET_SLICE}/kubelet-kubepods-burstable-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope\n",
            Owner(UID, ID),
            id="a cgroup root of the kubelet's own",
        ),
        pytest.param(f"0::/../../pod{UID}/{ID}\n", Owner(UID, ID), id="seen from another pod's cgroup namespace"),
        pytest.param(f"0::/n1/kubepods/burstable/pod{STATIC_UID}/{ID}\n", Owner(STATIC_UID, ID), id="a static pod"),
        pytest.param(f"0::/kubepods/pod{UID}\n", Owner(UID, ""), id="the pod's own cgroup"),
        pytest.param(f"0::/kubepods/pod{UID}/crio-conmon-x\n", Owner(UID, ""), id="no container's name"),
        pytest.param("0::/user.slice/user-1000.slice/session-2.scope\n", None, id="a login"),
        pytest.param("0::/system.slice/nvidia-persistenced.service\n", None, id="a service"),
        pytest.param(f"0::/machine.slice/libpod-{ID}.scope\n", None, id="podman"),
        pytest.param(f"0::/docker/{ID}\n", None, id="docker without Kubernetes"),
        pytest.param("0::/kubepods/podcast/x\n", None, id="no UID"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_a_cgroup_names_the_pod(text: str, owner: Owner | None) -> None:
    assert owner_of(text) == owner


def test_a_container_cannot_pass_for_another_pods_by_cgroups_of_its_own() -> None:
    other = UID.replace("0", "9")
    assert owner_of(f"0::/kubepods/pod{UID}/{ID}/kubepods/pod{other}/{ID}\n") == Owner(UID, ID)


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    owner = owner_of(text)
    assert owner is None or owner.pod_uid


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


def tree(root: Path, *cgroups: str) -> Path:
    """Make a cgroup v2 tree with these cgroups."""
    root.mkdir(exist_ok=True)
    (root / "cgroup.controllers").write_text("cpu memory dmem\n")
    for cgroup in cgroups:
        (root / cgroup).mkdir(parents=True, exist_ok=True)
        (root / cgroup / "cgroup.procs").write_text("")
    return root


PODS = "kubepods.slice/kubepods-burstable.slice"


@pytest.mark.parametrize(
    ("cgroup", "own"),
    [
        pytest.param(f"kubepods/burstable/pod{UID}/{ID}", "", id="cgroupfs"),
        pytest.param(f"kubepods/pod{UID}/{ID}", "", id="Guaranteed"),
        pytest.param(f"{PODS}/kubepods-burstable-pod{SYSTEMD_UID}.slice/cri-containerd-{ID}.scope", "", id="systemd"),
        pytest.param(
            f"{PODS}/kubepods-burstable-pod{SYSTEMD_UID}.slice/crio-{ID}.scope", "/container", id="CRI-O with crun"
        ),
        pytest.param(
            f"system.slice/containerd.service/kubepods-burstable-pod{SYSTEMD_UID}.slice:cri-containerd:{ID}",
            "",
            id="runtime without the systemd driver",
        ),
        pytest.param(f"a/b/c/kubepods/burstable/pod{UID}/{ID}", "", id="a cgroup root of the kubelet's own"),
    ],
)
def test_the_cgroup_of_a_container_is_found_under_every_driver(tmp_path: Path, cgroup: str, own: str) -> None:
    root = tree(tmp_path / "cgroup", cgroup + own)
    assert container_cgroups(root) == {Owner(UID, ID): f"{root}/{cgroup}{own}"}


def test_a_container_cannot_add_containers_below_its_own_cgroup(tmp_path: Path) -> None:
    other = UID.replace("0", "9")
    own = f"kubepods/pod{UID}/{ID}"
    root = tree(tmp_path / "cgroup", f"{own}/pod{other}/{ID}", f"docker/{ID}/pod{other}/{ID}", f"{own}/{CONTAINER}")
    assert container_cgroups(root) == {Owner(UID, ID): f"{root}/{own}"}


def test_cgroups_of_users_and_of_the_system_are_no_containers(tmp_path: Path) -> None:
    users = f"user.slice/user-1000.slice/pod{UID}/{ID}"
    root = tree(tmp_path / "cgroup", users, "system.slice/ssh.service", f"kubepods/pod{UID}/not-a-container")
    assert container_cgroups(root) == {}


def test_a_cgroup_with_any_name_does_not_end_the_search(tmp_path: Path) -> None:
    own = f"kubepods/pod{UID}/{ID}"
    not_utf8 = os.fsdecode(b"\xff")
    root = tree(tmp_path / "cgroup", own, f"kubepods/{not_utf8}", f"{not_utf8}/pod{UID}/{ID}")
    found = container_cgroups(root)
    assert found == {Owner(UID, ID): f"{root}/{own}"}
    assert [path.encode() for path in found.values()]


def test_many_and_deep_cgroups_end_the_search(tmp_path: Path) -> None:
    root = tree(tmp_path / "cgroup", "/".join("abcdefghijkl") + f"/pod{UID}/{ID}", f"kubepods/pod{UID}/{CONTAINER}")
    assert container_cgroups(root) == {Owner(UID, CONTAINER): f"{root}/kubepods/pod{UID}/{CONTAINER}"}


def test_a_host_without_cgroup_v2_has_no_containers(tmp_path: Path) -> None:
    (tmp_path / "memory" / "kubepods" / f"pod{UID}" / ID).mkdir(parents=True)
    assert container_cgroups(tmp_path) == {}
    assert container_cgroups(tmp_path / "missing") == {}
