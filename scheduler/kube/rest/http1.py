"""One HTTP/1.1 connection: a whole request as bytes, a whole answer. httptools is the parser.

                  connect              send                  answer, whole
    (none) ───────────────────▶ IDLE ────────▶ BUSY ───────────────────────────▶ IDLE
                                  │             │ the server ends it, with the answer or before; no HTTP, or more
                                  │             │ bytes than one answer; the caller has given up
                                  └─────────────┴───────────────▶ closed
                     the server ends it, or sends anything; idle for too long

No request is sent twice here: one whose connection has ended may have been executed.
"""

import asyncio
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, cast

import httptools

# Limit of one answer, with its head. The API server echoes the object, or sends a Status.
MOST_BYTES: Final = 4 * 2**20
# Before CPython 3.12, to name a member of HTTPStatus takes as long as to parse a header.
_OK: Final = int(HTTPStatus.OK)
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_RETRY_AFTER: Final = b"retry-after"
# No other headers are read. The API server sends five more with every answer.
_LENGTHS: Final = frozenset(map(len, (*_FRAMING, _RETRY_AFTER)))


class HttpAnswer(NamedTuple):
    """headers: by their usual names; of a bare connection only Retry-After is kept."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http1Connection(asyncio.Protocol):
    """One request at a time. reusable: open, and everything that came belonged to an answer."""

    def __init__(self, opened: "set[Http1Connection]", tls: ssl.SSLContext | None) -> None:
        """opened: the connection leaves it when it is lost. tls: its context."""
        self.tls = tls
        self.reusable = False
        self.idle_until_s = 0.0
        self._opened = opened
        self._ended_by = ""
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[HttpAnswer] | None = None
        self._received = 0  # bytes since the request
        self._framed = self._ends_with_connection = False
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []

    async def send(self, request: bytes) -> HttpAnswer:
        """The answer. Raises ConnectionError, at once if the connection has ended already."""
        if not self.reusable:
            raise ConnectionError(self._ended_by)
        self._waiting = asyncio.get_running_loop().create_future()
        self._received = 0
        self._transport.write(request)
        return await self._waiting

    def end(self) -> None:
        """Close it, whatever is in flight."""
        self.reusable = False
        self._transport.abort()

    def fail(self, message: str) -> None:
        """End it, and the request that waits."""
        self._ended_by = self._ended_by or message
        self.end()
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(ConnectionError(message))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transport of a TLS connection is not an asyncio.Transport, but has the methods used here.
        self._transport = cast("asyncio.Transport", transport)
        self.reusable = True

    def data_received(self, data: bytes) -> None:
        """Part of an answer, or unsolicited data."""
        self._received += len(data)
        if self._waiting is None:
            self.fail("the server sent data without a request")
        elif self._received > MOST_BYTES:
            self.fail(f"the answer has over {MOST_BYTES} bytes")
        else:
            self._parse(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Note the end. An answer without a length ends with it."""
        self.reusable = False
        self._opened.discard(self)
        if error is None and self._waiting is not None and self._ends_with_connection:
            self._complete()
        else:
            where = "in the middle of" if self._received else "before"
            self.fail(f"the connection ended {where} the answer{f': {error}' if error else ''}")
        # The parser refers to this connection: without this line, both stay until a full collection, which is rare.
        del self._parser

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        """An answer begins: the one that is waited for, after interim ones, or a second one."""
        if self._waiting is None:
            raise ValueError("more than one answer to a request")
        self._framed = self._ends_with_connection = False
        self._headers, self._body = {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep only the headers in use."""
        if len(name) not in _LENGTHS:
            return
        lowered = name.lower()
        if lowered in _FRAMING:
            self._framed = True
        elif lowered == _RETRY_AFTER:
            self._headers["Retry-After"] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The body follows."""
        self._ends_with_connection = not self._framed

    def on_body(self, data: bytes) -> None:
        """Part of it."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """The answer is whole, unless it only announces one."""
        if self._parser.get_status_code() >= _OK:
            self.reusable = self.reusable and self._parser.should_keep_alive()
            self._complete()

    def _parse(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(f"the answer is not HTTP: {error.__context__ or error}")
        except httptools.HttpParserUpgrade:
            self.fail("the server wants to switch to another protocol")

    def _complete(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(HttpAnswer(self._parser.get_status_code(), self._headers, b"".join(self._body)))
        if not self.reusable:
            self.end()
