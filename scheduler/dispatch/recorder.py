"""Events and the PodScheduled condition: sent after the bindings; repeated ones are aggregated.

    a waiting pod ──▶ its latest message (pod_messages.py) ──────┐
    bound, invalid objects ──▶ Events, bounded ──────────────────┴─▶ event_queue.py: namespaces in turn ──▶ senders

Nothing waits for these writes. Only the latest message of a waiting pod is kept, so there are never more messages than
pods, and none is dropped. If there are too many Events, the oldest is dropped and counted. While a backlog is being
bound, entries are sent slowly, so that the API server binds first; afterwards, or if many wait, several at a time.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Final

from scheduler.dispatch.event_queue import EventQueue, Unwritten
from scheduler.dispatch.pod_messages import PodMessage, PodMessages, PodMessageState, Reasons
from scheduler.dispatch.waiting_series import WaitingCopy
from scheduler.framework.diagnosis import Diagnosis
from scheduler.kube.events import QUIET_S, Regarding, RepeatedEvents, Reporter, SeriesUpdate
from scheduler.kube.port import (
    ApiConflict,
    ApiError,
    ApiNotFound,
    ApiThrottled,
    Cluster,
    EventRecord,
    PodKey,
)
from scheduler.pods.pod import Pod
from scheduler.process.terminal import one_line
from scheduler.queue.backoff import backoff_s
from scheduler.state.cards.booking import CardShare

_MOST_EVENTS: Final = 20_000
_SENDERS: Final = 16
# While busy: interval between single entries, unless more than this number wait.
_TRICKLE_S: Final = 0.05
_CROWDED: Final = _MOST_EVENTS // 2
# Per quarter of a second: 50,000 entries in a minute, some tens of microseconds each time.
_SWEPT: Final = 256
# Attempts for a throttled entry while the process ends, and the first wait, which doubles.
_TRIES: Final = 4
_TRY_S: Final = 0.2


class Recorder:
    """Writer of Events and conditions.

    busy: whether a backlog is being bound now. waits: by UID, whether the pod is still waiting; a message must not
    reach a placed pod. known: by UID, whether the pod is in the queue.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        controller: str,
        instance: str,
        now_s: Callable[[], float],
        unix_ns: Callable[[], int],
        busy: Callable[[], bool],
        waits: Callable[[str], bool],
        known: Callable[[str], bool],
        on_lost: Callable[[str, str], None],
    ) -> None:
        """now_s: monotonic seconds, for due times. unix_ns: Unix time in nanoseconds, for users to read.

        on_lost: called with (what, why) for each entry that could not be written.
        """
        self._cluster = cluster
        self._reporter = Reporter(controller, instance)
        self._now_s = now_s
        self._unix_ns = unix_ns
        self._busy = busy
        self._waits = waits
        self._on_lost = on_lost
        self._queue = EventQueue(_MOST_EVENTS, _SENDERS, _loop_s)
        # Senders that wait for an entry, and the time before which nothing may be sent.
        self._idle: deque[asyncio.Future[Unwritten]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._looks_at_s = inf
        self._trickles_at_s = 0.0
        self._known = known
        self._messages = PodMessages(known)
        self._repeated = RepeatedEvents()
        self._latest_ns = 0

    @property
    def pending(self) -> int:
        """Number of unwritten entries."""
        return len(self._queue) + self._queue.writing

    @property
    def pending_soon(self) -> int:
        """Number of unwritten entries in namespaces that are expected to get answers soon."""
        return self._queue.soon + self._queue.writing

    def scheduled(self, pod: Pod, node: str, cards: Sequence[CardShare] = ()) -> None:
        """Write that the pod is bound, to these cards. The Binding itself has set the condition."""
        self._messages.forget(pod.key.uid)
        self._queue.drop_message(pod.key.namespace, pod.key.uid)
        note = f"Successfully assigned {pod.key} to {node}{_on(cards)}"
        self._enqueue_event(self._event(_regarding(pod.key), "Scheduled", "Binding", note, warning=False))

    def failed_scheduling(self, pod: Pod, diagnosis: Diagnosis) -> None:
        """Write that the pod is unschedulable."""
        self._set_message(pod, "Unschedulable", diagnosis.message, diagnosis.constant_text, diagnosis.rules)

    def update_reasons(self, pod: Pod, diagnosis: Diagnosis) -> bool:
        """Update the message if its reasons have changed, not only numbers. Returns whether they have."""
        state = self._messages.find(pod.key.uid)
        if state is None or state.latest.reasons == diagnosis.constant_text:
            return False
        self.failed_scheduling(pod, diagnosis)
        return True

    def seen(self, pod: Pod) -> None:
        """Record that a waiting pod has changed: a late write may have overwritten a newer condition."""
        state = self._messages.find(pod.key.uid)
        if state is not None and state.observe(pod.condition, self._now_s()):
            self._later(state)

    def scheduler_error(self, pod: Pod, message: str, reasons: Reasons) -> None:
        """Write that a placed pod could not be bound. reasons: equal for errors that mean the same."""
        self._set_message(pod, "SchedulerError", message, reasons, ("SchedulerError",))

    def preempted(self, victim: Pod, note: str) -> None:
        """Write that the pod is evicted for another one."""
        self._enqueue_event(self._event(_regarding(victim.key), "Preempted", "Preempting", note, warning=False))

    def about(self, kind: str, name: str, uid: str, reason: str, note: str) -> None:
        """Write a warning about a Pod (`namespace/name`) or a Node.

        Events about nodes are in namespace `default`, with the node's name as UID, as the kubelet writes them.
        """
        namespace, _, short = name.rpartition("/")
        about = Regarding(kind, namespace or "default", short, uid or short)
        entry = self._repeated.next_write(self._event(about, reason, "Scheduling", note), (note,), self._now_s())
        if entry is not None:
            self._enqueue_event(entry)

    def waiting(self) -> WaitingCopy:
        """Copy of the current messages of waiting pods."""
        return WaitingCopy(self._messages.all(), self._known, self._unix_ns() / 1e9)

    def sweep(self) -> None:
        """Drop a few entries of pods that no longer wait. A small step, for a timer."""
        self._messages.sweep(_SWEPT)

    async def run(self) -> None:
        """Write entries until cancelled."""
        async with asyncio.TaskGroup() as senders:
            for _ in range(_SENDERS):
                senders.create_task(self._send_all())

    async def flush(self, within_s: float) -> None:
        """Flush the backlog for at most `within_s` seconds, for a clean exit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s), asyncio.TaskGroup() as senders:
                for _ in range(_SENDERS):
                    senders.create_task(self._send_rest())

    def forget_waiting(self) -> None:
        """Drop the messages of waiting pods, because another replica schedules them now."""
        self._queue.drop_messages()

    async def _send_rest(self) -> None:
        while isinstance(entry := self._queue.take(at_once=True), Unwritten):
            await self._send(entry, patient=False)

    def _set_message(self, pod: Pod, reason: str, message: str, reasons: Reasons, rules: tuple[str, ...]) -> None:
        message_now = PodMessage(reason, one_line(message), reasons, self._now_s(), self._unix_ns() / 1e9, rules)
        state = self._messages.update(pod, message_now)
        if state.event_is_due or state.condition_is_due:
            self._enqueue_message(state)

    def _enqueue_message(self, state: PodMessageState) -> None:
        self._queue.put_message(state.pod.namespace, state.pod.uid)
        self._hand_out()

    def _event(
        self, about: Regarding, reason: str, action: str, note: str, *, warning: bool = True, now_ns: int | None = None
    ) -> EventRecord:
        return self._reporter.event(
            about,
            warning=warning,
            reason=reason,
            action=action,
            note=note,
            now_ns=self._unix_ns() if now_ns is None else now_ns,
            unique_ns=self._unique_ns(),
        )

    def _unique_ns(self) -> int:
        """Current Unix time, approximately; strictly increasing, even if the clock is set back."""
        self._latest_ns = max(self._latest_ns + 1, self._unix_ns())
        return self._latest_ns

    def _enqueue_event(self, entry: EventRecord | SeriesUpdate) -> None:
        event = entry.event if isinstance(entry, SeriesUpdate) else entry
        dropped = self._queue.put_event(event.namespace, entry)
        if dropped is not None:
            self._on_lost(_name_of(dropped), f"more than {_MOST_EVENTS} entries are waiting")
        self._hand_out()

    async def _send_all(self) -> None:
        while True:
            entry = self._next()
            self._hand_out()
            await self._send(entry or await self._wait_for_entry(), patient=True)

    async def _wait_for_entry(self) -> Unwritten:
        """Wait for an entry, and return it."""
        waiting: asyncio.Future[Unwritten] = asyncio.get_running_loop().create_future()
        self._idle.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting in self._idle:
                self._idle.remove(waiting)
            elif not waiting.cancelled():
                self._queue.put_back(waiting.result())
            raise

    def _hand_out(self) -> None:
        """Give waiting senders the entries that may be sent now."""
        while self._idle and (entry := self._next()) is not None:
            waiting = self._idle.popleft()
            if waiting.cancelled():
                self._queue.put_back(entry)
            else:
                waiting.set_result(entry)

    def _next(self) -> Unwritten | None:
        """The next entry; None if no entry may be sent now."""
        now_s = _loop_s()
        if not len(self._queue):
            return None
        if self._busy() and len(self._queue) < _CROWDED:
            if now_s < self._trickles_at_s:
                self._look_again(self._trickles_at_s)
                return None
            self._trickles_at_s = now_s + _TRICKLE_S
        entry = self._queue.take()
        if isinstance(entry, Unwritten):
            return entry
        self._look_again(entry)
        return None

    def _look_again(self, at_s: float) -> None:
        if at_s >= self._looks_at_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._looks_at_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._looks_again)

    def _looks_again(self) -> None:
        self._timer, self._looks_at_s = None, inf
        self._hand_out()

    async def _send(self, entry: Unwritten, *, patient: bool) -> None:
        """Write the entry, or requeue it for a retry. patient: whether to skip the back-off after requeuing."""
        try:
            await self._write(entry)
        except _Again as again:
            entry.tries += 1
            self._queue.put_back(entry)
            if not patient:
                await asyncio.sleep(max(again.after_s, backoff_s(entry.tries, initial_s=_TRY_S, max_s=QUIET_S)))
        except asyncio.CancelledError:
            self._queue.put_back(entry)  # for `flush`
            raise
        else:
            self._queue.done(entry)

    async def _write(self, entry: Unwritten) -> None:
        """Write the entry once. Raises _Again if it should be retried."""
        what = entry.what
        if isinstance(what, EventRecord):
            await self._create(entry, what)
        elif isinstance(what, SeriesUpdate):
            await self._update(entry, what)
        elif (state := self._messages.find(what)) is not None:
            if state.event_is_due:
                await self._write_event(entry, state)
            if state.condition_is_due:
                await self._write_condition(entry, state)

    async def _write_event(self, entry: Unwritten, state: PodMessageState) -> None:
        """Write the latest message as an Event, or into the series of the Event with the same reasons."""
        message, event = state.latest, state.event
        about, now_ns = _regarding(state.pod), int(message.unix_s * 1e9)
        record = self._event(about, "FailedScheduling", "Scheduling", message.text, now_ns=now_ns)
        if event.name:
            update = SeriesUpdate(replace(record, name=event.name), event.series(message))
            written = await self._update(entry, update)
        else:
            written = await self._create(entry, record)
        event.sent(message, None if written is None else written.name)

    async def _write_condition(self, entry: Unwritten, state: PodMessageState) -> None:
        if not self._waits(state.pod.uid):
            return
        message = state.latest
        state.sent = message.text
        condition, changed = state.condition(), not state.shown_false
        try:
            await self._ask(entry, self._cluster.set_pod_condition(state.pod, condition, changed=changed))
        except ApiNotFound:
            return  # the pod is gone
        except ApiError as error:
            # Even after a rejection: a newly started API server denies every permission for some seconds.
            self._on_lost(f"condition PodScheduled of {state.pod}", error.message)
            state.failures += 1
            self._later(state)
        else:
            state.condition_written(message)

    def _later(self, state: PodMessageState) -> None:
        """Schedule a write of the latest message: the pod's next attempt may be minutes away, or bring no news."""
        if state.again:
            return
        state.again = True
        asyncio.get_running_loop().call_later(state.again_after_s, self._again, state.pod.uid)

    def _again(self, uid: str) -> None:
        if (state := self._messages.find(uid)) is None:
            return
        state.again = False
        if state.condition_is_due:
            self._enqueue_message(state)

    async def _create(self, entry: Unwritten, record: EventRecord) -> EventRecord | None:
        """Write an Event. Returns it, or None if the write failed."""
        try:
            await self._ask(entry, self._cluster.create_event(record))
        except ApiConflict:
            return record  # it was sent before its sender was cancelled
        except ApiNotFound:
            return None  # its namespace is gone
        except ApiError as error:
            self._on_lost(_name_of(record), error.message)
            return None
        return record

    async def _update(self, entry: Unwritten, update: SeriesUpdate) -> EventRecord | None:
        """Write a series. Returns its Event, or None if the write failed."""
        event = update.event
        try:
            await self._ask(entry, self._cluster.update_event(event, update.series))
        except ApiNotFound:
            # The first Event has expired, so this one becomes the first.
            return await self._create(entry, replace(event, time_s=update.series.last_time_s))
        except ApiError as error:
            self._on_lost(_name_of(update), error.message)
            return None
        return event

    async def _ask(self, entry: Unwritten, request: Awaitable[None]) -> None:
        """Send the request. Raises its error; _Again for the first throttled attempts."""
        try:
            await request
        except ApiError as error:
            self._queue.answered(entry, error)
            if isinstance(error, ApiThrottled) and entry.tries < _TRIES - 1:
                raise _Again(error.retry_after_s) from error
            raise
        self._queue.answered(entry, None)


class _Again(Exception):
    """The request was throttled and should be retried. after_s: seconds until then."""

    def __init__(self, after_s: float) -> None:
        super().__init__(after_s)
        self.after_s = after_s


def _loop_s() -> float:
    return asyncio.get_running_loop().time()


def _regarding(pod: PodKey) -> Regarding:
    return Regarding("Pod", pod.namespace, pod.name, pod.uid)


def _on(cards: Sequence[CardShare]) -> str:
    """Index and units of each card, as `, card 0 (4) and 1 (4)`; "" if there are no cards."""
    named = " and ".join(f"{share.index} ({share.units})" for share in cards)
    return f", card {named}" if named else ""


def _name_of(entry: EventRecord | SeriesUpdate) -> str:
    event, what = (entry.event, "event series") if isinstance(entry, SeriesUpdate) else (entry, "event")
    return f"{what} {event.reason} on {event.namespace}/{event.object_name}"
