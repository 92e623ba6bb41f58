"""The HTTP server of probes and metrics."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from scheduler.web.metrics import Metrics

_Handler = Callable[[web.Request], Awaitable[web.Response]]


async def serve(
    host: str, port: int, metrics: Metrics, *, ready: Callable[[], str], alive: Callable[[], str]
) -> web.AppRunner:
    """Serve `/healthz`, `/readyz` and `/metrics` until the runner is cleaned up.

    ready, alive: "" when all is well, otherwise what is not; then the probe answers 503 with it.
    Raises OSError when the address cannot be listened on.
    """
    app = web.Application()
    app.router.add_get("/healthz", _probe(alive))
    app.router.add_get("/readyz", _probe(ready))
    app.router.add_get("/metrics", _metrics(metrics))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host or None, port).start()
    return runner


def _probe(problem: Callable[[], str]) -> _Handler:
    async def handle(_request: web.Request) -> web.Response:
        words = problem()
        return web.Response(text=f"{words or 'ok'}\n", status=503 if words else 200)

    return handle


def _metrics(metrics: Metrics) -> _Handler:
    async def handle(_request: web.Request) -> web.Response:
        # The series of a large cluster take long to render: not on the event loop.
        metrics.freeze()
        body = await asyncio.to_thread(generate_latest, metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return handle
