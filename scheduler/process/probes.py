"""The HTTP server of probes and metrics, and of the pages that a program adds."""

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Final, TypeAlias

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import CollectorRegistry

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.Response]]
_ALL_IPV4: Final = "0.0.0.0"  # noqa: S104 - what is served is for the cluster
_NO_IPV6: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_NO_PAGES: Final[Mapping[str, Handler]] = MappingProxyType({})


async def serve(
    address: tuple[str, int],
    registry: CollectorRegistry,
    *,
    ready: Callable[[], str],
    alive: Callable[[], str],
    before_scrape: Callable[[], None] = lambda: None,
    pages: Mapping[str, Handler] = _NO_PAGES,
) -> web.AppRunner:
    """Serve `/healthz`, `/readyz`, `/metrics` and `pages` until the runner is cleaned up.

    address: host, "" for every one, and port. ready, alive: "", or why not; then the probe answers 503 with that.
    before_scrape: called on the event loop, before the metrics are rendered in a thread. pages: by path. Raises
    OSError, with nothing left behind, when the address cannot be listened on.
    """
    app = web.Application()
    app.router.add_get("/healthz", _probe(alive))
    app.router.add_get("/readyz", _probe(ready))
    app.router.add_get("/metrics", _metrics(registry, before_scrape))
    for path, page in pages.items():
        app.router.add_get(path, page)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await _listen(runner, *address)
    except OSError:
        await runner.cleanup()
        raise
    return runner


async def _listen(runner: web.AppRunner, host: str, port: int) -> None:
    if host:
        await web.TCPSite(runner, host, port).start()
        return
    # One socket for both families; a machine may have IPv6 switched off.
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
    async def handle(_request: web.Request) -> web.Response:
        found = problem()
        status = HTTPStatus.SERVICE_UNAVAILABLE if found else HTTPStatus.OK
        return web.Response(text=f"{found or 'ok'}\n", status=status)

    return handle


def _metrics(registry: CollectorRegistry, before_scrape: Callable[[], None]) -> Handler:
    async def handle(_request: web.Request) -> web.Response:
        before_scrape()
        # The series of a large cluster take long to render: not on the event loop.
        body = await asyncio.to_thread(generate_latest, registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return handle
