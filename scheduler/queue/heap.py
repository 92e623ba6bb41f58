"""A heap that supports removal of any item.

Entries of removed items stay in it until they reach the top or outnumber the others.
"""

from collections.abc import Collection, Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

K = TypeVar("K", float, tuple[int, int])
T = TypeVar("T", bound=Hashable)

_FEW_FORGOTTEN: Final = 8


class Heap(Collection[T], Generic[K, T]):
    """Distinct items, lowest key first; items with equal keys in push order. Iteration is unordered."""

    def __init__(self) -> None:
        self._heap: list[tuple[K, int, T]] = []
        self._pushes = 0
        # Item -> number of its valid push; all other entries of the heap are removed items.
        self._live: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, item: object) -> bool:
        return item in self._live

    def __iter__(self) -> Iterator[T]:
        return iter(self._live)

    def push(self, item: T, key: K) -> None:
        """Add the item. An item that is already present gets the new key."""
        self._pushes += 1
        self._live[item] = self._pushes
        heappush(self._heap, (key, self._pushes, item))
        self._compact()

    def discard(self, item: T) -> None:
        if self._live.pop(item, None) is not None:
            self._compact()

    def first(self) -> tuple[K, T] | None:
        """The lowest key and its item; None if the heap is empty."""
        heap = self._heap
        while heap:
            key, push, item = heap[0]
            if self._live.get(item) == push:
                return key, item
            heappop(heap)
        return None

    def pop(self) -> T | None:
        """Remove and return the item with the lowest key; None if the heap is empty."""
        first = self.first()
        if first is None:
            return None
        heappop(self._heap)
        del self._live[first[1]]
        return first[1]

    def pop_until(self, key: K) -> Iterator[T]:
        """Remove and return the items with keys up to `key`, lowest first."""
        while (first := self.first()) is not None and first[0] <= key:
            heappop(self._heap)
            del self._live[first[1]]
            yield first[1]

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._live) + _FEW_FORGOTTEN:
            self._heap = [entry for entry in self._heap if self._live.get(entry[2]) == entry[1]]
            heapify(self._heap)
