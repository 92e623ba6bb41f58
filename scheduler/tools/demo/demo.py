"""`gpushare-scheduler demo`: shows the real scheduler on a cluster in memory.

    player ───▶ World ─watch─▶ SchedulerService ─bind─▶ World ─▶ checker
       ▲                                                           │
       └────────────── started pods ◀──────────────────────────────┘

The demo's clock stops while the scheduler works, so every speed gives the same result.
"""

import asyncio
import contextlib
import random
import signal
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final, TextIO

import structlog
import uvloop

from config.clusterfile.reading import read
from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.dispatch.options import ServiceOptions
from scheduler.kube.objects import PodObject
from scheduler.metrics.metrics import Metrics
from scheduler.pods.gpu_request import ResourceNames
from scheduler.process.clock import Clock
from scheduler.queue.entry import PodState
from scheduler.service import SchedulerService
from scheduler.state.cards.node_inventory import read_inventory
from scheduler.state.ledger import of_tables
from scheduler.testing.cluster.checker import ClusterChecker
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.pods import FINISHED
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.asking import ClusterView
from scheduler.tools.demo.claims import Assertion, Evidence, claims
from scheduler.tools.demo.demo_log import DemoLog, LogLine
from scheduler.tools.demo.picture import Scene, screen
from scheduler.tools.explain.reading import ClusterSnapshot
from scheduler.tools.page.server import page_served
from scheduler.tools.simulate.player import TimelinePlayer
from scheduler.tools.simulate.timeline import Step, timeline

_UNIT_MIB: Final = 1024
_LATENCY_S: Final = 0.01  # of the API server
_TICK_S: Final = 0.01
_FRAME_S: Final = 1 / 12
_QUICKEST_TICK_S: Final = 0.001
_QUIET_TICKS: Final = 2  # after this time, the pods that the last event woke have been decided, too
_LINES_KEPT: Final = 100
_AT_REST: Final = frozenset({PodState.UNSCHEDULABLE, PodState.BACKING_OFF, PodState.GATED})
_PATIENCE_S: Final = 10.0
_INTERRUPTED: Final = 130  # exit code of a shell for SIGINT
_OPTIONS: Final = ServiceOptions(
    controller=names.SCHEDULER_NAME,
    instance="demo",
    bind_timeout_s=4.0,
    max_binds_in_flight=64,
    fencing_delay_s=0.0,
    not_ready_after_s=30.0,
)


