"""A static pod that asks for GPU memory, on a real kubelet: nobody has chosen its cards, so it gets none."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import pytest

from e2e.control_plane import commands
from e2e.control_plane.admin import Admin, Json, seen
from e2e.node.announced import allocatable
from e2e.node.node_pods import PODS, pod, pod_seen, runs
from e2e.suites.node.test_unscheduled import waits
from e2e.support import policy_site
from e2e.support.gpu_site import is_unschedulable
from e2e.support.shared_node import SharedNode, all_settled, lives, pods, shared_pod, sharing

_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
_SOON_S: Final = 40.0
_A_ROUND_S: Final = 31.0
_TWO_ROUNDS_S: Final = 120.0
_LOOK_EVERY_S: Final = 0.1
_WHOLE: Final = 80


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


def message(found: Json) -> str:
    """Why the container of a pod waits."""
    said: str = found["status"]["containerStatuses"][0]["state"]["waiting"].get("message", "")
    return said


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
                found = await pod_seen(on_node, name, lambda one: waits(one) and "static pod" in message(one))
                assert "no scheduler has chosen cards for it" in message(found)
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


@pytest.mark.nightly  # two comparisons are half a minute apart
async def test_a_static_pod_is_reported_and_not_evicted(shared: SharedNode, on_node: Admin) -> None:
    async with shared.instead(evictUnscheduled=True, reconcileInterval="30s") as plugin:
        await plugin.ready()
        await shared.node_seen(on_node, lambda node: allocatable(node) == 110)
        async with static_pod(shared, on_node, 1) as name:
            query = {"fieldSelector": "reason=GPUUnscheduled"}
            told = await seen(
                on_node, _EVENTS, lambda one: one["regarding"]["name"] == name, query, within_s=_TWO_ROUNDS_S
            )
            assert "no card was chosen for its 1 units, which count against every card of this node" in told["note"]
            assert "it is a static pod, which no scheduler sees" in told["note"]
            uid = (await on_node.get(f"{PODS}/{name}")).body["metadata"]["uid"]
            await asyncio.sleep(_A_ROUND_S)
            assert (await on_node.get(f"{PODS}/{name}")).body["metadata"]["uid"] == uid
            assert plugin.lines("pod.evicted") == []
