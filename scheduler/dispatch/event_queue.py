"""Events and pod messages to be written, queued per namespace.

Namespaces take turns. `namespace_limiters` limits a namespace's requests in flight: if a webhook hangs on the Events of
one namespace, the Events of others are still written. Owned by the event loop.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeAlias

from scheduler.dispatch.namespace_limiters import CircuitState, NamespaceLimiter, NamespaceLimiters
from scheduler.kube.events import SeriesUpdate
from scheduler.kube.port import ApiError, ApiRejected, EventRecord
from scheduler.queue.backoff import backoff_s

_FAILED_FOR_S: Final = 0.1
_FAILED_AT_MOST_S: Final = 5.0
# Queues examined for the next entry; the next call examines the others.
_LOOKED_AT: Final = 64
_AGAIN_S: Final = 0.01

_Event: TypeAlias = EventRecord | SeriesUpdate


@dataclass(slots=True, kw_only=True)
class Unwritten:
    """An entry that was taken for writing. what: an Event, or the UID of a pod with a new message.

    tries: number of throttled attempts so far.
    """

    namespace: str
    what: _Event | str
    tries: int = 0


@dataclass(slots=True)
class _NamespaceQueue:
    """Entries of one namespace. messages: UID -> tries, in order of their oldest unwritten message.

    writing: number of entries that have been taken.
    """

    limiter: NamespaceLimiter
    events: deque[tuple[_Event, int]] = field(default_factory=deque)
    messages: OrderedDict[str, int] = field(default_factory=OrderedDict)
    messages_first: bool = True
    writing: int = 0

    def __len__(self) -> int:
        return len(self.events) + len(self.messages)

    def pop(self) -> tuple[_Event | str, int]:
        """Remove and return the oldest entry, alternating between Events and messages."""
        if self.messages and (self.messages_first or not self.events):
            self.messages_first = False
            return self.messages.popitem(last=False)
        self.messages_first = True
        return self.events.popleft()


class EventQueue:
    """Queues of all namespaces; see the module."""

    def __init__(self, most_events: int, most_in_flight: int, now_s: Callable[[], float]) -> None:
        """most_events: above it, the oldest Event of the longest queue is dropped. now_s: monotonic seconds."""
        self.writing = 0  # entries that have been taken
        self._most_events = most_events
        self._now_s = now_s
        self._limiters = NamespaceLimiters(most_in_flight)
        # Next turn first.
        self._queues: OrderedDict[str, _NamespaceQueue] = OrderedDict()
        # The longest queue when an Event was last added: searching all of them would take too long.
        self._longest: _NamespaceQueue | None = None
        self._events = 0
        self._waiting = 0

    def __len__(self) -> int:
        return self._waiting

    @property
    def soon(self) -> int:
        """Number of entries that wait in NEW and CLOSED namespaces, which are expected to get answers soon."""
        return self._limiters.waiting(CircuitState.NEW) + self._limiters.waiting(CircuitState.CLOSED)

    def put_event(self, namespace: str, event: _Event) -> _Event | None:
        """Add an Event. Returns the Event that is dropped for it, or None."""
        dropped = None
        queue = self._queue_of(namespace)
        queue.events.append((event, 0))
        self._count(queue, 1)
        if self._longest is None or len(queue.events) > len(self._longest.events):
            self._longest = queue
        if self._events > self._most_events:
            dropped = self._longest.events.popleft()[0]
            self._count(self._longest, -1)
            self._end_if_empty(self._longest)
        return dropped

    def put_message(self, namespace: str, uid: str) -> None:
        """Queue the latest message of the pod. A queued pod keeps its position."""
        queue = self._queue_of(namespace)
        if uid not in queue.messages:
            queue.messages[uid] = 0
            self._count(queue, 1, of_events=False)

    def drop_message(self, namespace: str, uid: str) -> None:
        """Drop the message of the pod."""
        queue = self._queues.get(namespace)
        if queue is not None and queue.messages.pop(uid, None) is not None:
            self._count(queue, -1, of_events=False)
            self._end_if_empty(queue)

    def drop_messages(self) -> None:
        """Drop the messages of all pods."""
        for queue in tuple(self._queues.values()):
            self._count(queue, -len(queue.messages), of_events=False)
            queue.messages.clear()
            self._end_if_empty(queue)

    def take(self, *, at_once: bool = False) -> Unwritten | float:
        """Return the next entry to write, or the time at which to call again if there is none.

        Call again earlier after a new entry, an answer or a finished write.
        at_once: also take from namespaces that get no answers. Hand back the entry with `done` or `put_back`.
        """
        now_s, next_s = self._now_s(), inf
        for _ in range(min(len(self._queues), _LOOKED_AT)):
            name, queue = next(iter(self._queues.items()))
            self._queues.move_to_end(name)
            if not queue:
                continue
            if at_once or self._limiters.may_send(queue.limiter, now_s):
                what, tries = queue.pop()
                self._count(queue, -1, of_events=not isinstance(what, str))
                queue.writing += 1
                self.writing += 1
                self._limiters.sends(queue.limiter, now_s)
                return Unwritten(namespace=name, what=what, tries=tries)
            next_s = min(next_s, self._limiters.refresh(queue.limiter, now_s))
        return min(next_s, now_s + _AGAIN_S) if len(self._queues) > _LOOKED_AT else next_s

    def answered(self, entry: Unwritten, error: ApiError | None) -> None:
        """Update the circuit state of the namespace from the answer to a request of the entry."""
        limiter = self._queues[entry.namespace].limiter
        if error is None or isinstance(error, ApiRejected):
            self._limiters.answered(limiter, self._now_s())
            return
        self._limiters.failed(limiter, error, self._now_s(), _pause_s)

    def put_back(self, entry: Unwritten) -> None:
        """Put back an unwritten entry. It is the next one of its namespace, unless a newer message has replaced it."""
        queue = self._queues[entry.namespace]
        if not isinstance(entry.what, str):
            queue.events.appendleft((entry.what, entry.tries))
            self._count(queue, 1)
        elif entry.what not in queue.messages:
            queue.messages[entry.what] = entry.tries
            queue.messages.move_to_end(entry.what, last=False)
            self._count(queue, 1, of_events=False)
        self.done(entry)

    def done(self, entry: Unwritten) -> None:
        """Finish an entry that is written or given up."""
        queue = self._queues[entry.namespace]
        queue.writing -= 1
        self.writing -= 1
        self._limiters.ends(queue.limiter)
        self._end_if_empty(queue)

    def _queue_of(self, namespace: str) -> _NamespaceQueue:
        queue = self._queues.get(namespace)
        if queue is None:
            queue = self._queues[namespace] = _NamespaceQueue(self._limiters.enter(namespace, self._now_s()))
        return queue

    def _count(self, queue: _NamespaceQueue, change: int, *, of_events: bool = True) -> None:
        self._events += change if of_events else 0
        self._waiting += change
        self._limiters.waits(queue.limiter, change)

    def _end_if_empty(self, queue: _NamespaceQueue) -> None:
        if not queue and not queue.writing:
            del self._queues[queue.limiter.name]
            self._limiters.leave(queue.limiter)


def _pause_s(failures: int) -> float:
    return backoff_s(failures, initial_s=_FAILED_FOR_S, max_s=_FAILED_AT_MOST_S)
