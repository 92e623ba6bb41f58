"""Waiting pods by gang: whether they may be queued, and whether they must be placed together.

    too few exist, none runs        held: gated until enough exist
    enough exist                    together: one attempt for all, with a back-off that the gang's pods share
    enough have a node, but for one alone: ordinary pods
    too few exist, some run         alone: the others have ended, so the gang has started

Owned by the scheduling queue. No method awaits, so each one is atomic. now_s: monotonic seconds.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from math import inf
from typing import Final

from scheduler.pods.gang import MOST_TOGETHER, GangKey
from scheduler.pods.pod import Pod
from scheduler.queue.backoff import backoff_s
from scheduler.queue.entry import Entry
from scheduler.queue.heap import Heap
from scheduler.state.gang_members import GangMembers

_INITIAL_S: Final = 1.0
_MAX_S: Final = 10.0
# Most gangs are complete sooner.
_TOLD_AFTER_S: Final = 5.0


@dataclass(slots=True)
class _Waiting:
    """Waiting pods of a gang. held: those that wait for others to exist. unreadable: those without a valid minimum.

    minimums, priorities: of its pods.
    failures: attempts in vain since the last one that helped. ready_s: end of the back-off.
    """

    pods: dict[Entry, None] = field(default_factory=dict)
    held: dict[Entry, None] = field(default_factory=dict)
    unreadable: dict[Entry, None] = field(default_factory=dict)
    minimums: Counter[int] = field(default_factory=Counter)
    priorities: Counter[int] = field(default_factory=Counter)
    failures: int = 0
    ready_s: float = -inf


class Gangs:
    """Waiting pods of each gang that nothing else gates. members: pods with a node.

    untold: gangs with held pods, by the time from which their owners are to be told.
    """

    def __init__(self, members: GangMembers) -> None:
        self.members = members
        # Minimums that PodGroups say.
        self._described: dict[GangKey, int] = {}
        self.untold: Heap[float, GangKey] = Heap()
        self._waiting: dict[GangKey, _Waiting] = {}

    def describe(self, key: GangKey, minimum: int | None) -> None:
        """Set how many pods a PodGroup says must start together; None if it does not exist."""
        if self._described.get(key) == minimum:
            return
        if minimum is None:
            del self._described[key]
        else:
            self._described[key] = minimum
        self.members.note_changed(key)

    def join(self, entry: Entry) -> None:
        """Count a waiting pod as it is now; no effect without a gang."""
        self.leave(entry)
        gang = entry.pod.gang
        if gang is None:
            return
        entry.gang = gang
        waiting = self._waiting.setdefault(gang.key, _Waiting())
        if gang.problem:
            waiting.unreadable[entry] = None
            return
        waiting.pods[entry] = None
        waiting.minimums[gang.minimum] += 1
        waiting.priorities[entry.pod.priority] += 1
        entry.gang_priority = entry.pod.priority

    def leave(self, entry: Entry) -> None:
        """Uncount a pod, as it was when it was counted."""
        gang, entry.gang = entry.gang, None
        if gang is None:
            return
        waiting = self._waiting[gang.key]
        for pods in (waiting.pods, waiting.held, waiting.unreadable):
            pods.pop(entry, None)
        if not gang.problem:
            _uncount(waiting.minimums, gang.minimum)
            _uncount(waiting.priorities, entry.gang_priority)
        if not waiting.pods and not waiting.unreadable:
            del self._waiting[gang.key]

    def hold(self, entry: Entry, now_s: float) -> None:
        """Record that the pod waits for others to exist."""
        if entry.gang is not None:
            if not entry.gang.problem:
                self._waiting[entry.gang.key].held[entry] = None
            self.tell_later(entry.gang.key, now_s)

    def tell_later(self, key: GangKey, now_s: float) -> None:
        """Let the owners of held pods be told soon why."""
        if key not in self.untold:
            self.untold.push(key, now_s + _TOLD_AFTER_S)

    def held(self, key: GangKey) -> Sequence[Entry]:
        """Return the first pods that are held."""
        waiting = self._waiting.get(key)
        return () if waiting is None else [*islice(chain(waiting.unreadable, waiting.held), MOST_TOGETHER)]

    def take_held(self, key: GangKey) -> Sequence[Entry]:
        """Remove and return the pods that are held, if enough exist now."""
        waiting = self._waiting.get(key)
        if waiting is None or not waiting.held or self.lacks(next(iter(waiting.held)).pod):
            return ()
        held = list(waiting.held)
        waiting.held.clear()
        return held

    def waiting(self, key: GangKey) -> Sequence[Entry]:
        """Return the first waiting pods of the gang that are not held, in order of arrival."""
        waiting = self._waiting.get(key)
        return (
            ()
            if waiting is None
            else [*islice((one for one in waiting.pods if one not in waiting.held), MOST_TOGETHER)]
        )

    def minimum(self, key: GangKey) -> int:
        """Return how many pods must start together: as the PodGroup says, or the largest minimum of waiting pods."""
        if key.api_group:
            return self._described.get(key, 0)
        waiting = self._waiting.get(key)
        return 0 if waiting is None else max(waiting.minimums, default=0)

    def needs(self, key: GangKey) -> int:
        """Return how many more pods need a node before the gang may start, possibly negative."""
        return self.minimum(key) - self.members.placed(key)

    def starts_together(self, pod: Pod) -> bool:
        """Return whether the pod must not be placed without others of its gang."""
        gang = pod.gang
        if gang is None or (self.needs(gang.key) <= 1 and not self._is_unknown(gang.key)):
            return False
        return self._exist(gang.key) >= self.minimum(gang.key) or not self.members.runs(gang.key)

    def is_in_part(self, key: GangKey) -> bool:
        """Return whether some pods of the gang have a node, but too few, and none runs."""
        return 0 < self.members.placed(key) < self.minimum(key) and not self.members.runs(key)

    def lacks(self, pod: Pod) -> str:
        """Return why the pod's gang cannot be queued; "" if it can."""
        gang = pod.gang
        if gang is None:
            return ""
        if gang.problem:
            return gang.problem
        if self._is_unknown(gang.key):
            return f"waiting for {gang.key}: it does not exist, or cannot be read"
        return self._lacks(gang.key) if self.starts_together(pod) else ""

    def _lacks(self, key: GangKey) -> str:
        exist, minimum = self._exist(key), self.minimum(key)
        if minimum > MOST_TOGETHER:
            return f"{key} needs {minimum} pods to start together; at most {MOST_TOGETHER} are supported"
        if exist < minimum:
            return f"waiting for pods of {key}: {exist} of at least {minimum} exist"
        priorities = self._waiting[key].priorities
        found = f"from {min(priorities)} to {max(priorities)}"
        return f"pods of {key} have priorities {found}; expected one priority" if len(priorities) > 1 else ""

    def back_off(self, key: GangKey, now_s: float) -> float:
        """Return the end of the gang's back-off; without one, a short one begins."""
        waiting = self._waiting[key]
        if waiting.ready_s <= now_s:
            waiting.ready_s = now_s + _INITIAL_S
        return waiting.ready_s

    def ready_s(self, key: GangKey) -> float:
        """Return the time from which the gang may be tried again, possibly in the past."""
        waiting = self._waiting.get(key)
        return -inf if waiting is None else waiting.ready_s

    def tried(self, key: GangKey, now_s: float, *, in_vain: bool) -> None:
        """Record an attempt."""
        if (waiting := self._waiting.get(key)) is not None:
            waiting.failures = waiting.failures + 1 if in_vain else 0
            waiting.ready_s = now_s + backoff_s(waiting.failures, initial_s=_INITIAL_S, max_s=_MAX_S)

    def _is_unknown(self, key: GangKey) -> bool:
        return bool(key.api_group) and key not in self._described

    def _exist(self, key: GangKey) -> int:
        waiting = self._waiting.get(key)
        return (0 if waiting is None else len(waiting.pods)) + self.members.placed(key)


def _uncount(counts: Counter[int], counted: int) -> None:
    counts[counted] -= 1
    if not counts[counted]:
        del counts[counted]
