"""HTTP server for probes, metrics, and the pages that a program adds."""

import errno
import socket
from collections.abc import Callable, Iterator, Mapping
from http import HTTPMethod, HTTPStatus
from types import MappingProxyType
from typing import Final

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from scheduler.process.documents import HttpBody, document_page
from scheduler.process.http_server import Handler, http_server, limited
from scheduler.process.scrape import Scrapes

_ALL_IPV4: Final = "0.0.0.0"  # noqa: S104 - what is served is for the cluster
_NO_IPV6: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_NO_PAGES: Final[Mapping[str, Handler]] = MappingProxyType({})
_METHODS: Final = (HTTPMethod.GET, HTTPMethod.HEAD)
# Pages and metrics in flight; probes are not counted.
_MOST_REQUESTS: Final = 64
# Longer than Prometheus waits by default (scrape_timeout: 10 s).
_ANSWERED_WITHIN_S: Final = 15.0


async def serve(
    address: tuple[str, int],
    scrape: Callable[[], Iterator[bytes]],
    *,
    ready: Callable[[], str],
    alive: Callable[[], str],
    pages: Mapping[str, Handler] = _NO_PAGES,
) -> web.ServerRunner:
    """Serve `/healthz`, `/readyz`, `/metrics` and `pages` until the runner is cleaned up.

    address: host ("" for all addresses) and port. scrape: returns the text of the metrics; called on the event loop at
    most once a second, and read in another thread. ready, alive: return "", or the problem for a 503 answer.
    pages: handlers by path; a path that ends in a slash also serves every path one level below it. Raises OSError if
    the address cannot be listened on, and leaves nothing behind.
    """
    probes = {"/healthz": _probe(alive), "/readyz": _probe(ready)}
    others = {"/metrics": _metrics(Scrapes(scrape)), **pages}

    async def other(request: web.BaseRequest) -> web.StreamResponse:
        handler = others.get(request.path) or others.get(_above(request.path))
        return _says(HTTPStatus.NOT_FOUND) if handler is None else await handler(request)

    slow = limited(other, most=_MOST_REQUESTS, within_s=_ANSWERED_WITHIN_S)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in _METHODS:
            return _says(HTTPStatus.METHOD_NOT_ALLOWED)
        # The kubelet kills a program whose liveness answer is delayed, so other requests do not count against probes.
        return await probes.get(request.path, slow)(request)

    runner = http_server(answer)
    await runner.setup()
    try:
        await _listen(runner, *address)
    except OSError:
        await runner.cleanup()
        raise
    return runner


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


def _says(status: HTTPStatus) -> web.Response:
    return web.Response(text=f"{status.value}: {status.phrase}\n", status=status)


def _metrics(scrapes: Scrapes) -> Handler:
    async def answer(_path: str) -> HttpBody:
        return HttpBody(await scrapes.pieces(), content_type=CONTENT_TYPE_LATEST)

    return document_page("/metrics", answer)
