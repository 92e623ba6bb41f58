"""HTTP server for probes, metrics, and the pages that a program adds."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from http import HTTPMethod, HTTPStatus
from types import MappingProxyType
from typing import Final, TypeAlias

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from scheduler.process.bounded_server import DEFAULT_LIMITS, BoundedServer, Limits
from scheduler.process.places import wrote
from scheduler.process.scrape import Scrapes

Handler: TypeAlias = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_ALL_IPV4: Final = "0.0.0.0"  # noqa: S104 - what is served is for the cluster
_NO_IPV6: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_NO_PAGES: Final[Mapping[str, Handler]] = MappingProxyType({})
_METHODS: Final = (HTTPMethod.GET, HTTPMethod.HEAD)
# Minimum time between answers. They take about 1 % of the event loop's time, and any number of kubelets and Prometheus
# servers can be served.
_PROBES_EVERY_S: Final = 0.005
_PAGES_EVERY_S: Final = 0.05
# For running answers when the program ends; a slow client must not delay the end.
_SHUTDOWN_S: Final = 1.0


async def serve(
    address: tuple[str, int],
    scrape: Callable[[], Iterator[bytes]],
    *,
    ready: Callable[[], str],
    alive: Callable[[], str],
    pages: Mapping[str, Handler] = _NO_PAGES,
    limits: Limits = DEFAULT_LIMITS,
) -> web.ServerRunner:
    """Serve `/healthz`, `/readyz`, `/metrics` and `pages` until the runner is cleaned up.

    address: host ("" for all addresses) and port. scrape: returns the text of the metrics; called on the event loop at
    most once a second, and read in another thread. ready, alive: return "", or the problem for a 503 answer.
    pages: handlers by path; a path that ends in a slash also serves every path one level below it. limits: limits for
    clients. Raises OSError if the address cannot be listened on, and leaves nothing behind.
    """
    probes, page, metrics = Turns(_PROBES_EVERY_S), Turns(_PAGES_EVERY_S), Turns(_PAGES_EVERY_S)
    handlers = {
        # Without queueing, because the kubelet kills a program whose liveness answer is delayed by other requests.
        "/healthz": _probe(alive),
        "/readyz": probes.each(_probe(ready)),
        "/metrics": metrics.each(_metrics(Scrapes(scrape))),
    } | {path: page.each(handler) for path, handler in pages.items()}

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        handler = handlers.get(request.path) or handlers.get(_above(request.path), nothing_here)
        return await handler(request) if request.method in _METHODS else await wrong_method(request)

    nothing_here = probes.each(_says(HTTPStatus.NOT_FOUND))
    wrong_method = probes.each(_says(HTTPStatus.METHOD_NOT_ALLOWED))
    runner = web.ServerRunner(BoundedServer(answer, limits), shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        await _listen(runner, *address)
    except OSError:
        await runner.cleanup()
        raise
    return runner


class Turns:
    """Queue for answers of one kind: one answer at a time, in the order of the requests."""

    def __init__(self, every_s: float) -> None:
        """every_s: minimum time from one answer to the next."""
        self._every_s = every_s
        self._next_s = 0.0
        self._lock = asyncio.Lock()

    def each(self, handler: Handler) -> Handler:
        """Wrap the handler so that it handles one request at a time."""

        async def handle(request: web.BaseRequest) -> web.StreamResponse:
            await self.come()
            return await handler(request)

        return handle

    async def come(self) -> None:
        """Wait for the caller's turn."""
        loop = asyncio.get_running_loop()
        # A client that leaves while waiting is skipped.
        async with self._lock:
            await asyncio.sleep(max(0.0, self._next_s - loop.time()))
            self._next_s = loop.time() + self._every_s


def _above(path: str) -> str:
    return f"{path.rpartition('/')[0]}/"


async def _listen(runner: web.ServerRunner, host: str, port: int) -> None:
    if host:
        await web.TCPSite(runner, host, port).start()
        return
    # One socket for both address families; IPv6 may be disabled on the machine.
    if socket.has_dualstack_ipv6():
        try:
            both = socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
        else:
            await web.SockSite(runner, both).start()
            return
    await web.TCPSite(runner, _ALL_IPV4, port).start()


def _probe(problem: Callable[[], str]) -> Handler:
    async def handle(_request: web.BaseRequest) -> web.Response:
        found = problem()
        status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
        return web.Response(text=f"{found or 'ok'}\n", status=status)

    return handle


def _says(status: HTTPStatus) -> Handler:
    async def handle(_request: web.BaseRequest) -> web.Response:
        return web.Response(text=f"{status.value}: {status.phrase}\n", status=status)

    return handle


def _metrics(scrapes: Scrapes) -> Handler:
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        pieces = await scrapes.pieces()
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE_LATEST})
        response.content_length = sum(map(len, pieces))
        await response.prepare(request)
        for piece in pieces if request.method != HTTPMethod.HEAD else ():
            # Piece by piece: a slow client holds references, not a copy.
            await response.write(piece)
            wrote(request, asyncio.get_running_loop().time())
            await asyncio.sleep(0)
        return response

    return handle
