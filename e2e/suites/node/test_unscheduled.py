"""Pods whose cards no scheduler has chosen, on a real kubelet: put there past it, or a static pod of a file.

They get no card, and block every card of the node until they are gone.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import pytest

from config.protocol import names
from e2e.control_plane import commands
from e2e.control_plane.admin import Admin
from e2e.node.announced import allocatable
from e2e.node.node_pods import PODS, note_of, pod, pod_seen, runs, waits_because
from e2e.programs import manifests
from e2e.programs.plugin_process import DevicePluginProcess
from e2e.support import policy_site
from e2e.support.gpu_site import is_unschedulable
from e2e.support.shared_node import SharedNode, all_settled, lives, pods, shared_pod, sharing

_SOON_S: Final = 40.0
_A_ROUND_S: Final = 31.0
_TWO_ROUNDS_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.1
_WHOLE: Final = 80
_COUNTS: Final = "no card was chosen for its 1 units, which count against every card of this node"


@pytest.fixture
async def evicting(shared: SharedNode, on_node: Admin) -> AsyncIterator[DevicePluginProcess]:
    """A plugin that may evict what came past the scheduler, and compares twice a minute."""
    await manifests.apply(on_node, *policy_site.optional("device-plugin-evict.yaml"))
    async with shared.instead(evictUnscheduled=True, reconcileInterval="30s") as plugin:
        await plugin.ready()
        await shared.node_seen(on_node, lambda found: allocatable(found) == 110)
        yield plugin


@pytest.mark.nightly  # two comparisons are half a minute apart
@pytest.mark.usefixtures("evicting")
async def test_what_got_in_is_reported_and_evicted_and_the_card_is_free_again(
    shared: SharedNode, on_node: Admin
) -> None:
    by_hand = shared_pod("by-hand", [sharing(1)], nodeName=shared.node.name, terminationGracePeriodSeconds=0)
    by_hand["spec"]["schedulerName"] = "default-scheduler"
    async with pods(on_node, [by_hand]):
        await pod_seen(on_node, "by-hand", lambda found: bool(waits_because(found)))
        async with pods(on_node, [shared_pod("blocked", [sharing(_WHOLE)])]):
            await pod_seen(on_node, "blocked", is_unschedulable)
            told = await note_of(on_node, "GPUUnscheduled", "by-hand", within_s=_TWO_ROUNDS_S)
            assert _COUNTS in told
            assert f"create it again with schedulerName: {names.SCHEDULER_NAME} and without node" in told
            await asyncio.wait_for(runs(on_node, "blocked"), 60)


async def test_with_the_policy_it_does_not_get_in_and_is_told_what_to_write(shared: SharedNode, on_node: Admin) -> None:
    wanted = shared_pod("refused", [sharing(1)], nodeName=shared.node.name)
    forgotten = shared_pod("refused", [sharing(1)])
    del forgotten["spec"]["schedulerName"]
    await policy_site.apply(on_node, policy_site.scheduler_name())
    try:
        await policy_site.until(
            policy_site.SCHEDULER_NAME, lambda: on_node.post(f"{PODS}?dryRun=All", forgotten), refused=True
        )
        answer = await on_node.post(PODS, wanted)
        assert f"replace nodeName: {shared.node.name} by nodeSelector" in answer.body["message"]
        async with pods(on_node, [shared_pod("as-told", [sharing(1)])]):
            await runs(on_node, "as-told")
    finally:
        await policy_site.remove(on_node, policy_site.scheduler_name())
        await policy_site.until(
            policy_site.SCHEDULER_NAME, lambda: on_node.post(f"{PODS}?dryRun=All", forgotten), refused=False
        )


@asynccontextmanager
async def static_pod(shared: SharedNode, on_node: Admin, units: int) -> AsyncIterator[str]:
    """A pod of a file while the context lasts: the name of its mirror pod."""
    wanted = pod("static", [sharing(units)]) | {"apiVersion": "v1", "kind": "Pod"}
    del wanted["spec"]["schedulerName"]
    wanted["metadata"]["namespace"] = "default"
    file, name = shared.node.static_pods / "static.yaml", f"static-{shared.node.name}"
    file.write_text(commands.as_yaml(wanted))
    try:
        yield name
    finally:
        file.unlink()
        async with asyncio.timeout(_SOON_S):
            while (await on_node.get(f"{PODS}/{name}")).status != HTTPStatus.NOT_FOUND:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(_LOOK_EVERY_S)


async def test_a_static_pod_gets_no_card_says_why_and_counts_against_every_card_until_it_is_gone(
    shared: SharedNode, on_node: Admin
) -> None:
    await shared.node_seen(on_node, lambda node: allocatable(node) == 110)
    # The policy leaves the copies of static pods alone: the kubelet runs them all the same.
    await policy_site.apply(on_node, policy_site.scheduler_name())
    try:
        async with pods(on_node, [shared_pod("there", [sharing(2)])]) as created:
            (there,) = await all_settled(on_node, created)
            async with static_pod(shared, on_node, 1) as name:
                found = await pod_seen(on_node, name, lambda one: "static pod" in waits_because(one))
                assert "no scheduler has chosen cards for it" in waits_because(found)
                async with pods(on_node, [shared_pod("blocked", [sharing(_WHOLE)])]):
                    await pod_seen(on_node, "blocked", is_unschedulable)
                    async with pods(on_node, [shared_pod("beside", [sharing(_WHOLE - 1)])]):
                        assert shared.mismatches(await runs(on_node, "beside")) == []
            async with pods(on_node, [shared_pod("after", [sharing(_WHOLE)])]):
                assert shared.mismatches(await runs(on_node, "after")) == []
            (again,) = await all_settled(on_node, created)
            assert lives(again) == lives(there)
    finally:
        await policy_site.remove(on_node, policy_site.scheduler_name())


@pytest.mark.nightly  # as above
async def test_a_static_pod_is_reported_and_not_evicted(
    shared: SharedNode, on_node: Admin, evicting: DevicePluginProcess
) -> None:
    async with static_pod(shared, on_node, 1) as name:
        told = await note_of(on_node, "GPUUnscheduled", name, within_s=_TWO_ROUNDS_S)
        assert _COUNTS in told
        assert "it is a static pod, which no scheduler sees" in told
        uid = (await on_node.get(f"{PODS}/{name}")).body["metadata"]["uid"]
        await asyncio.sleep(_A_ROUND_S)
        assert (await on_node.get(f"{PODS}/{name}")).body["metadata"]["uid"] == uid
        assert evicting.lines("pod.evicted") == []
