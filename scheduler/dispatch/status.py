"""The PodScheduled condition of waiting pods, and Events: all that their owners read.

    failed, bind_failed ──▶ latest condition ─┐
                                              ├─ differ ──▶ due ──▶ outbox ──▶ sender
    seen (watch), answer ──▶ shown condition ─┘    ▲                   │
                                                   └─── back-off ──────┘

For each waiting pod there is the latest condition and the one that the pod shows. While they differ, the latest one is
written, with a back-off that doubles to QUIET_S: after a failed write, after one that a late write of ours replaced,
and after one that another program overwrote. Once the pod shows the latest one, the next is written at once. Numbers
alone are no news for QUIET_S.

A message must not reach a placed pod, so the queue is asked as a request begins. Owned by the event loop.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Final

from scheduler.dispatch.event_outbox import EventOutbox
from scheduler.dispatch.outbox import Outbox
from scheduler.dispatch.sender import Sender, Write
from scheduler.framework.diagnosis import Diagnosis
from scheduler.kube import objects
from scheduler.kube.events import QUIET_S, Reporter
from scheduler.kube.port import ApiError, ApiNotFound, Cluster, PodKey
from scheduler.metrics.observer import ServiceObserver
from scheduler.pods.pod import Pod
from scheduler.process.clock import Clock
from scheduler.process.terminal import one_line
from scheduler.queue.backoff import backoff_s
from scheduler.queue.entry import PodState
from scheduler.queue.heap import Heap
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cards.booking import CardShare

_FIRST_BACKOFF_S: Final = 1.0
# Longest time between two sweeps, and states that are kept beyond twice the number of waiting pods.
_SWEPT_S: Final = 1.0
_FEW: Final = 64


@dataclass(slots=True, kw_only=True)
class WaitingStatus:
    """Latest condition of a waiting pod, and the one that it shows (None if it has none, or none is known).

    created: creation time of the pod, RFC 3339, "" if unknown. reasons: the message without numbers; equal reasons mean
    the same message. rules: names of the rules that reject nodes, for counting, because reasons may quote the pod.
    since_s: when the latest condition was decided. writes: requests since the pod last showed the latest one and got
    another. next_s: end of the back-off.
    """

    pod: PodKey
    created: str
    latest: objects.PodCondition
    shown: objects.PodCondition | None
    reasons: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    since_s: float = -inf
    writes: int = 0
    next_s: float = -inf

    @property
    def differs(self) -> bool:
        """Whether the pod shows another condition than the latest one."""
        return self.shown != self.latest


class Status(Outbox[WaitingStatus]):
    """Writer of conditions; see the module. events: writer of Events."""

    def __init__(
        self,
        cluster: Cluster,
        sender: Sender,
        queue: SchedulingQueue,
        observer: ServiceObserver,
        *,
        clock: Clock,
        reporter: Reporter,
    ) -> None:
        super().__init__()
        self._cluster = cluster
        self._sender = sender
        self._queue = queue
        self._observer = observer
        self._clock = clock
        self.events = EventOutbox(cluster, sender, observer, clock=clock, reporter=reporter)
        self._pods: dict[str, WaitingStatus] = {}
        # Pods that show another condition, by the end of their back-off.
        self._due: Heap[float, str] = Heap()
        self._changed = asyncio.Event()

    @property
    def pending(self) -> int:
        """Number of conditions and Events that are neither written nor given up."""
        return len(self._due) + super().pending + self.events.pending

    def all(self) -> list[WaitingStatus]:
        """Status of every waiting pod, and of some that no longer wait."""
        return list(self._pods.values())

    def failed(self, pod: Pod, diagnosis: Diagnosis) -> None:
        """Report that an attempt found the pod unschedulable."""
        self._failed(pod, "Unschedulable", diagnosis.message, diagnosis.constant_text, diagnosis.rules)

    def bind_failed(self, pod: Pod, message: str, reasons: tuple[str, ...]) -> None:
        """Report that the placed pod could not be bound. reasons: equal for errors that mean the same."""
        self._failed(pod, "SchedulerError", message, reasons, ("SchedulerError",))

    def reevaluated(self, pod: Pod, diagnosis: Diagnosis) -> bool:
        """Report an evaluation that was no attempt. Returns whether the reasons are new; equal ones are not news."""
        known = self._pods.get(pod.key.uid)
        if known is None or known.reasons == diagnosis.constant_text:
            return False
        self.failed(pod, diagnosis)
        return True

    def bound(self, pod: Pod, node: str, cards: Sequence[CardShare] = ()) -> None:
        """Report that the pod is bound. The Binding itself has set the condition."""
        self._pods.pop(pod.key.uid, None)
        self.events.bound(pod.key, node, cards)

    def seen(self, pod: Pod) -> None:
        """Record the condition that the watch shows."""
        known = self._pods.get(pod.key.uid)
        if known is not None and known.shown != pod.condition:
            known.shown = pod.condition
            self._check(known)

    def forget_waiting(self) -> None:
        """Write no further condition, because another replica schedules the pods now."""
        self._pods.clear()

    async def run(self) -> None:
        """Write conditions and Events until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().run())
            tasks.create_task(self.events.run())
            tasks.create_task(self._put_due())

    async def flush(self, within_s: float) -> None:
        """Write the remaining conditions and Events for at most `within_s` seconds, for a clean exit."""
        self._put_until(inf)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().flush(within_s))
            tasks.create_task(self.events.flush(within_s))

    def _failed(self, pod: Pod, reason: str, text: str, reasons: tuple[str, ...], rules: tuple[str, ...]) -> None:
        message, now_s = one_line(text), self._clock.monotonic_s()
        self.events.failed_scheduling(pod.key, message, reasons)
        latest = objects.PodCondition("PodScheduled", "False", reason, message)
        known = self._pods.get(pod.key.uid)
        if known is None:
            known = WaitingStatus(pod=pod.key, created=pod.created, latest=latest, shown=pod.condition)
            self._pods[pod.key.uid] = known
        elif known.reasons == reasons and now_s - known.since_s < QUIET_S and (known.writes or not known.differs):
            return
        elif not known.differs:
            known.writes, known.next_s = 0, now_s
        known.latest, known.reasons, known.rules, known.since_s = latest, reasons, rules, now_s
        self._check(known)

    def _check(self, known: WaitingStatus) -> None:
        """Schedule a write if the pod shows another condition."""
        if known.differs:
            self._due.push(known.pod.uid, known.next_s)
            self._changed.set()
        else:
            self._due.discard(known.pod.uid)

    def _sweep(self) -> None:
        """Forget pods that no longer wait, if they are many."""
        if len(self._pods) > 2 * sum(self._queue.lengths().values()) + _FEW:
            self._pods = {uid: known for uid, known in self._pods.items() if uid in self._queue}

    async def _put_due(self) -> None:
        while True:
            now_s, first = self._clock.monotonic_s(), self._due.first()
            with suppress(TimeoutError):
                async with asyncio.timeout(_SWEPT_S if first is None else min(_SWEPT_S, max(0.0, first[0] - now_s))):
                    await self._changed.wait()
            self._changed.clear()
            self._sweep()
            self._put_until(self._clock.monotonic_s())

    def _put_until(self, end_s: float) -> None:
        for uid in self._due.pop_until(end_s):
            if (known := self._pods.get(uid)) is not None:
                self.put(known.pod.namespace, uid, known)

    async def _write(self, entry: WaitingStatus) -> None:
        if not entry.differs:
            return
        entry.writes += 1
        entry.next_s = self._clock.monotonic_s() + backoff_s(entry.writes, initial_s=_FIRST_BACKOFF_S, max_s=QUIET_S)
        try:
            if self._ends:
                await self._request(entry)
            else:
                await self._sender.send(Write.STATUS, entry.pod.namespace, self._request, entry)
        except ApiError as error:
            if isinstance(error, ApiNotFound) and entry.pod.uid not in self._queue:
                self._pods.pop(entry.pod.uid, None)
                return
            # Even after a rejection: a newly started API server denies every permission for some seconds. And a 404 is
            # no proof while the watch shows the pod.
            self._observer.record_lost(f"condition PodScheduled of {entry.pod}", error.message)
        if self._pods.get(entry.pod.uid) is entry:
            self._check(entry)

    async def _request(self, entry: WaitingStatus) -> None:
        state, latest, shown = self._queue.state(entry.pod.uid), entry.latest, entry.shown
        if state is None:
            self._pods.pop(entry.pod.uid, None)
        elif state is not PodState.IN_FLIGHT and self._pods.get(entry.pod.uid) is entry and entry.differs:
            changed = shown is None or shown.status != latest.status
            await self._cluster.set_pod_condition(entry.pod, latest, changed=changed)
            # The watch may be ahead of the answer, and show what another program wrote since.
            if entry.shown is shown:
                entry.shown = latest
