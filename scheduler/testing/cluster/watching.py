"""One watch connection on a collection.

    OPEN --stall--> STALLED --resume--> OPEN
      |                | silent for too long
      +--fail, end-----+--> over: the error once, or the end

The collection's listener wakes it, without polling; the cost of a batch is proportional to its events.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Final, Generic

from scheduler.kube.port import (
    ApiError,
    ApiRejected,
    ApiSilent,
    Bookmark,
    Changed,
    Deleted,
    Kind,
    ListBegins,
    ListEnds,
    T,
    WatchEvent,
    WatchExpired,
)
from scheduler.testing.cluster.faults import Break, WatchBreaks
from scheduler.testing.cluster.store import Collection, StoredChange, shown_by, with_version

BATCH: Final = 256


@dataclass(frozen=True, slots=True)
class WatchTiming:
    """Timing of watches. bookmark_every_s: None for no bookmarks. silence_s: the client gives up after this silence."""

    bookmark_every_s: float | None = 60.0
    silence_s: float = 90.0


class WatchConnection(Generic[T]):
    """An open watch; `close` it. since: as in `port.Cluster.watch`. breaks: when it breaks, None if never."""

    def __init__(
        self,
        kind: Kind[T],
        collection: Collection[T],
        since: str | None,
        *,
        timing: WatchTiming,
        breaks: WatchBreaks | None = None,
    ) -> None:
        self.kind: Kind[T] = kind
        self._collection: Collection[T] = collection
        self._shown: Callable[[T], bool] = shown_by(kind)
        self._timing = timing
        self._breaks = breaks
        self._left = breaks.after_events if breaks else BATCH
        self._position = collection.end if since is None else collection.position_after(_parsed(since))
        self._listing: Iterator[WatchEvent[T]] = iter(()) if since is not None else self._listed()
        self._list_delivered = since is not None
        self._stalled = self._over = self._bookmark_due = False
        self._failure: ApiError | None = None
        self._woken: asyncio.Future[None] | None = None
        self._timers: dict[str, asyncio.Task[None]] = {}
        collection.listeners.append(self._wake)

    async def next_batch(self) -> list[WatchEvent[T]] | None:
        """Return the next events, 1 to BATCH of them; None at the end. Raises the error that broke the connection."""
        while True:
            await self._something_to_deliver()
            if self._failure is not None:
                raise self._failure
            if self._over:
                return None
            if batch := self._take(min(BATCH, self._left)):
                return batch

    def break_off(self, how: Break) -> None:
        """Stop delivering, like a broken connection; undelivered events are lost, except during a stall."""
        match how:
            case Break.ENDED:
                self._over = True
            case Break.LOST:
                self._failure = ApiSilent("connection reset by peer")
            case Break.EXPIRED:
                self._failure = WatchExpired("The resourceVersion for the provided watch is too old.", 410)
            case Break.STALLED:
                self._stalled = True
        self._wake()

    def resume(self) -> None:
        """Continue after a stall with all events since then."""
        self._stalled = False
        self._stop_timer("silence")
        self._wake()

    def close(self) -> None:
        """Drop the connection; it delivers nothing more."""
        self._over = True
        self._collection.listeners.remove(self._wake)
        for name in list(self._timers):
            self._stop_timer(name)
        self._wake()

    async def _something_to_deliver(self) -> None:
        self._start_timers()
        await asyncio.sleep(0)  # other tasks run between two batches, as between two reads of a socket
        while not self._ready():
            self._woken = asyncio.get_running_loop().create_future()
            self._start_timers()
            await self._woken

    def _ready(self) -> bool:
        if self._breaks is not None and self._left == 0:
            how, self._breaks, self._left = self._breaks.how, None, BATCH
            self.break_off(how)
        if self._over or self._failure is not None:
            return True
        if self._stalled:
            return False
        return not self._list_delivered or self._position < self._collection.end or self._bookmark_due

    def _take(self, at_most: int) -> list[WatchEvent[T]]:
        """Return events in order: the rest of the list, then changes, then a bookmark that is due; may be empty."""
        batch = list(islice(self._listing, at_most))
        if not batch:
            self._list_delivered = True
            batch = self._take_changes(at_most)
        if not batch and self._bookmark_due and self._position == self._collection.end:
            self._bookmark_due = False
            batch = [Bookmark(str(self._collection.version))]
        if self._breaks is not None:
            self._left -= len(batch)
        return batch

    def _take_changes(self, at_most: int) -> list[WatchEvent[T]]:
        changes = self._collection.changes(self._position, at_most)
        if changes is None:  # the reader is too slow: the server ends the watch, and the missed events may have expired
            self._over = True
            return []
        self._position += len(changes)
        return [event for change in changes if (event := _event(change, self._shown)) is not None]

    def _listed(self) -> Iterator[WatchEvent[T]]:
        """Yield the objects at the moment of the read; by namespace and name, as an API server lists."""
        objects = sorted(filter(self._shown, self._collection), key=_by_key)
        return chain([ListBegins()], map(Changed, objects), [ListEnds(str(self._collection.version))])

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _start_timers(self) -> None:
        every_s = self._timing.bookmark_every_s
        if every_s is not None and "bookmark" not in self._timers:
            self._timers["bookmark"] = asyncio.create_task(self._bookmark_each(every_s))
        if self._stalled and "silence" not in self._timers:
            self._timers["silence"] = asyncio.create_task(self._fall_silent_after(self._timing.silence_s))

    def _stop_timer(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    async def _bookmark_each(self, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            self._bookmark_due = True
            self._wake()

    async def _fall_silent_after(self, silence_s: float) -> None:
        await asyncio.sleep(silence_s)
        self._failure = ApiSilent(f"no data for {silence_s:g} s")
        self._wake()


def last_change(kind: Kind[T], collection: Collection[T], since: str) -> str:
    """Return the version of the last change, see `port.Cluster.last_change`."""
    shown = shown_by(kind)
    position = collection.position_after(_parsed(since))
    later = collection.changes(position, collection.end - position) or []
    return next((str(change.version) for change in reversed(later) if _event(change, shown) is not None), since)


def _event(change: StoredChange[T], shown: Callable[[T], bool]) -> Changed[T] | Deleted[T] | None:
    """Return the watch's event for a change; None if the watch never showed the object.

    An object that stops matching is Deleted in its last matching state, at the version of the change: a pod that turned
    Failed is still Running there. Source: apiserver/pkg/storage/cacher/cache_watcher.go, convertToWatchEvent.
    """
    if change.after is not None and shown(change.after):
        return Changed(change.after)
    if change.before is not None and shown(change.before):
        return Deleted(with_version(change.before, change.version))
    return None


def _by_key(listed: T) -> tuple[str, str]:
    return listed.metadata.namespace, listed.metadata.name


def _parsed(since: str) -> int:
    if not since.isdecimal():
        raise ApiRejected(f'Invalid value: "{since}": resourceVersion is not a number', 400)
    return int(since)
