"""Restarts of everything on a real node: running pods keep running, starting pods end with the right card."""

import asyncio
import json
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime

import pytest

from config.protocol import names
from deviceplugin.files import replace_file
from deviceplugin.kubelet.session import CHECKPOINT
from e2e.control_plane.admin import Admin, Json
from e2e.node.announced import allocatable, card_units
from e2e.node.node_pods import PODS, has_restarted, pod_seen, runs, waits_because
from e2e.support.gpu_site import is_unschedulable
from e2e.support.shared_node import (
    SOON_S,
    SharedNode,
    all_settled,
    lives,
    pods,
    settled,
    shared_pod,
    sharing,
)
from tests.support.clocks.quickest import quickest

_RESTARTED_WITHIN_S = 60.0
_ENDS_WITHIN_S = 5.0
_REGISTERED_WITHIN_S = 1.0


def off_and_on(stop: Callable[[], None], start: Callable[[], None]) -> None:
    """Blocks until it is started again."""
    stop()
    start()


def kubelet(shared: SharedNode) -> None:
    off_and_on(shared.node.stop_kubelet, shared.node.start_kubelet)


def plugin(shared: SharedNode) -> None:
    off_and_on(shared.plugin.stop, shared.plugin.start)


def killed_plugin(shared: SharedNode) -> None:
    off_and_on(shared.plugin.kill, shared.plugin.start)


def both(shared: SharedNode) -> None:
    shared.node.stop_kubelet()
    plugin(shared)
    shared.node.start_kubelet()


def containerd(shared: SharedNode) -> None:
    off_and_on(shared.node.stop_containerd, shared.node.start_containerd)


@asynccontextmanager
async def running_pods(shared: SharedNode, on_node: Admin) -> AsyncIterator[list[Json]]:
    """Two pods, the second with two containers, seen running; they must live on in the end."""
    wanted = [shared_pod("one", [sharing(2)]), shared_pod("two", [sharing(1), sharing(1, name="d")])]
    async with pods(on_node, wanted) as created:
        found = await all_settled(on_node, created)
        before = [lives(pod) for pod in found]
        yield found
        again = [(await on_node.get(f"{PODS}/{name}")).body for name in created]
        assert [lives(pod) for pod in again] == before
        assert [wrong for pod in again for wrong in shared.mismatches(pod)] == []


async def replaced(on_node: Admin, name: str) -> Json:
    """The pod as it runs; where the kubelet failed it while there was no plugin, as a controller would replace it."""
    found = await pod_seen(on_node, name, settled, within_s=_RESTARTED_WITHIN_S)
    if found["status"]["phase"] == "Failed":
        assert found["status"]["reason"] == "UnexpectedAdmissionError"
        await on_node.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        await on_node.create(PODS, shared_pod(name, [sharing(1)]))
    return await runs(on_node, name)


@pytest.mark.parametrize(
    "restart", [kubelet, pytest.param(plugin, marks=pytest.mark.nightly), killed_plugin, both, containerd]
)
async def test_pods_live_through_a_restart_and_those_that_start_get_their_card(
    shared: SharedNode, on_node: Admin, restart: Callable[[SharedNode], None]
) -> None:
    async with running_pods(shared, on_node):
        starting = [shared_pod(f"starting-{number}", [sharing(1)]) for number in range(4)]
        async with pods(on_node, starting) as created:
            restart(shared)
            await shared.plugin.ready()
            found = [await replaced(on_node, name) for name in created]
            assert [wrong for pod in found for wrong in shared.mismatches(pod)] == []


async def registered_again(shared: SharedNode, before: int) -> Json:
    """Wait for one more registration than before; what the log says of it."""
    async with asyncio.timeout(_RESTARTED_WITHIN_S):
        while len(found := shared.plugin.lines("registered")) == before:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.02)
    return found[-1]


async def registered_after_s(shared: SharedNode) -> float:
    """Restart the kubelet; seconds from its socket until the plugin is registered again."""
    before = len(shared.plugin.lines("registered"))
    kubelet(shared)
    last = await registered_again(shared, before)
    made_s = (shared.node.device_plugins / "kubelet.sock").stat().st_mtime
    return datetime.fromisoformat(last["timestamp"]).timestamp() - made_s


async def test_it_is_registered_again_within_a_second_of_the_kubelets_socket(shared: SharedNode) -> None:
    took_s = await quickest(lambda _: registered_after_s(shared), _REGISTERED_WITHIN_S)
    sys.stdout.write(f"registered {took_s * 1e3:.0f} ms after the kubelet made its socket\n")
    assert took_s < _REGISTERED_WITHIN_S


