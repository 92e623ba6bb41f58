"""Ready pods whose namespace is throttled, in queue order within each namespace.

Pods whose message names the pause are kept apart, by its kind. The other pods get that message from an attempt that is
not sent.
"""

from collections.abc import Callable, Collection, Iterator

from scheduler.queue.entry import Entry, SortKey
from scheduler.queue.heap import Heap


class ThrottledPods(Collection[Entry]):
    """Add and take cost as much as in the queue; a look costs one call per namespace."""

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
        """Number of pods whose message names the pause."""
        return sum(len(pods) for (_, reported), pods in self._by_namespace.items() if reported)

    def add(self, entry: Entry) -> None:
        """Add a pod, which has its sort key."""
        self._by_namespace.setdefault(_key(entry), Heap()).push(entry, entry.sort_key)

    def discard(self, entry: Entry) -> None:
        """Remove the pod, if present."""
        pods = self._by_namespace.get(_key(entry))
        if pods is not None:
            pods.discard(entry)
            if not pods:
                del self._by_namespace[_key(entry)]

    def take(self, serves: Callable[[str], object], *, unreported: bool = False) -> Entry | None:
        """Remove and return the best pod of the namespaces for which `serves` is true; None if none exists.

        unreported: only pods whose message does not yet name the value that `serves` returns.
        """
        best: tuple[SortKey, Entry] | None = None
        for (name, reported), pods in self._by_namespace.items():
            first = pods.first()
            if first is None or (best is not None and best[0] < first[0]):
                continue
            served = serves(name)
            if served and not (unreported and reported == served):
                best = first
        if best is None:
            return None
        self.discard(best[1])
        return best[1]


def _key(entry: Entry) -> tuple[str, str]:
    return entry.pod.key.namespace, entry.reported
