"""One attack on one scheduler: its neighbour in quiet and during the attack, and what is left of it afterwards."""

import asyncio
import gc
import io
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import structlog
from msgspec.structs import replace
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.kube import objects
from scheduler.kube.port import Binding
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import PodReader
from scheduler.state.ledger import recompute
from scheduler.testing.cluster.world import World
from tests.support.clocks.working_time import WorkingTimeLoop, aside, working_loop
from tests.support.service.process import service_on
from tests.tenants import attack as attacks
from tests.tenants import neighbour
from tests.tenants.attack import Attack, Tenant
from tests.tenants.cluster import Connection, cluster
from tests.tenants.memory import bytes_of, counted_bytes
from tests.tenants.neighbour import Neighbour

_SAMPLES: Final = 150
_WARM_UP: Final = 30
_SETTLES_S: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """quiet_s, during_s: the neighbour's create-to-bound, 99th percentile, in seconds of the processor.

    waiting, bound: pods of the attacker, at the end of the attack. before, during, after: bytes that the scheduler
    holds, but for its caches. cached, counted: the most bytes that these hold alone, and that they count themselves, of
    the same moment: that keeps each of them within its bound.
    writes: requests for the attacker's pods, by kind. log_bytes: of log lines while it attacked.
    over_committed: cards that hold more than they have by what the scheduler has bound. ended: what has ended it.
    """

    name: str
    quiet_s: float
    during_s: float
    waiting: int
    bound: int
    before: int
    during: int
    after: int
    cached: int
    counted: int
    writes: Counter[str]
    log_bytes: int
    over_committed: list[str]
    ended: str

    def __str__(self) -> str:
        return (
            f"{self.name}: p99 {self.quiet_s * 1e3:.1f} -> {self.during_s * 1e3:.1f} ms; "
            f"{self.waiting} wait, {self.bound} bound; holds {self.before / 1e6:.2f} -> {self.during / 1e6:.2f} "
            f"-> {self.after / 1e6:.2f} MB, {self.cached / 1e6:.2f} in caches, which count {self.counted / 1e6:.2f}; "
            f"writes {dict(self.writes)}; logs {self.log_bytes / 1e3:.0f} kB {self.ended}"
        )


class Trial:
    """A cluster, a scheduler on it, the neighbour."""

    def __init__(self, nodes: int, logs: io.BytesIO) -> None:
        self.logs = logs
        self.world = cluster(nodes)
        self.connection = Connection(self.world)
        self.neighbour = Neighbour(self.world)
        self.engine, reader = build_engine(SchedulerConfiguration())
        self.service, self.metrics = service_on(self.connection, self.engine, reader)

    @property
    def held(self) -> int:
        """Bytes that the scheduler holds, but for what its caches may hold in any case."""
        return self._bytes(caches=False)

    @property
    def held_with_caches(self) -> int:
        """Bytes that the scheduler holds."""
        return self._bytes(caches=True)

    @property
    def counted(self) -> int:
        """Bytes in its caches, as they count them."""
        with working_loop().paused():
            return counted_bytes([self.service], without=self._others)

    def _bytes(self, *, caches: bool) -> int:
        with working_loop().paused():
            return bytes_of([self.service], without=self._others, caches=caches)

    @property
    def _others(self) -> list[object]:
        return [self.connection, self.connection.faults]

    async def samples(self, number: int, *, beside: asyncio.Task[None] | None = None) -> list[str]:
        """The next pods of the neighbour, once all have a node or much time has passed; as many as come `beside`."""
        due_s = self.neighbour.due_s
        first = len(due_s)
        while len(due_s) < first + number or (beside is not None and not beside.done()):  # noqa: ASYNC110
            await asyncio.sleep(neighbour.EVERY_S)
        if beside is not None:
            await beside
        names = list(due_s)[first:]
        for _ in range(20):
            if all(name in self.neighbour.took_s for name in names):
                break
            await asyncio.sleep(0.1)
        return names


