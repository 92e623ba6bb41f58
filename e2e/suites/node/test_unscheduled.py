"""A pod that came to the node past the scheduler, on a real kubelet: it blocks every card until it is gone."""

import asyncio
from typing import Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Admin, Json, seen
from e2e.node.announced import allocatable
from e2e.node.node_pods import PODS, pod_seen, runs
from e2e.programs import manifests
from e2e.support import policy_site
from e2e.support.gpu_site import is_unschedulable
from e2e.support.shared_node import SharedNode, pods, shared_pod, sharing

_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
_TWO_ROUNDS_S: Final = 120.0
_WHOLE: Final = 80


def waits(found: Json) -> bool:
    """Whether its container cannot start."""
    statuses = found["status"].get("containerStatuses", [])
    return bool(statuses) and "waiting" in statuses[0]["state"]


@pytest.mark.nightly  # two comparisons are half a minute apart
async def test_what_got_in_is_reported_and_evicted_and_the_card_is_free_again(
    shared: SharedNode, on_node: Admin
) -> None:
    await manifests.apply(on_node, *policy_site.optional("device-plugin-evict.yaml"))
    by_hand = shared_pod("by-hand", [sharing(1)], nodeName=shared.node.name, terminationGracePeriodSeconds=0)
    by_hand["spec"]["schedulerName"] = "default-scheduler"
    async with shared.instead(evictUnscheduled=True, reconcileInterval="30s") as plugin:
        await plugin.ready()
        await shared.node_seen(on_node, lambda found: allocatable(found) > 0)
        async with pods(on_node, [by_hand]):
            await pod_seen(on_node, "by-hand", waits)
            async with pods(on_node, [shared_pod("blocked", [sharing(_WHOLE)])]):
                await pod_seen(on_node, "blocked", is_unschedulable)
                query = {"fieldSelector": "reason=GPUUnscheduled"}
                told = await seen(
                    on_node, _EVENTS, lambda one: one["regarding"]["name"] == "by-hand", query, within_s=_TWO_ROUNDS_S
                )
                assert "no card was chosen for its 1 units, which count against every card of this node" in told["note"]
                assert f"create it again with schedulerName: {names.SCHEDULER_NAME} and without node" in told["note"]
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
