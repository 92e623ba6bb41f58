"""HTTP server that a client can neither fill nor keep waiting: connections are limited, each with a deadline.

    accepted --(TLS)--> CONNECTED --request--> ANSWERING --answered--> IDLE --request--> ANSWERING
        |                   |                      |                    |
        +------------ deadline, or to make room when the server is full (places.py) -------------> cut off

A kubelet's probe always gets a connection and keeps it: a full server closes one of the client that has the most.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from scheduler.process.handshake import Handshake
from scheduler.process.places import ConnectionState, OpenConnection, to_cut_off

Answer: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of the server, in seconds unless noted.

    connections: maximum number at one time, including those in their TLS handshake. handshake_s: time for the
    handshake. request_s: time until the first request; Prometheus and the kubelet send theirs at once. answer_s: time
    to produce the answer and for the client to read it; longer than Prometheus waits by default (scrape_timeout: 10 s).
    idle_s: time until the next request; Prometheus reuses one connection for all its scrapes, every minute by default.
    """

    connections: int = 64
    handshake_s: float = 5.0
    request_s: float = 10.0
    answer_s: float = 15.0
    idle_s: float = 75.0


DEFAULT_LIMITS: Final = Limits()


def _is_ours(line: logging.LogRecord) -> bool:
    """Return whether a log line reports a bug.

    Lines about invalid requests do not: a client can cause any number of them.
    """
    return line.exc_info is None or not isinstance(line.exc_info[1], HttpProcessingError)


_log: Final = logging.getLogger(__name__)
_log.addFilter(_is_ours)


class BoundedServer(web.Server):
    """Server that answers requests with `answer`, and cancels it if the client leaves or the time is over."""

    def __init__(self, answer: Answer, limits: Limits = DEFAULT_LIMITS, tls: ssl.SSLContext | None = None) -> None:
        """tls: None for HTTP. The listening socket must be plain: the handshake happens here."""
        super().__init__(
            self._answered,
            handler_cancellation=True,
            access_log=None,
            logger=_log,
            keepalive_timeout=limits.idle_s,
        )
        self._answer = answer
        self._limits = limits
        self._tls = tls
        # By the protocol that handles the requests of the connection.
        self._handshakes: dict[Hashable, Handshake] = {}
        self._loop = asyncio.get_running_loop()
        self._places: dict[Hashable, OpenConnection] = {}

    def __call__(self) -> Any:  # noqa: ANN401 - a private type of aiohttp
        """Return the protocol for an accepted connection, like web.Server."""
        return super().__call__() if self._tls is None else Handshake(self._accepted)

    def _accepted(self, handshake: Handshake, transport: asyncio.BaseTransport) -> None:
        assert self._tls is not None  # noqa: S101 - otherwise there are none
        self._take_place(handshake, transport, self._limits.handshake_s)
        handler = super().__call__()
        self._handshakes[handler] = handshake
        handshake.begin(transport, handler, self._tls, self._limits.handshake_s, lambda: self._over(handler))

    def _over(self, handler: Hashable) -> None:
        """Record that the handshake is over."""
        if (handshake := self._handshakes.pop(handler, None)) is not None:
            self._forget(handshake)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as web.Server
        """Close all connections, like web.Server."""
        for handshake in self._handshakes.values():
            handshake.abort()
        await super().shutdown(timeout)

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:  # noqa: ANN401 - a private type of aiohttp
        """Record an open connection, like web.Server."""
        self._over(handler)
        super().connection_made(handler, transport)
        self._take_place(handler, transport, self._limits.request_s)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:  # noqa: ANN401 - as above
        """Record a closed connection, like web.Server."""
        self._forget(handler)
        super().connection_lost(handler, exc)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        self._moves(connection, ConnectionState.ANSWERING, self._limits.answer_s, request)
        try:
            return await self._answer(request)
        except ConnectionResetError:
            if request.transport is not None and not request.transport.is_closing():
                raise
            # The client left or was cut off, so nobody reads the response.
            return web.Response()
        finally:
            self._moves(connection, ConnectionState.IDLE, self._limits.idle_s)

    def _take_place(self, connection: Hashable, transport: asyncio.BaseTransport, seconds: float) -> None:
        if len(self._places) >= self._limits.connections:
            leaves = to_cut_off(self._places)
            self._forget(leaves)
            _cut_off(leaves)
        peer = transport.get_extra_info("peername")
        deadline = self._loop.call_later(seconds, _cut_off, connection)
        self._places[connection] = OpenConnection(str(peer[0] if peer else ""), self._loop.time(), deadline)

    def _moves(
        self, connection: Hashable, state: ConnectionState, seconds: float, answers: web.BaseRequest | None = None
    ) -> None:
        """Set the connection's state, for at most `seconds`; no effect if the connection has been cut off."""
        place = self._places.get(connection)
        if place is None:
            return
        place.state, place.since_s, place.answers = state, self._loop.time(), answers
        place.deadline.cancel()
        place.deadline = self._loop.call_later(seconds, _cut_off, connection)

    def _forget(self, connection: Hashable) -> None:
        if (place := self._places.pop(connection, None)) is not None:
            place.deadline.cancel()


def _cut_off(connection: Any) -> None:  # noqa: ANN401 - as above
    if isinstance(connection, Handshake):
        connection.abort()
    elif connection.transport is not None:
        connection.transport.abort()
