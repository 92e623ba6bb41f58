"""One run: a fresh API server, nodes, a backlog of pods, one scheduler, and what came of it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import uvloop

from e2e.bench import ledger, process, workload
from e2e.bench.contenders import CONTENDERS
from e2e.bench.observer import PODS, Observer
from e2e.bench.workload import NAMESPACE, Size
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child

STALLED_AFTER_S: Final = 20.0
_LOOK_EVERY_S: Final = 0.02


class RaceStalled(Exception):
    """The scheduler stopped before every pod had a node; the message ends with its last log lines."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one scheduler did.

    seconds: from the first pod seen with a node to the last. start_s: from the start of the process
    to the first. cpu_s: of the process, from its start to the last Scheduled event seen.
    events: pods that have a Scheduled event.
    """

    scheduler: str
    pods: int
    seconds: float
    start_s: float
    cpu_s: float
    peak_mib: float
    events: int
    verdict: ledger.Audit

    @property
    def pods_per_s(self) -> float:
        """Pods that got their node after the first one, per second."""
        return (self.pods - 1) / self.seconds

    @property
    def cpu_ms_per_pod(self) -> float:
        """CPU of the scheduler's process per pod, its start included."""
        return 1000 * self.cpu_s / self.pods


def run(scheduler: str, size: Size) -> Run:
    """Race one scheduler on a fresh control plane. Raises RaceStalled, and what ControlPlane raises."""
    with ControlPlane(load_tuned=True) as cluster:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(_race(scheduler, size, cluster))
        except ExceptionGroup as failures:
            # What failed first ended the other tasks: it alone says what happened.
            raise failures.exceptions[0] from failures


async def _race(scheduler: str, size: Size, cluster: ControlPlane) -> Run:
    async with Admin(cluster.access()) as admin:
        await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        await admin.create_all("/api/v1/nodes", workload.nodes(size))
        await admin.create_all(PODS, workload.pods(size))
        async with _observing(admin, size.pods) as seen:
            started_s = time.monotonic()
            child = CONTENDERS[scheduler](cluster)
            try:
                cpu_s = await _finished(child, seen, size.pods)
                peak_mib = process.peak_mib(child.pid)
            finally:
                child.stop()
        verdict = ledger.judged(await admin.items("/api/v1/nodes"), await admin.items(PODS))
    return Run(
        scheduler=scheduler,
        pods=size.pods,
        seconds=seen.last_s - seen.first_s,
        start_s=seen.first_s - started_s,
        cpu_s=cpu_s,
        peak_mib=peak_mib,
        events=len(seen.announced),
        verdict=verdict,
    )


@asynccontextmanager
async def _observing(admin: Admin, pods: int) -> AsyncIterator[Observer]:
    """Watch; the backlog has been read once before the race begins, so that this takes no CPU from it."""
    seen = Observer(pods)
    async with asyncio.TaskGroup() as tasks:
        watches = [tasks.create_task(seen.watch_pods(admin)), tasks.create_task(seen.watch_events(admin))]
        await seen.caught_up.wait()
        yield seen
        for watch in watches:
            watch.cancel()


async def _finished(child: Child, seen: Observer, pods: int) -> float:
    """Wait until every pod has a node and an event, or nothing moves any more; CPU at the last event.

    Events may be lost (kube-scheduler's are best effort), so their absence ends the wait, not the run.
    """
    announced, cpu_s, moved_s, bound = 0, 0.0, time.monotonic(), 0
    while len(seen.bound) < pods or len(seen.announced) < pods:
        await asyncio.sleep(_LOOK_EVERY_S)
        child.check_alive()
        if (len(seen.bound), len(seen.announced)) != (bound, announced):
            bound, announced, moved_s = len(seen.bound), len(seen.announced), time.monotonic()
            cpu_s = process.cpu_s(child.pid)
        elif time.monotonic() - moved_s > STALLED_AFTER_S:
            break
    if len(seen.bound) < pods:
        tail = child.log.read_text(errors="replace")[-3000:]
        message = f"{child.name}: {len(seen.bound)} of {pods} pods have a node, then nothing moved\n{tail}"
        raise RaceStalled(message)
    return cpu_s
