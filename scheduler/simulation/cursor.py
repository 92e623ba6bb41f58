"""Reads the changes of a collection, each once and in order, without a connection that may break."""

from typing import Generic

from scheduler.kube.port import T
from scheduler.simulation.store import Change, Collection


class Cursor(Generic[T]):
    """Begins behind what has happened. Whoever reads later than the collection's history reaches back gets nothing."""

    def __init__(self, collection: Collection[T]) -> None:
        self._collection: Collection[T] = collection
        self._position = collection.end

    def take(self) -> list[Change[T]]:
        """What has changed since the last call."""
        changes = self._collection.changes(self._position, self._collection.end - self._position) or []
        self._position += len(changes)
        return changes
