"""Helpers for pages: documents, pages for the local machine only, and one slow answer shared by concurrent clients.

Pages that name pods are restricted to the local machine: only a peer on loopback gets an answer.
`kubectl exec` and `kubectl port-forward` connect from there, with the API server's permission.
"""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPMethod, HTTPStatus
from typing import Generic, NamedTuple, TypeVar

from aiohttp import web

from scheduler.process.http_server import Handler


class HttpBody(NamedTuple):
    """Body of an answer. pieces: parts of the body; a slow reader holds references to them, not a copy."""

    pieces: Sequence[bytes]
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "application/json"


def document_page(path: str, answer: Callable[[str], Awaitable[HttpBody]]) -> Handler:
    """Return the handler of a page. answer: called with the rest of the path, "" if there is none.

    path: the page's path, with or without a trailing slash.
    """

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        found = await answer(request.path.removeprefix(path.rstrip("/")).lstrip("/"))
        response = web.StreamResponse(status=found.status, headers={"Content-Type": found.content_type})
        response.content_length = sum(map(len, found.pieces))
        await response.prepare(request)
        for piece in found.pieces if request.method != HTTPMethod.HEAD else ():
            await response.write(piece)
            await asyncio.sleep(0)
        return response

    return handle


def on_this_machine(handler: Handler) -> Handler:
    """Restrict the handler to clients on this machine; others get an explanation."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        if not is_loopback(request.remote):
            return web.Response(text="available on this machine only\n", status=HTTPStatus.FORBIDDEN)
        return await handler(request)

    return handle


def is_loopback(peer: str | None) -> bool:
    """Return whether an address is loopback. peer: an IP address; None if unknown."""
    try:
        address = ipaddress.ip_address((peer or "").partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


R = TypeVar("R")


class SharedAnswer(Generic[R]):
    """Answer that concurrent clients share. Owned by the event loop."""

    def __init__(self, make: Callable[[], Awaitable[R]], kept_s: float) -> None:
        """kept_s: how long an answer is served after it was made."""
        self._make = make
        self._kept_s = kept_s
        self._kept: tuple[R, float] | None = None
        self._making: asyncio.Task[R] | None = None

    async def get(self) -> R:
        """Return an answer. Its age is at most `kept_s` plus the time that it takes to make one."""
        if self._kept is not None and asyncio.get_running_loop().time() < self._kept[1]:
            return self._kept[0]
        if self._making is None:
            self._making = asyncio.create_task(self._made())
        # A client that leaves does not cancel the answer for the others.
        return await asyncio.shield(self._making)

    async def _made(self) -> R:
        try:
            answer = await self._make()
            self._kept = (answer, asyncio.get_running_loop().time() + self._kept_s)
        finally:
            self._making = None
        return answer
