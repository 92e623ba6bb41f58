"""Scheduling leaves no garbage for full collections, which are rare (scheduler/main.py)."""

import asyncio
import gc

from msgspec.structs import replace

from tests.system.looking import cluster, comes, node_of
from tests.system.process import in_virtual_time, scheduling

PODS = 200


@in_virtual_time
async def test_pods_that_come_are_bound_wait_and_go_make_no_cycles() -> None:
    of = cluster(a=[80] * 8)
    async with scheduling(of):
        comes(of, "first", 1)
        comes(of, "too-large", 81)
        await asyncio.sleep(1)
        gc.collect()
        gc.disable()
        try:
            for number in range(PODS):
                comes(of, f"p{number}", 1)
                comes(of, f"q{number}", 81)
                await asyncio.sleep(0.1)
                of.pods.update("default", f"p{number}", lambda pod: replace(pod, spec=replace(pod.spec, priority=1)))
                await asyncio.sleep(0.1)
                assert node_of(of, f"p{number}") == "a"
                of.pods.remove("default", f"p{number}")
                of.pods.remove("default", f"q{number}")
                await asyncio.sleep(0.1)
            found = gc.collect()
        finally:
            gc.enable()
    assert found < PODS
