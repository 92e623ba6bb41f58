"""Dispatch, the one door out: carries out what the core decides, and all other writes to the API server.

    effect ─┬─ Bind ───────────────────────▶ binding_tasks.py ───── volumes, Binding
            ├─ Evict ──────────────────────▶ preemption_tasks.py ── DELETE
            ├─ Nominate ───────────────────▶ nomination_writer.py ─ status
            ├─ Unschedulable, Reevaluated ─▶ status.py ──────────── condition, Event
            ├─ Delay ──────────────────────▶ binding_tasks.py ───── condition
            ├─ NodeAudited ────────────────▶ problems.py ────────── Event
            └─ the others ─────────────────▶ log and metrics

Owned by the event loop.
"""

import asyncio
import random
from typing import Final

from tenacity.wait import wait_exponential

from scheduler.core.effects import (
    Audited,
    Bind,
    Delay,
    Effect,
    Evict,
    LostWakeup,
    NodeAudited,
    Nominate,
    Reevaluated,
    Reserve,
    Unschedulable,
)
from scheduler.core.engine import Engine
from scheduler.dispatch.audit_problems import problems
from scheduler.dispatch.binding_cycle import Binder
from scheduler.dispatch.binding_tasks import BindingTasks
from scheduler.dispatch.nomination_writer import NominationWriter
from scheduler.dispatch.options import ServiceOptions
from scheduler.dispatch.preemption_tasks import PreemptionTasks
from scheduler.dispatch.problems import Problems
from scheduler.dispatch.sender import Sender, Write
from scheduler.dispatch.status import Status
from scheduler.dispatch.volume_binder import VolumeBinder
from scheduler.kube.events import Reporter
from scheduler.kube.port import Cluster
from scheduler.kube.problem import Problem
from scheduler.kube.reflector import Backoff
from scheduler.metrics.observer import ServiceObserver
from scheduler.pods.pod import Pod, PodReader
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.process.clock import Clock
from scheduler.process.contact import Contact

# At the end of the process. A healthy watch shows a binding within milliseconds.
_CONFIRMED_WITHIN_S: Final = 2.0


class Dispatch:
    """The door. status: conditions and Events. binding: placed pods. problems: reports of invalid objects."""

    def __init__(
        self,
        cluster: Cluster,
        engine: Engine,
        reader: PodReader,
        options: ServiceOptions,
        *,
        observer: ServiceObserver,
        contact: Contact,
        clock: Clock,
        rng: random.Random,
        wake: asyncio.Event,
    ) -> None:
        """wake: set when another pod may perhaps be placed."""
        self._observer, self._tables, self._wake = observer, engine.tables, wake
        self.sender = Sender(options.max_binds_in_flight, Backoff(rng, wait_exponential(multiplier=0.1, max=5)), wake)
        reporter = Reporter(options.controller, f"{options.controller}-{options.instance}")
        self.status = Status(cluster, self.sender, engine.queue, observer, clock=clock, reporter=reporter)
        self.problems = Problems(observer, self.status.events, clock.monotonic_s)
        self.volume_binder = VolumeBinder(cluster, engine.tables, self.sender)
        binder = Binder(
            cluster=cluster,
            sender=self.sender,
            tables=engine.tables,
            observer=observer,
            events=self.status.events,
            clock=clock,
            timeout_s=options.bind_timeout_s,
        )
        self.binding = self._bindings(binder, engine, reader, contact, clock)
        self._nominations = NominationWriter(engine, cluster, self.sender)
        self._preemption = PreemptionTasks(
            engine,
            cluster,
            self.sender,
            self.status.events,
            bindings=self.binding,
            nominations=self._nominations,
            clock=clock,
            wake=wake,
        )

    def _bindings(
        self, binder: Binder, engine: Engine, reader: PodReader, contact: Contact, clock: Clock
    ) -> BindingTasks:
        return BindingTasks(
            engine,
            reader,
            binder,
            observer=self._observer,
            status=self.status,
            contact=contact,
            sender=self.sender,
            volume_binder=self.volume_binder,
            clock=clock,
            wake=self._wake,
        )

    @property
    def in_flight(self) -> int:
        """Number of bind requests in flight."""
        return self.sender.in_flight(Write.BIND)

    @property
    def being_bound(self) -> int:
        """Number of placed pods that are not bound yet, whatever they wait for."""
        return self.binding.being_bound

    def carry_out(self, effect: Effect, tasks: asyncio.TaskGroup) -> None:
        """Carry out an effect of the core; requests are sent in tasks."""
        match effect:
            case Bind():
                self.binding.start(effect.queued, effect.placement, tasks)
            case Evict():
                self._observer.preempts(effect.preemption)
                tasks.create_task(self._preemption.preempt(effect.preemption, tasks))
            case Nominate():
                tasks.create_task(self._nominations.write(effect.pod))
            case _:
                self._tell(effect)

    def _tell(self, effect: Effect) -> None:
        match effect:
            case Unschedulable():
                self._observer.unschedulable(effect.pod, effect.diagnosis, effect.attempt)
                self.status.failed(effect.pod, effect.diagnosis)
            case Delay():
                self.binding.report_delayed(effect.pod)
            case Reevaluated():
                if self.status.reevaluated(effect.pod, effect.diagnosis):
                    self._observer.unschedulable(effect.pod, effect.diagnosis)
            case NodeAudited():
                for problem in problems(effect.audit):
                    self.problems.report_each_time(problem)
            case Reserve() | LostWakeup() | Audited():
                self._observer.noted(effect)

    def problem(self, problem: Problem) -> None:
        """See `Reports`."""
        self.problems.report(problem)

    def waiting_seen(self, pod: Pod) -> None:
        """See `Reports`."""
        self.status.seen(pod)

    def volume_seen(self, key: ClaimKey | str) -> None:
        """See `Reports`."""
        self.volume_binder.seen(key)

    async def all_confirmed(self) -> bool:
        """Wait until the watch has shown all our bindings. Returns False if one is still in doubt."""
        not_sent = self.binding.not_sent
        try:
            async with asyncio.timeout(_CONFIRMED_WITHIN_S):
                while any(one.assumed and one.pod.key.uid not in not_sent for one in self._tables.records()):
                    self._wake.clear()
                    await self._wake.wait()
        except TimeoutError:
            return False
        return True

    def stop(self) -> None:
        """Send nothing more. Requests in flight still get their answers."""
        self.sender.stop()
        self.binding.stop()
