"""Follows all changes to one kind of object, across all connection failures.

Three nested generators, each of which ends at one kind of failure only:

    reflect              never ends
      _until_expired     a list, then watches from one connection to the next; ends at 410, and the next one lists again
        _connection      one watch; ends when the server closes it or it fails

Consumers see lists and changes, and bookmarks on request. Versions, reconnections and back-off are handled here. An
object that was deleted between two watches arrives as Deleted, before the ListEnds that reveals its deletion. If it was
recreated with a new UID, the old object arrives as Deleted. Such a Deleted has only name, namespace and UID: storing
last states would keep every object in memory twice. If a list starts over before it has ended, ListBegins comes again.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing
from enum import Enum
from http import HTTPStatus
from typing import Final, Generic, TypeAlias

from tenacity import AsyncRetrying, RetryCallState
from tenacity.wait import wait_base, wait_exponential

from scheduler.kube import objects, port
from scheduler.kube.port import Cluster, Kind, T, WatchEvent

BATCH: Final = 256
# A watch that the server ended normally is resumed at once, unless it ended immediately.
_LONG_ENOUGH_S: Final = 1.0
# A failure after this long is unrelated to earlier ones.
_STEADY_S: Final = 60.0
# Until a kind that the server does not know is asked for again.
_ABSENT_S: Final = 30.0

OnTrouble: TypeAlias = Callable[[Kind[T], port.ApiError | None], None]
OnAnswer: TypeAlias = Callable[[Kind[T], bool], None]


class Backoff:
    """Wait after consecutive failures: a strategy of the library tenacity, randomly shortened by up to half."""

    def __init__(self, rng: random.Random, wait: wait_base | None = None) -> None:
        """wait: by default 0.1 s doubling to 30 s."""
        self._rng = rng
        self._policy = AsyncRetrying(wait=wait or wait_exponential(multiplier=0.1, max=30))

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after `failures` consecutive failures, >= 1."""
        state = RetryCallState(self._policy, None, (), {})
        state.attempt_number = failures
        return self._policy.wait(state) * self._rng.uniform(0.5, 1.0)

    def at_least_s(self, asked_s: float) -> float:
        """Seconds to wait if the server asks for `asked_s`: up to half as long again.

        kube-apiserver gives all throttled clients the same second; without this, all would return at the same time.
        """
        return min(asked_s * self._rng.uniform(1.0, 1.5), port.LONGEST_RETRY_AFTER_S)


class WatchBackoff:
    """Wait before the next connection, depending on how the last one failed (docs/develop/decisions/0016).

    cheap: for a connection that needs no list; short, so that every watch resumes soon after the server is back. dear:
    for any other connection.
    """

    def __init__(self, rng: random.Random, *, reconnect_max_s: float) -> None:
        """reconnect_max_s: longest wait for a server that does not answer; the wait doubles from 0.1 s up to it."""
        self.cheap = Backoff(rng, wait_exponential(multiplier=0.1, max=reconnect_max_s))
        self.dear = Backoff(rng)


def _unheard(_kind: object, _opened: bool) -> None:  # noqa: FBT001 - as OnAnswer
    """Ignore the answer."""


async def reflect(
    cluster: Cluster,
    kind: Kind[T],
    *,
    backoff: WatchBackoff,
    on_trouble: OnTrouble[T],
    on_answer: OnAnswer[T] = _unheard,
    bookmarks: bool = False,
) -> AsyncIterator[list[WatchEvent[T]]]:
    """Yield batches of ListBegins, ListEnds, Changed, Deleted and Undecodable; a batch is never empty.

    on_trouble: called with the error when it changes, and with None when the watch works again. on_answer: called each
    time the server sends something, with True when that opens a connection. bookmarks: also yield bookmarks outside of
    lists. Memory: about 200 bytes per object, for its name and UID.
    """
    follower, pace = _Follower(kind, bookmarks=bookmarks), _Pace(kind, backoff, on_trouble, on_answer)
    while True:
        follower.forget_version()
        async with aclosing(_until_expired(cluster, kind, follower, pace)) as batches:
            async for batch in batches:
                yield batch


