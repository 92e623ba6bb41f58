"""As `engine`, with the whole service on a cluster in memory: what it writes, how long it holds the loop.

50,000 pods of 500 templates wait at 5,000 full nodes while 100 pods end every second. The cluster in memory runs on the
same event loop, so what is measured of the processor and of the loop includes it.
"""

import asyncio
import gc
import random
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from config.settings.scheduler import SchedulerConfiguration
from e2e.bench import workload
from e2e.bench.engine import decoded
from e2e.bench.waiting.engine import TEMPLATES, filling
from e2e.bench.workload import Size
from scheduler.app import service_options
from scheduler.core.build import build_engine
from scheduler.core.effects import Bind, Effect, Unschedulable
from scheduler.kube import objects
from scheduler.kube.port import Binding, EventRecord, EventSeries, PodKey
from scheduler.metrics.metrics import Metrics
from scheduler.metrics.observer import ServiceObserver
from scheduler.process.clock import Clock
from scheduler.service import SchedulerService
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.world import World

_PER_SECOND: Final = 100
_PROBED_EVERY_S: Final = 0.001
_LOOKED_EVERY_S: Final = 0.1
_MOST_START_S: Final = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceFigures:
    """attempts: per place that came free. writes: requests to the API server per attempt, but for watches.

    longest_hold_ms: of the processor, between two turns of the event loop. cpu_ms: per pod that ends.
    """

    attempts: float
    writes: float
    longest_hold_ms: float
    cpu_ms: float


class _Counted(MemoryCluster):
    """Counts what it is asked to write."""

    def __init__(self, world: World) -> None:
        super().__init__(world, latency_s=0.002)
        self.writes: Counter[str] = Counter()

    async def bind(self, binding: Binding, timeout_s: float) -> None:
        self.writes["bind"] += 1
        await super().bind(binding, timeout_s)

    async def set_pod_condition(self, pod: PodKey, condition: objects.PodCondition, *, changed: bool = True) -> None:
        self.writes["condition"] += 1
        await super().set_pod_condition(pod, condition, changed=changed)

    async def create_event(self, event: EventRecord) -> None:
        self.writes["event"] += 1
        await super().create_event(event)

    async def update_event(self, event: EventRecord, series: EventSeries) -> None:
        self.writes["event series"] += 1
        await super().update_event(event, series)


class _Attempts(ServiceObserver):
    """Counts attempts."""

    count = 0

    def stepped(self, effects: Sequence[Effect], took_s: float, searches: int) -> None:
        self.count += any(isinstance(one, Bind) or (isinstance(one, Unschedulable) and one.attempt) for one in effects)
        super().stepped(effects, took_s, searches)


async def measure(nodes: int, backlog: int, ends: int) -> ServiceFigures:
    """Fill the world, start the service, let pods end."""
    world, ending = _world(nodes, backlog)
    cluster = _Counted(world)
    engine, reader = build_engine(SchedulerConfiguration())
    observer = _Attempts(Metrics(engine.tables, engine.queue.lengths, per_card=False), Clock())
    options = service_options(SchedulerConfiguration.model_validate({"bindTimeout": 0}), instance="bench")
    service = SchedulerService(cluster, options, observer, engine=engine, reader=reader, rng=random.Random(0))  # noqa: S311
    running = asyncio.create_task(service.run())
    try:
        async with asyncio.timeout(_MOST_START_S):
            await _until(
                lambda: engine.queue.lengths()["unschedulable"] == backlog and not service.dispatch.status.pending
            )
        gc.collect()
        return await _while_pods_end(world, ending[:ends], service, cluster, observer)
    finally:
        running.cancel()
        await asyncio.wait({running})


async def _while_pods_end(
    world: World, ending: list[objects.PodObject], service: SchedulerService, cluster: _Counted, observer: _Attempts
) -> ServiceFigures:
    cluster.writes.clear()
    observer.count = 0
    half = len(ending) // 2
    began_s = time.process_time()
    await _end(world, ending[:half], service)
    cpu_s = time.process_time() - began_s
    holds: list[float] = []
    probing = asyncio.create_task(_probe(holds))
    await _end(world, ending[half:], service)
    probing.cancel()
    return ServiceFigures(
        attempts=observer.count / cluster.writes["bind"],
        writes=cluster.writes.total() / observer.count,
        longest_hold_ms=max(holds) * 1e3,
        cpu_ms=cpu_s / half * 1e3,
    )


async def _end(world: World, ending: list[objects.PodObject], service: SchedulerService) -> None:
    for pod in ending:
        world.pods.remove(pod.metadata.namespace, pod.metadata.name)
        await asyncio.sleep(1 / _PER_SECOND)
    await _until(lambda: not service.dispatch.status.pending and not service.dispatch.in_flight)


async def _until(done: Callable[[], bool]) -> None:
    while not done():  # noqa: ASYNC110 - looks on from outside, as a user would
        await asyncio.sleep(_LOOKED_EVERY_S)


async def _probe(holds: list[float]) -> None:
    while True:
        before_s = time.thread_time()
        await asyncio.sleep(_PROBED_EVERY_S)
        holds.append(time.thread_time() - before_s)


def _world(nodes: int, backlog: int) -> tuple[World, list[objects.PodObject]]:
    """(the world, the pods that are to end)."""
    world = World(time.time)
    size = Size(nodes=nodes, pods=backlog, templates=TEMPLATES)
    ending = []
    for number, manifest in enumerate(workload.nodes(size)):
        node = world.nodes.add(msgspec.convert(manifest, objects.Node))
        for pod in filling(number, node):
            last = world.pods.create(pod)
        ending.append(last)
    for pod in decoded(workload.pods(size)):
        world.pods.create(pod)
    return world, ending
