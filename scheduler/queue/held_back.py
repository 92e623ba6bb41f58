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
        """The first pod of a namespace that is served again; None when there is none."""
        namespace = next((name for name in self._by_namespace if serves(name)), None)
        if namespace is None:
            return None
        entry = self._by_namespace[namespace].pop()
        self._forget_empty(namespace)
        return entry

    def _forget_empty(self, namespace: str) -> None:
        if not self._by_namespace[namespace]:
            del self._by_namespace[namespace]


def _namespace(entry: Entry) -> str:
    return entry.pod.key.namespace