async def _until_expired(
    cluster: Cluster, kind: Kind[T], follower: "_Follower[T]", pace: "_Pace[T]"
) -> AsyncGenerator[list[WatchEvent[T]], None]:
    while True:
        began_s, before = asyncio.get_running_loop().time(), follower.version
        error: port.ApiError | None = None
        try:
            async with aclosing(_connection(cluster, kind, follower, pace)) as batches:
                async for batch in batches:
                    yield batch
        except port.ApiError as failure:
            error = failure
        expired = isinstance(error, port.WatchExpired)
        # A list that expires at once is no progress.
        if follower.version != before and not (expired and before is None):
            pace.progressed()
        lasted_s = asyncio.get_running_loop().time() - began_s
        await asyncio.sleep(pace.pause_s(error, lasted_s, lists=follower.version is None))
        if expired:
            return


async def _connection(
    cluster: Cluster, kind: Kind[T], follower: "_Follower[T]", pace: "_Pace[T]"
) -> AsyncGenerator[list[WatchEvent[T]], None]:
    async with AsyncExitStack() as stack:
        batches = cluster.watch(kind, follower.version)
        if isinstance(batches, AsyncGenerator):
            stack.push_async_callback(batches.aclose)
        opened = True
        async for batch in batches:
            followed = list(follower.follow(batch))
            pace.answered(opened=opened, complete=follower.version is not None)
            opened = False
            for start in range(0, len(followed), BATCH):
                yield followed[start : start + BATCH]


class _Follower(Generic[T]):
    """A position in the history of one kind, and the objects that exist at that position.

    version: resource version to continue from; None before a list is complete.
    """

    def __init__(self, kind: Kind[T], *, bookmarks: bool) -> None:
        self._kind: Kind[T] = kind
        self._bookmarks = bookmarks
        self.version: str | None = None
        self._uids: dict[str, str] = {}
        self._listed: set[str] | None = None

    def forget_version(self) -> None:
        """Discard the version, so that the next connection lists."""
        self.version = None

    def follow(self, batch: list[WatchEvent[T]]) -> Iterator[WatchEvent[T]]:
        """Yield the events for consumers."""
        for event in batch:
            match event:
                case port.Changed():
                    yield from self._changed(event)
                case port.Deleted():
                    yield from self._deleted(event)
                case port.Bookmark():
                    yield from self._bookmark(event)
                case port.ListBegins():
                    self._listed, self.version = set(), None
                    yield event
                case port.ListEnds():
                    yield from self._vanished()
                    self._listed, self.version = None, event.resource_version
                    yield event
                case port.Undecodable():
                    # The object exists: its last state stays valid until it is readable again, or deleted.
                    if self._listed is not None:
                        self._listed.add(event.name)
                    yield event

    def _changed(self, event: port.Changed[T]) -> Iterator[WatchEvent[T]]:
        self._reached(event.object)
        name, uid = _name(event.object), event.object.metadata.uid
        if self._uids.get(name, uid) != uid:
            yield self._gone(name)
        self._uids[name] = uid
        if self._listed is not None:
            self._listed.add(name)
        yield event

    def _deleted(self, event: port.Deleted[T]) -> Iterator[WatchEvent[T]]:
        self._reached(event.object)
        name, uid = _name(event.object), event.object.metadata.uid
        if self._uids.get(name, uid) != uid:
            # The recreated object could not be decoded, and the deletion of the old one was not reported.
            yield self._gone(name)
        self._uids.pop(name, None)
        yield event

    def _bookmark(self, event: port.Bookmark) -> Iterator[WatchEvent[T]]:
        if self._listed is None:
            self.version = event.resource_version
            if self._bookmarks:
                yield event

    def _vanished(self) -> Iterator[WatchEvent[T]]:
        if "" in (self._listed or ()):
            # An existing object could not even be named: it may be any of these.
            return
        for name in sorted(self._uids.keys() - (self._listed or set())):
            yield self._gone(name)
            del self._uids[name]

    def _gone(self, name: str) -> port.Deleted[T]:
        namespace, _, bare = name.rpartition("/")
        return port.Deleted(self._kind.type(metadata=objects.ObjectMeta(bare, namespace, self._uids[name])))

    def _reached(self, changed: T) -> None:
        # A list is unordered: only its end has the version that it shows.
        if self._listed is None:
            self.version = changed.metadata.resource_version


