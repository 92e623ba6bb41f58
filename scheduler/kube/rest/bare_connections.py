"""A pool of bare HTTP/1.1 connections (http1.py) to one server.

For the two requests of every pod, its Binding and its Event, and for all others that only the leader may send:
leadership is checked just before the bytes are sent. A client for everything, such as aiohttp, makes headers,
a URL, a body stream and timers for each request; here the common head is made once. Why:
docs/develop/decisions/0045-send-frequent-requests-over-bare-connections.md.
"""

import asyncio
import math
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping
from http import HTTPMethod
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from aiohappyeyeballs import start_connection

from scheduler.kube.rest.client_config.connect import Connection
from scheduler.kube.rest.client_config.credentials import Headers, sendable
from scheduler.kube.rest.http1 import Http1Connection, HttpAnswer

# Path of a request with its query, percent-encoded. A function is called just before the bytes are sent; if it raises,
# none are.
Path: TypeAlias = str | Callable[[], str]
JSON: Final = "application/json"
_VERBS: Final = {method: method.value.encode() for method in HTTPMethod}
# Below the idle time-out of the API server (90 s) and of usual load balancers (60 s): a connection that the other side
# has just closed turns a bind into one of unknown outcome.
KEEP_ALIVE_S: Final = 45.0
# Delay before the next address of the server is tried too, as in aiohttp.
_NEXT_ADDRESS_AFTER_S: Final = 0.25
# Silence before the first probe, silence between two (seconds), and how many go unanswered.
_TCP_KEEP_ALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


def new_socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that notices a lost peer within a minute, even without traffic."""
    family, kind, protocol, *_ = address
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _TCP_KEEP_ALIVE:
        if (option := getattr(socket, name, None)) is not None:  # availability differs between systems
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made


class Connections:
    """A bounded pool of connections to one server. The most recent one is used next, so that few stay open.

    After a change of the certificates of `to`, requests use only connections made with the new ones; older connections
    close, busy ones after their answer.

    Make it inside the event loop that uses it.
    """

    def __init__(self, to: Connection, headers: Mapping[str, str], most: int) -> None:
        """to: without a proxy. headers: of every request, without Content-Type.

        most: further requests wait for an answer to another.
        """
        url = urlsplit(to.url)
        self._to, self._encrypted = to, url.scheme == "https"
        self._host = url.hostname or ""
        self._port = url.port or (443 if self._encrypted else 80)
        self._server_name = (to.server_name or self._host) if self._encrypted else None
        self._root = url.path.encode()
        self._same = {"Host": url.netloc.rpartition("@")[2], **headers}
        # Heads of one identity, by Content-Type.
        self._identity: Headers = ()
        self._heads: dict[str, bytes] = {}
        self._free = asyncio.Semaphore(most)
        self._idle: deque[Http1Connection] = deque()
        self._open: set[Http1Connection] = set()
        self._loop = asyncio.get_running_loop()
        self._ending: asyncio.TimerHandle | None = None
        self._closed = False

    async def send(
        self,
        method: HTTPMethod,
        path: Path,
        body: bytes,
        identity: Headers,
        until_s: float = math.inf,
        *,
        content_type: str = JSON,
    ) -> HttpAnswer:
        """Send, and wait for the answer. OSError: no complete answer; the request may have been executed.

        path: see Path. identity: as `Credentials.identity`. until_s: monotonic seconds; nothing is sent after it, even
        by a stopped process whose timers are late: TimeoutError. Cancelling the caller closes the connection: a late
        answer is dropped.
        """
        if identity != self._identity:
            self._identity, self._heads = identity, {}
        head = self._heads.get(content_type) or self._head(content_type)
        async with self._free:
            connection = self._last_used() or await self._connect()
            try:
                answer = await connection.send(self._request(method, path, head, body, until_s))
            except BaseException:
                connection.end()
                raise
            if connection.reusable:
                self._keep(connection)
            return answer

    def _request(self, method: HTTPMethod, path: Path, head: bytes, body: bytes, until_s: float) -> bytes:
        """The request as bytes, if it may still be sent."""
        if time.monotonic() >= until_s:
            raise TimeoutError
        here = (path if isinstance(path, str) else path()).encode("ascii")
        return b"%b %b%b%b%d\r\n\r\n%b" % (_VERBS[method], self._root, here, head, len(body), body)

    @property
    def _tls(self) -> ssl.SSLContext | None:
        return self._to.tls if self._encrypted else None

    @property
    def open(self) -> int:
        """How many there are, idle ones among them."""
        return len(self._open)

    def close(self) -> None:
        """End every connection; requests under way raise OSError, and so does every later one."""
        self._closed = True
        if self._ending is not None:
            self._ending.cancel()
        for connection in tuple(self._open):
            connection.end()

    def _last_used(self) -> Http1Connection | None:
        while self._idle:
            connection = self._idle.pop()
            # After a pause of the whole process its timer may come too late.
            alive = connection.reusable and self._loop.time() < connection.idle_until_s
            if alive and connection.tls is self._tls:
                return connection
            connection.end()
        return None

    def _keep(self, connection: Http1Connection) -> None:
        if connection.tls is not self._tls:
            connection.end()
            return
        connection.idle_until_s = self._loop.time() + KEEP_ALIVE_S
        self._idle.append(connection)
        if self._ending is None:
            self._ending = self._loop.call_later(KEEP_ALIVE_S, self._end_idle)

    def _end_idle(self) -> None:
        """Only occasionally, not with each request: a timer costs more than the connection."""
        while self._idle and self._idle[0].idle_until_s <= self._loop.time():
            self._idle.popleft().end()
        self._ending = self._loop.call_at(self._idle[0].idle_until_s, self._end_idle) if self._idle else None

    def _head(self, content_type: str) -> bytes:
        """The head after the path, up to the length of the body."""
        headers = {**self._same, "Content-Type": content_type}
        lines = [f"{name}: {value}" for name, value in (*headers.items(), *self._identity)]
        if not all(map(sendable, lines)):
            raise ConnectionError("a header has invalid characters: check the token")
        head = self._heads[content_type] = "\r\n".join((" HTTP/1.1", *lines, "Content-Length: ")).encode()
        return head

    async def _connect(self) -> Http1Connection:
        addresses = await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        connected = await start_connection(
            addresses, happy_eyeballs_delay=_NEXT_ADDRESS_AFTER_S, loop=self._loop, socket_factory=new_socket
        )
        # When it is aborted, undelivered data is dropped, not sent when the network is back.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        tls = self._tls
        _, made = await self._loop.create_connection(
            lambda: Http1Connection(self._open, tls), sock=connected, ssl=tls, server_hostname=self._server_name
        )
        if self._closed:
            made.fail("the client is closed")
        # Not before: a connection aborted during its creation never gets uvloop's connection_lost.
        if made.reusable:
            self._open.add(made)
        return made
