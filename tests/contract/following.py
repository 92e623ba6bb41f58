"""Reads one watch in order, leaving out objects of other tests."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Generic

from scheduler.kube.port import Bookmark, Changed, Cluster, Deleted, Kind, ListBegins, ListEnds, T, WatchEvent

PATIENCE_S: Final = 20.0


class Follower(Generic[T]):
    """batches: of one watch. mine: whether an object belongs to the test."""

    def __init__(self, batches: AsyncIterator[list[WatchEvent[T]]], mine: Callable[[T], bool]) -> None:
        self._batches: AsyncIterator[list[WatchEvent[T]]] = batches
        self._mine: Callable[[T], bool] = mine
        self._waiting: list[WatchEvent[T]] = []
        self.largest_batch = 0

    async def next(self) -> WatchEvent[T]:
        """The next event about an object of this test, or the next ListBegins or ListEnds."""
        while True:
            while not self._waiting:
                async with asyncio.timeout(PATIENCE_S):
                    self._waiting = list(await anext(self._batches))
                self.largest_batch = max(self.largest_batch, len(self._waiting))
            event = self._waiting.pop(0)
            if isinstance(event, ListBegins | ListEnds):
                return event
            if isinstance(event, Changed | Deleted) and self._mine(event.object):
                return event

    async def listed(self) -> tuple[dict[str, T], str]:
        """The complete list with which a watch begins, by name, and its version."""
        assert await self.next() == ListBegins()
        listed: dict[str, T] = {}
        while not isinstance(event := await self.next(), ListEnds):
            assert isinstance(event, Changed), f"{event} stands in a list"
            assert event.object.metadata.name not in listed
            listed[event.object.metadata.name] = event.object
        return listed, event.resource_version

    async def told(self, how_many: int) -> list[str]:
        """The next events as `Changed p`."""
        return [_in_words(await self.next()) for _ in range(how_many)]


@asynccontextmanager
async def following(
    cluster: Cluster, kind: Kind[T], prefix: str, since: str | None = None
) -> AsyncIterator[Follower[T]]:
    """Open a watch. prefix: objects of this test are in this namespace, or have names that begin with it."""

    def mine(candidate: T) -> bool:
        return candidate.metadata.namespace == prefix or candidate.metadata.name.startswith(prefix)

    batches = cluster.watch(kind, since)
    try:
        yield Follower(batches, mine)
    finally:
        await batches.aclose()  # type: ignore[attr-defined]  # a generator, though the port asks for an iterator only


def _in_words(event: object) -> str:
    assert not isinstance(event, Bookmark)
    about = getattr(event, "object", None)
    return type(event).__name__ + (f" {about.metadata.name}" if about is not None else "")
