"""The node of our own: pods run on it, and nothing of it stays."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.control_plane.admin import Access, Admin
from e2e.control_plane.processes import Died
from e2e.control_plane.provider import ExistingCluster
from e2e.node.local_node import LocalNode
from e2e.node.node_pods import PODS, bind, busybox, pod, running, runs
from e2e.node.node_programs import NodeUnavailable, require
from e2e.support.traces import gone, left_of, mount_namespace, settings, shared_folders
from tests.support.repository import ROOT

_BOOT_ID = "/proc/sys/kernel/random/boot_id"
COLOURED = busybox("echo out; echo err >&2", env=[{"name": "COLOUR", "value": "red = or blue"}])


def read_access(kubeconfig: Path) -> Access:
    with ExistingCluster(kubeconfig, "e2e") as same:
        return same.access()


async def run_pod(kubeconfig: Path, node: str) -> None:
    """Start a pod that stays."""
    access = await asyncio.to_thread(read_access, kubeconfig)
    async with Admin(access) as admin:
        await admin.create(PODS, pod("orphan"))
        await bind(admin, "orphan", node)
        await runs(admin, "orphan")


def boot_of_the_machine() -> str:
    return Path(_BOOT_ID).read_text()


async def test_a_pod_that_a_binding_put_on_the_node_runs_and_can_be_read_from_within(
    node: LocalNode, on_node: Admin
) -> None:
    async with running(on_node, node.name, pod("plain", [COLOURED])) as found:
        container = node.container(found)
        assert container.environment()["COLOUR"] == "red = or blue"
        assert container.execute("sh", "-c", "echo $COLOUR; ls /bin/sh").split("\n") == ["red = or blue", "/bin/sh", ""]
        assert sorted(container.output().split()) == ["err", "out"]


def test_a_program_of_the_node_gets_sigterm_as_any_other(node: LocalNode) -> None:
    script = "import signal, sys; signal.signal(15, lambda *_: sys.exit(3)); print('up', flush=True); signal.pause()"
    program = node.enter("polite", [sys.executable, "-c", script], {"PYTHONPATH": str(ROOT)})
    while "up" not in program.log.read_text():
        program.check_alive()
    program.stop()
    assert program.process.returncode == 3


async def test_nothing_is_left_after_the_end_and_the_machine_was_never_changed(node: LocalNode, on_node: Admin) -> None:
    before = (settings(), shared_folders())
    with LocalNode(node.cluster, "n3") as passing:
        namespace = mount_namespace(passing.pids["kubelet"])
        async with running(on_node, "n3", pod("passing")) as found:
            assert len(left_of(passing.folder, namespace)) > len(["folder", "keeper", "kubelet", "containerd", "shim"])
            assert (settings(), shared_folders()) == before
            assert passing.container(found).pid
            passing.stop_kubelet()
    assert left_of(passing.folder, namespace) == []
    assert (settings(), shared_folders()) == before


async def test_a_reboot_ends_what_runs_and_empties_run_and_the_node_is_ready_again(node: LocalNode) -> None:
    with LocalNode(node.cluster, "n6") as rebooting:
        boot = rebooting.run("cat", _BOOT_ID)
        rebooting.run("/bin/sh", "-c", "touch /run/forgotten /var/lib/kept && mount -t tmpfs none /mnt")
        program = rebooting.enter(
            "passing", [sys.executable, "-c", "import signal; print('up', flush=True); signal.pause()"]
        )
        while "up" not in program.log.read_text():
            program.check_alive()

        rebooting.reboot()

        assert program.process.returncode == -signal.SIGKILL
        assert rebooting.run("/bin/sh", "-c", "ls /run/forgotten /var/lib/kept 2>/dev/null; true") == "/var/lib/kept\n"
        assert " /mnt " not in rebooting.run("cat", "/proc/self/mounts")
        assert rebooting.run("cat", _BOOT_ID) not in {boot, boot_of_the_machine()}
        async with Admin(node.cluster.access()) as admin, running(admin, "n6", pod("after-a-reboot")) as found:
            assert rebooting.container(found).pid


NODE_UP = """
import signal
from e2e.control_plane.cluster import ControlPlane
from e2e.node.local_node import LocalNode

with ControlPlane() as plane, LocalNode(plane, "n4") as node:
    print(plane.kubeconfig_path())
    print(node.folder, flush=True)
    signal.pause()
"""


@pytest.mark.usefixtures("node_ready")
def test_nothing_is_left_when_the_process_that_started_it_is_killed() -> None:
    before = (settings(), shared_folders())
    up = [sys.executable, "-c", NODE_UP]
    with subprocess.Popen(up, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            kubeconfig, folder = (Path(process.stdout.readline().strip()) for _ in range(2))
            asyncio.run(run_pod(kubeconfig, "n4"))
            (shim,) = (line for line in left_of(folder) if "containerd-shim" in line)
            namespace = mount_namespace(int(shim.split()[0]))
        finally:
            process.kill()
    assert gone(folder, namespace) == []
    assert (settings(), shared_folders()) == before


def test_a_start_that_fails_says_why_and_leaves_nothing(node: LocalNode) -> None:
    failing = LocalNode(node.cluster, "n5", kubelet={"cgroupRoot": "/absent"})
    with pytest.raises(Died, match=r"(?s)kubelet ended with exit code 1.*absent.*missing"), failing:
        pytest.fail("it started")
    assert left_of(failing.folder) == []


def test_what_the_machine_lacks_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NodeUnavailable, match=r"^no node of our own on this machine: [^\n]+$"):
        require()


@pytest.mark.parametrize(
    ("environment", "outcome"),
    [pytest.param({}, "1 skipped", id="by hand"), pytest.param({"CI": "true"}, "1 error", id="CI")],
)
def test_tests_on_a_node_that_cannot_be_had_are_skipped_by_hand_and_fail_in_ci(
    environment: dict[str, str], outcome: str
) -> None:
    test = f"{__file__}::{test_a_program_of_the_node_gets_sigterm_as_any_other.__name__}"
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    answer = subprocess.run(run, cwd=ROOT, env={"PATH": "", **environment}, capture_output=True, text=True, check=False)
    assert outcome in answer.stdout
    assert "no node of our own on this machine: " in answer.stdout
