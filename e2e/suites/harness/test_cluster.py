"""The control plane of our own: nothing of it stays, however it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Died, free_ports, start
from tests.support.repository import ROOT


def servers_of(folder: Path) -> set[int]:
    """Pids of the processes whose command line names the folder."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command_line = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if os.fsencode(folder) in command_line:
                found.add(int(entry.name))
    return found


def gone(folder: Path, *, within_s: float = 20.0) -> bool:
    """True once there is neither the folder nor a process of it."""
    give_up_at_s = time.monotonic() + within_s
    while folder.exists() or servers_of(folder):
        if time.monotonic() > give_up_at_s:
            return False
        time.sleep(0.05)
    return True


async def test_nodes_are_created_in_bulk_and_listed_page_by_page(admin: Admin) -> None:
    nodes = [{"metadata": {"name": f"bulk-{number}"}} for number in range(1_100)]
    await admin.create_all("/api/v1/nodes", nodes)

    names = {node["metadata"]["name"] for node in await admin.items("/api/v1/nodes")}

    await admin.delete("/api/v1/nodes")
    assert names == {node["metadata"]["name"] for node in nodes}


def test_nothing_is_left_after_the_end() -> None:
    with ControlPlane() as cluster:
        running = set(cluster.pids.values())
        seen = servers_of(cluster.folder)
    assert running <= seen
    assert not cluster.folder.exists()
    assert not servers_of(cluster.folder)


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_process_that_started_it_is_ended(end: signal.Signals) -> None:
    up = [sys.executable, "-m", "e2e.control_plane.cluster", "up"]
    with subprocess.Popen(up, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        folder = Path(line.removeprefix("export KUBECONFIG=").strip()).parent
        seen = servers_of(folder)
        process.send_signal(end)
        process.communicate()
    assert len(seen) >= len(["etcd", "kube-apiserver"])
    assert gone(folder)


def test_a_start_that_fails_leaves_nothing_and_says_why() -> None:
    failing = ControlPlane()
    port = int(failing.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)), pytest.raises(Died, match="address already in use"), failing:
        pytest.fail("it started")
    assert gone(failing.folder)


def test_free_ports_differ_and_lie_below_those_of_outgoing_connections() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert max(ports) < 32_768


def test_a_child_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = start("deaf", ["/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"], log, {})
    while not log.read_text():
        child.check_alive()
    child.stop(grace_s=0.1)
    assert child.process.returncode == -signal.SIGKILL
