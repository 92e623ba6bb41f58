"""Events and the PodScheduled condition: sent after the bindings, bounded, repeated ones aggregated.

Nothing waits for these: a full outbox drops the oldest entry and counts it. While a backlog is being bound, they
trickle, so that the API server binds first; afterwards, or when the outbox fills up, several go out at a time.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from cachetools import LRUCache

from scheduler.framework.diagnosis import Diagnosis
from scheduler.kube import objects
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

_OUTBOX: Final = 20_000
_REMEMBERED: Final = 20_000
# A condition whose numbers alone changed goes out at most this often, as a repeated event does.
_SENDERS: Final = 8
# While busy: one entry at a time, so long apart, unless more wait than the outbox should hold for long.
_TRICKLE_S: Final = 0.05
_CROWDED: Final = _OUTBOX // 2
_TRIES: Final = 4


@dataclass(frozen=True, slots=True)
class _ConditionPatch:
    pod: PodKey
    condition: objects.PodCondition


_Entry: TypeAlias = EventRecord | _ConditionPatch | SeriesUpdate


@dataclass(slots=True)
class _Said:
    """What was last written about one pod."""

    constant_text: tuple[str, ...]
    message: str
    written_s: float


class Recorder:
    """Writes what users read.

    busy: whether a backlog is being bound at this moment. waits: by uid, whether the pod still waits for a place: what
    was said of it must not land on a pod that has one.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        controller: str,
        instance: str,
        now_s: Callable[[], float],
        busy: Callable[[], bool],
        waits: Callable[[str], bool],
        on_lost: Callable[[str, str], None],
    ) -> None:
        """now_s: Unix seconds. on_lost: told (what, why) of each entry that could not be written."""
        self._cluster = cluster
        self._reporter = Reporter(controller, instance)
        self._now_s = now_s
        self._busy = busy
        self._waits = waits
        self._on_lost = on_lost
        self._outbox: deque[_Entry] = deque()
        self._filled = asyncio.Event()
        self._sending = 0
        self._said: LRUCache[str, _Said] = LRUCache(maxsize=_REMEMBERED)
        self._repeated = RepeatedEvents()

    @property
    def pending(self) -> int:
        """Entries not yet written."""
        return len(self._outbox) + self._sending

    def scheduled(self, pod: Pod, node: str) -> None:
        """The pod is bound. The Binding itself has set the condition."""
        self._said.pop(pod.key.uid, None)
        self._put(
            self._event(
                _about(pod), "Scheduled", "Binding", f"Successfully assigned {pod.key} to {node}", warning=False
            )
        )

    def failed_scheduling(self, pod: Pod, diagnosis: Diagnosis) -> None:
        """The pod fits nowhere."""
        self._failed(pod, "Unschedulable", diagnosis.message, diagnosis.constant_text)

    def scheduler_error(self, pod: Pod, message: str) -> None:
        """The pod had a place, and could not be bound to it."""
        self._failed(pod, "SchedulerError", message, (message,))

    def about(self, kind: str, name: str, uid: str, reason: str, note: str) -> None:
        """A warning on a Pod (`namespace/name`) or a Node.

        Events about nodes live in namespace `default`, with the node's name as uid, as the kubelet writes them.
        """
        namespace, _, short = name.rpartition("/")
        about = Regarding(kind, namespace or "default", short, uid or short)
        self._repeat(self._event(about, reason, "Scheduling", note), (note,))

    async def run(self) -> None:
        """Write entries until cancelled."""
        async with asyncio.TaskGroup() as senders:
            for number in range(_SENDERS):
                senders.create_task(self._send_all(trickles=number == 0))

    async def flush(self, within_s: float) -> None:
        """Write what is left, as far as that goes in so many seconds; for a clean exit."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s), asyncio.TaskGroup() as senders:
                for _ in range(_SENDERS):
                    senders.create_task(self._send_rest())

    async def _send_rest(self) -> None:
        while self._outbox:
            await self._send(self._outbox.popleft())

    def _failed(self, pod: Pod, reason: str, message: str, constant_text: tuple[str, ...]) -> None:
        self._repeat(self._event(_about(pod), "FailedScheduling", "Scheduling", message), constant_text)
        now_s, said = self._now_s(), self._said.get(pod.key.uid)
        shown = pod.condition.message if said is None and pod.condition is not None else said and said.message
        if shown == message:
            return
        if said is not None and said.constant_text == constant_text and now_s - said.written_s < QUIET_S:
            return
        self._said[pod.key.uid] = _Said(constant_text, message, now_s)
        condition = objects.PodCondition(type="PodScheduled", status="False", reason=reason, message=message)
        self._put(_ConditionPatch(pod.key, condition))

    def _event(self, about: Regarding, reason: str, action: str, note: str, *, warning: bool = True) -> EventRecord:
        now_ns = int(self._now_s() * 1e9)
        return self._reporter.event(about, warning=warning, reason=reason, action=action, note=note, now_ns=now_ns)

    def _repeat(self, event: EventRecord, constant_text: tuple[str, ...]) -> None:
        entry = self._repeated.next_write(event, constant_text)
        if entry is not None:
            self._put(entry)

    def _put(self, entry: _Entry) -> None:
        if len(self._outbox) >= _OUTBOX:
            self._lost(self._outbox.popleft(), f"more than {_OUTBOX} entries wait")
        self._outbox.append(entry)
        self._filled.set()

    async def _send_all(self, *, trickles: bool) -> None:
        while True:
            if not self._outbox:
                self._filled.clear()
                await self._filled.wait()
                continue
            if self._busy() and len(self._outbox) < _CROWDED:
                await asyncio.sleep(_TRICKLE_S)
                if not trickles or not self._outbox:
                    continue
            entry = self._outbox.popleft()
            self._sending += 1
            try:
                await self._send(entry)
            except asyncio.CancelledError:
                self._outbox.appendleft(entry)  # for `flush`
                raise
            finally:
                self._sending -= 1

    async def _send(self, entry: _Entry) -> None:
        for attempt in range(_TRIES):
            if isinstance(entry, _ConditionPatch) and not self._still_true(entry):
                return
            try:
                await self._write(entry)
            except ApiThrottled as throttled:
                await asyncio.sleep(max(throttled.retry_after_s, 0.2 * 2**attempt))
            except ApiConflict as conflict:
                if not isinstance(entry, EventRecord):
                    self._lost(entry, conflict.message)
                return  # an event of this name is one that was sent before its sender was cancelled
            except ApiNotFound:
                if isinstance(entry, SeriesUpdate):
                    # The first event has expired meanwhile: this one is written as the first.
                    entry = replace(entry.event, time_s=entry.series.last_time_s)
                    continue
                return
            except ApiError as error:
                self._lost(entry, error.message)
                return
            else:
                return
        self._lost(entry, "the API server asked to wait too often")

    def _still_true(self, patch: _ConditionPatch) -> bool:
        """Whether the pod waits, and nothing newer was said of it."""
        said = self._said.get(patch.pod.uid)
        return self._waits(patch.pod.uid) and (said is None or said.message == patch.condition.message)

    def _lost(self, entry: _Entry, why: str) -> None:
        if isinstance(entry, _ConditionPatch):
            # Nobody has read it: the next attempt says it again.
            self._said.pop(entry.pod.uid, None)
        self._on_lost(_what(entry), why)

    async def _write(self, entry: _Entry) -> None:
        if isinstance(entry, EventRecord):
            await self._cluster.create_event(entry)
        elif isinstance(entry, SeriesUpdate):
            await self._cluster.update_event(entry.event, entry.series)
        else:
            await self._cluster.set_pod_condition(entry.pod, entry.condition)


def _about(pod: Pod) -> Regarding:
    return Regarding("Pod", pod.key.namespace, pod.key.name, pod.key.uid)


def _what(entry: _Entry) -> str:
    if isinstance(entry, EventRecord):
        return f"event {entry.reason} on {entry.namespace}/{entry.object_name}"
    if isinstance(entry, SeriesUpdate):
        return f"event series {entry.event.reason} on {entry.event.namespace}/{entry.event.object_name}"
    return f"condition {entry.condition.type} of {entry.pod}"
