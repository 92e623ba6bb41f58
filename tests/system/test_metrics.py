"""What a scrape says of pods, through their lives."""

import asyncio

from scheduler.testing.cluster.world import World
from tests.support.builders import manifest
from tests.system.looking import cluster
from tests.system.process import A_MOMENT_S, Process, in_virtual_time, scheduling

GIB = 2**30
OF_PODS = ("gpushare_scheduler_namespace_", "gpushare_scheduler_waiting_pods", "gpushare_scheduler_longest_wait")


def shown(process: Process) -> dict[str, float]:
    lines = b"".join(process.metrics.scrape()).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line.startswith(OF_PODS))}


def create(of: World, name: str, units: int, namespace: str) -> None:
    of.pods.create(manifest(name, units, namespace=namespace))


@in_virtual_time
async def test_a_pod_is_waited_for_or_requested_or_neither() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        create(of, "first", 10, "team")
        create(of, "large", 20, "other")
        await asyncio.sleep(A_MOMENT_S)
        requested = 'gpushare_scheduler_namespace_memory_requested_bytes{namespace="team"}'
        waiting = 'gpushare_scheduler_waiting_pods{plugin="GpuShare"}'
        longest = 'gpushare_scheduler_longest_wait_seconds{plugin="GpuShare"}'
        found = shown(process)
        assert (found[requested], found[waiting]) == (10 * GIB, 1)
        assert found.keys() == {requested, waiting, longest}
        await asyncio.sleep(60.0)
        assert 60.0 <= shown(process)[longest] <= 62.0
        of.pods.remove("other", "large")
        of.pods.remove("team", "first")
        await asyncio.sleep(A_MOMENT_S)
        assert shown(process) == {}
