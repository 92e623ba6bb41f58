"""One run: a fresh API server, nodes, a backlog of pods, one scheduler, and what came of it."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import uvloop

from e2e.bench import process, workload
from e2e.bench.contenders import CONTENDERS, Start
from e2e.bench.observer import PODS, Observer
from e2e.bench.race import ledger
from e2e.bench.race.placed import Placed
from e2e.bench.race.rows import Counted, Row
from e2e.bench.workload import NAMESPACE
from e2e.control_plane.admin import Admin, NotSeen, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import Child

_STARTED_WITHIN_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.02
# Where the pod is made that shows that the scheduler works, before a late backlog comes.
_FIRST_IN: Final = "/api/v1/namespaces/default/pods"


class RaceStalled(Exception):
    """The scheduler did not begin, or stopped before every pod had a node; the message ends with its last log lines."""


@dataclass(frozen=True, slots=True)
class Run:
    """What one scheduler did.

    seconds: from the first pod seen with a node, or from when the first of a late backlog was created, to the last pod
    seen with a node. start_s: from the start of the process to the first pod that it bound. cpu_s: of the process, from
    its start to the last Scheduled event seen. servers_cpu_s: of API server and etcd in that time. events: pods that
    have a Scheduled event. counts: by the checks of the row, in order.
    """

    scheduler: str
    pods: int
    seconds: float
    start_s: float
    cpu_s: float
    servers_cpu_s: float
    peak_mib: float
    events: int
    verdict: ledger.Audit
    counts: tuple[Counted, ...]

    @property
    def pods_per_s(self) -> float:
        """Pods that got their node after the first one, per second."""
        return (self.pods - 1) / self.seconds

    @property
    def cpu_ms_per_pod(self) -> float:
        """CPU of the scheduler's process per pod, its start included."""
        return 1000 * self.cpu_s / self.pods

    @property
    def all_cpu_ms_per_pod(self) -> float:
        """CPU of scheduler, API server and etcd per pod."""
        return 1000 * (self.cpu_s + self.servers_cpu_s) / self.pods


def run(scheduler: str, row: Row, start: Start | None = None) -> Run:
    """Race one scheduler on a fresh control plane. Raises RaceStalled, and what ControlPlane raises.

    start: another way to start it than the one by which it races.
    """
    with ControlPlane(load_tuned=True) as cluster:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(_race(scheduler, row, cluster, start or CONTENDERS[scheduler]))
        except ExceptionGroup as failures:
            # What failed first ended the other tasks: it alone says what happened.
            raise failures.exceptions[0] from failures


async def _race(scheduler: str, row: Row, cluster: ControlPlane, start: Start) -> Run:
    async with Admin(cluster.access()) as admin:
        await _prepare(admin, row)
        async with _observing(admin, row) as observer:
            started_s, servers = time.monotonic(), [*cluster.pids.values()]
            before_s = _cpu_s(servers)
            child = start(cluster)
            try:
                late = await _come_late(admin, row, child) if row.late else None
                cpu_s, servers_cpu_s = await _finished(child, servers, observer, row)
                peak_mib = process.peak_mib(child.pid)
            finally:
                child.stop()
        placed = Placed(await admin.items("/api/v1/nodes"), await admin.items("/api/v1/pods"))
    began = late or _Began(observer.first_s, observer.first_s)
    return Run(
        scheduler=scheduler,
        pods=row.size.pods,
        seconds=observer.last_s - began.from_s,
        start_s=began.first_s - started_s,
        cpu_s=cpu_s,
        servers_cpu_s=servers_cpu_s - before_s,
        peak_mib=peak_mib,
        events=len(observer.announced),
        verdict=ledger.judged(placed.nodes, placed.everywhere),
        counts=tuple(check.counted(placed) for check in row.checks),
    )


class _Began(NamedTuple):
    """first_s: when the scheduler had bound a pod. from_s: from when on the race is timed. Both `time.monotonic()`."""

    first_s: float
    from_s: float


async def _prepare(admin: Admin, row: Row) -> None:
    """Nodes, what else the row needs, and the backlog unless it comes late."""
    await admin.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    await admin.create_all("/api/v1/nodes", workload.nodes(row.size))
    for path, objects in row.before(row.size):
        await admin.create_all(path, objects)
    if not row.late:
        await admin.create_all(PODS, row.pods(row.size))


async def _come_late(admin: Admin, row: Row, child: Child) -> _Began:
    """Create the backlog once the scheduler has bound a pod that asks for no card. Raises RaceStalled."""
    await admin.create(_FIRST_IN, workload.cpu_pod("first"))
    query = {"fieldSelector": "metadata.name=first"}
    try:
        await seen(admin, _FIRST_IN, lambda pod: "nodeName" in pod["spec"], query, within_s=_STARTED_WITHIN_S)
    except NotSeen as error:
        raise RaceStalled(_with_log(child, f"bound no pod within {_STARTED_WITHIN_S} s of its start")) from error
    began = _Began(time.monotonic(), time.monotonic())
    await admin.create_all(PODS, row.pods(row.size))
    return began


@asynccontextmanager
async def _observing(admin: Admin, row: Row) -> AsyncIterator[Observer]:
    """Watch; the backlog has been read once before the race begins, so that this takes no CPU from it."""
    observer = Observer(0 if row.late else row.size.pods)
    besides = [row.beside] if row.beside else []
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(watch(admin)) for watch in (observer.watch_pods, observer.watch_events, *besides)]
        await observer.caught_up.wait()
        yield observer
        for task in running:
            task.cancel()


async def _finished(child: Child, servers: Sequence[int], observer: Observer, row: Row) -> tuple[float, float]:
    """Wait until every pod has a node and an event, or nothing moves any more; CPU of both at the last event.

    Events may be lost (kube-scheduler's are best effort), so their absence ends the wait, not the run.
    """
    pods = row.size.pods
    announced, used_s, moved_s, bound = 0, (0.0, 0.0), time.monotonic(), 0
    while len(observer.bound) < pods or len(observer.announced) < pods:
        await asyncio.sleep(_LOOK_EVERY_S)
        child.check_alive()
        if (len(observer.bound), len(observer.announced)) != (bound, announced):
            bound, announced, moved_s = len(observer.bound), len(observer.announced), time.monotonic()
            used_s = process.cpu_s(child.pid), _cpu_s(servers)
        elif time.monotonic() - moved_s > row.stalled_after_s:
            break
    if len(observer.bound) < pods:
        raise RaceStalled(_with_log(child, f"{len(observer.bound)} of {pods} pods have a node, then nothing moved"))
    return used_s


def _cpu_s(pids: Sequence[int]) -> float:
    return sum(map(process.cpu_s, pids))


def _with_log(child: Child, what: str) -> str:
    return f"{child.name}: {what}\n{child.log.read_text(errors='replace')[-3000:]}"
