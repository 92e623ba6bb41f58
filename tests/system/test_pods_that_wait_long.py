"""What waits for an hour takes no more memory than what waits for some minutes."""

import asyncio
import gc

from scheduler.testing.cluster.store import StoredChange
from tests.system.looking import cluster, comes, touch
from tests.system.process import in_virtual_time, scheduling

PODS = 10
A_WHILE_S = 600.0
TOUCHED_EVERY_S = 60.0


@in_virtual_time
async def test_pods_that_are_tried_again_and_again_leave_nothing_behind() -> None:
    of = cluster(a=[16])
    async with scheduling(of):

        async def tried() -> int:
            """Have each of them tried ten times; how many objects there are then, but for the cluster's history."""
            for number in range(int(A_WHILE_S / TOUCHED_EVERY_S)):
                for pod in range(PODS):
                    touch(of, f"p{pod}", number)
                await asyncio.sleep(TOUCHED_EVERY_S)
            gc.collect()
            return sum(not isinstance(found, StoredChange) for found in gc.get_objects())

        for number in range(PODS):
            comes(of, f"p{number}", 17 + number % 5)
        await tried()
        before = await tried()

        assert await tried() - before < PODS
