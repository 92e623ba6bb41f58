"""The scheduler at work on one cluster: watches feed the engine, the engine decides, tasks bind.

    reflectors ─events─▶ handlers ─▶ tables, queue
                                        │
    deciding  ◀──────── wake ◀──────────┤   (a slice of a few milliseconds, then other tasks run)
        └─▶ binding tasks ─▶ recorder   ┘

One event loop owns everything here. A bug raises, the TaskGroup ends, the process restarts clean.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog
from cachetools import LRUCache
from tenacity.wait import wait_exponential

from scheduler.binding_cycle import Binder, BindRefused, Time, WaitingPods
from scheduler.engine import Decision, Engine
from scheduler.event_handlers import EventHandlers, Problem
from scheduler.kube import port
from scheduler.kube.port import Binding, Cluster, Kind, ListBegins, ListEnds, T, WatchEvent
from scheduler.kube.reflector import Backoff, WatchBackoff, reflect
from scheduler.ledger_audit import LedgerAudit
from scheduler.pods.pod import Pod, PodReader
from scheduler.process.contact import Contact
from scheduler.queue.entry import QueuedPod, State
from scheduler.scheduling_cycle import NoFit, Placement
from scheduler.telemetry.observer import ServiceObserver
from scheduler.telemetry.recorder import Recorder

_SLICE_S: Final = 0.005
# Questions about pods that wait may go on for long: whoever comes meanwhile passes the loop several times.
_CHECKS_SLICE_S: Final = 0.001
_BATCH_WAIT_S: Final = 0.005
_SMALL_BATCH: Final = 64
_MOST_REPORTED: Final = 4096
_LAG_EVERY_S: Final = 0.25
# One scheduler for a whole cluster: a server that comes back is found within a second.
_RECONNECT_MAX_S: Final = 1.0
_BINDINGS: Final = "bindings"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Clock:
    """Where time comes from. wall_ns: Unix nanoseconds; started_s: monotonic seconds at the process's start."""

    monotonic_s: Callable[[], float] = time.monotonic
    wall_ns: Callable[[], int] = time.time_ns
    started_s: float = time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """controller, instance: this scheduler, and this process of it, as Events name them.

    bind_timeout_s: of one bind request, > 0. predecessor_s: for so long after the start, a bind request of the process
    before this one may still take effect. max_binds_in_flight: bind requests at the same time, >= 1. not_ready_after_s:
    for so long the API server may be away, or refuse our credentials, before this scheduler is not ready, > 0.
    audit_period_s: between two audits of the ledger, > 0.
    """

    controller: str
    instance: str
    bind_timeout_s: float
    predecessor_s: float
    max_binds_in_flight: int
    not_ready_after_s: float
    audit_period_s: float = 600.0


