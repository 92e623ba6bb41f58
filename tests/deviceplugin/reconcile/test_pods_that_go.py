"""Pods with drift: reported on the pod, and evicted where that is configured."""

import asyncio
from pathlib import Path

from config.protocol import names
from deviceplugin.reconcile.reconciler import evict
from scheduler.kube.port import ApiNotFound, ApiThrottled, Changed, PodKey
from tests.support.node.drift_policy import drift_policy
from tests.support.node.node_pods import wire_pod
from tests.support.node.reconcile_site import metric, rig


async def test_a_pod_that_uses_more_than_it_asked_is_evicted_where_that_is_configured(folder: Path) -> None:
    async with rig(folder, drift_policy("evict"), allowance_mib=100) as (node, loop):
        greedy, fair = node.runs("greedy", 2), node.runs("fair", 2)
        node.uses("GPU-a", (11, 2149, greedy), (12, 2147, fair))
        await loop.round()
        await loop.round()
        assert node.evicted == [PodKey("ns", "greedy", greedy)]
        (notice,) = node.events
        assert notice.reason == "GPUUsesMore"
        assert notice.note.endswith("it requested 2048 MiB there; evicting it")


async def test_an_eviction_that_is_refused_is_reported_and_tried_again_next_round(folder: Path) -> None:
    async with rig(folder, drift_policy(evict_unregistered=True)) as (node, loop):
        uid = node.runs("waits", 4, ids=0)
        node.refusals = [ApiThrottled("a disruption budget forbids it")]
        await loop.round()
        await loop.round()
        assert node.evicted == []
        assert loop.result.problems == ("pod ns/waits is not evicted yet: a disruption budget forbids it",)
        await loop.round()
        assert (node.evicted, len(node.events)) == ([PodKey("ns", "waits", uid)], 1)
        assert not loop.result.problems


async def test_a_pod_that_has_gone_before_its_eviction_is_no_problem(folder: Path) -> None:
    async with rig(folder, drift_policy(evict_unregistered=True)) as (node, loop):
        node.runs("waits", 4, ids=0)
        node.refusals = [ApiNotFound("no such pod", 404)]
        await loop.round()
        await loop.round()
        assert (node.refusals, node.evicted, loop.result.problems) == ([], [], ())


async def test_a_pod_that_came_past_the_scheduler_is_reported_and_evicted_where_that_is_configured(
    folder: Path,
) -> None:
    async with rig(folder, drift_policy(evict_unscheduled=True)) as (node, loop):
        node.pods.apply([Changed(wire_pod("by-hand", [4], scheduler="default-scheduler"))])
        held = [f"u{number}" for number in range(4)]
        node.double.pods["ns", "by-hand"] = {"c0": {names.GPU_MEM: held}}
        node.record("uid-by-hand", held)
        node.runs("ours", 2)
        await loop.round()
        await loop.round()
        (notice,) = node.events
        assert (notice.reason, notice.pod) == ("GPUUnscheduled", PodKey("ns", "by-hand", "uid-by-hand"))
        assert "no card was chosen for its 4 units, which count against every card of this node" in notice.note
        assert (
            "(schedulerName default-scheduler); create it again with schedulerName: gpushare-scheduler" in notice.note
        )
        assert (node.evicted, metric(loop, "drift", kind="unscheduled")) == ([notice.pod], 1)


async def test_what_a_pods_author_writes_later_switches_no_eviction_off(folder: Path) -> None:
    async with rig(folder, drift_policy("evict"), allowance_mib=100) as (node, loop):
        uid = node.runs("greedy", 2)
        node.uses("GPU-a", (11, 9000, uid))
        await loop.round()
        (wire,) = node.pods
        later = (wire.metadata.annotations or {}) | {names.EXCLUSIVE: "true", names.GPU_COUNT: "2"}
        node.pods.apply([Changed(wire_pod("greedy", [2], uid=uid, annotations=later))])
        await loop.round()
        assert node.evicted == [PodKey("ns", "greedy", uid)]
        assert metric(loop, "drift", kind="allocation-changed") == 0
        await loop.round()
        assert metric(loop, "drift", kind="allocation-changed") == 1
        assert [notice.reason for notice in node.events] == ["GPUUsesMore"]


async def test_no_more_than_a_few_evictions_are_on_their_way_at_once() -> None:
    class Counting:
        now = most = 0

        async def evict(self, pod: PodKey) -> None:
            del pod
            self.now += 1
            self.most = max(self.most, self.now)
            await asyncio.sleep(0)
            self.now -= 1

    counting = Counting()
    assert await evict(counting, {PodKey("ns", f"p{number}", f"{number}"): "" for number in range(100)}) == []
    assert counting.most == 8


async def test_a_static_pod_is_reported_with_what_it_is_and_left_alone(folder: Path) -> None:
    async with rig(folder, drift_policy(evict_unscheduled=True)) as (node, loop):
        mirror = {"kubernetes.io/config.mirror": "f" * 32}
        node.pods.apply([Changed(wire_pod("static", [4], annotations=mirror))])
        await loop.round()
        await loop.round()
        (notice,) = node.events
        assert "it is a static pod, which no scheduler sees; take its file off the node" in notice.note
        assert (notice.reason, node.evicted) == ("GPUUnscheduled", [])
