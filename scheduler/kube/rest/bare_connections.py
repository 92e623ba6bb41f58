"""A pool of bare HTTP/1.1 connections (http1.py) to one server.

They carry the two requests of every pod, its Binding and its Event, and all other requests that only the leader may
send: leadership is checked just before the bytes are sent. A general client, such as aiohttp, creates headers, a URL, a
body stream and timers for each request; here the common head is built once. Why:
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
# nothing is sent.
Path: TypeAlias = str | Callable[[], str]
JSON: Final = "application/json"
_VERBS: Final = {method: method.value.encode() for method in HTTPMethod}
# Less than the idle time-out of the API server (90 s) and of common load balancers (60 s): if the peer has just closed
# the connection, a bind has an unknown outcome.
KEEP_ALIVE_S: Final = 45.0
# Delay before the server's next address is tried in parallel, as in aiohttp.
_NEXT_ADDRESS_AFTER_S: Final = 0.25
# Seconds of silence before the first probe, seconds between probes, and number of unanswered probes.
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
    """A bounded pool of connections to one server. The most recently used one is next, so that few stay open.

    After the certificates of `to` change, requests use only connections made with the new ones. Older connections
    close, busy ones after their answer.

    Create it inside the event loop that uses it.
    """

    def __init__(self, to: Connection, headers: Mapping[str, str], most: int) -> None:
        """to: a connection without a proxy. headers: sent with every request, without Content-Type.

        most: maximum number of connections; further requests wait until one is free.
        """
        url = urlsplit(to.url)
        self._to, self._encrypted = to, url.scheme == "https"
        self._host = url.hostname or ""
        self._port = url.port or (443 if self._encrypted else 80)
        self._server_name = (to.server_name or self._host) if self._encrypted else None
        self._root = url.path.encode()
        self._same = {"Host": url.netloc.rpartition("@")[2], **headers}
        # Heads for one identity, by Content-Type.
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
        """Send the request, and return the answer. Raises OSError without one: the request may have been executed.

        path: see Path. identity: see `Credentials.identity`. until_s: monotonic seconds; nothing is sent after this
        time, even by a stopped process whose timers are late; raises TimeoutError instead. Cancelling the caller closes
        the connection, and a late answer is dropped.
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
        """The request as bytes. Raises TimeoutError after `until_s`, and any error of the function `path`."""
        if time.monotonic() >= until_s:
            raise TimeoutError
        here = (path if isinstance(path, str) else path()).encode("ascii")
        return b"%b %b%b%b%d\r\n\r\n%b" % (_VERBS[method], self._root, here, head, len(body), body)

    @property
    def _tls(self) -> ssl.SSLContext | None:
        return self._to.tls if self._encrypted else None

    @property
    def open(self) -> int:
        """Number of connections, including idle ones."""
        return len(self._open)

    def close(self) -> None:
        """Close every connection. Pending requests raise OSError, and so does every later one."""
        self._closed = True
        if self._ending is not None:
            self._ending.cancel()
        for connection in tuple(self._open):
            connection.end()

    def _last_used(self) -> Http1Connection | None:
        while self._idle:
            connection = self._idle.pop()
            # If the whole process was paused, the timer may fire too late.
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
        """Close expired idle connections. Called at intervals: a timer per request costs more than the connection."""
        while self._idle and self._idle[0].idle_until_s <= self._loop.time():
            self._idle.popleft().end()
        self._ending = self._loop.call_at(self._idle[0].idle_until_s, self._end_idle) if self._idle else None

    def _head(self, content_type: str) -> bytes:
        """The request head after the path, up to the length of the body."""
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
        # If the connection is aborted, undelivered data is dropped, not sent when the network is back.
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        tls = self._tls
        _, made = await self._loop.create_connection(
            lambda: Http1Connection(self._open, tls), sock=connected, ssl=tls, server_hostname=self._server_name
        )
        if self._closed:
            made.fail("the client is closed")
        # Not earlier: for a connection aborted during its creation, uvloop never calls connection_lost.
        if made.reusable:
            self._open.add(made)
        return made
