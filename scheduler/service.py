"""The scheduler on one cluster: watches feed the engine, the engine decides, tasks bind.

    watches ─events─▶ handlers ─▶ tables, queue
                                     │
    deciding  ◀──────── wake ◀───────┤   (a slice of a few milliseconds, then other tasks run)
        └─▶ binding tasks ─▶ recorder┘

One event loop owns everything here. A bug ends the TaskGroup, and the process restarts clean.
"""

import asyncio
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import structlog
from tenacity.wait import wait_exponential

from scheduler.core.engine import Decision, Engine
from scheduler.core.preemption_searches import PostFiltered
from scheduler.core.scheduling_cycle import Placement
from scheduler.dispatch.binding_cycle import Binder, WaitingPods
from scheduler.dispatch.binding_tasks import BindingTasks
from scheduler.dispatch.in_flight_limit import InFlightLimit
from scheduler.dispatch.ledger_audit import LedgerAudit
from scheduler.dispatch.preemption_tasks import PreemptionTasks
from scheduler.dispatch.problems import Problems
from scheduler.dispatch.reason_refresh import ReasonRefresh
from scheduler.dispatch.recorder import Recorder
from scheduler.dispatch.volume_binder import VolumeBinder
from scheduler.intake.event_handlers import EventHandlers, before_start
from scheduler.intake.volume_handlers import VolumeHandlers
from scheduler.intake.watches import PreviousLeader, Watches
from scheduler.kube.port import Binding, Changed, Cluster
from scheduler.kube.reflector import Backoff
from scheduler.leader.leadership import Leadership
from scheduler.metrics.observer import ServiceObserver
from scheduler.pods.pod import PodReader
from scheduler.process.contact import Contact
from scheduler.queue.entry import PodState

_SLICE_S: Final = 0.005
# Hints and searches may take long, so new pods pass through the loop several times before they are decided.
_HINTS_SLICE_S: Final = 0.001
_BINDS_PER_VOLUME_WRITE: Final = 4
# Requests in flight for all preemptions together.
_PREEMPTION_REQUESTS: Final = 16
_LAG_EVERY_S: Final = 0.25
# At the end of the process. A healthy watch shows a binding within milliseconds.
_CONFIRMED_WITHIN_S: Final = 2.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Clock:
    """Source of time. wall_ns: Unix nanoseconds; started_s: monotonic seconds at the process's start."""

    monotonic_s: Callable[[], float] = time.monotonic
    wall_ns: Callable[[], int] = time.time_ns
    started_s: float = time.monotonic()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceOptions:
    """Options of the service. controller, instance: names of this scheduler and this process in Events.

    bind_timeout_s: for one bind request, > 0. fencing_delay_s: how long after the start or the election a bind request
    of the previous leader may still take effect. max_binds_in_flight: concurrent bind requests, >= 1.
    not_ready_after_s: this scheduler reports not ready after the API server has been down, or has rejected our
    credentials, for this long; > 0. audit_period_s: between two audits of the ledger, > 0.
    """

    controller: str
    instance: str
    bind_timeout_s: float
    fencing_delay_s: float
    max_binds_in_flight: int
    not_ready_after_s: float
    audit_period_s: float


