"""Pods of each gang that have a node."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from scheduler.pods.gang import GangKey
from scheduler.pods.pod import RUNNING, Pod


class GangMembers:
    """Number of pods with a node by gang, assumed ones included, without terminating ones. Owned by the tables.

    changed: gangs whose numbers have changed since they were taken.
    """

    def __init__(self) -> None:
        self._placed: Counter[GangKey] = Counter()
        self._running: Counter[GangKey] = Counter()
        self.changed: dict[GangKey, None] = {}

    def placed(self, key: GangKey) -> int:
        """Number of pods of the gang that have a node."""
        return self._placed.get(key, 0)

    def runs(self, key: GangKey) -> bool:
        """Whether a pod of the gang runs."""
        return key in self._running

    def take_changed(self) -> Sequence[GangKey]:
        """Return gangs whose numbers have changed since the last call."""
        if not self.changed:
            return ()
        changed = tuple(self.changed)
        self.changed.clear()
        return changed

    @contextmanager
    def unnoted(self) -> Iterator[None]:
        """Note no changes within the `with` block, because they may be undone."""
        before = self.changed.copy()
        try:
            yield
        finally:
            self.changed = before

    def add(self, pod: Pod) -> None:
        """Count a pod."""
        self._count(pod, 1)

    def remove(self, pod: Pod) -> None:
        """Uncount a pod, as it was when it was counted."""
        self._count(pod, -1)

    def update(self, old: Pod, new: Pod) -> None:
        """Count a changed pod anew."""
        if (old.gang, old.terminating, old.phase) != (new.gang, new.terminating, new.phase):
            self.remove(old)
            self.add(new)

    def _count(self, pod: Pod, sign: int) -> None:
        if pod.gang is None or pod.terminating:
            return
        key = pod.gang.key
        for counts, counted in ((self._placed, True), (self._running, pod.phase == RUNNING)):
            if counted:
                counts[key] += sign
                if not counts[key]:
                    del counts[key]
        self.changed[key] = None
