"""Pods that are ready and whose namespace is not served for now, in the order of the queue within each namespace."""

from collections.abc import Callable, Collection, Iterator

from scheduler.queue.entry import Entry, SortKey
from scheduler.queue.heap import Heap


class HeldBack(Collection[Entry]):
    """Adding and taking a pod costs as much as in the queue itself; a look costs one question per namespace."""

    def __init__(self) -> None:
        """Nobody is held back."""
        self._by_namespace: dict[str, Heap[SortKey, Entry]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_namespace.values()))

    def __bool__(self) -> bool:
        return bool(self._by_namespace)

    def __contains__(self, entry: object) -> bool:
        return isinstance(entry, Entry) and entry in self._by_namespace.get(_namespace(entry), ())

    def __iter__(self) -> Iterator[Entry]:
        for pods in self._by_namespace.values():
            yield from pods

    def add(self, entry: Entry) -> None:
        """Hold it back; it has its sort key."""
        self._by_namespace.setdefault(_namespace(entry), Heap()).push(entry, entry.sort_key)

    def discard(self, entry: Entry) -> None:
        """Forget it, if it is here."""
        pods = self._by_namespace.get(_namespace(entry))
        if pods is not None:
            pods.discard(entry)
            self._forget_empty(_namespace(entry))

    def take(self, serves: Callable[[str], object]) -> Entry | None:
        """The best pod of all namespaces that are served again; None when there is none."""
        best: tuple[SortKey, Entry] | None = None
        for name, pods in self._by_namespace.items():
            first = pods.first()
            if first is not None and (best is None or first[0] < best[0]) and serves(name):
                best = first
        if best is None:
            return None
        self.discard(best[1])
        return best[1]

    def _forget_empty(self, namespace: str) -> None:
        if not self._by_namespace[namespace]:
            del self._by_namespace[namespace]


def _namespace(entry: Entry) -> str:
    return entry.pod.key.namespace
