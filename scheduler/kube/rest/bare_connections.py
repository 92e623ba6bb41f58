"""HTTP/1.1 over bare connections: one whole request as bytes, one whole answer.

For the two requests that every pod costs, its Binding and its Event. A client for everything, such as aiohttp, makes
headers, a URL, a body's stream and their timers for each request; here the head of all of them is made once. What is
parsed is parsed by httptools.

                  connect              send                  answer, whole
    (none) ───────────────────▶ IDLE ────────▶ BUSY ───────────────────────────▶ IDLE
                                  │             │ the server ends it, with the answer
                                  │             │ or before; no HTTP; the caller has given up
                                  └─────────────┴───────────────▶ closed
                     the server ends it; idle too long
"""

import asyncio
import socket
from collections import deque
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple, cast
from urllib.parse import urlsplit

import httptools

from scheduler.kube.rest.connect import Connection

# Of one answer. The API server sends back what it was sent, or a Status.
MOST_BYTES: Final = 4 * 2**20
# Below the idle time-out of the API server (90 s) and of usual load balancers (60 s): a connection that the other side
# has just closed turns a bind into one of unknown outcome.
KEEP_ALIVE_S: Final = 45.0
# Silence before the first probe, silence between two (seconds), and how many go unanswered.
_TCP_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_RETRY_AFTER: Final = b"retry-after"


class Answer(NamedTuple):
    """headers: of those that are sent, the ones that the API server's refusals are read with, by their usual names."""

    status: int
    headers: dict[str, str]
    body: bytes


def keep_alive(of: socket.socket) -> None:
    """Let it notice within a minute that its peer is gone, even when nothing is sent."""
    of.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_KEEP_ALIVE:
        if (option := getattr(socket, name, None)) is not None:  # what there is differs between systems
            of.setsockopt(socket.IPPROTO_TCP, option, value)


class Connections:
    """At most so many connections to one server. The one that was used last is used next, so that few stay open.

    Make it inside the event loop that uses it.
    """

    def __init__(self, to: Connection, headers: Mapping[str, str], most: int) -> None:
        """to: without a proxy. headers: of every request. most: a request beyond waits until another is answered."""
        url = urlsplit(to.url)
        self._host, self._tls = url.hostname or "", to.tls if url.scheme == "https" else None
        self._port = url.port or (80 if self._tls is None else 443)
        self._server_name = to.server_name or self._host
        self._root = url.path.encode()
        self._same = {"Host": url.netloc.rpartition("@")[2], **headers}
        self._heads: dict[str | None, bytes] = {}
        self._free = asyncio.Semaphore(most)
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()
        self._now_s = asyncio.get_running_loop().time

    async def post(self, path: str, body: bytes, authorization: str | None) -> Answer:
        """Send, and wait for the answer. OSError: there is none, or no whole one; the request may have been executed.

        path: with its query, percent-encoded. authorization: the header's value.
        A caller that is cancelled meanwhile costs the connection: what is answered later is for nobody.
        """
        head = self._heads.get(authorization) or self._head(authorization)
        request = b"POST %b%b%b%d\r\n\r\n%b" % (self._root, path.encode("ascii"), head, len(body), body)
        async with self._free:
            connection = self._idle_one() or await self._connect()
            try:
                answer = await connection.send(request)
            except BaseException:
                connection.end()
                raise
            if connection.reusable:
                connection.idle_since_s = self._now_s()
                self._idle.append(connection)
            return answer

    @property
    def open(self) -> int:
        """How many there are, idle ones among them."""
        return len(self._open)

    def close(self) -> None:
        """End every connection; requests under way raise OSError."""
        for connection in tuple(self._open):
            connection.end()

    def _idle_one(self) -> "_Connection | None":
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and self._now_s() - connection.idle_since_s < KEEP_ALIVE_S:
                return connection
            connection.end()
        return None

    def _head(self, authorization: str | None) -> bytes:
        """What follows the path, up to the length of the body."""
        headers = self._same if authorization is None else {**self._same, "Authorization": authorization}
        lines = [f"{name}: {value}" for name, value in headers.items()]
        if not all(line.isascii() and line.isprintable() for line in lines):
            message = "a header has characters that none may have: look at the token"
            raise ConnectionError(message)
        self._heads = {authorization: "\r\n".join((" HTTP/1.1", *lines, "Content-Length: ")).encode()}
        return self._heads[authorization]

    async def _connect(self) -> "_Connection":
        name = self._server_name if self._tls else None
        transport, made = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._open), self._host, self._port, ssl=self._tls, server_hostname=name
        )
        keep_alive(transport.get_extra_info("socket"))
        return made


class _Connection(asyncio.Protocol):
    """One request at a time. reusable: open, and everything that came belonged to an answer."""

    def __init__(self, opened: "set[_Connection]") -> None:
        """opened: holds the connection as long as it is open."""
        self.reusable = False
        self.idle_since_s = 0.0
        self._opened = opened
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._waiting: asyncio.Future[Answer] | None = None
        self._begin()

    async def send(self, request: bytes) -> Answer:
        """The connection must be reusable."""
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def end(self) -> None:
        """Close it, whatever is on the way."""
        self.reusable = False
        self._transport.abort()

    # As asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        # uvloop's transport of a TLS connection is no asyncio.Transport, but has what is used.
        self._transport = cast("asyncio.Transport", transport)
        self._opened.add(self)
        self.reusable = True

    def data_received(self, data: bytes) -> None:
        """Part of an answer, or what nobody has asked for."""
        if self._waiting is None:
            self.end()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(f"the answer is not HTTP: {error.__context__ or error}")
        except httptools.HttpParserUpgrade:
            self._fail("the server wants to switch to another protocol")

    def connection_lost(self, error: Exception | None) -> None:
        """It is closed. An answer without a length ends with it."""
        self.reusable = False
        self._opened.discard(self)
        if self._waiting is None:
            return
        if error is None and self._has_head and not self._framed:
            self._complete()
        else:
            where = "in the middle of" if self._has_head or self._size else "before"
            self._fail(f"the connection ended {where} the answer{f': {error}' if error else ''}")

    # As the parser's protocol

    def on_header(self, name: bytes, value: bytes) -> None:
        """Only what is needed is kept."""
        lowered = name.lower()
        if lowered in {b"content-length", b"transfer-encoding"}:
            self._framed = True
        elif lowered == _RETRY_AFTER:
            self._headers["Retry-After"] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """The body follows."""
        self._has_head = True

    def on_body(self, data: bytes) -> None:
        """Part of it."""
        self._size += len(data)
        if self._size > MOST_BYTES:
            message = f"over {MOST_BYTES} bytes"
            raise ValueError(message)
        self._body.append(data)

    def on_message_complete(self) -> None:
        """The answer is whole, unless it only announces one."""
        if self._parser.get_status_code() < HTTPStatus.OK:
            self._begin()
            return
        self.reusable = self.reusable and self._parser.should_keep_alive()
        self._complete()

    def _begin(self) -> None:
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._size = 0
        self._has_head = self._framed = False

    def _complete(self) -> None:
        waiting, self._waiting = self._waiting, None
        answer = Answer(self._parser.get_status_code(), self._headers, b"".join(self._body))
        self._begin()
        if waiting is None:
            # A second answer to one request: whose are the next ones?
            self.end()
        elif not waiting.done():
            waiting.set_result(answer)
        if not self.reusable:
            self._transport.close()

    def _fail(self, message: str) -> None:
        waiting, self._waiting = self._waiting, None
        self.end()
        if waiting is not None and not waiting.done():
            waiting.set_exception(ConnectionError(message))
