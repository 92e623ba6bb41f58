"""The HTTP server of probes, metrics and status, and the client of the last.

`/status` names pods, so it is for this machine alone: only a peer on loopback is answered. `kubectl exec` and
`kubectl port-forward` arrive there, by the API server's leave.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec
from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from deviceplugin.metrics import Metrics
from deviceplugin.status import Status, decode, encode

_Handler = Callable[[web.Request], Awaitable[web.Response]]
_ANSWER_S: Final = 5.0


class StatusUnknown(Exception):
    """Nobody told the status; the message says who was asked and what came of it."""


async def serve(
    host: str,
    port: int,
    metrics: Metrics,
    *,
    ready: Callable[[], str],
    alive: Callable[[], str],
    status: Callable[[], Status],
) -> web.AppRunner:
    """Serve `/healthz`, `/readyz`, `/metrics` and `/status` until the runner is cleaned up.

    ready, alive: "" when all is well, otherwise what is not; then the probe answers 503 with it.
    Raises OSError when the address cannot be listened on.
    """
    app = web.Application()
    app.router.add_get("/healthz", _probe(alive))
    app.router.add_get("/readyz", _probe(ready))
    app.router.add_get("/metrics", _metrics(metrics))
    app.router.add_get("/status", _status(status))
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner


async def ask_status(address: str) -> Status:
    """The status that the plugin at `address`, host:port on this machine, tells. Raises StatusUnknown."""
    url = f"http://{address}/status"
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_ANSWER_S)) as session,
            session.get(url) as answer,
        ):
            body = await answer.read()
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        message = f"{url}: {error or 'no answer in time'}; is the plugin running here?"
        raise StatusUnknown(message) from error
    if answer.status != HTTPStatus.OK:
        message = f"{url}: answered {answer.status} {body[:200].decode(errors='replace').strip()}"
        raise StatusUnknown(message)
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        message = f"{url}: answered what is no status: {error}"
        raise StatusUnknown(message) from error


def is_loopback(peer: str | None) -> bool:
    """Whether a connection came from this machine's loopback. peer: an IP address; None is nobody known."""
    try:
        address = ipaddress.ip_address((peer or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _probe(problem: Callable[[], str]) -> _Handler:
    async def handle(_request: web.Request) -> web.Response:
        words = problem()
        return web.Response(text=f"{words or 'ok'}\n", status=503 if words else 200)

    return handle


def _metrics(metrics: Metrics) -> _Handler:
    async def handle(_request: web.Request) -> web.Response:
        body = await asyncio.to_thread(generate_latest, metrics.registry)
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return handle


def _status(status: Callable[[], Status]) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        if not is_loopback(request.remote):
            return web.Response(text="only this machine is told\n", status=HTTPStatus.FORBIDDEN)
        return web.Response(body=encode(status()), content_type="application/json")

    return handle