async def trial(attack: Attack, *, nodes: int, scale: float, logs: io.BytesIO) -> Figures:
    """Let the attack run and take the figures."""
    on = Trial(nodes, logs)
    running = asyncio.create_task(on.service.run())
    making = asyncio.create_task(aside(on.neighbour.run()))
    try:
        await on.samples(_WARM_UP)
        quiet_s = on.neighbour.p99_s(await on.samples(_SAMPLES))
        before = on.held
        tenant = Tenant(on.world, on.connection, scale)
        logs.seek(0)
        logs.truncate()
        attacking = asyncio.create_task(aside(attack.acts(tenant)))
        during_s = on.neighbour.p99_s(await on.samples(_SAMPLES, beside=attacking))
        pods, log_bytes, during = tenant.pods(), len(logs.getvalue()), on.held
        cached, counted = on.held_with_caches - during, on.counted
        with working_loop().paused():
            writes = Counter[str]()
            for (verb, about), count in on.connection.faults.writes.items():
                if about.startswith(f"{attacks.NAMESPACE}/"):
                    writes[verb.value] += count
            _read_all_said(on, logs)
            over_committed = _over_committed(on.world, on.connection.bound)
            tenant.leave()
        await asyncio.sleep(_SETTLES_S)
        return Figures(
            name=attack.name,
            quiet_s=quiet_s,
            during_s=during_s,
            waiting=sum(not pod.spec.node_name for pod in pods),
            bound=sum(bool(pod.spec.node_name) for pod in pods),
            before=before,
            during=during,
            after=on.held,
            cached=cached,
            counted=counted,
            writes=writes,
            log_bytes=log_bytes,
            over_committed=over_committed,
            ended=_end_of(running),
        )
    finally:
        for task in (making, running):
            task.cancel()
            await asyncio.wait({task})


def run_trial(attack: Attack, *, nodes: int = 300, scale: float = 1.0) -> Figures:
    """In a loop of working time of its own.

    The collector rests meanwhile: here it looks through all that the cluster in memory holds, too. Its pauses are
    measured where the scheduler has a process of its own, by the benchmark and on the real API server.
    """
    logs = io.BytesIO()
    with _logging_to(logs), _no_collector(), asyncio.Runner(loop_factory=WorkingTimeLoop) as runner:
        return runner.run(trial(attack, nodes=nodes, scale=scale, logs=logs))


def _end_of(running: asyncio.Task[None]) -> str:
    """What has ended the service; "" while it runs."""
    return repr(running.exception()) if running.done() else ""


def _over_committed(world: World, bound: Mapping[str, Binding]) -> list[str]:
    """Cards that what the scheduler has bound, as its bindings said it, takes more of than there is."""
    reader = PodReader(ResourceNames())
    pods = [reader.read(_as_bound(pod, bound[pod.metadata.uid])) for pod in world.pods if pod.metadata.uid in bound]
    ledger = recompute(world.nodes, [(pod, pod.node_name, None) for pod in pods], ResourceNames())
    return [uuid for entry in ledger.values() for uuid, units in entry.free.items() if units < 0]


def _as_bound(pod: objects.PodObject, binding: Binding) -> objects.PodObject:
    written = {**(pod.metadata.annotations or {}), **binding.annotations}
    return replace(pod, metadata=replace(pod.metadata, annotations=written))


def _read_all_said(on: Trial, logs: io.BytesIO) -> None:
    """Each line of the log is one document, and the metrics can be read."""
    for line in logs.getvalue().splitlines():
        msgspec.json.decode(line, type=dict[str, Any])
    for _ in text_string_to_metric_families(generate_latest(on.metrics.registry).decode()):
        pass


@contextmanager
def _no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _logging_to(logs: io.BytesIO) -> Iterator[None]:
    """As `scheduler.process.logs` configures it."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(
                serializer=lambda document, **_: msgspec.json.encode(document, enc_hook=str)
            ),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(20),
        logger_factory=structlog.BytesLoggerFactory(logs),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.reset_defaults()
