"""The status of another scheduler's pod is not ours to write."""

import asyncio

from msgspec.structs import replace

from tests.support.service.looking import cluster, comes, is_going, nominated, runs
from tests.support.service.process import scheduling


async def test_another_schedulers_pod_keeps_the_nomination_in_its_status() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await runs(of, "low", 16, 1)
        comes(of, "theirs", 0, priority=5, scheduler="default-scheduler")
        of.pods.update(
            "default", "theirs", lambda pod: replace(pod, status=replace(pod.status, nominated_node_name="a"))
        )
        await asyncio.sleep(1)
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(5)
        assert is_going(of, "low")
        assert nominated(of, "theirs") == "a"
