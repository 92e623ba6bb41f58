"""One HTTP/1.1 connection that sends a whole request as bytes and returns a whole answer. The parser is httptools.

                  connect              send                  answer, whole
    (none) ───────────────────▶ IDLE ────────▶ BUSY ───────────────────────────▶ IDLE
                                  │             │ the server closes it, with the answer or before; not HTTP, or more
                                  │             │ bytes than one answer; the caller has given up
                                  └─────────────┴───────────────▶ closed
                     the server closes it, or sends anything; idle for too long

No request is sent twice here: if the connection has closed, the request may have been executed.
"""

import asyncio
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, cast

import httptools

# Limit of one answer, including its head. The API server echoes the object, or sends a Status.
MOST_BYTES: Final = 4 * 2**20
# Before CPython 3.12, accessing a member of HTTPStatus by name takes as long as parsing a header.
_OK: Final = int(HTTPStatus.OK)
_FRAMING: Final = frozenset({b"content-length", b"transfer-encoding"})
_RETRY_AFTER: Final = b"retry-after"
# No other headers are read. The API server sends five more with every answer.
_LENGTHS: Final = frozenset(map(len, (*_FRAMING, _RETRY_AFTER)))


class HttpAnswer(NamedTuple):
    """One answer. headers: by their usual names; from a bare connection, only Retry-After."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Http1Connection(asyncio.Protocol):
    """A connection for one request at a time. reusable: it is open, and all received bytes belonged to answers."""

    def __init__(self, opened: "set[Http1Connection]", tls: ssl.SSLContext | None) -> None:
        """opened: the connection removes itself from this set when it is lost. tls: its context."""
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
        """Send the request, and return the answer. Raises ConnectionError, at once if it has already closed."""
        if not self.reusable:
            raise ConnectionError(self._ended_by)
        self._waiting = asyncio.get_running_loop().create_future()
        self._received = 0
        self._transport.write(request)
        return await self._waiting

    def end(self) -> None:
        """Close the connection, whatever is in flight."""
        self.reusable = False
        self._transport.abort()

    def fail(self, message: str) -> None:
        """Close the connection, and fail the pending request."""
        self._ended_by = self._ended_by or message
        self.end()
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(ConnectionError(message))

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        # uvloop's transport of a TLS connection is not an asyncio.Transport, but has the methods used here.
        self._transport = cast("asyncio.Transport", transport)
        self.reusable = True

    def data_received(self, data: bytes) -> None:
        """Handle a part of an answer, or unsolicited data."""
        self._received += len(data)
        if self._waiting is None:
            self.fail("the server sent data without a request")
        elif self._received > MOST_BYTES:
            self.fail(f"the answer has over {MOST_BYTES} bytes")
        else:
            self._parse(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Record the end of the connection, which completes an answer without a length."""
        self.reusable = False
        self._opened.discard(self)
        if error is None and self._waiting is not None and self._ends_with_connection:
            self._complete()
        else:
            where = "in the middle of" if self._received else "before"
            self.fail(f"the connection ended {where} the answer{f': {error}' if error else ''}")
        # The parser refers to this connection: otherwise, both would stay until a full garbage collection, which is
        # rare.
        del self._parser

    # Parser callbacks

    def on_message_begin(self) -> None:
        """Record that an answer begins: the expected one, even after interim ones, or an unexpected second one."""
        if self._waiting is None:
            raise ValueError("more than one answer to a request")
        self._framed = self._ends_with_connection = False
        self._headers, self._body = {}, []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store only the headers in use."""
        if len(name) not in _LENGTHS:
            return
        lowered = name.lower()
        if lowered in _FRAMING:
            self._framed = True
        elif lowered == _RETRY_AFTER:
            self._headers["Retry-After"] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Record that the body follows."""
        self._ends_with_connection = not self._framed

    def on_body(self, data: bytes) -> None:
        """Append a part of the body."""
        self._body.append(data)

    def on_message_complete(self) -> None:
        """Complete the answer, unless it is an interim one."""
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
