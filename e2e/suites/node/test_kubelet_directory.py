"""The kubelet's directory for device plugins is removed and made again, with all that is in it."""

import asyncio
import os
import shutil
import signal

from e2e.control_plane.admin import Admin
from e2e.node.announced import allocatable
from e2e.node.node_pods import pod_seen, runs
from e2e.suites.node.test_device_plugin_restarts import plugin, running_pods
from e2e.suites.node.test_static_pods import message
from e2e.suites.node.test_unscheduled import waits
from e2e.support.shared_node import SharedNode, all_settled, pods, shared_pod, sharing

_REGISTERED_WITHIN_S = 60.0


async def registered_again(shared: SharedNode, before: int) -> None:
    async with asyncio.timeout(_REGISTERED_WITHIN_S):
        while len(shared.plugin.lines("registered")) == before:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.02)


async def test_a_directory_that_is_made_again_costs_no_pod_and_new_ones_get_their_cards(
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
            os.kill(shared.node.container(crashes).pid, signal.SIGKILL)
            await pod_seen(on_node, "crashes", lambda pod: waits(pod) and "no devices found allocated" in message(pod))
            plugin(shared)
            await shared.plugin.ready()
            async with pods(on_node, [shared_pod("newer", [sharing(3)])]):
                assert shared.mismatches(await runs(on_node, "newer")) == []
        async with pods(on_node, [shared_pod("crashes", [sharing(2)])]):
            assert shared.mismatches(await runs(on_node, "crashes")) == []
