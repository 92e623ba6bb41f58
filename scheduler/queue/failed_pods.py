"""Pods that failed, or that change too often: each serves a back-off, whatever the cluster does.

Owned by the scheduling queue. now_s: monotonic seconds.
"""

from collections.abc import Collection, Iterator

from scheduler.queue.backoff import backoff_s
from scheduler.queue.entry import Entry, PodState
from scheduler.queue.heap import Heap


class FailedPods(Collection[Entry]):
    """Pods in BACKING_OFF after errors or after changes of their own."""

    def __init__(self, *, initial_backoff_s: float, max_backoff_s: float) -> None:
        """See `backoff_s`."""
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
        """Back off after an error, which `errors` counts already. longest_s: longest back-off, if above the default."""
        if entry.edited and longest_s > self._max_s:
            entry.errors = 1  # as in `shorten`: the rejected version was the old one
        longest_s = max(self._max_s, longest_s)
        self._back_off(entry, now_s + backoff_s(entry.errors, initial_s=self._initial_s, max_s=longest_s))

    def add_changed(self, entry: Entry) -> None:
        """Back off after a change of its own, until `changed_s`."""
        self._back_off(entry, entry.changed_s)

    def changes_too_often(self, entry: Entry, now_s: float) -> bool:
        """Whether a change of the pod has to wait: every change costs an attempt, and costs its owner nothing."""
        if now_s - entry.changed_s > self._max_s:
            entry.changes = 0
        ready_s = entry.changed_s + backoff_s(entry.changes, initial_s=self._initial_s, max_s=self._max_s)
        entry.changes += 1
        entry.changed_s = max(now_s, ready_s)
        return ready_s > now_s

    def shorten(self, entry: Entry, now_s: float) -> None:
        """Restart a long back-off after errors: a policy may accept the changed pod.

        In flight: applies to the back-off that may follow.
        """
        entry.edited = entry.state is PodState.IN_FLIGHT
        if entry.state is PodState.BACKING_OFF and entry.errors and entry.ready_s > now_s + self._max_s:
            self._by_end.discard(entry)
            entry.errors = 1
            self._back_off(entry, now_s + self._initial_s)

    def discard(self, entry: Entry) -> None:
        """Remove the pod, if present."""
        self._by_end.discard(entry)

    def take_ready(self, now_s: float) -> Iterator[Entry]:
        """Remove and return pods whose back-off has ended."""
        return self._by_end.pop_until(now_s)

    def next_ready_s(self) -> float | None:
        """When the next back-off ends; None for never."""
        first = self._by_end.first()
        return None if first is None else first[0]

    def _back_off(self, entry: Entry, ready_s: float) -> None:
        entry.state = PodState.BACKING_OFF
        entry.ready_s = ready_s
        self._by_end.push(entry, ready_s)
