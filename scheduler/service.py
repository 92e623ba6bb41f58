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

from scheduler.bind_slots import BindSlots, Stopped
from scheduler.binding_cycle import Binder, BindRefused, WaitingPods
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
# How long back-offs may grow after refusals: by a policy, which will refuse the same pod again; and while the right to
# bind is missing, or the bindings of the pod's namespace fail.
_POLICY_BACKOFF_S: Final = 300.0
_NAMESPACE_BACKOFF_S: Final = 60.0

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
        self.recorder = self._recorder()
        self._wake = asyncio.Event()
        backoff_s = Backoff(rng, wait_exponential(multiplier=0.1, max=5)).delay_s
        self._slots = BindSlots(options.max_binds_in_flight, self._clock.monotonic_s, backoff_s, on_free=self._wake.set)
        self._binder = Binder(
            cluster=cluster,
            slots=self._slots,
            now_s=self._clock.monotonic_s,
            timeout_s=options.bind_timeout_s,
            backoff_s=backoff_s,
            on_retry=observer.bind_retried,
            gone=lambda uid: self.engine.tables.record(uid) is None,
        )
        self._starting, self._being_bound = 0, 0  # pods with a place: their task has not begun; not bound yet
        self._until_stop: list[asyncio.Task[None]] = []
        self._unlisted = {kind.name for kind in (port.PODS, port.NODES, port.NAMESPACES, port.CONFIG_MAPS)}
        self.contact = Contact(self._unlisted, self._clock.monotonic_s)
        self._listed = asyncio.Event()
        self._reported: LRUCache[Problem, bool] = LRUCache(maxsize=_MOST_REPORTED)
        self._ignored_kinds: set[str] = set()

    def _recorder(self) -> Recorder:
        options = self._options
        return Recorder(
            self._cluster,
            controller=options.controller,
            instance=f"{options.controller}-{options.instance}",
            now_s=lambda: self._clock.wall_ns() / 1e9,
            busy=self._has_backlog,
            waits=lambda uid: self.engine.queue.state(uid) not in {None, State.IN_FLIGHT},
            known=self.engine.queue.__contains__,
            on_lost=self._observer.record_lost,
        )

    @property
    def binds_in_flight(self) -> int:
        """Bind requests on the wire."""
        return self._slots.on_the_wire

    @property
    def pods_being_bound(self) -> int:
        """Pods that have a place and are not bound yet, whatever they wait for."""
        return self._being_bound

    @property
    def _may_place(self) -> bool:
        """Whether another pod would be bound at once: otherwise it waits better in the queue, where order counts."""
        return self._starting + self._slots.taken < self._options.max_binds_in_flight

    def not_ready(self) -> str:
        """What keeps pods from being scheduled; "" when nothing does."""
        problem = self.contact.problem(self._options.not_ready_after_s)
        if not self._unlisted:
            return problem
        waiting = f"waiting for the first list of {', '.join(sorted(self._unlisted))}"
        return f"{waiting}; {problem}" if problem else waiting

    async def run(self) -> None:
        """Schedule until `stop`, then return once the bind requests on the wire are answered."""
        async with asyncio.TaskGroup() as bindings, asyncio.TaskGroup() as tasks:
            self._until_stop = [
                tasks.create_task(self._reflect_pods()),
                tasks.create_task(self._reflect(port.NODES, self._handlers.nodes)),
                tasks.create_task(self._reflect(port.NAMESPACES, self._handlers.namespaces)),
                tasks.create_task(self._reflect(port.CONFIG_MAPS, self._handlers.config_maps)),
                tasks.create_task(self.recorder.run()),
                tasks.create_task(self._watch_lag()),
                tasks.create_task(self._decide_forever(bindings)),
                tasks.create_task(self._ledger_audit().run()),
            ]

    def stop(self) -> None:
        """Stop deciding. Bind requests on the wire are answered, no other is sent.

        A pod whose binding has no definite answer by then is the next process's, which waits until no request of this
        one can take effect and then lists.
        """
        for task in self._until_stop:
            task.cancel()
        self._slots.stop()
        self.waiting_pods.stop()

    def _ledger_audit(self) -> LedgerAudit:
        return LedgerAudit(
            self.engine,
            period_s=self._options.audit_period_s,
            now_s=self._clock.monotonic_s,
            report=self._tell,
            done=self._observer.audited,
        )

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
        clock, engine = self._clock, self.engine
        until_s = clock.monotonic_s() + _SLICE_S
        while self._may_place:
            began_s = clock.monotonic_s()
            if began_s > until_s:
                return True
            engine.serve(self._slots.has_room)
            if engine.check(began_s):
                until_s = min(until_s, began_s + _CHECKS_SLICE_S)
                continue
            if not self._slots.all_well and engine.hold_back(self._slots.lets_pass, began_s):
                continue
            decision = engine.decide(began_s, clock.wall_ns())
            if decision is None and engine.serve(self._slots.held_back):
                # Nobody else is ready: the owner is told why it waits.
                until_s = min(until_s, began_s + _CHECKS_SLICE_S)
                decision = engine.decide(began_s, clock.wall_ns())
            if decision is None:
                return False
            self._observer.decided(decision, clock.monotonic_s() - began_s)
            self._follow_up(decision, bindings)
        return False

    async def _until_something_happens(self) -> None:
        ready_s = self.engine.queue.next_ready_s()
        timer = None
        if ready_s is not None and self._may_place:
            delay_s = max(0.0, ready_s - self._clock.monotonic_s())
            timer = asyncio.get_running_loop().call_later(delay_s, self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        if timer is not None:
            timer.cancel()

    def _has_backlog(self) -> bool:
        # Also in the moment in which all binds in flight have just been answered, and the next are about to be sent.
        return self.engine.queue.lengths()["active"] > 0

    def _follow_up(self, decision: Decision, bindings: asyncio.TaskGroup) -> None:
        outcome = decision.outcome
        if isinstance(outcome, NoFit):
            self.recorder.failed_scheduling(outcome.pod, outcome.diagnosis)
            return
        self._starting += 1
        self._being_bound += 1
        bindings.create_task(self._bind(decision.queued, outcome))

    async def _bind(self, queued: QueuedPod, placement: Placement) -> None:
        pod = placement.pod
        self._starting -= 1
        try:
            await self._prepared(placement)
            await self._binder.bind(Binding(pod.key, placement.node, placement.annotations))
        except BindRefused as refused:
            if refused.status == HTTPStatus.UNAUTHORIZED:
                self.contact.failed(_BINDINGS, refused.reason)
            self._refused(placement, refused)
        except Stopped:
            self._observer.left_open(placement)
        else:
            self.contact.recovered(_BINDINGS)
            self.engine.bound(placement)
            self._observer.bound(queued, placement, self._clock.monotonic_s())
            self.recorder.scheduled(pod, placement.node)
        finally:
            self._being_bound -= 1
            self._wake.set()

    def _refused(self, placement: Placement, refused: BindRefused) -> None:
        now_s = self._clock.monotonic_s()
        self.engine.refused(placement, now_s, longest_backoff_s=_longest_backoff_s(refused))
        self._observer.refused(placement, refused)
        if refused.settled:
            return
        what, reasons = "was refused", (refused.reason,)
        if refused.held_back:
            what, reasons = "has to wait", ("held back",)
        self.recorder.scheduler_error(placement.pod, f"binding to {placement.node} {what}: {refused.reason}", reasons)

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
            self.recorder.sweep()

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


def _longest_backoff_s(refused: BindRefused) -> float:
    """How long the back-off may grow where that is longer than configured, else 0."""
    if refused.lasting:
        return _POLICY_BACKOFF_S
    return _NAMESPACE_BACKOFF_S if refused.held_back or refused.status == HTTPStatus.FORBIDDEN else 0.0
