"""Messages for the owners of waiting pods. There is one entry per pod: its latest message, and the writes so far.

A new message replaces the previous one, written or not. The messages written so far decide whether another write is
useful:

    Event      the first of its reasons is written; the same reasons again make it a series, written every QUIET_S
    condition  new reasons are written at once, new numbers every QUIET_S

So an attempt costs at most two writes, and repeated attempts without news cost none. A failed write is repeated after a
back-off, however often the pod is tried. Due times use monotonic seconds (`…_s`), because the wall clock may be
adjusted; users read Unix time (`unix_s`).
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeAlias

from scheduler.kube import objects
from scheduler.kube.events import QUIET_S
from scheduler.kube.port import EventSeries, PodKey
from scheduler.pods.pod import Pod
from scheduler.queue.backoff import backoff_s

Reasons: TypeAlias = tuple[str, ...]
# Per pod, so that a pod with alternating reasons still gets series.
_MOST_SERIES: Final = 4
# First back-off of a failed write; doubles up to QUIET_S.
_AGAIN_AFTER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PodMessage:
    """Message for a waiting pod. reasons: the text without numbers; equal reasons mean the same message.

    noted_s: monotonic seconds. rules: names of the rules that reject nodes, for counting, because reasons may quote the
    pod.
    """

    reason: str
    text: str
    reasons: Reasons
    noted_s: float
    unix_s: float
    rules: tuple[str, ...] = ()


@dataclass(slots=True)
class WrittenEvent:
    """An Event for one set of reasons. name: of the first Event written. seen: number of messages with these reasons.

    sent_s: `noted_s` of the last message that was sent. failures: consecutive failed requests.
    """

    name: str = ""
    seen: int = 0
    sent_s: float = -inf
    failures: int = 0

    def series(self, message: PodMessage) -> EventSeries:
        """The current series."""
        return EventSeries(self.seen, message.unix_s)

    def is_due(self, message: PodMessage) -> bool:
        """Whether the message is worth a request."""
        pause_s = again_after_s(self.failures) if self.failures else QUIET_S
        return message.noted_s - self.sent_s >= pause_s

    def sent(self, message: PodMessage, name: str | None) -> None:
        """Record that the message was sent. name: its Event's name, None if the write failed."""
        self.sent_s = message.noted_s
        self.failures = 0 if name is not None else self.failures + 1
        self.name = name or self.name


@dataclass(slots=True, kw_only=True)
class PodMessageState:
    """Messages of one pod. shown: message of its condition, None if unknown; its reasons and write time.

    shown_false: the condition exists with status False, so its transition time stays. failures: consecutive failed
    writes of the condition. sent: message of the last attempted write. replaced: how often another writer has recently
    overwritten our condition; replaced_s: when it last did. again: whether a timer will write it. created: creation
    time of the pod, RFC 3339, "" if unknown.
    """

    pod: PodKey
    created: str
    latest: PodMessage
    events: dict[Reasons, WrittenEvent] = field(default_factory=dict)
    shown: str | None
    shown_reasons: Reasons | None = None
    shown_s: float = -inf
    shown_false: bool = False
    failures: int = 0
    sent: str | None = None
    replaced: int = 0
    replaced_s: float = -inf
    again: bool = False

    @property
    def event(self) -> WrittenEvent:
        """The Event for the reasons of the latest message."""
        return self.events[self.latest.reasons]

    def update(self, message: PodMessage) -> None:
        """Set the latest message."""
        self.latest = message
        event = self.events.pop(message.reasons, None) or WrittenEvent()
        event.seen += 1
        self.events[message.reasons] = event
        if len(self.events) > _MOST_SERIES:
            del self.events[next(iter(self.events))]

    @property
    def event_is_due(self) -> bool:
        """Whether the Event is worth a write."""
        return self.event.is_due(self.latest)

    @property
    def condition_is_due(self) -> bool:
        """Whether the condition is worth a write, and its back-off after failures has ended."""
        if self.shown == self.latest.text or (self.failures and self.again):
            return False
        return self.shown_reasons != self.latest.reasons or self.latest.noted_s - self.shown_s >= QUIET_S

    @property
    def again_after_s(self) -> float:
        """Seconds until the next attempt to write the condition.

        The time grows with each failure and each overwrite. Otherwise a namespace whose writes hang, or a writer that
        keeps overwriting the condition, would occupy all senders.
        """
        return again_after_s(self.failures + self.replaced)

    def condition(self) -> objects.PodCondition:
        """The PodScheduled condition to write."""
        return objects.PodCondition("PodScheduled", "False", self.latest.reason, self.latest.text)

    def condition_written(self, message: PodMessage) -> None:
        """Record that the condition has this message now."""
        self.shown, self.shown_reasons, self.shown_s = message.text, message.reasons, message.noted_s
        self.shown_false = True
        self.failures = 0

    def observe(self, condition: objects.PodCondition | None, now_s: float) -> bool:
        """Record the condition that the pod shows. Returns whether another writer has overwritten ours."""
        message = None if condition is None else condition.message
        if message == self.shown:
            return False
        self.shown, self.shown_reasons = message, self.latest.reasons if message == self.latest.text else None
        self.shown_false = condition is not None and condition.status == "False"
        if message in {self.sent, self.latest.text}:
            return False
        if now_s - self.replaced_s > 2 * QUIET_S:
            self.replaced = 0
        self.replaced += 1
        self.replaced_s = now_s
        return True


def again_after_s(failures: int) -> float:
    """Back-off in seconds, by number of consecutive failed writes."""
    return backoff_s(failures, initial_s=_AGAIN_AFTER_S, max_s=QUIET_S)


class PodMessages:
    """Message states by UID of the pod. Owned by the event loop."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        """known: by UID, whether the pod is in the queue; `sweep` drops the other pods."""
        # Longest unswept first.
        self._pods: OrderedDict[str, PodMessageState] = OrderedDict()
        self._known = known

    def __len__(self) -> int:
        """Number of entries, including pods that no longer wait."""
        return len(self._pods)

    def update(self, pod: Pod, message: PodMessage) -> PodMessageState:
        """Set the latest message of a pod. Returns the pod's state."""
        uid = pod.key.uid
        state = self._pods.get(uid)
        if state is None:
            # Keeps the number of states below twice the number of waiting pods.
            self.sweep(2)
            shown = pod.condition.message if pod.condition is not None else None
            state = PodMessageState(pod=pod.key, created=pod.created, latest=message, shown=shown)
            state.shown_false = pod.condition is not None and pod.condition.status == "False"
            self._pods[uid] = state
        state.update(message)
        return state

    def all(self) -> list[PodMessageState]:
        """All states in any order, including those of pods that no longer wait."""
        # Iterating in OrderedDict order takes many times as long.
        return list(dict.values(self._pods))

    def find(self, uid: str) -> PodMessageState | None:
        """State of the pod; None if it has none."""
        return self._pods.get(uid)

    def forget(self, uid: str) -> None:
        """Drop the state of a pod that no longer waits."""
        self._pods.pop(uid, None)

    def sweep(self, entries: int) -> None:
        """Examine this many entries, and drop those of pods that no longer wait."""
        for _ in range(min(entries, len(self._pods))):
            uid, state = self._pods.popitem(last=False)
            if self._known(uid):
                self._pods[uid] = state