async def test_a_directory_of_the_kubelet_that_is_removed_and_made_again_costs_no_pod_and_new_ones_get_their_cards(
    shared: SharedNode, on_node: Admin
) -> None:
    pid = shared.plugin.child.pid
    async with running_pods(shared, on_node):
        async with pods(on_node, [shared_pod("crashes", [sharing(2)])]):
            (crashes,) = await all_settled(on_node, ["crashes"])
            before = len(shared.plugin.lines("registered"))
            shared.node.stop_kubelet()
            shutil.rmtree(shared.node.device_plugins)
            shared.node.start_kubelet()
            await registered_again(shared, before)
            await shared.plugin.ready()
            await shared.node_seen(on_node, lambda node: allocatable(node) == 110)
            assert shared.plugin.child.pid == pid

            async with pods(on_node, [shared_pod("new", [sharing(3)])]):
                assert shared.mismatches(await runs(on_node, "new")) == []
            # The kubelet has forgotten what it held, so it does not start its container again, and says so.
            shared.kill_container(crashes)
            await pod_seen(on_node, "crashes", lambda pod: "no devices found allocated" in waits_because(pod))
            plugin(shared)
            await shared.plugin.ready()
            async with pods(on_node, [shared_pod("newer", [sharing(3)])]):
                assert shared.mismatches(await runs(on_node, "newer")) == []
        async with pods(on_node, [shared_pod("crashes", [sharing(2)])]):
            assert shared.mismatches(await runs(on_node, "crashes")) == []


async def test_a_container_that_the_kubelets_checkpoint_lost_starts_again(shared: SharedNode, on_node: Admin) -> None:
    """The kubelet knows it, but an older state of the file has replaced a newer one."""
    checkpoint = shared.node.device_plugins / CHECKPOINT
    async with pods(on_node, [shared_pod("lost", [sharing(2)])]) as created:
        (lost,) = await all_settled(on_node, created)
        document = json.loads(checkpoint.read_text())
        document["Data"]["PodDeviceEntries"] = []
        replace_file(checkpoint, json.dumps(document).encode())
        shared.kill_container(lost)
        again = await pod_seen(on_node, "lost", has_restarted, within_s=_RESTARTED_WITHIN_S)
        assert shared.mismatches(again) == []


async def test_a_node_takes_no_pods_while_its_plugin_is_away(shared: SharedNode, on_node: Admin) -> None:
    async with running_pods(shared, on_node):
        shared.plugin.stop()
        await shared.node_seen(on_node, lambda node: allocatable(node) == 0)
        async with pods(on_node, [shared_pod("waiting", [sharing(1)])]) as (name,):
            await pod_seen(on_node, name, is_unschedulable, within_s=SOON_S)
            shared.plugin.start()
            assert shared.mismatches(await runs(on_node, name)) == []
        await shared.plugin.ready()


async def test_a_card_that_fails_costs_nothing_on_the_others_whatever_restarts_then(
    shared: SharedNode, on_node: Admin
) -> None:
    """Pods on card 1 hold any ids: those that turn unhealthy must be others."""
    first, second, *_ = card_units(await shared.read(on_node))
    wanted = [
        shared_pod(f"on-{index}-{number}", [sharing(3)], metadata={"annotations": {names.CARD_UUIDS: uuid}})
        for number in range(4)
        for index, uuid in enumerate((first, second))
    ]
    async with pods(on_node, wanted) as created:
        found = dict(zip(created, await all_settled(on_node, created), strict=True))
        await shared.plugin.happens(card=first, xid=79)
        await shared.node_seen(on_node, lambda node: allocatable(node) == 95)
        try:
            kubelet(shared)
            await shared.node_seen(on_node, lambda node: allocatable(node) == 95)
            crashing = found["on-1-0"]
            shared.kill_container(crashing)
            await pod_seen(on_node, "on-1-0", has_restarted, within_s=_RESTARTED_WITHIN_S)
            again = [(await on_node.get(f"{PODS}/{name}")).body for name in created]
            assert [wrong for pod in again for wrong in shared.mismatches(pod)] == []
            kept = [pod for pod in again if pod["metadata"]["name"] != "on-1-0"]
            assert [lives(pod) for pod in kept] == [lives(found[pod["metadata"]["name"]]) for pod in kept]
        finally:
            await shared.forget_health()
            await shared.node_seen(on_node, lambda node: allocatable(node) == 110)


async def test_it_ends_at_once_when_it_is_told_to_even_while_the_driver_hangs(shared: SharedNode) -> None:
    await shared.plugin.happens(hang=True)
    began_s = time.monotonic()
    shared.plugin.stop()
    took_s = time.monotonic() - began_s
    assert (shared.plugin.child.process.returncode, took_s < _ENDS_WITHIN_S) == (0, True)
    assert not (shared.node.device_plugins / "gpushare.sock").exists()
    shared.plugin.start()
    await shared.plugin.ready()


async def test_a_second_plugin_on_the_node_ends_with_the_reason(shared: SharedNode) -> None:
    other = shared.plugin.another()
    with other:
        assert await asyncio.to_thread(other.child.process.wait, 30) == 2
        assert "run one per node" in other.log.read_text()
