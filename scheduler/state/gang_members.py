"""Pods of each gang that have a node."""

from collections import Counter
from collections.abc import Sequence

from scheduler.pods.gang import Gang, GangKey
from scheduler.pods.pod import RUNNING, Pod


class GangMembers:
    """Number of pods with a node by gang, assumed ones included, without terminating ones. Owned by the tables."""

    def __init__(self) -> None:
        self._placed: Counter[GangKey] = Counter()
        self._running: Counter[GangKey] = Counter()
        self._grown: dict[GangKey, None] = {}
        self._shrunk: dict[GangKey, None] = {}

    def placed(self, key: GangKey) -> int:
        """Number of pods of the gang that have a node."""
        return self._placed.get(key, 0)

    def runs(self, key: GangKey) -> bool:
        """Whether a pod of the gang runs."""
        return key in self._running

    def take_grown(self) -> Sequence[GangKey]:
        """Return gangs of which, since the last call, somebody else placed a pod, or the first one began to run."""
        return _taken(self._grown)

    def take_shrunk(self) -> Sequence[GangKey]:
        """Return gangs of which, since the last call, a pod ended, or one that waited went."""
        return _taken(self._shrunk)

    def note_gone(self, key: GangKey) -> None:
        """Record that a waiting pod went."""
        self._shrunk[key] = None

    def note_changed(self, key: GangKey) -> None:
        """Record that what the gang needs has changed."""
        self._grown[key] = self._shrunk[key] = None

    def add(self, pod: Pod, *, assumed: bool) -> None:
        """Count a pod. assumed: only the queue's own attempt placed it."""
        if pod.gang is not None and not pod.terminating:
            self._count(pod, pod.gang.key, 1)
            if not assumed:
                self._grown[pod.gang.key] = None

    def remove(self, pod: Pod, *, assumed: bool) -> None:
        """Uncount a pod, as it was when it was counted. assumed: as for `add`."""
        if pod.gang is not None and not pod.terminating:
            self._count(pod, pod.gang.key, -1)
            if not assumed:
                self._shrunk[pod.gang.key] = None

    def update(self, old: Pod, new: Pod) -> None:
        """Count a changed pod anew."""
        if _counted(old) == _counted(new):
            return
        ran = new.gang is not None and self.runs(new.gang.key)
        self.remove(old, assumed=False)
        self.add(new, assumed=ran and old.gang == new.gang)

    def _count(self, pod: Pod, key: GangKey, sign: int) -> None:
        for counts, counted in ((self._placed, True), (self._running, pod.phase == RUNNING)):
            if counted:
                counts[key] += sign
                if not counts[key]:
                    del counts[key]


def _taken(noted: dict[GangKey, None]) -> Sequence[GangKey]:
    if not noted:
        return ()
    taken = tuple(noted)
    noted.clear()
    return taken


def _counted(pod: Pod) -> tuple[Gang | None, bool, bool]:
    return pod.gang, pod.terminating, pod.phase == RUNNING
