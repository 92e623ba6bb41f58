"""Pages that answer with a document, by the path below their own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPMethod, HTTPStatus
from typing import NamedTuple

from aiohttp import web


class HttpBody(NamedTuple):
    """pieces: of the body; a slow reader holds references, not a copy."""

    pieces: Sequence[bytes]
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = "application/json"


def document_page(
    path: str, answer: Callable[[str], Awaitable[HttpBody]]
) -> Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]:
    """path: of the page, with or without a trailing slash. answer: called with the rest of the path, "" for none."""

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
