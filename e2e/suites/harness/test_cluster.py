"""The control plane of our own: it comes up, it can be cut off, and nothing of it stays."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import aiohttp
import pytest

from e2e.control_plane import commands, pinned, provider
from e2e.control_plane.admin import Access, Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Died, free_ports, start
from tests.support.repository import ROOT

READER = commands.StaticUser("reader-token", "system:serviceaccount:default:reader", ("system:serviceaccounts",))


@pytest.fixture(scope="module")
def own() -> Iterator[ControlPlane]:
    with ControlPlane(users=[READER]) as started:
        yield started


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


async def test_the_api_server_is_the_version_that_go_mod_pins(own: ControlPlane) -> None:
    async with Admin(own.access()) as admin:
        assert (await admin.get("/version")).body["gitVersion"] == pinned.kubernetes_version()


async def test_nodes_are_created_in_bulk_and_listed_page_by_page(own: ControlPlane) -> None:
    nodes = [{"metadata": {"name": f"bulk-{number}"}} for number in range(1_100)]
    async with Admin(own.access()) as admin:
        await admin.create_all("/api/v1/nodes", nodes)

        names = {node["metadata"]["name"] for node in await admin.items("/api/v1/nodes")}

        await admin.delete("/api/v1/nodes")
    assert names == {node["metadata"]["name"] for node in nodes}


async def test_a_new_node_is_not_tainted_where_no_controller_could_take_it_off(own: ControlPlane) -> None:
    async with Admin(own.access()) as admin:
        node = await admin.create("/api/v1/nodes", {"metadata": {"name": "untainted"}})
        await admin.delete("/api/v1/nodes/untainted")
    assert "taints" not in node["spec"]


async def test_a_static_user_has_its_name_its_groups_and_the_rights_of_rbac(own: ControlPlane) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    async with Admin(own.access(READER.name)) as reader:
        who = await reader.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
        nodes = await reader.get("/api/v1/nodes")
    assert who["status"]["userInfo"]["username"] == READER.name
    assert "system:serviceaccounts" in who["status"]["userInfo"]["groups"]
    assert nodes.status == HTTPStatus.FORBIDDEN


async def test_kube_schedulers_user_reads_nodes_and_may_not_make_them(own: ControlPlane) -> None:
    async with Admin(own.access("system:kube-scheduler")) as scheduler:
        assert (await scheduler.get("/api/v1/nodes")).status == HTTPStatus.OK
        assert (await scheduler.post("/api/v1/nodes", {"metadata": {"name": "n"}})).status == HTTPStatus.FORBIDDEN


def test_the_kubeconfig_leads_to_the_cluster(own: ControlPlane) -> None:
    async def ask(access: Access) -> int:
        async with Admin(access) as admin:
            return (await admin.get("/api/v1/namespaces/kube-system")).status

    with provider.Existing(own.kubeconfig_path(), own.context).started() as same:
        assert asyncio.run(ask(same.access())) == HTTPStatus.OK


async def test_what_was_written_is_there_after_an_outage(own: ControlPlane) -> None:
    async with Admin(own.access()) as admin:
        await admin.create("/api/v1/nodes", {"metadata": {"name": "survivor"}})
        with own.cut_off(), pytest.raises(aiohttp.ClientConnectorError):
            await admin.get("/api/v1/nodes/survivor")
        found = await admin.delete("/api/v1/nodes/survivor")
    assert found.status == HTTPStatus.OK


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


def test_a_child_that_ends_by_itself_is_reported_with_its_last_lines(tmp_path: Path) -> None:
    child = start("talker", ["/bin/sh", "-c", "echo last line; exit 7"], tmp_path / "log", {})
    child.process.wait()
    with pytest.raises(Died, match=r"talker ended with exit code 7\nlast line"):
        child.check_alive()


def test_a_child_that_ignores_the_polite_signal_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = start("deaf", ["/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done"], log, {})
    while not log.read_text():
        child.check_alive()
    child.stop(grace_s=0.1)
    assert child.process.returncode == -signal.SIGKILL