class SchedulerService:
    """Service that runs until stopped. observer: called with each event; read tables and queue through `engine`."""

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
        leadership: Leadership | None = None,
    ) -> None:
        """rng: spreads retries. leadership: None without leader election; the service then schedules from the start."""
        self.engine = engine
        self._cluster = cluster
        self._options = options
        self._observer = observer
        self._clock = clock or Clock()
        self._leadership = leadership
        self._schedules = False  # set once the tables match the cluster
        self._wake = asyncio.Event()
        self._until_stop: list[asyncio.Task[None]] = []
        self.recorder = self._recorder()
        now_s, unix_s = self._clock.monotonic_s, self._clock.wall_ns() / 1e9
        self._problems = Problems(observer, self.recorder, now_s)
        since_s = before_start(now_s(), unix_s)
        report, seen = self._problems.report, self.recorder.seen
        handlers = EventHandlers(engine, reader, now_s=now_s, report=report, waits_since_s=since_s, waiting_seen=seen)
        volume_binder = self._volume_binder(rng)
        volume_handlers = VolumeHandlers(engine.change_volumes, report=self._problems.report, seen=volume_binder.seen)
        self._watches = self._the_watches(handlers, volume_handlers, rng)
        self._binding = BindingTasks(
            engine,
            self._binder(rng),
            observer,
            self.recorder,
            self.contact,
            volume_binder=volume_binder,
            found=lambda pod: handlers.pods((Changed(pod),)),
            follow=lambda pod: self._preemption.follow(pod),  # noqa: PLW0108 - made below
            wake=self._wake.set,
        )
        self._preemption = self._preemption_tasks(rng)

    def _recorder(self) -> Recorder:
        options = self._options
        return Recorder(
            self._cluster,
            controller=options.controller,
            instance=f"{options.controller}-{options.instance}",
            now_s=self._clock.monotonic_s,
            unix_ns=self._clock.wall_ns,
            busy=self._has_backlog,
            waits=lambda uid: self.engine.queue.state(uid) not in {None, PodState.IN_FLIGHT},
            known=self.engine.queue.__contains__,
            on_lost=self._observer.record_lost,
        )

    def _the_watches(self, handlers: EventHandlers, volume_handlers: VolumeHandlers, rng: random.Random) -> Watches:
        return Watches(
            self._cluster,
            handlers,
            volume_handlers,
            self._observer,
            # A standby lists the objects right away and catches up when it is elected.
            previous_leader=self._previous_leader(-math.inf if self._leadership else self._clock.started_s),
            rng=rng,
            wake=self._wake,
        )

    def _previous_leader(self, since_s: float) -> PreviousLeader:
        return PreviousLeader(since_s + self._options.fencing_delay_s, self._clock.monotonic_s)

    def _volume_binder(self, rng: random.Random) -> VolumeBinder:
        """Return the volume binder. Its requests have a separate limit, so that a hanging webhook delays no binding."""
        backoff_s = Backoff(rng, wait_exponential(multiplier=0.1, max=5)).delay_s
        most = max(1, self._options.max_binds_in_flight // _BINDS_PER_VOLUME_WRITE)
        limit = InFlightLimit(most, self._clock.monotonic_s, backoff_s, leads=self.leads)
        return VolumeBinder(self._cluster, self.engine.tables, limit, gone=self.engine.tables.is_gone)

    def _preemption_tasks(self, rng: random.Random) -> PreemptionTasks:
        now_s, backoff_s = self._clock.monotonic_s, Backoff(rng, wait_exponential(multiplier=0.1, max=5)).delay_s
        limit = InFlightLimit(_PREEMPTION_REQUESTS, now_s, backoff_s, leads=self.leads)
        return PreemptionTasks(
            self.engine,
            self._cluster,
            self.recorder,
            limit,
            cancel=self._binding.cancel,
            now_s=now_s,
            backoff_s=backoff_s,
            wake=self._wake.set,
        )

    def _binder(self, rng: random.Random) -> Binder:
        now_s = self._clock.monotonic_s
        backoff_s = Backoff(rng, wait_exponential(multiplier=0.1, max=5)).delay_s
        most = self._options.max_binds_in_flight
        return Binder(
            cluster=self._cluster,
            limit=InFlightLimit(most, now_s, backoff_s, on_free=self._wake.set, leads=self.leads),
            now_s=now_s,
            timeout_s=self._options.bind_timeout_s,
            backoff_s=backoff_s,
            on_retry=self._retried,
            gone=self.engine.tables.is_gone,
        )

    @property
    def contact(self) -> Contact:
        """Connectivity to the API server."""
        return self._watches.contact

    @property
    def waiting_pods(self) -> WaitingPods:
        """Pods that wait for Permit."""
        return self._binding.waiting_pods

    @property
    def binds_in_flight(self) -> int:
        """Number of bind requests in flight."""
        return self._binding.limit.in_flight

    @property
    def pods_being_bound(self) -> int:
        """Number of placed pods that are not bound yet, whatever they wait for."""
        return self._binding.being_bound

    @property
    def _may_place(self) -> bool:
        """True if another pod would be bound at once. Otherwise it stays in the queue, which is in priority order."""
        return self._binding.taken() < self._options.max_binds_in_flight

    def not_ready(self) -> str:
        """Problem that keeps pods from being scheduled; "" if none."""
        return self._watches.not_ready(self._options.not_ready_after_s)

    def leads(self) -> bool:
        """Return whether this process schedules and may send the leader's requests."""
        return self._leadership is None or self._leadership.leads()

    async def run(self) -> None:
        """Schedule until `stop`, then return when the bind requests in flight have been answered.

        Raises LeaseLost, in an exception group, if another replica leads.
        """
        async with asyncio.TaskGroup() as background:
            watching = self._watches.start(background)
            leading = None if self._leadership is None else background.create_task(self._leadership.run(self.contact))
            await self._schedule()
            if self._leadership is not None and leading is not None:
                await self._leadership.end(leading, await self._all_seen())
                self.recorder.forget_waiting()
            for task in watching:
                task.cancel()

    async def _schedule(self) -> None:
        async with asyncio.TaskGroup() as bindings, asyncio.TaskGroup() as tasks:
            self._until_stop = [tasks.create_task(one) for one in (self._watch_lag(), self._lead(bindings))]

    async def _lead(self, bindings: asyncio.TaskGroup) -> None:
        """Wait until this process leads and its tables match the cluster, then schedule."""
        if self._leadership is not None:
            taken_over = await self._leadership.won()
            unix_s = self._clock.wall_ns() / 1e9
            if not (taken_over.first and await self._watches.are_first(self.engine.scheduler_names, unix_s)):
                if taken_over.sends_for_s is not None and self._options.fencing_delay_s:
                    await self._previous_leader(self._clock.monotonic_s() + taken_over.sends_for_s).wait_until_fenced()
                await self._watches.wait_until_current(taken_over.pods_version)
            log.info("leader.schedules", identity=self._leadership.identity)
        self._schedules = True
        self._problems.begin()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.recorder.run())
            tasks.create_task(self._decide_forever(bindings))
            tasks.create_task(self._ledger_audit().run())
            now_s, wake = self._clock.monotonic_s, self._wake.set
            tasks.create_task(ReasonRefresh(self.engine, self.recorder, self._observer, now_s=now_s, wake=wake).run())

    async def _all_seen(self) -> str | None:
        """Wait until the watch has shown all our bindings. Returns the last pod change; None if one is in doubt."""
        if not self._schedules:
            return None
        not_sent = self._binding.not_sent
        try:
            async with asyncio.timeout(_CONFIRMED_WITHIN_S):
                while any(r.assumed and r.pod.key.uid not in not_sent for r in self.engine.tables.records()):
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return None
        return self._watches.barrier.last_change

    def stop(self) -> None:
        """Stop deciding. Bind requests in flight are completed; no others are sent.

        Pods without a definite answer are left to the next process: it waits until no request of this one can take
        effect, and then lists the pods.
        """
        for task in self._until_stop:
            task.cancel()
        self._binding.stop()
        self._preemption.stop()

    def _ledger_audit(self) -> LedgerAudit:
        return LedgerAudit(
            self.engine,
            period_s=self._options.audit_period_s,
            now_s=self._clock.monotonic_s,
            report=self._problems.report_each_time,
            done=self._observer.audited,
        )

    async def _decide_forever(self, bindings: asyncio.TaskGroup) -> None:
        await self._watches.listed.wait()
        while True:
            if self._decide_for_a_slice(bindings):
                await asyncio.sleep(0)
            else:
                await self._until_something_happens()

    def _decide_for_a_slice(self, bindings: asyncio.TaskGroup) -> bool:
        """Decide for a few milliseconds; False if there is nothing left to do now."""
        clock, engine = self._clock, self.engine
        until_s = clock.monotonic_s() + _SLICE_S
        while self._may_place:
            began_s = clock.monotonic_s()
            if began_s > until_s:
                return True
            engine.serve(self._binding.limit.has_room)
            if engine.run_hint(began_s):
                until_s = min(until_s, began_s + _HINTS_SLICE_S)
                continue
            if engine.throttle(self._binding.limit.lets_pass, began_s):
                continue
            if engine.search_first():
                self._follow_late_post_filter(engine.post_filter_next(began_s), bindings)
                continue
            decision = engine.decide(began_s, clock.wall_ns())
            if decision is None and engine.any_search:
                until_s = min(until_s, began_s + _HINTS_SLICE_S)
                self._follow_late_post_filter(engine.post_filter_next(began_s), bindings)
                continue
            if decision is None and engine.serve(self._binding.limit.pause_kind, unreported=True):
                # No other pod is ready, so update the message of a throttled one.
                until_s = min(until_s, began_s + _HINTS_SLICE_S)
                decision = engine.decide(began_s, clock.wall_ns())
            if decision is None:
                return False
            self._observer.decided(decision, clock.monotonic_s() - began_s)
            self._follow_up(decision, bindings)
        return False

    async def _until_something_happens(self) -> None:
        ready_s, timer = self.engine.next_ready_s(), None
        if ready_s is not None and self._may_place:
            delay_s = max(0.0, ready_s - self._clock.monotonic_s())
            timer = asyncio.get_running_loop().call_later(delay_s, self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        if timer is not None:
            timer.cancel()

    def _has_backlog(self) -> bool:
        # Also true between the answers to all binds in flight and the next requests.
        return self.engine.queue.lengths()["active"] > 0

    def _follow_up(self, decision: Decision, bindings: asyncio.TaskGroup) -> None:
        outcome = decision.outcome
        if isinstance(outcome, Placement):
            self._binding.start(decision, outcome, bindings)
            return
        post_filtered = None if outcome.by_permit else self.engine.post_filter(outcome, self._clock.monotonic_s())
        diagnosis = outcome.diagnosis if post_filtered is None else post_filtered.diagnosis
        self._observer.unschedulable(outcome.pod, diagnosis, decision.queued.attempts)
        if post_filtered is None:
            self.recorder.failed_scheduling(outcome.pod, outcome.diagnosis)
        self._follow_post_filter(post_filtered, bindings)

    def _follow_late_post_filter(self, post_filtered: PostFiltered | None, tasks: asyncio.TaskGroup) -> None:
        """Handle a search that ended after the attempt was reported."""
        if post_filtered is not None and post_filtered.preemption is None and post_filtered.diagnosis.tail:
            self._observer.unschedulable(post_filtered.pod, post_filtered.diagnosis)
        self._follow_post_filter(post_filtered, tasks)

    def _follow_post_filter(self, post_filtered: PostFiltered | None, tasks: asyncio.TaskGroup) -> None:
        self._observer.post_filtered(self.engine.searches, post_filtered)
        if post_filtered is None:
            return
        if post_filtered.reserved is None:
            self.recorder.failed_scheduling(post_filtered.pod, post_filtered.diagnosis)
        if post_filtered.preemption is not None or post_filtered.displaced:
            self._preemption.start(post_filtered, tasks)

    def _retried(self, binding: Binding, status: int, reason: str) -> None:
        self._observer.bind_retried(binding, status, reason)
        if status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return
        # Write no condition: the pod is already bound, or may be at any moment.
        note = f"binding to {binding.node} has had no definite answer yet; retrying: {reason}"
        pod = binding.pod
        self.recorder.about("Pod", f"{pod.namespace}/{pod.name}", pod.uid, "FailedScheduling", note)

    async def _watch_lag(self) -> None:
        while True:
            due_s = self._clock.monotonic_s() + _LAG_EVERY_S
            await asyncio.sleep(_LAG_EVERY_S)
            self._observer.loop_lagged(max(0.0, self._clock.monotonic_s() - due_s))
            self.recorder.sweep()
            if not self._schedules:
                self.engine.run_hint(self._clock.monotonic_s())  # consumes cluster events; no decision does
