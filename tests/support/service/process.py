"""One run of the scheduler's process on a world: the real service with the real engine, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.app import service_options
from scheduler.core.agenda import AgendaStep
from scheduler.core.build import build_engine, resource_names
from scheduler.core.engine import Engine
from scheduler.dispatch.waiting_series import waiting_text
from scheduler.leader.leadership import Leadership
from scheduler.metrics.metrics import Metrics
from scheduler.metrics.observer import ServiceObserver
from scheduler.plugins import registry
from scheduler.pods.pod import PodReader
from scheduler.process.clock import Clock
from scheduler.queue.entry import PodState
from scheduler.service import SchedulerService
from scheduler.state.ledger import NodeLedger, of_tables
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.world import World
from tests.support.service.checked_cycle import CheckedCycle
from tests.support.service.recount import Recount
from tests.support.service.wire import Posts, Wire

EPOCH_S: Final = 1_800_000_000.0
# Longer than the pause between two batches of a watch, shorter than any other timer.
A_MOMENT_S: Final = 0.02
AT_ONCE: Final = SchedulerConfiguration.model_validate({"bindTimeout": 0})


def world() -> World:
    """Return an empty world whose clock is the running loop's."""
    return World(lambda: EPOCH_S + asyncio.get_running_loop().time())


class CountedEngine(Engine):
    """Engine that counts the steps in which it did anything."""

    steps = 0

    def step(self, now_s: float, now_ns: int) -> AgendaStep | None:
        done = super().step(now_s, now_ns)
        self.steps += done is not None
        return done

    def run_hint(self, now_s: float) -> bool:
        done = super().run_hint(now_s)
        self.steps += done
        return done


@dataclass
class Process:
    """A started process; ends by `kill`, or by `stop`."""

    wire: Wire
    service: SchedulerService
    engine: CountedEngine
    cycle: CheckedCycle
    metrics: Metrics
    task: asyncio.Task[None]
    recount: Recount = field(default_factory=Recount)
    _known: tuple[object, ...] = ()

    @property
    def free(self) -> dict[str, int]:
        """Return the free units of each card, by UUID."""
        return {card: units for node in of_tables(self.engine.tables).values() for card, units in node.free.items()}

    def sample(self, name: str, **labels: str) -> float:
        """Return the value of one of our metrics; 0 if nothing was counted with these labels."""
        only = self.metrics.registry.restricted_registry([f"gpushare_scheduler_{name}"])
        found = [sample.value for metric in only.collect() for sample in metric.samples if sample.labels == labels]
        assert found or labels, f"there is no metric {name}"
        return found[0] if found else 0.0

    def has_changed(self) -> bool:
        """Return whether its state may differ from that of the last call.

        Its state follows from objects, answers and its own steps; the versions and lengths show changes by timers.
        """
        engine, before = self.engine, self._known
        versions = engine.tables.changes.version, engine.nominations.version
        self._known = self.wire.heard, engine.steps, versions, engine.queue.lengths(), self.service.leads()
        return self._known != before

    def assert_no_pod_sleeps_that_fits(self) -> None:
        """Assert that no feasible pod is unschedulable, except with a due queueing hint or a pending attempt."""
        assert self.sample("lost_wakeups_total") == 0, "a pod slept until the check in the background found it"
        engine = self.engine
        if not self.service.leads() or engine.queue.has_hints or engine.tables.cluster_events:
            return
        for entry in engine.queue:
            if entry.state is PodState.UNSCHEDULABLE:
                with engine.nominations.seen_by(entry.pod):
                    assert not self.cycle.fits_on(entry.pod, None)[0], f"{entry.pod.key} sleeps, and fits"

    def expected_ledger(self) -> dict[str, NodeLedger]:
        """Return the bookings, recounted from the objects received by this process and its assumptions."""
        told = self.wire.told
        return self.recount.ledger(told["pods"], told["nodes"], self.wire.first, self.engine.tables)

    async def kill(self) -> None:
        """End like SIGKILL: nothing more is answered, written or reported."""
        self.task.cancel()
        await asyncio.wait({self.task})

    async def stop(self, within_s: float) -> None:
        """End like SIGTERM, see `scheduler.app`."""
        self.service.stop()
        await asyncio.wait({self.task}, timeout=within_s)
        await self.kill()
        await self.service.dispatch.status.flush(within_s)


def start(
    wire: Wire, configuration: SchedulerConfiguration = AT_ONCE, *, seed: int = 0, leadership: Leadership | None = None
) -> Process:
    """Start the scheduler; it lists, waits as configured, and schedules. leadership: None for a single replica."""
    built, reader = build_engine(configuration)
    loop = asyncio.get_running_loop()
    cycle = CheckedCycle(
        registry.build(resolve(configuration)[0], resource_names(configuration)),
        built.tables,
        wire.pod_told,
        lambda: process.expected_ledger(),  # noqa: PLW0108 - made below
        lambda: process.engine.nominations,
    )
    cycles = dict.fromkeys(built.scheduler_names, cycle)
    engine = CountedEngine(
        built.tables,
        built.queue,
        cycles,
        reserve_after_s=configuration.reserve_after_s,
        audit_period_s=configuration.ledger_audit_period_s,
    )
    service, metrics = service_on(wire, engine, reader, configuration, seed=seed, leadership=leadership)
    metrics.waiting = lambda: waiting_text(service.dispatch.status.all(), engine.queue, EPOCH_S + loop.time())
    process = Process(wire, service, engine, cycle, metrics, loop.create_task(service.run()))
    return process


def service_on(
    cluster: MemoryCluster,
    engine: Engine,
    reader: PodReader,
    configuration: SchedulerConfiguration = AT_ONCE,
    *,
    seed: int = 0,
    leadership: Leadership | None = None,
) -> tuple[SchedulerService, Metrics]:
    """Return the real service with this engine, on the running loop's clock; not started."""
    loop = asyncio.get_running_loop()
    metrics = Metrics(engine.tables, engine.queue.lengths, per_card=False)
    clock = Clock(loop.time, lambda: int((EPOCH_S + loop.time()) * 1e9), loop.time())
    service = SchedulerService(
        cluster,
        service_options(configuration, instance="test"),
        ServiceObserver(metrics, clock),
        engine=engine,
        reader=reader,
        rng=random.Random(seed),  # noqa: S311 - repeatable
        clock=clock,
        leadership=leadership,
    )
    cluster.leads = service.leads
    return service, metrics


@asynccontextmanager
async def scheduling(
    of: World, configuration: SchedulerConfiguration = AT_ONCE, *, latency_s: float = 0.0
) -> AsyncIterator[Process]:
    """Yield a process that has listed the world and made all possible decisions."""
    process = start(Wire(of, Posts(of), latency_s=latency_s), configuration)
    try:
        await asyncio.sleep(A_MOMENT_S)
        yield process
    finally:
        # An ended process's error explains more than its unfinished work.
        if process.task.done() and not process.task.cancelled():
            process.task.result()
        await process.kill()
