"""As `long_backlog`, with the whole service on a cluster in memory: pods per second of the processor, fifth by fifth.

On a machine that others use too, times of the processor can be compared where rates cannot. The cluster in memory runs
on the same event loop, and is part of its figures.
"""

import asyncio
import random
import time
from typing import Final

import msgspec

from config.settings.scheduler import SchedulerConfiguration
from e2e.bench import workload
from e2e.bench.engine import decoded
from e2e.bench.workload import Size
from scheduler.app import service_options
from scheduler.core.build import build_engine
from scheduler.kube import objects
from scheduler.kube.port import Binding
from scheduler.metrics.metrics import Metrics
from scheduler.metrics.observer import ServiceObserver
from scheduler.process.collector import keep_pauses_short
from scheduler.service import SchedulerService
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.world import World

_AT_MOST_S: Final = 1200.0


class _Marking(MemoryCluster):
    """Notes how much of the processor was used at the first bind, and at the last of each fifth."""

    def __init__(self, world: World, pods: int) -> None:
        super().__init__(world, latency_s=0.002)
        self.cpu_s: list[float] = []
        self.done = asyncio.Event()
        self._pods, self._bound = pods, 0

    async def bind(self, binding: Binding, timeout_s: float) -> None:
        await super().bind(binding, timeout_s)
        self._bound += 1
        if self._bound == 1 or self._bound >= self._pods * len(self.cpu_s) // 5:
            self.cpu_s.append(time.process_time())
        if self._bound == self._pods:
            self.done.set()


async def fifths(size: Size) -> list[float]:
    """Pods per second of the processor, of each fifth. pods: of `size`, >= 10. Raises TimeoutError."""
    world = World(time.time)
    for manifest in workload.nodes(size):
        world.nodes.add(msgspec.convert(manifest, objects.Node))
    for pod in decoded(workload.pods(size)):
        world.pods.create(pod)
    cluster = _Marking(world, size.pods)
    engine, reader = build_engine(SchedulerConfiguration())
    options = service_options(SchedulerConfiguration.model_validate({"bindTimeout": 0}), instance="bench")
    observer = ServiceObserver(Metrics(engine.tables, engine.queue.lengths, per_card=False))
    service = SchedulerService(cluster, options, observer, engine=engine, reader=reader, rng=random.Random(0))  # noqa: S311
    running = {asyncio.create_task(service.run()), asyncio.create_task(keep_pauses_short())}
    try:
        async with asyncio.timeout(_AT_MOST_S):
            await cluster.done.wait()
    finally:
        for task in running:
            task.cancel()
        await asyncio.wait(running)
    return [size.pods / 5 / (end - begin) for begin, end in zip(cluster.cpu_s, cluster.cpu_s[1:], strict=False)]
