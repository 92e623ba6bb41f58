"""An HTTP server that a client can neither fill nor keep waiting: bounded connections, each with a deadline.

    accepted --(TLS)--> CONNECTED --request--> ANSWERING --answered--> IDLE --request--> ANSWERING
        |                   |                      |                    |
        +-------------------+---- deadline, or for a new one when all places are taken (places.py) ----> cut off

A probe of the kubelet is always accepted, and keeps its connection: other clients have more.
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
    """connections: maximum at one time, including those in their TLS handshake. handshake_s: limit of the handshake.

    request_s: for the first request; Prometheus and the kubelet send theirs at once.
    answer_s: for the answer, and for reading it; longer than Prometheus waits by default (scrape_timeout: 10 s).
    idle_s: to send another request; Prometheus scrapes on one connection, every minute by default.
    """

    connections: int = 64
    handshake_s: float = 5.0
    request_s: float = 10.0
    answer_s: float = 15.0
    idle_s: float = 75.0


DEFAULT_LIMITS: Final = Limits()


def _is_ours(line: logging.LogRecord) -> bool:
    """Whether a line is about a bug; a client can send invalid requests as often as it likes."""
    return line.exc_info is None or not isinstance(line.exc_info[1], HttpProcessingError)


_log: Final = logging.getLogger(__name__)
_log.addFilter(_is_ours)


class BoundedServer(web.Server):
    """Answers with `answer`, cancelled when the client leaves or its time is over."""

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
        # By the protocol of its requests.
        self._handshakes: dict[Hashable, Handshake] = {}
        self._loop = asyncio.get_running_loop()
        self._places: dict[Hashable, OpenConnection] = {}

    def __call__(self) -> Any:  # noqa: ANN401 - a private type of aiohttp
        """Protocol for an accepted connection, as in web.Server."""
        return super().__call__() if self._tls is None else Handshake(self._accepted)

    def _accepted(self, handshake: Handshake, transport: asyncio.BaseTransport) -> None:
        assert self._tls is not None  # noqa: S101 - otherwise there are none
        self._take_place(handshake, transport, self._limits.handshake_s)
        handler = super().__call__()
        self._handshakes[handler] = handshake
        handshake.begin(transport, handler, self._tls, self._limits.handshake_s, lambda: self._over(handler))

    def _over(self, handler: Hashable) -> None:
        """The handshake."""
        if (handshake := self._handshakes.pop(handler, None)) is not None:
            self._forget(handshake)

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as web.Server
        """Close all connections, as web.Server does."""
        for handshake in self._handshakes.values():
            handshake.abort()
        await super().shutdown(timeout)

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:  # noqa: ANN401 - a private type of aiohttp
        """Note an open connection, as web.Server does."""
        self._over(handler)
        super().connection_made(handler, transport)
        self._take_place(handler, transport, self._limits.request_s)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:  # noqa: ANN401 - as above
        """Note a closed connection, as web.Server does."""
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
            # The client has left, or was cut off: the response is not read.
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
        """Into this state, for so long; not where it has been cut off."""
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
