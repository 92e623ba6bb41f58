"""An HTTP server that a client can neither fill nor keep waiting: bounded connections, each with a deadline.

    CONNECTED --request--> ANSWERING --answered--> IDLE --request--> ANSWERING
        |                      |                    |
        +---- deadline, or the oldest when a new one comes and all places are taken ----> cut off

A probe of the kubelet is always accepted: what is cut off for it is the connection on which nothing has happened for
longest.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

Answer: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """connections: at the same time. request_s: for the first request; Prometheus and the kubelet send theirs at once.

    answer_s: to be answered, and to read the answer; longer than Prometheus waits by default (scrape_timeout: 10 s).
    idle_s: to send another request; Prometheus scrapes on one connection, every minute by default.
    """

    connections: int = 64
    request_s: float = 10.0
    answer_s: float = 15.0
    idle_s: float = 75.0


DEFAULT_LIMITS: Final = Limits()


def _is_ours(line: logging.LogRecord) -> bool:
    """Whether a line is about a bug; whoever reaches the port can send what is no request, as often as they like."""
    return line.exc_info is None or not isinstance(line.exc_info[1], HttpProcessingError)


_log: Final = logging.getLogger(__name__)
_log.addFilter(_is_ours)


class BoundedServer(web.Server):
    """Answers with `answer`, cancelled when the client leaves or its time is over."""

    def __init__(self, answer: Answer, limits: Limits = DEFAULT_LIMITS) -> None:
        super().__init__(
            self._answered,
            handler_cancellation=True,
            access_log=None,
            logger=_log,
            keepalive_timeout=limits.idle_s,
        )
        self._answer = answer
        self._limits = limits
        # In the order of the last thing that happened on each.
        self._deadlines: dict[Any, asyncio.TimerHandle] = {}

    def connection_made(self, handler: Any, transport: asyncio.Transport) -> None:  # noqa: ANN401 - a private type of aiohttp
        """As web.Server."""
        super().connection_made(handler, transport)
        if len(self._deadlines) >= self._limits.connections:
            oldest = next(iter(self._deadlines))
            self._forget(oldest)
            _cut_off(oldest)
        self._allow(handler, self._limits.request_s)

    def connection_lost(self, handler: Any, exc: BaseException | None = None) -> None:  # noqa: ANN401 - as above
        """As web.Server."""
        self._forget(handler)
        super().connection_lost(handler, exc)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        self._allow(connection, self._limits.answer_s)
        try:
            return await self._answer(request)
        except ConnectionResetError:
            if request.transport is not None and not request.transport.is_closing():
                raise
            # Whoever asked has left, or was cut off: nobody reads what is returned.
            return web.Response()
        finally:
            if connection in self._deadlines:
                self._allow(connection, self._limits.idle_s)

    def _allow(self, connection: Any, seconds: float) -> None:  # noqa: ANN401 - as above
        """From now on; whatever was allowed before no longer counts."""
        self._forget(connection)
        self._deadlines[connection] = asyncio.get_running_loop().call_later(seconds, _cut_off, connection)

    def _forget(self, connection: Any) -> None:  # noqa: ANN401 - as above
        if (deadline := self._deadlines.pop(connection, None)) is not None:
            deadline.cancel()


def _cut_off(connection: Any) -> None:  # noqa: ANN401 - as above
    if connection.transport is not None:
        connection.transport.abort()
