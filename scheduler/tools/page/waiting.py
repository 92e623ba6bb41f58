"""The most important waiting pods of each namespace, collected once for all viewers.

A standby replica decides nothing, so its queue knows nothing about a pod. It shows the condition that the leader has
written.
"""

import asyncio
import heapq
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import chain
from math import inf
from typing import Final

import msgspec

from scheduler.queue.entry import Entry, PodState
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.tools.page.rows import PIECE, Sees

MOST_SHOWN: Final = 200


class WaitingPod(msgspec.Struct, rename="camel"):
    """A waiting pod. state: the queue's word for its state. units: on each of `cards`; 0 if it requests none.

    waited_s: None if it does not wait yet. wrong: whether its request is invalid.
    """

    namespace: str
    name: str
    state: str
    priority: int
    units: int
    cards: int
    exclusive: bool
    isolated: bool
    wrong: bool
    attempts: int
    waited_s: int | None
    gate: str


class Waiting(msgspec.Struct, kw_only=True, tag="waiting", tag_field="t"):
    """Waiting pods. counts: by queue, as in the metrics; on standby `waiting`, `unschedulable` and `gated`.

    pods: the first of those that the viewer may see.
    """

    counts: dict[str, int]
    pods: list[WaitingPod]


class WaitingPodRows:
    """Waiting pods for all viewers. Owned by the event loop."""

    def __init__(
        self, queue: SchedulingQueue, now_s: Callable[[], float], leads: Callable[[], bool], kept_s: float = 1.0
    ) -> None:
        """now_s: clock of the queue. leads: whether this replica schedules. kept_s: how long an answer is reused."""
        self._queue = queue
        self._now_s = now_s
        self._leads = leads
        self._kept_s = kept_s
        self._best: dict[str, list[Entry]] = {}
        self._standby_counts: dict[str, int] = {}
        self._until_s = -inf
        self._looking = asyncio.Lock()

    async def shown(self, sees: Sees) -> Waiting:
        """Return the pods that wait now, for a viewer who sees these namespaces."""
        async with self._looking:
            if self._now_s() >= self._until_s:
                self._best = await self._looked()
                self._until_s = self._now_s() + self._kept_s
        seen = (entries for namespace, entries in self._best.items() if sees(namespace))
        first = heapq.nsmallest(MOST_SHOWN, chain.from_iterable(seen), key=_order)
        leads = self._leads()
        counts = self._queue.lengths() if leads else self._standby_counts
        return Waiting(counts=counts, pods=[self._pod(entry, leads=leads) for entry in first])

    async def _looked(self) -> dict[str, list[Entry]]:
        """Return the first pods of each namespace; yields to other tasks at intervals."""
        found: dict[str, list[Entry]] = defaultdict(list)
        counts = Counter[str]()
        entries = list(self._queue)
        for begin in range(0, len(entries), PIECE):
            for entry in entries[begin : begin + PIECE]:
                found[entry.pod.key.namespace].append(entry)
                counts[_written(entry)] += 1
            await asyncio.sleep(0)
        self._standby_counts = dict(counts)
        best = {}
        for namespace, own in found.items():
            best[namespace] = heapq.nsmallest(MOST_SHOWN, own, key=_order)
            await asyncio.sleep(0)
        return best

    def _pod(self, entry: Entry, *, leads: bool) -> WaitingPod:
        pod, request = entry.pod, entry.pod.template.gpu_request
        return WaitingPod(
            namespace=pod.key.namespace,
            name=pod.key.name,
            state=_STATES[entry.state] if leads else _STATES_AT_A_STANDBY[_written(entry)],
            priority=pod.priority,
            units=0 if request is None else request.units_per_card,
            cards=0 if request is None else request.cards,
            exclusive=request is not None and request.exclusive,
            isolated=request is not None and request.isolated,
            wrong=bool(pod.template.gpu_request_error),
            attempts=entry.attempts,
            waited_s=None if entry.waits_since_s == inf else max(0, round(self._now_s() - entry.waits_since_s)),
            gate=entry.gate,
        )


_STATES: Final = {
    PodState.GATED: "gated",
    PodState.ACTIVE: "ready",
    PodState.THROTTLED: "held back",
    PodState.BACKING_OFF: "backing off",
    PodState.UNSCHEDULABLE: "fits nowhere",
    PodState.IN_FLIGHT: "being bound",
}


_WAITING, _UNSCHEDULABLE, _GATED = "waiting", "unschedulable", "gated"
_STATES_AT_A_STANDBY: Final = {_WAITING: "waiting", _UNSCHEDULABLE: "fits nowhere", _GATED: "gated"}


def _written(entry: Entry) -> str:
    """Return the state of a pod without a decision: its gate, and the condition that the leader has written."""
    if entry.state is PodState.GATED:
        return _GATED
    condition = entry.pod.condition
    is_told = condition is not None and (condition.status, condition.reason) == ("False", "Unschedulable")
    return _UNSCHEDULABLE if is_told else _WAITING


def _order(entry: Entry) -> tuple[int, float, str]:
    return (-entry.pod.priority, entry.waits_since_s, entry.pod.key.uid)
