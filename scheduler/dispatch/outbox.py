"""What is to be written, in a line of its own for each namespace, and whose turn it is.

Namespaces take turns, and a namespace has as many requests on the wire as `namespace_limiters` gives it by its answers: where
a webhook hangs on the Events of one, those of others are written meanwhile. Owned by the event loop.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Final, TypeAlias

from scheduler.dispatch.namespace_limiters import CircuitState, NamespaceLimiter, NamespaceLimiters
from scheduler.kube.events import SeriesUpdate
from scheduler.kube.port import ApiError, ApiRefused, EventRecord
from scheduler.queue.backoff import backoff_s

_FAILED_FOR_S: Final = 0.1
_FAILED_AT_MOST_S: Final = 5.0
# So many lines are looked at for the next entry; the others come when it is asked for again.
_LOOKED_AT: Final = 64
_AGAIN_S: Final = 0.01

_Event: TypeAlias = EventRecord | SeriesUpdate


@dataclass(slots=True, kw_only=True)
class Unwritten:
    """One that is taken out to be written. what: an Event, or the uid of a pod whose latest word is meant.

    tries: that were throttled so far.
    """

    namespace: str
    what: _Event | str
    tries: int = 0


@dataclass(slots=True)
class _Line:
    """Of one namespace. words: uid -> tries, in the order of their oldest unwritten word. writing: entries taken."""

    limiter: NamespaceLimiter
    events: deque[tuple[_Event, int]] = field(default_factory=deque)
    words: OrderedDict[str, int] = field(default_factory=OrderedDict)
    words_are_next: bool = True
    writing: int = 0

    def __len__(self) -> int:
        return len(self.events) + len(self.words)

    def pop(self) -> tuple[_Event | str, int]:
        """The oldest of either kind, in turn."""
        if self.words and (self.words_are_next or not self.events):
            self.words_are_next = False
            return self.words.popitem(last=False)
        self.words_are_next = True
        return self.events.popleft()


class Outbox:
    """See the module."""

    def __init__(self, most_events: int, most_in_flight: int, now_s: Callable[[], float]) -> None:
        """most_events: beyond it the oldest of the longest line is dropped. now_s: seconds from any beginning."""
        self.writing = 0  # entries that are taken out
        self._most_events = most_events
        self._now_s = now_s
        self._limiters = NamespaceLimiters(most_in_flight)
        # The one whose turn is next comes first.
        self._lines: OrderedDict[str, _Line] = OrderedDict()
        # Whose line was the longest when an Event was added last: to look at all of them takes too long.
        self._longest: _Line | None = None
        self._events = 0
        self._waiting = 0

    def __len__(self) -> int:
        """Entries that wait."""
        return self._waiting

    @property
    def soon(self) -> int:
        """Those whose namespaces get answers, as far as is known: the others wait for theirs."""
        return self._limiters.waiting(CircuitState.NEW) + self._limiters.waiting(CircuitState.CLOSED)

    def put_event(self, namespace: str, event: _Event) -> _Event | None:
        """Add it; return the one that is dropped for it."""
        dropped = None
        line = self._line(namespace)
        line.events.append((event, 0))
        self._count(line, 1)
        if self._longest is None or len(line.events) > len(self._longest.events):
            self._longest = line
        if self._events > self._most_events:
            dropped = self._longest.events.popleft()[0]
            self._count(self._longest, -1)
            self._end_if_empty(self._longest)
        return dropped

    def put_word(self, namespace: str, uid: str) -> None:
        """The pod has a word that is to be written. It keeps its place in the line, if it has one."""
        line = self._line(namespace)
        if uid not in line.words:
            line.words[uid] = 0
            self._count(line, 1, of_events=False)

    def drop_word(self, namespace: str, uid: str) -> None:
        """Nothing is to be written of the pod."""
        line = self._lines.get(namespace)
        if line is not None and line.words.pop(uid, None) is not None:
            self._count(line, -1, of_events=False)
            self._end_if_empty(line)

    def drop_words(self) -> None:
        """Nothing is to be written of any pod."""
        for line in tuple(self._lines.values()):
            self._count(line, -len(line.words), of_events=False)
            line.words.clear()
            self._end_if_empty(line)

    def take(self, *, at_once: bool = False) -> Unwritten | float:
        """The next entry; or when to look again, which a new entry, an answer and an end may bring forward.

        at_once: also of namespaces that get no answers. Give the entry back with `done` or `put_back`.
        """
        now_s, next_s = self._now_s(), inf
        for _ in range(min(len(self._lines), _LOOKED_AT)):
            name, line = next(iter(self._lines.items()))
            self._lines.move_to_end(name)
            if not line:
                continue
            if at_once or self._limiters.may_send(line.limiter, now_s):
                what, tries = line.pop()
                self._count(line, -1, of_events=not isinstance(what, str))
                line.writing += 1
                self.writing += 1
                self._limiters.sends(line.limiter, now_s)
                return Unwritten(namespace=name, what=what, tries=tries)
            next_s = min(next_s, self._limiters.refresh(line.limiter, now_s))
        return min(next_s, now_s + _AGAIN_S) if len(self._lines) > _LOOKED_AT else next_s

    def answered(self, entry: Unwritten, error: ApiError | None) -> None:
        """How a request of the entry ended, which shows how its namespace is."""
        limiter = self._lines[entry.namespace].limiter
        if error is None or isinstance(error, ApiRefused):
            self._limiters.answered(limiter, self._now_s())
            return
        self._limiters.failed(limiter, error, self._now_s(), _pause_s)

    def put_back(self, entry: Unwritten) -> None:
        """It is not written: it is the next of its namespace again, unless a newer word has taken its place."""
        line = self._lines[entry.namespace]
        if not isinstance(entry.what, str):
            line.events.appendleft((entry.what, entry.tries))
            self._count(line, 1)
        elif entry.what not in line.words:
            line.words[entry.what] = entry.tries
            line.words.move_to_end(entry.what, last=False)
            self._count(line, 1, of_events=False)
        self.done(entry)

    def done(self, entry: Unwritten) -> None:
        """It is written, or given up."""
        line = self._lines[entry.namespace]
        line.writing -= 1
        self.writing -= 1
        self._limiters.ends(line.limiter)
        self._end_if_empty(line)

    def _line(self, namespace: str) -> _Line:
        line = self._lines.get(namespace)
        if line is None:
            line = self._lines[namespace] = _Line(self._limiters.enter(namespace, self._now_s()))
        return line

    def _count(self, line: _Line, change: int, *, of_events: bool = True) -> None:
        self._events += change if of_events else 0
        self._waiting += change
        self._limiters.waits(line.limiter, change)

    def _end_if_empty(self, line: _Line) -> None:
        if not line and not line.writing:
            del self._lines[line.limiter.name]
            self._limiters.leave(line.limiter)


def _pause_s(failures: int) -> float:
    return backoff_s(failures, initial_s=_FAILED_FOR_S, max_s=_FAILED_AT_MOST_S)
