"""Pods that are ready and whose namespace is not served for now, in the order of the queue within each namespace.

Those that were told so are kept apart, by what they were told: the others are told by an attempt that is not sent.
"""

from collections.abc import Callable, Collection, Iterator

from scheduler.queue.entry import Entry, SortKey
from scheduler.queue.heap import Heap


class ThrottledPods(Collection[Entry]):
    """Adding and taking a pod costs as much as in the queue itself; a look costs one question per namespace."""

    def __init__(self) -> None:
        """Nobody is held back."""
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
        """How many were told."""
        return sum(len(pods) for (_, reported), pods in self._by_namespace.items() if reported)

    def add(self, entry: Entry) -> None:
        """Hold it back; it has its sort key."""
        self._by_namespace.setdefault(_key(entry), Heap()).push(entry, entry.sort_key)

    def discard(self, entry: Entry) -> None:
        """Forget it, if it is here."""
        pods = self._by_namespace.get(_key(entry))
        if pods is not None:
            pods.discard(entry)
            if not pods:
                del self._by_namespace[_key(entry)]

    def take(self, serves: Callable[[str], object], *, unreported: bool = False) -> Entry | None:
        """The best pod of all namespaces that `serves`; None when there is none.

        untold: only those that were not told yet what it returns.
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
