"""What the owners of waiting pods have been state, and what is to be state next. One entry per pod that waits.

The latest message replaces the one before it, written or not; what was written decides what is worth another write:

    Event      the first of its reasons is written; the same reasons again make it a series, written every QUIET_S
    condition  other reasons are written at once, other numbers every QUIET_S

So an attempt costs at most two writes, and a pod that is tried again and again without news none. A write that failed
is repeated after a back-off, however often the pod is tried meanwhile.
Two clocks: when something is due is counted in monotonic seconds (`…_s`), as somebody may set the other one; what users
read has Unix time (`unix_s`).
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
# Of one pod: a pod whose reasons alternate still gets series.
_MOST_SERIES: Final = 4
# What could not be written, doubling up to QUIET_S.
_AGAIN_AFTER_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class PodMessage:
    """What is to be state. reasons: what of the message tells it from others: not its numbers. noted_s: monotonic.

    rules: who objects, by name: for counting, since reasons may quote the pod.
    """

    reason: str
    text: str
    reasons: Reasons
    noted_s: float
    unix_s: float
    rules: tuple[str, ...] = ()


@dataclass(slots=True)
class WrittenEvent:
    """name: of the Event that was written first. seen: times in all.

    sent_s: when the message of the last request was heard. failures: requests in a row that have not written it.
    """

    name: str = ""
    seen: int = 0
    sent_s: float = -inf
    failures: int = 0

    def series(self, message: PodMessage) -> EventSeries:
        """The series that it is now."""
        return EventSeries(self.seen, message.unix_s)

    def is_due(self, message: PodMessage) -> bool:
        """Whether it is worth a request."""
        pause_s = again_after_s(self.failures) if self.failures else QUIET_S
        return message.noted_s - self.sent_s >= pause_s

    def sent(self, message: PodMessage, name: str | None) -> None:
        """PodMessage was sent. name: of the Event that has it, None where it could not be written."""
        self.sent_s = message.noted_s
        self.failures = 0 if name is not None else self.failures + 1
        self.name = name or self.name


@dataclass(slots=True, kw_only=True)
class PodMessageState:
    """Of one pod. shown: message of the condition, None when not known; its reasons, and when it was written.

    shown_false: the condition is there, and says that the pod has no place: the time of its transition stays.

    failures: writes of the condition in a row that failed. sent: message of the one that was tried last.
    replaced: times, of late, that another condition stood where ours had been; replaced_s: when last.
    again: a timer will have it written. created: the pod, RFC 3339, "" unknown.
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
        """Of the present reasons."""
        return self.events[self.latest.reasons]

    def update(self, message: PodMessage) -> None:
        """The latest message."""
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
        """Whether the condition is, and its back-off after failures is over."""
        if self.shown == self.latest.text or (self.failures and self.again):
            return False
        return self.shown_reasons != self.latest.reasons or self.latest.noted_s - self.shown_s >= QUIET_S

    @property
    def again_after_s(self) -> float:
        """Seconds until the condition is to be written again.

        Ever more: a namespace whose writes hang has all senders otherwise, and whoever writes another condition each
        time has them busy.
        """
        return again_after_s(self.failures + self.replaced)

    def condition(self) -> objects.PodCondition:
        """PodScheduled, as it is to be."""
        return objects.PodCondition("PodScheduled", "False", self.latest.reason, self.latest.text)

    def condition_written(self, message: PodMessage) -> None:
        """The condition says this now."""
        self.shown, self.shown_reasons, self.shown_s = message.text, message.reasons, message.noted_s
        self.shown_false = True
        self.failures = 0

    def observe(self, condition: objects.PodCondition | None, now_s: float) -> bool:
        """The pod shows this; whether it is neither what was written last nor what is being written."""
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
    """Seconds until what could not be written so many times in a row is written again."""
    return backoff_s(failures, initial_s=_AGAIN_AFTER_S, max_s=QUIET_S)


class PodMessages:
    """By uid. Owned by the event loop."""

    def __init__(self, known: Callable[[str], bool]) -> None:
        """known: by uid, whether the pod is in the queue; those that are not are forgotten by and by."""
        # The one that was looked at longest ago comes first.
        self._pods: OrderedDict[str, PodMessageState] = OrderedDict()
        self._known = known

    def __len__(self) -> int:
        """Entries, those of pods that wait no more included."""
        return len(self._pods)

    def update(self, pod: Pod, message: PodMessage) -> PodMessageState:
        """The latest message about a pod."""
        uid = pod.key.uid
        state = self._pods.get(uid)
        if state is None:
            # So that the store is never twice as large as what waits.
            self.sweep(2)
            shown = pod.condition.message if pod.condition is not None else None
            state = PodMessageState(pod=pod.key, created=pod.created, latest=message, shown=shown)
            state.shown_false = pod.condition is not None and pod.condition.status == "False"
            self._pods[uid] = state
        state.update(message)
        return state

    def all(self) -> list[PodMessageState]:
        """Those of pods that wait no more included, in any order."""
        # Along the order of an OrderedDict it takes many times as long.
        return list(dict.values(self._pods))

    def find(self, uid: str) -> PodMessageState | None:
        """What the pod was state; None when nothing was."""
        return self._pods.get(uid)

    def forget(self, uid: str) -> None:
        """The pod waits no more."""
        self._pods.pop(uid, None)

    def sweep(self, entries: int) -> None:
        """Look at so many entries, and forget those of pods that wait no more."""
        for _ in range(min(entries, len(self._pods))):
            uid, state = self._pods.popitem(last=False)
            if self._known(uid):
                self._pods[uid] = state