class _Sort(Enum):
    """Kinds of connection failures that require different waits before the next connection."""

    SILENT = "no answer; retrying costs the server nothing until it is back"
    FORBIDDEN = "denied, permanently or because the server has not loaded its RBAC rules yet"
    OVERLOADED = "a server error, an overloaded server, or an interrupted list"
    EXPIRED = "the version is too old"
    ENDED = "closed normally right after it was opened"


class _Pace(Generic[T]):
    """Wait between two connections, and the reason for the log.

    Failures of one kind count together, even with others between them: if a server returns after a long absence and
    answers that a version has expired, the objects are listed at once.
    """

    def __init__(self, kind: Kind[T], backoff: WatchBackoff, on_trouble: OnTrouble[T], on_answer: OnAnswer[T]) -> None:
        self._kind: Kind[T] = kind
        self._backoff = backoff
        self._on_trouble: OnTrouble[T] = on_trouble
        self._on_answer: OnAnswer[T] = on_answer
        self._failures: Counter[_Sort] = Counter()
        self._listing = False
        self._reported: tuple[type[port.ApiError], str] | None = None

    def answered(self, *, opened: bool, complete: bool) -> None:
        """Record an answer of the server. complete: whether the list is complete, so that changes follow."""
        self._on_answer(self._kind, opened)
        self._listing = not complete
        if complete:
            self._works()

    def progressed(self) -> None:
        """Record that a connection reached a new version."""
        self._failures.clear()

    def pause_s(self, error: port.ApiError | None, lasted_s: float, *, lists: bool) -> float:
        """Seconds until the next connection. lists: whether that connection begins with a list."""
        if error is None and lasted_s >= _LONG_ENOUGH_S:
            return 0.0
        if self._kind.optional and error is not None and error.status == HTTPStatus.NOT_FOUND:
            self._works()
            return self._backoff.dear.at_least_s(_ABSENT_S)
        if lasted_s >= _STEADY_S:
            self._failures.clear()
        sort = _sort(error, listing=self._listing)
        self._listing = False
        self._failures[sort] += 1
        if error is not None and sort is not _Sort.EXPIRED:
            self._report(error)
        cheap = sort is _Sort.SILENT or (sort is _Sort.OVERLOADED and not lists)
        backoff = self._backoff.cheap if cheap else self._backoff.dear
        asked_s = error.retry_after_s if isinstance(error, port.ApiThrottled) else 0.0
        return max(backoff.delay_s(self._failures[sort]), backoff.at_least_s(asked_s))

    def _works(self) -> None:
        if self._reported is not None:
            self._reported = None
            self._on_trouble(self._kind, None)

    def _report(self, error: port.ApiError) -> None:
        reported = (type(error), error.message)
        if reported != self._reported:
            self._reported = reported
            self._on_trouble(self._kind, error)


def _sort(error: port.ApiError | None, *, listing: bool) -> _Sort:
    match error:
        case None:
            return _Sort.ENDED
        case port.ApiSilent() if not listing:
            return _Sort.SILENT
        case port.ApiForbidden():
            return _Sort.FORBIDDEN
        case port.WatchExpired():
            return _Sort.EXPIRED
        case _:
            return _Sort.OVERLOADED


def _name(found: T) -> str:
    """Name of the object, as Undecodable gives it."""
    namespace = found.metadata.namespace
    return f"{namespace}/{found.metadata.name}" if namespace else found.metadata.name
