"""The most important waiting pods, and how many wait.

The page decides nothing, so its queue knows nothing about a pod. It shows the condition that the scheduler has written.
"""

import heapq
from collections import Counter
from collections.abc import Iterable
from math import inf
from typing import Final

import msgspec

from scheduler.queue.entry import Entry, PodState

MOST_SHOWN: Final = 200
# Names of the states, as shown for a pod.
_SHOWN: Final = {"waiting": "waiting", "unschedulable": "fits nowhere", "gated": "gated"}


class WaitingPod(msgspec.Struct, rename="camel"):
    """A waiting pod. units: on each of `cards`; 0 if it requests none.

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
    waited_s: int | None
    gate: str


class Waiting(msgspec.Struct, kw_only=True, tag="waiting", tag_field="t"):
    """Waiting pods. counts: by state, `waiting`, `unschedulable` and `gated`. pods: the first of them."""

    counts: dict[str, int]
    pods: list[WaitingPod]


def waiting(queue: Iterable[Entry], now_s: float) -> Waiting:
    """Return the pods that wait. now_s: by the clock of the queue."""
    entries = list(queue)
    first = heapq.nsmallest(MOST_SHOWN, entries, key=_order)
    return Waiting(counts=dict(Counter(map(_state, entries))), pods=[_pod(entry, now_s) for entry in first])


def _pod(entry: Entry, now_s: float) -> WaitingPod:
    pod, request = entry.pod, entry.pod.template.gpu_request
    return WaitingPod(
        namespace=pod.key.namespace,
        name=pod.key.name,
        state=_SHOWN[_state(entry)],
        priority=pod.priority,
        units=0 if request is None else request.units_per_card,
        cards=0 if request is None else request.cards,
        exclusive=request is not None and request.exclusive,
        isolated=request is not None and request.isolated,
        wrong=bool(pod.template.gpu_request_error),
        waited_s=None if entry.waits_since_s == inf else max(0, round(now_s - entry.waits_since_s)),
        gate=entry.gate,
    )


def _state(entry: Entry) -> str:
    if entry.state is PodState.GATED:
        return "gated"
    condition = entry.pod.condition
    is_told = condition is not None and (condition.status, condition.reason) == ("False", "Unschedulable")
    return "unschedulable" if is_told else "waiting"


def _order(entry: Entry) -> tuple[int, float, str]:
    return (-entry.pod.priority, entry.waits_since_s, entry.pod.key.uid)
