"""Pages that name pods are for this machine alone: only a peer on loopback is answered.

`kubectl exec` and `kubectl port-forward` arrive there, by the API server's leave.
"""

import ipaddress
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web


def on_this_machine(
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """The handler for callers on this machine; others get an explanation."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if not is_loopback(request.remote):
            return web.Response(text="available on this machine only\n", status=HTTPStatus.FORBIDDEN)
        return await handler(request)

    return handle


def is_loopback(peer: str | None) -> bool:
    """Whether a connection came from this machine's loopback. peer: an IP address; None if unknown."""
    try:
        address = ipaddress.ip_address((peer or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
