"""`explain` beside the running service, on the same cluster in memory: both say the same while pods are going."""

import asyncio
from typing import Any

from config.settings.scheduler import SchedulerConfiguration
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.asking import cluster_view
from scheduler.tools.explain.answers import Explanation
from tests.support.explaining import prose
from tests.system.looking import A_SECOND_S, cluster, comes, condition, node_of, touch
from tests.system.process import in_virtual_time, scheduling


async def explained(of: World, name: str) -> Explanation:
    return await (await cluster_view(MemoryCluster(of), SchedulerConfiguration())).explained("default", name)


async def settles(of: World, name: str, gpu_mem: int, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    comes(of, name, gpu_mem, **options)
    await asyncio.sleep(A_SECOND_S)
    if node_of(of, name):
        of.pods.set_phase("default", name, "Running")


@in_virtual_time
async def test_while_a_place_is_kept_both_say_the_same() -> None:
    of = cluster(old=[22], n1=[15])
    async with scheduling(of):
        await settles(of, "fo1", 6, nodeName="old")
        await settles(of, "fb1", 10)
        await settles(of, "f1", 15)
        await settles(of, "train", 15, priority=10)
        going = [pod.metadata.name for pod in of.pods if pod.metadata.deletion_timestamp]
        touch(of, "train", 1)
        await asyncio.sleep(A_SECOND_S)

        answer = await explained(of, "train")
        assert condition(of, "train") == f"False {answer.message}"
        assert answer.preemption is None
        assert answer.nominated is not None
        assert [one.pod for one in answer.nominated.terminating] == [f"default/{name}" for name in going]
        kept = next(node for node in answer.nearest if node.name == answer.nominated.node)
        assert kept.leaving == tuple(f"default/{name}" for name in going)
        assert "Preemption is under way" in prose(answer)

        for name in going:
            of.pods.remove("default", name)
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "train") == answer.nominated.node


@in_virtual_time
async def test_after_a_restart_too() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of):
        await settles(of, "low-0", 8, priority=1)
        await settles(of, "low-1", 8, priority=1)
        await settles(of, "low-2", 16, priority=2)
        await settles(of, "urgent", 16, priority=10)
    going = [pod.metadata.name for pod in of.pods if pod.metadata.deletion_timestamp]
    async with scheduling(of):
        await asyncio.sleep(A_SECOND_S)
        touch(of, "urgent", 1)
        await asyncio.sleep(A_SECOND_S)
        answer = await explained(of, "urgent")
        assert [pod.metadata.name for pod in of.pods if pod.metadata.deletion_timestamp] == going
        assert condition(of, "urgent") == f"False {answer.message}"
        assert (answer.preemption, answer.nominated is None) == (None, False)


@in_virtual_time
async def test_a_pod_that_finds_the_place_kept_is_told_for_whom() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await settles(of, "low", 16, priority=1)
        await settles(of, "urgent", 12, priority=10)
        comes(of, "equal", 8, priority=10)
        await asyncio.sleep(A_SECOND_S)
        answer = await explained(of, "equal")
        assert condition(of, "equal") == f"False {answer.message}"
        assert answer.nominated is None
        (node,) = answer.nearest
        assert node.remedy == "room is kept there for default/urgent, which is nominated to it"
        going = (await explained(of, "urgent")).nominated
        assert going is not None
        assert [one.pod for one in going.terminating] == ["default/low"]
