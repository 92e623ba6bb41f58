"""What is not as it was decided, found on a real kubelet: memory by process, pods that were there too early."""

import asyncio
from collections.abc import Iterator

import pytest

from config.protocol import names
from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.cluster import ControlPlane
from e2e.node.local_node import LocalNode
from e2e.node.node_pods import EVENTS, PODS, note_of, pod_seen, waits_because
from e2e.programs import manifests
from e2e.support import policy_site
from e2e.support.shared_node import SharedNode, all_settled, pods, shared_node, shared_pod, sharing

# A minute of waiting: two comparisons are half a minute apart.
pytestmark = pytest.mark.nightly

# Two comparisons in a row have to show it, and the kubelet can bear one in 30 s.
_TWO_ROUNDS_S = 120.0
_EARLY = "early"


@pytest.fixture
def evicting(node_ready: None) -> Iterator[SharedNode]:
    """A node of its own that has a pod from before the kubelet ever knew the resource; the plugin may evict."""
    del node_ready
    with ControlPlane() as own, LocalNode(own, "n6") as node:
        asyncio.run(_prepare(node))
        with shared_node(
            node, monitor="evict", evictUnregistered=True, reconcileInterval="30s", readingInterval="1s"
        ) as started:
            yield started


async def _prepare(node: LocalNode) -> None:
    async with Admin(node.cluster.access()) as admin:
        # The account comes with its other rights; that role is bound to it in advance.
        await manifests.apply(admin, *policy_site.optional("device-plugin-evict.yaml"))
        # It takes a moment to go, so that it can be seen going.
        await admin.create(PODS, shared_pod(_EARLY, [sharing(1)], nodeName=node.name, terminationGracePeriodSeconds=2))
        await pod_seen(admin, _EARLY, lambda found: bool(waits_because(found)))


async def leaves(admin: Admin, pod: Json) -> None:
    """Wait for the pod to be about to go."""
    await pod_seen(
        admin, pod["metadata"]["name"], lambda found: "deletionTimestamp" in found["metadata"], within_s=_TWO_ROUNDS_S
    )


async def test_pods_that_use_too_much_or_lack_devices_are_reported_and_evicted(evicting: SharedNode) -> None:
    async with Admin(evicting.node.cluster.access()) as admin:
        early = (await admin.get(f"{PODS}/{_EARLY}")).body
        wanted = [
            shared_pod("greedy", [sharing(1)], terminationGracePeriodSeconds=2),
            shared_pod("modest", [sharing(1)]),
        ]
        async with pods(admin, wanted) as created:
            greedy, modest = await all_settled(admin, created)
            card = int(greedy["metadata"]["annotations"][names.MEM_IDX])
            for pod, used in ((greedy, 3000), (modest, 500)):
                pid = evicting.node.container(pod).pid
                await evicting.plugin.happens(card=card, pid=pid, usedMiB=used)
            left = [asyncio.create_task(leaves(admin, pod)) for pod in (greedy, early)]
            told = await note_of(admin, "GPUUsesMore", "greedy", within_s=_TWO_ROUNDS_S)
            assert "it uses 3000 MiB" in told
            assert "it requested 1024 MiB there; evicting it" in told
            told = await note_of(admin, "GPUWithoutDevices", _EARLY, within_s=_TWO_ROUNDS_S)
            assert "admitted it before the resource was registered" in told
            await asyncio.gather(*left)
            assert (await admin.get(f"{PODS}/modest")).body["status"]["phase"] == "Running"
        events = await admin.items(EVENTS)
        assert not [
            event for event in events if event["regarding"].get("name") == "modest" and "GPU" in event["reason"]
        ]
