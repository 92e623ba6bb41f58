"""A collection of the world, as a watch of one kind would show it to the scheduler, without the watch."""

from collections.abc import Callable
from typing import Generic

from scheduler.kube.port import Changed, Deleted, Kind, T
from scheduler.testing.cluster.selection import shown_by
from scheduler.testing.cluster.store import Collection, Cursor


class Feed(Generic[T]):
    """Deliveries of a watch of one kind, batch by batch."""

    def __init__(
        self, collection: Collection[T], kind: Kind[T], handle: Callable[[list[Changed[T] | Deleted[T]]], None]
    ) -> None:
        self._cursor: Cursor[T] = Cursor(collection)
        self._shown: Callable[[T], bool] = shown_by(kind)
        self._handle: Callable[[list[Changed[T] | Deleted[T]]], None] = handle

    def deliver(self) -> None:
        """Deliver the changes since the last call."""
        if not self._cursor.is_behind:
            return
        events: list[Changed[T] | Deleted[T]] = []
        for change in self._cursor.take():
            if change.after is not None and self._shown(change.after):
                events.append(Changed(change.after))
            elif change.before is not None and self._shown(change.before):
                events.append(Deleted(change.before))
        if events:
            self._handle(events)
