"""Lists and watches: one connection at a time, as batches of events.

A list comes in one of two ways, with the same events. Streamed: the watch itself begins with every object, and an
annotated bookmark ends the list; this takes one connection and leaves no gap before the watch. Paged: GETs of 500
objects, then a watch from the list's version. If the server rejects streaming, all later lists are paged.
Source: KEP-3157; kubernetes.io/docs/reference/using-api/api-concepts, "Streaming lists".
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum
from http import HTTPMethod
from typing import Final
from urllib.parse import quote

from scheduler.kube import port
from scheduler.kube.port import Kind, T, WatchEvent
from scheduler.kube.resource_versions import version_number
from scheduler.kube.rest import decoding
from scheduler.kube.rest.decoding import Decoder
from scheduler.kube.rest.transport import Stalled, Transport

BATCH: Final = 256
# Limit of one event. etcd accepts 1.5 MiB by default, which JSON may expand sixfold by escapes.
LONGEST_LINE: Final = 32 * 2**20
_STREAMED: Final = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
_LISTS: Final = 3
# kube-apiserver sends a bookmark about 2 s before the end of a watch; for a watch of 3 s, after 0.5 to 2.0 s (1.36).
_GLANCE_S: Final = 3
# For both requests together: one of several API servers may accept them without ever answering.
_GLANCE_WITHIN_S: Final = 10.0


class Listing(Enum):
    """Form of list requests. EITHER: streamed, or paged once the server has rejected streaming."""

    EITHER = "either"
    STREAMED = "streamed"
    PAGED = "paged"


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Options of a watch. page: objects per GET. stall_s: longest silence of a watch.

    kube-apiserver 1.36 sends the first bookmark after 60 to 120 s and then one every 60 s, but the API guarantees none.
    So silence after a bookmark means that the connection has stalled. Silence before the first bookmark ends the watch
    normally, and it resumes on another connection.
    lasts_s: bounds of the time after which the server ends a watch, in whole seconds.
    """

    listing: Listing = Listing.EITHER
    page: int = 500
    page_timeout_s: float = 60.0
    stall_s: float = 150.0
    lasts_s: tuple[int, int] = (300, 600)


