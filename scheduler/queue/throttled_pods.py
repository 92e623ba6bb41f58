"""Two collections: pods that failed and back off, and ready pods of throttled namespaces, in queue order per namespace.

A throttled pod whose message already names its namespace's failure is stored separately, by kind of failure.
"""

from collections.abc import Callable, Collection, Iterator
from operator import itemgetter

from scheduler.queue.backoff import backoff_s
from scheduler.queue.entry import Entry, PodState, SortKey
from scheduler.queue.heap import Heap


class FailedPods(Collection[Entry]):
    """Pods in BACKING_OFF after errors or after changes of their own."""

    def __init__(self, *, initial_backoff_s: float, max_backoff_s: float) -> None:
        self._by_end: Heap[float, Entry] = Heap()
        self._initial_s = initial_backoff_s
        self._max_s = max_backoff_s

    def __len__(self) -> int:
        return len(self._by_end)

    def __contains__(self, entry: object) -> bool:
        return entry in self._by_end

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._by_end)

    def add(self, entry: Entry, now_s: float, *, longest_s: float) -> None:
        """Back off after an error that `errors` already counts. longest_s: longest back-off, if above the default."""
        if entry.edited and longest_s > self._max_s:
            entry.errors = 1  # as in `shorten`: the old version was rejected
        longest_s = max(self._max_s, longest_s)
        self._back_off(entry, now_s + backoff_s(entry.errors, initial_s=self._initial_s, max_s=longest_s))

    def add_changed(self, entry: Entry) -> None:
        """Back off after a change of the pod itself, until `changed_s`."""
        self._back_off(entry, entry.changed_s)

    def changes_too_often(self, entry: Entry, now_s: float) -> bool:
        """Whether a change of the pod must wait: every change costs an attempt, but costs the pod's owner nothing."""
        if now_s - entry.changed_s > self._max_s:
            entry.changes = 0
        ready_s = entry.changed_s + backoff_s(entry.changes, initial_s=self._initial_s, max_s=self._max_s)
        entry.changes += 1
        entry.changed_s = max(now_s, ready_s)
        return ready_s > now_s

    def shorten(self, entry: Entry, now_s: float) -> None:
        """Restart a long back-off after errors, because a policy may accept the changed pod.

        For a pod in flight, this applies to the back-off that may follow.
        """
        entry.edited = entry.state is PodState.IN_FLIGHT
        if entry.state is PodState.BACKING_OFF and entry.errors and entry.ready_s > now_s + self._max_s:
            self._by_end.discard(entry)
            entry.errors = 1
            self._back_off(entry, now_s + self._initial_s)

    def discard(self, entry: Entry) -> None:
        self._by_end.discard(entry)

    def take_ready(self, now_s: float) -> Iterator[Entry]:
        """Remove and return pods whose back-off has ended."""
        return self._by_end.pop_until(now_s)

    def next_ready_s(self) -> float | None:
        """Time when the next back-off ends; None if never."""
        first = self._by_end.first()
        return None if first is None else first[0]

    def _back_off(self, entry: Entry, ready_s: float) -> None:
        entry.state = PodState.BACKING_OFF
        entry.ready_s = ready_s
        self._by_end.push(entry, ready_s)


class ThrottledPods(Collection[Entry]):
    """Throttled pods. Adding or removing one costs as much as in the queue."""

    def __init__(self) -> None:
        self._by_namespace: dict[tuple[str, str], Heap[SortKey, Entry]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_namespace.values()))

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def __contains__(self, entry: object) -> bool:
        return isinstance(entry, Entry) and entry in self._by_namespace.get(_key(entry), ())

    def __iter__(self) -> Iterator[Entry]:
        for pods in self._by_namespace.values():
            yield from pods

    @property
    def reported(self) -> int:
        """Number of pods whose message names the failure of their namespace."""
        return sum(len(pods) for (_, reported), pods in self._by_namespace.items() if reported)

    def add(self, entry: Entry) -> None:
        """Add a pod, which already has its sort key."""
        self._by_namespace.setdefault(_key(entry), Heap()).push(entry, entry.sort_key)

    def discard(self, entry: Entry) -> None:
        pods = self._by_namespace.get(_key(entry))
        if pods is not None:
            pods.discard(entry)
            if not pods:
                del self._by_namespace[_key(entry)]

    def take(self, may_bind: Callable[[str], bool]) -> Entry | None:
        """Remove and return the best pod of the namespaces that may bind; None if there is none."""
        entry = self._best(key for key in self._by_namespace if may_bind(key[0]))
        if entry is not None:
            self.discard(entry)
        return entry

    def next_unreported(self, failing: Callable[[str], str]) -> Entry | None:
        """Return the best pod whose message does not name how its namespace fails, and record that it does now."""
        entry = self._best(key for key in self._by_namespace if failing(key[0]) not in {"", key[1]})
        if entry is not None:
            self.discard(entry)
            entry.reported = failing(entry.pod.key.namespace)
            self.add(entry)
        return entry

    def _best(self, keys: Iterator[tuple[str, str]]) -> Entry | None:
        firsts = (self._by_namespace[key].first() for key in keys)
        best = min((first for first in firsts if first is not None), key=itemgetter(0), default=None)
        return None if best is None else best[1]


def _key(entry: Entry) -> tuple[str, str]:
    return entry.pod.key.namespace, entry.reported
