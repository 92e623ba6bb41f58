"""HTTP server whose requests in flight are limited, in number and in time.

aiohttp closes a connection on which no request arrives. Nothing here limits the number of connections: that is left to
a NetworkPolicy (docs/security.md).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, TypeAlias

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
# Until the first request, and between two: longer than the minute after which Prometheus scrapes again.
_IDLE_S: Final = 75.0
# For running answers when the program ends; a slow client must not delay the end.
_SHUTDOWN_S: Final = 1.0


def _is_ours(line: logging.LogRecord) -> bool:
    """Return whether a log line reports a bug, and not what any client can cause: bad requests, broken connections."""
    return line.exc_info is not None and not isinstance(line.exc_info[1], HttpProcessingError | ConnectionError)


_log: Final = logging.getLogger(__name__)
_log.addFilter(_is_ours)


def http_server(handler: Handler) -> web.ServerRunner:
    """Return a server, which is not listening yet. It cancels the handler if the client leaves."""
    server = web.Server(handler, handler_cancellation=True, access_log=None, logger=_log, keepalive_timeout=_IDLE_S)
    return web.ServerRunner(server, shutdown_timeout=_SHUTDOWN_S)


def limited(handler: Handler, *, most: int, within_s: float) -> Handler:
    """Limit a handler to `most` requests at one time, each with its answer `within_s`; others get 503."""
    in_flight = asyncio.Semaphore(most)

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if in_flight.locked():
            return web.Response(text="too many requests at once\n", status=HTTPStatus.SERVICE_UNAVAILABLE)
        async with in_flight:
            try:
                async with asyncio.timeout(within_s):
                    return await handler(request)
            except TimeoutError:
                # The client does not read, so a regular end of the connection would wait for it.
                if request.transport is not None:
                    request.transport.abort()
                raise

    return handle