class LineSplitter:
    """Splitter of arriving bytes into whole lines, in time linear in the bytes however long a line is.

    Stores the beginning of an incomplete line in the pieces in which it arrived.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        r"""The lines that `chunk` completes, without "\n", each a separate copy; empty lines are left out.

        Raises ApiSilent for a line that is longer than any from the API server.
        """
        first, *others = chunk.split(b"\n")
        self._pieces.append(first)
        self._held += len(first)
        if self._held > LONGEST_LINE:
            raise port.ApiSilent(f"a line of the watch has over {LONGEST_LINE} bytes")
        if not others:
            return []
        lines = [b"".join(self._pieces), *others]
        self._pieces = [lines.pop()]
        self._held = len(self._pieces[0])
        return [line for line in lines if line]


class _CannotStream(Exception):
    """The server does not support streamed lists."""


class Watching:
    """Lists and watches through one transport. Remembers if the server does not stream lists."""

    def __init__(self, transport: Transport, options: WatchOptions, rng: random.Random) -> None:
        self._transport = transport
        self._options = options
        self._rng = rng
        self._streams = options.listing is not Listing.PAGED

    async def watch(self, kind: Kind[T], since: str | None) -> AsyncGenerator[list[WatchEvent[T]], None]:
        """See `port.Cluster.watch`. If the list restarts, another ListBegins follows."""
        if since is None and self._streams:
            try:
                async with aclosing(self._streamed(kind)) as batches:
                    async for batch in batches:
                        yield batch
            except _CannotStream:
                self._streams = False
            else:
                return
        if since is None:
            async with aclosing(self._paged(kind)) as batches:
                async for batch in batches:
                    if isinstance(last := batch[-1], port.ListEnds):
                        since = last.resource_version
                    yield batch
        async with aclosing(self._connection(kind, f"resourceVersion={quote(since or '')}")) as batches:
            async for batch in batches:
                yield batch

    async def last_change(self, kind: Kind[T], since: str) -> str:
        try:
            async with asyncio.timeout(_GLANCE_WITHIN_S):
                return await self._glance(kind, since)
        except TimeoutError as error:
            raise port.ApiSilent(f"no answer within {_GLANCE_WITHIN_S:g} s to a check for changes") from error

    async def _glance(self, kind: Kind[T], since: str) -> str:
        """`last_change` without its time-out: opens a short watch, which gets a bookmark soon if no object changes."""
        body = await self._transport.send(
            HTTPMethod.GET, f"{kind.path}?limit=1", answers=kind.list_kind, timeout_s=self._options.page_timeout_s
        )
        listed = decoding.page(body).metadata.resource_version
        now, last = version_number(listed), since
        if not now:
            raise port.ApiFailed(f"the resource version of the {kind.name} is not a number: {listed[:40]!r}")
        if version_number(since) >= now:
            return since
        async with aclosing(self._connection(kind, f"resourceVersion={quote(since)}", _GLANCE_S)) as batches:
            async for batch in batches:
                for event in batch:
                    if isinstance(event, port.Changed | port.Deleted):
                        last = event.object.metadata.resource_version
                    bookmark = event.resource_version if isinstance(event, port.Bookmark) else ""
                    if max(version_number(last), version_number(bookmark)) >= now:
                        return last
        raise port.ApiSilent(f"the watch did not reach version {now} within {_GLANCE_S} s")

    async def _streamed(self, kind: Kind[T]) -> AsyncGenerator[list[WatchEvent[T]], None]:
        """List and watch in one connection. Raises _CannotStream."""
        listing = True
        try:
            async with aclosing(self._connection(kind, _STREAMED)) as batches:
                async for batch in batches:
                    for event in batch:
                        # A server without streamed lists ignores the parameter and never marks the end of the list.
                        if listing and isinstance(event, port.Bookmark):
                            raise _CannotStream
                        listing = listing and not isinstance(event, port.ListEnds)
                    yield batch
        except port.ApiRejected as error:
            refused = type(error) is port.ApiRejected and listing
            if refused and self._options.listing is Listing.EITHER:
                raise _CannotStream from error
            raise

    async def _connection(
        self, kind: Kind[T], query: str, lasts_s: int | None = None
    ) -> AsyncGenerator[list[WatchEvent[T]], None]:
        """One watch request, until the server ends it. lasts_s: requested duration; None for the configured one."""
        seconds = lasts_s or self._rng.randint(*self._options.lasts_s)
        path = _path(kind, f"watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&{query}")
        lines, decoder, may_be_silent = LineSplitter(), Decoder(kind), False
        try:
            async with self._transport.stream(path, self._options.stall_s) as chunks:
                may_be_silent = query is not _STREAMED
                yield [port.ListBegins()] if query is _STREAMED else []
                # A line that was cut off at the end of the connection is not delivered, so it is requested again.
                async for chunk in chunks:
                    for batch in _batches(decoder, lines.feed(chunk)):
                        may_be_silent = _may_be_silent_after(batch, may_be_silent=may_be_silent)
                        yield batch
                        if len(batch) == BATCH:
                            await asyncio.sleep(0)
        except Stalled:
            if not may_be_silent:
                raise

    async def _paged(self, kind: Kind[T]) -> AsyncGenerator[list[WatchEvent[T]], None]:
        """A list in pages, restarted if the rest has expired. Raises WatchExpired at the third expiry."""
        for attempt in range(1, _LISTS + 1):
            try:
                async with aclosing(self._pages(kind)) as batches:
                    async for batch in batches:
                        yield batch
            except port.WatchExpired:
                if attempt == _LISTS:
                    raise
            else:
                return

    async def _pages(self, kind: Kind[T]) -> AsyncGenerator[list[WatchEvent[T]], None]:
        decoder, rest = Decoder(kind), ""
        while True:
            path = _path(kind, f"limit={self._options.page}" + (f"&continue={quote(rest, safe='')}" if rest else ""))
            timeout_s = self._options.page_timeout_s
            body = await self._transport.send(HTTPMethod.GET, path, answers=kind.list_kind, timeout_s=timeout_s)
            page = decoding.page(body)
            if not rest:
                yield [port.ListBegins()]
            items = page.items or []
            for start in range(0, len(items), BATCH):
                yield [decoder.listed(item) for item in items[start : start + BATCH]]
                await asyncio.sleep(0)
            rest = page.metadata.rest
            if not rest:
                yield [port.ListEnds(page.metadata.resource_version)]
                return


def _batches(decoder: Decoder[T], lines: list[bytes]) -> Iterator[list[WatchEvent[T]]]:
    """Yield the events of `lines`, then raise the ApiError of an ERROR event among them."""
    for start in range(0, len(lines), BATCH):
        batch: list[WatchEvent[T]] = []
        try:
            for line in lines[start : start + BATCH]:
                batch.append(decoder.watched(line))  # noqa: PERF401 what came before the error is delivered
        except port.ApiError:
            if batch:
                yield batch
            raise
        yield batch


def _may_be_silent_after(batch: list[WatchEvent[T]], *, may_be_silent: bool) -> bool:
    for event in batch:
        if isinstance(event, port.ListEnds):
            may_be_silent = True
        elif isinstance(event, port.Bookmark):
            may_be_silent = False
    return may_be_silent


def _path(kind: Kind[T], query: str) -> str:
    selector = f"&fieldSelector={quote(kind.field_selector, safe='')}" if kind.field_selector else ""
    if kind.label_selector:
        selector += f"&labelSelector={quote(kind.label_selector, safe='')}"
    return f"{kind.path}?{query}{selector}"