def demo(out: TextIO, *, speed: float, loops: bool, serve: int | None = None) -> int:
    """Show the demo on `out`: as a picture on a terminal, otherwise as one line per event.

    speed: seconds of the demo per real second. loops: start over at the end, until interrupted. serve: loopback port of
    a web page, 0 for any free port; the page then stays available after the end. Returns the exit code: 1 if a claim of
    the demo is false.
    """
    cluster = read(Path(__file__).with_name("demo.yaml"))
    resources = ResourceNames()
    with _no_log_lines(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(
            _Demo(timeline(cluster, resources, _UNIT_MIB), resources, out, speed).run(loops=loops, serve=serve)
        )


class _Demo:
    """One cluster and one scheduler; call `run` once."""

    def __init__(self, steps: list[Step], resources: ResourceNames, out: TextIO, speed: float) -> None:
        # A second of the demo may be shorter than the minimum back-off.
        shorter = {"pod_initial_backoff_seconds": 1 / speed}
        configuration = SchedulerConfiguration(memory_unit_mib=_UNIT_MIB).model_copy(update=shorter)
        self._steps = steps
        self._resources = resources
        self._speed = speed
        self._now_s = 0.0
        self._round_began_s = 0.0
        self._world = World(time.time)
        self._player = TimelinePlayer(self._world, steps)
        self._checker = ClusterChecker(
            self._world,
            resources,
            _UNIT_MIB,
            clock=Clock(),
            on_bound=self._started,
        )
        self._engine, self._reader = build_engine(configuration)
        self._screen = screen(out)
        self._lines: deque[LogLine] = deque(maxlen=_LINES_KEPT)
        metrics = Metrics(self._engine.tables, self._engine.queue.lengths, per_card=False)
        self._log = DemoLog(metrics, lambda: self._now_s, self._tell)
        self._cluster = MemoryCluster(self._world, latency_s=_LATENCY_S / speed)
        self._service = SchedulerService(
            self._cluster,
            _OPTIONS,
            self._log,
            engine=self._engine,
            reader=self._reader,
            rng=random.Random(0),  # noqa: S311 - spreads retries, guards nothing
        )
        self._stop = asyncio.Event()
        self._stuck = False
        self._address = ""

    async def run(self, *, loops: bool, serve: int | None) -> int:
        """Run the demo. Returns the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._stop.set)
        shown: list[Assertion] = []
        try:
            async with self._page(serve), asyncio.TaskGroup() as tasks:
                tasks.create_task(self._service.run())
                with self._screen.opened():
                    drawing = tasks.create_task(self._draw_forever())
                    shown = await self._play(loops=loops)
                    if serve is not None:
                        await self._stop.wait()
                    drawing.cancel()
                    self._screen.draw(self._scene())
                self._service.stop()
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        self._screen.close(self._scene(), shown)
        if self._checker.violations or not all(claim.holds for claim in shown):
            return 1
        return _INTERRUPTED if self._stop.is_set() and not loops and serve is None else 0

    @contextlib.asynccontextmanager
    async def _page(self, port: int | None) -> AsyncIterator[None]:
        """Serve the page. Raises StartupError if the port cannot be listened on."""
        if port is None:
            yield
            return
        view = ClusterView(self._cluster, ClusterSnapshot(self._engine, _UNIT_MIB), self._reader)
        async with page_served(view, self._service.not_ready, port) as self._address:
            self._log.happened(f"the web page is at {self._address}")
            yield

    async def _play(self, *, loops: bool) -> list[Assertion]:
        """Play round after round. Returns the claims of the last complete round."""
        shown: list[Assertion] = []
        while await self._play_round():
            shown = claims(Evidence(self._checker, of_tables(self._engine.tables), self._log.waiting))
            if self._stuck:
                shown.append(Assertion(f"the scheduler settled within {_PATIENCE_S:g} s", holds=False))
            if not loops or not all(claim.holds for claim in shown):
                break
            await self._start_over()
        return shown

    async def _play_round(self) -> bool:
        """Play one round. Returns False if it was interrupted."""
        while (due_s := self._player.next_s) is not None:
            await self._pass_time_until(self._round_began_s + due_s)
            if self._stop.is_set():
                return False
            for text in self._player.play_next():
                self._log.happened(text)
            if not await self._settle():
                break
        return not self._stop.is_set()

    async def _pass_time_until(self, due_s: float) -> None:
        began_s, from_s = time.monotonic(), self._now_s
        while self._now_s < due_s and not self._stop.is_set():
            await asyncio.sleep(min(_TICK_S, (due_s - self._now_s) / self._speed))
            self._now_s = min(due_s, from_s + (time.monotonic() - began_s) * self._speed)

    async def _settle(self) -> bool:
        """Wait until the scheduler has seen and decided everything. Returns False if that takes too long."""
        quiet, began_s = 0, time.monotonic()
        while quiet < _QUIET_TICKS and not self._stop.is_set():
            await asyncio.sleep(max(_QUICKEST_TICK_S, _TICK_S / self._speed))
            quiet = quiet + 1 if self._is_settled() else 0
            self._stuck = time.monotonic() - began_s > _PATIENCE_S
            if self._stuck:
                return False
        return True

    def _is_settled(self) -> bool:
        tables, queue = self._engine.tables, self._engine.queue
        if self._service.dispatch.being_bound or self._service.dispatch.status.pending:
            return False
        for node in self._world.nodes:
            name = node.metadata.name
            if name not in tables.row_of or tables.inventory(name) != read_inventory(node, self._resources, _UNIT_MIB):
                return False
        for pod in self._world.pods:
            uid, record = pod.metadata.uid, tables.record(pod.metadata.uid)
            if pod.status.phase in FINISHED:
                known = record is None
            elif pod.spec.node_name:
                known = record is not None and not record.assumed
            else:
                known = queue.state(uid) in _AT_REST
            if not known:
                return False
        return True

    def _started(self, pod: PodObject) -> None:
        self._player.started(pod, self._now_s - self._round_began_s)

    async def _start_over(self) -> None:
        """Remove every pod and node, and play everything from the start."""
        self._log.happened("everything is deleted, and the demo starts over")
        for pod in list(self._world.pods):
            self._world.pods.remove(pod.metadata.namespace, pod.metadata.name)
        for node in list(self._world.nodes):
            self._world.nodes.delete(node.metadata.name)
        self._log.waiting.clear()
        self._world.events.expire()
        await self._settle()
        self._checker.start_over()
        self._round_began_s = self._now_s
        self._player = TimelinePlayer(self._world, self._steps)

    # Output

    def _tell(self, line: LogLine) -> None:
        self._lines.append(line)
        self._screen.tell(line)

    def _scene(self) -> Scene:
        title = (
            f"gpushare-scheduler demo {self._now_s:5.1f} s  {self._log.bound_pods} bound  "
            f"{len(self._log.waiting)} waiting  (units: GiB of GPU memory)"
            + (f"  {self._address}" if self._address else "")
        )
        return Scene(title, self._engine.tables, self._log.waiting, list(self._lines))

    async def _draw_forever(self) -> None:
        while True:
            self._screen.draw(self._scene())
            await asyncio.sleep(_FRAME_S)


@contextlib.contextmanager
def _no_log_lines() -> Iterator[None]:
    """Suppress log lines, which would garble the picture and repeat its content."""
    before = structlog.get_config()
    structlog.configure(processors=[_drop], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)


def _drop(_logger: object, _name: str, _event: Any) -> Any:  # noqa: ANN401 - structlog's own types
    raise structlog.DropEvent
