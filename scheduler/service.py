"""The scheduler on one cluster: intake feeds the core, the agenda decides, dispatch sends.

    watches ─▶ intake ─▶ tables, queue ─▶ agenda: a step ─▶ effects ─▶ dispatch ─▶ API server
                               ▲                                          │
                               └─────── bound, bind_failed, … ◀───────────┘

One event loop owns everything here. A bug ends the TaskGroup, and the process restarts clean.
"""

import asyncio
import math
import random
from typing import Final

import structlog

from scheduler.core.engine import Engine
from scheduler.dispatch.dispatch import Dispatch
from scheduler.dispatch.options import ServiceOptions
from scheduler.intake.watches import watches_of
from scheduler.kube.port import KINDS, Cluster
from scheduler.leader.leadership import Leadership
from scheduler.metrics.observer import ServiceObserver
from scheduler.pods.pod import PodReader
from scheduler.process.clock import Clock
from scheduler.process.contact import Contact

_SLICE_S: Final = 0.005
_LAG_EVERY_S: Final = 0.25

log = structlog.get_logger()


class SchedulerService:
    """Service that runs until stopped. engine: to be read only. dispatch: everything that is written."""

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
        self._options = options
        self._observer = observer
        self._clock = clock = clock or Clock()
        self._leadership = leadership
        self._schedules = False  # set once the tables match the cluster
        self._wake = asyncio.Event()
        self._until_stop: list[asyncio.Task[None]] = []
        self.contact = Contact((kind.name for kind in KINDS), clock.monotonic_s)
        self.dispatch = Dispatch(
            cluster,
            engine,
            reader,
            options,
            observer=observer,
            contact=self.contact,
            clock=clock,
            rng=rng,
            wake=self._wake,
        )
        engine.into(self.dispatch.binding)
        self._watches = watches_of(
            cluster,
            engine,
            reader,
            observer,
            self.contact,
            reports=self.dispatch,
            clock=clock,
            fencing_delay_s=options.fencing_delay_s,
            # A standby lists the objects right away and catches up when it is elected.
            since_s=-math.inf if leadership else clock.started_s,
            rng=rng,
            wake=self._wake,
        )

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
            async with asyncio.TaskGroup() as sending, asyncio.TaskGroup() as tasks:
                self._until_stop = [tasks.create_task(one) for one in (self._watch_lag(), self._lead(sending))]
            if self._leadership is not None and leading is not None:
                confirmed = self._schedules and await self.dispatch.all_confirmed()
                await self._leadership.end(leading, self._watches.barrier.last_change if confirmed else None)
                self.dispatch.status.forget_waiting()
            for task in watching:
                task.cancel()

    async def _lead(self, sending: asyncio.TaskGroup) -> None:
        """Wait until this process leads and its tables match the cluster, then schedule."""
        if self._leadership is not None:
            await self._watches.take_over(await self._leadership.won(), self.engine.scheduler_names)
            log.info("leader.schedules", identity=self._leadership.identity)
        self._schedules = True
        self.dispatch.problems.begin()
        self.engine.audit.begin(self._clock.monotonic_s())
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.dispatch.status.run())
            tasks.create_task(self._work_forever(sending))

    async def _work_forever(self, sending: asyncio.TaskGroup) -> None:
        await self._watches.listed.wait()
        while True:
            if self._work_for_a_slice(sending):
                await asyncio.sleep(0)
            else:
                await self._until_something_happens()

    def _work_for_a_slice(self, sending: asyncio.TaskGroup) -> bool:
        """Do steps of the agenda for a few milliseconds; False if there is nothing left to do now."""
        now_s = self._clock.monotonic_s()
        until_s = now_s + _SLICE_S
        while now_s <= until_s:
            step = self.engine.step(now_s, self._clock.wall_ns())
            if step is None:
                return False
            for effect in step.effects:
                self.dispatch.carry_out(effect, sending)
            until_s = min(until_s, now_s + step.slice_s)
            began_s, now_s = now_s, self._clock.monotonic_s()
            self._observer.stepped(step.effects, now_s - began_s, self.engine.searches.begun)
        return True

    async def _until_something_happens(self) -> None:
        ready_s, timer = self.engine.next_step_s(), None
        if ready_s < math.inf:
            delay_s = max(0.0, ready_s - self._clock.monotonic_s())
            timer = asyncio.get_running_loop().call_later(delay_s, self._wake.set)
        await self._wake.wait()
        self._wake.clear()
        if timer is not None:
            timer.cancel()

    def stop(self) -> None:
        """Stop deciding. Bind requests in flight are completed; no others are sent.

        Pods without a definite answer are left to the next process: it waits until no request of this one can take
        effect, and then lists the pods.
        """
        for task in self._until_stop:
            task.cancel()
        self.dispatch.stop()

    async def _watch_lag(self) -> None:
        while True:
            due_s = self._clock.monotonic_s() + _LAG_EVERY_S
            await asyncio.sleep(_LAG_EVERY_S)
            self._observer.loop_lagged(max(0.0, self._clock.monotonic_s() - due_s))
            if not self._schedules:
                self.engine.run_hint(self._clock.monotonic_s())  # consumes cluster events; no decision does