class Service:
    """Runs until stopped. observer: told of what happens; the tables and the queue are read through `engine`."""

    def __init__(
        self,
        cluster: Cluster,
        options: ServiceOptions,
        observer: ServiceObserver,
        *,
        engine: Engine,
        reader: PodReader,
        rng: random.Random,
        clock: Clock | None = None,
    ) -> None:
        """rng: spreads retries."""
        self.engine = engine
        self.waiting_pods = WaitingPods()
        self._cluster = cluster
        self._options = options
        self._observer = observer
        self._clock = clock or Clock()
        self._rng = rng
        self._handlers = EventHandlers(
            engine, reader, now_s=self._clock.monotonic_s, report=self._report, ignored=self._ignored
        )
        self.recorder = Recorder(
            cluster,
            controller=options.controller,
            instance=f"{options.controller}-{options.instance}",
            now_s=lambda: self._clock.wall_ns() / 1e9,
            busy=self._has_backlog,
            waits=lambda uid: self.engine.queue.state(uid) not in {None, State.IN_FLIGHT},
            on_lost=observer.record_lost,
        )
        self._binder = Binder(
            cluster,
            Time(self._clock.monotonic_s, asyncio.sleep),
            options.bind_timeout_s,
            backoff_s=Backoff(rng, wait_exponential(multiplier=0.1, max=5)).delay_s,
            on_retry=observer.bind_retried,
        )
        self._audit = LedgerAudit(
            engine,
            period_s=options.audit_period_s,
            now_s=self._clock.monotonic_s,
            report=self._tell,
            done=observer.audited,
        )
        self._in_flight = 0
        self._wake = asyncio.Event()
        self._until_stop: list[asyncio.Task[None]] = []
        self._unlisted = {kind.name for kind in (port.PODS, port.NODES, port.NAMESPACES, port.CONFIG_MAPS)}
        self.contact = Contact(self._unlisted, self._clock.monotonic_s)
        self._listed = asyncio.Event()
        self._reported: LRUCache[Problem, bool] = LRUCache(maxsize=_MOST_REPORTED)
        self._ignored_kinds: set[str] = set()

    @property
    def binds_in_flight(self) -> int:
        """Bind requests without a definite answer so far."""
        return self._in_flight

    def not_ready(self) -> str:
        """What keeps pods from being scheduled; "" when nothing does."""
        problem = self.contact.problem(self._options.not_ready_after_s)
        if not self._unlisted:
            return problem
        waiting = f"waiting for the first list of {', '.join(sorted(self._unlisted))}"
        return f"{waiting}; {problem}" if problem else waiting

    async def run(self) -> None:
        """Schedule until `stop`, then return once the binds in flight are answered."""
        async with asyncio.TaskGroup() as bindings, asyncio.TaskGroup() as tasks:
            self._until_stop = [
                tasks.create_task(self._reflect_pods()),
                tasks.create_task(self._reflect(port.NODES, self._handlers.nodes)),
                tasks.create_task(self._reflect(port.NAMESPACES, self._handlers.namespaces)),
                tasks.create_task(self._reflect(port.CONFIG_MAPS, self._handlers.config_maps)),
                tasks.create_task(self.recorder.run()),
                tasks.create_task(self._watch_lag()),
                tasks.create_task(self._audit.run()),
                tasks.create_task(self._decide_forever(bindings)),
            ]

    def stop(self) -> None:
        """Stop deciding; binds in flight go on."""
        for task in self._until_stop:
            task.cancel()

    async def _reflect(self, kind: Kind[T], handle: Callable[[list[WatchEvent[T]]], None]) -> None:
        batches = reflect(
            self._cluster,
            kind,
            backoff=WatchBackoff(self._rng, reconnect_max_s=_RECONNECT_MAX_S),
            on_trouble=self._trouble,
            on_answer=self._answered,
        )
        async for batch in batches:
            handle(batch)
            for event in batch:
                if isinstance(event, ListBegins):
                    self._observer.list_began(kind.name)
                elif isinstance(event, ListEnds):
                    self._first_list(kind.name)
            self._wake.set()
            # The API server sends each change separately; a short pause lets them arrive in batches, which cost less.
            if len(batch) < _SMALL_BATCH:
                await asyncio.sleep(_BATCH_WAIT_S)

    def _trouble(self, kind: Kind[T], error: port.ApiError | None) -> None:
        if error is None:
            self.contact.recovered(kind.name)
        else:
            self.contact.failed(kind.name, error.message)
        self._observer.watch_trouble(kind, error)

    def _answered(self, kind: Kind[T], opened: bool) -> None:  # noqa: FBT001 - as OnAnswer
        self.contact.answered(kind.name)
        if opened:
            # With the same credentials; whether it may bind, the next bind request tells.
            self.contact.recovered(_BINDINGS)

    async def _reflect_pods(self) -> None:
        # Listed after the wait, so that what the predecessor bound meanwhile is in the list, however slow the watch is.
        await self._outwait_predecessor()
        await self._reflect(port.PODS, self._handlers.pods)

    def _first_list(self, kind: str) -> None:
        if kind in self._unlisted:
            self._unlisted.discard(kind)
            log.info("cluster.listed", kind=kind, missing=sorted(self._unlisted))
        if not self._unlisted:
            self._listed.set()

    async def _decide_forever(self, bindings: asyncio.TaskGroup) -> None:
        await self._listed.wait()
        while True:
            if self._decide_for_a_slice(bindings):
                await asyncio.sleep(0)
            else:
                await self._until_something_happens()

    async def _outwait_predecessor(self) -> None:
        # A POST of the previous process may still take effect until its time-out has passed.
        left_s = self._options.predecessor_s - (self._clock.monotonic_s() - self._clock.started_s)
        if left_s > 0:
            log.info(
                "start.waiting",
                seconds=round(left_s, 1),
                reason="a bind request of the previous process may still take effect",
            )
            await asyncio.sleep(left_s)

    def _decide_for_a_slice(self, bindings: asyncio.TaskGroup) -> bool:
        """Decide for a few milliseconds; False when there is nothing left to do for now."""
        clock, engine, most = self._clock, self.engine, self._options.max_binds_in_flight
        until_s = clock.monotonic_s() + _SLICE_S
        while self._in_flight < most:
            began_s = clock.monotonic_s()
            if began_s > until_s:
                return True
            if engine.check(began_s):
                until_s = min(until_s, began_s + _CHECKS_SLICE_S)
                continue
            decision = engine.decide(began_s, clock.wall_ns())
            if decision is None:
                return False
            self._observer.decided(decision, clock.monotonic_s() - began_s)
            self._follow_up(decision, bindings)
        return False

    async def _until_something_happens(self) -> None:
        ready_s = self.engine.queue.next_ready_s()
        timer = None
        if ready_s is not None and self._in_flight < self._options.max_binds_in_flight:
            delay_s = max(0.0, ready_s - self._clock.monotonic_s())
            timer = asyncio.get_running_loop().call_later(delay_s, self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        if timer is not None:
            timer.cancel()

    def _has_backlog(self) -> bool:
        return self._in_flight > 0 and self.engine.queue.lengths()["active"] > 0

    def _follow_up(self, decision: Decision, bindings: asyncio.TaskGroup) -> None:
        outcome = decision.outcome
        if isinstance(outcome, NoFit):
            self.recorder.failed_scheduling(outcome.pod, outcome.diagnosis)
            return
        self._in_flight += 1
        bindings.create_task(self._bind(decision.queued, outcome))

    async def _bind(self, queued: QueuedPod, placement: Placement) -> None:
        pod = placement.pod
        try:
            await self._prepared(placement)
            await self._binder.bind(Binding(pod.key, placement.node, placement.annotations))
        except BindRefused as refused:
            if refused.status == HTTPStatus.UNAUTHORIZED:
                self.contact.failed(_BINDINGS, refused.reason)
            self.engine.refused(placement, self._clock.monotonic_s(), gone=refused.gone)
            self._observer.refused(placement, refused)
            if not refused.settled:
                message = f"binding to {placement.node} was refused: {refused.reason}"
                self.recorder.scheduler_error(pod, message)
        else:
            self.contact.recovered(_BINDINGS)
            self.engine.bound(placement)
            self._observer.bound(queued, placement, self._clock.monotonic_s())
            self.recorder.scheduled(pod, placement.node)
        finally:
            self._in_flight -= 1
            self._wake.set()

    async def _prepared(self, placement: Placement) -> None:
        """Wait for Permit, then PreBind; BindRefused when one of them rejects."""
        await self.waiting_pods.wait(placement.pod.key.uid, placement.holds)
        for plugin in placement.pre_bind:
            try:
                await plugin.pre_bind(placement.pod, placement.node)
            except port.ApiError as error:
                message = f"{plugin.name}: {error.message}"
                raise BindRefused(message, status=error.status) from error

    async def _watch_lag(self) -> None:
        while True:
            due_s = self._clock.monotonic_s() + _LAG_EVERY_S
            await asyncio.sleep(_LAG_EVERY_S)
            self._observer.loop_lagged(max(0.0, self._clock.monotonic_s() - due_s))

    def _report(self, problem: Problem) -> None:
        if problem in self._reported:
            return
        self._reported[problem] = True
        self._tell(problem)

    def _tell(self, problem: Problem) -> None:
        self._observer.bad_object(problem.kind)
        log.warning("object.bad", kind=problem.kind, name=problem.name, problem=problem.message)
        if problem.on_object:
            self.recorder.about(problem.kind, problem.name, problem.uid, problem.reason, problem.message)

    def _ignored(self, pod: Pod, preference: str) -> None:
        if preference not in self._ignored_kinds:
            self._ignored_kinds.add(preference)
            log.warning("preference.ignored", preference=preference, first_pod=str(pod.key))
