"""HTTP server of the page, on loopback: its files, and answers about one cluster. It has no users, and changes nothing.

Only programs of the same machine, or of the same pod, can connect. A web site that a browser shows could still send it
requests under a name of its own (DNS rebinding), so the `Host` has to be a loopback name.
"""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPMethod, HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from scheduler.process.documents import is_loopback
from scheduler.process.http_server import http_server, limited
from scheduler.process.startup import StartupError
from scheduler.tools.cli.asking import ClusterView
from scheduler.tools.cli.manifests import Unanswerable, Unreadable
from scheduler.tools.page import static
from scheduler.tools.page.history import UsageHistory
from scheduler.tools.page.queries import LONGEST_TEXT, InvalidQuery, number, what_if, why
from scheduler.tools.page.rows import found_pods, node_detail, pods_on
from scheduler.tools.page.stream import LASTS_S, Since, Stream

_LOOPBACK: Final = "127.0.0.1"
_LOOPBACK_NAME: Final = "localhost"
# Each open page follows the cluster with one request.
_MOST_REQUESTS: Final = 32
_ANSWERED_WITHIN_S: Final = LASTS_S + 25.0
_MOST_ROWS: Final = 100
_MOST_FOUND: Final = 50
_STREAM: Final = "/api/stream"
_JSON: Final = "application/json"
_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ENCODE: Final = msgspec.json.Encoder().encode


@asynccontextmanager
async def page_served(view: ClusterView, problem: Callable[[], str], port: int) -> AsyncIterator[str]:
    """Serve the page on loopback inside the block, which gets its URL. Raises StartupError.

    problem: why the view is not up to date, or "". port: 0 for any free port.
    """
    page = _Page(view, problem)
    runner = http_server(limited(page.answer, most=_MOST_REQUESTS, within_s=_ANSWERED_WITHIN_S))
    await runner.setup()
    try:
        await web.TCPSite(runner, _LOOPBACK, port).start()
    except OSError as error:
        await runner.cleanup()
        # The event loop's text repeats the address.
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        message = f"cannot serve the page on port {port}: {reason}; choose another port, or 0 for any free one"
        raise StartupError(message) from error
    recording = asyncio.create_task(page.history.run())
    try:
        yield f"http://{_LOOPBACK}:{runner.addresses[0][1]}/"
    finally:
        recording.cancel()
        await runner.cleanup()


def files() -> Mapping[str, tuple[bytes, str]]:
    """Return (content, type) of each file of the page, by path.

    Files are read once, so a request cannot name any other file of the machine.
    """
    folder = Path(static.__path__[0])
    found = {
        f"/{file.name}": (file.read_bytes(), _TYPES[file.suffix]) for file in folder.iterdir() if file.suffix in _TYPES
    }
    return found | {"/": found["/index.html"]}


class _Rejected(Exception):
    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class _Page:
    """Request handler. history: runs as long as the page is served."""

    def __init__(self, view: ClusterView, problem: Callable[[], str]) -> None:
        engine = view.reading.engine
        self.history = UsageHistory(engine)
        self._view, self._problem, self._tables = view, problem, engine.tables
        # Versions of another process are meaningless.
        self._instance = uuid.uuid4().hex
        self._files = files()
        self._answers: Mapping[str, Callable[[Mapping[str, str]], Awaitable[Any]]] = {
            "/api/pods": self._pods,
            "/api/node": self._node,
            "/api/history": self._points,
            "/api/find": self._found,
            "/api/explain": self._why,
            "/api/what-if": self._what_if,
        }

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """Return the response to a request."""
        try:
            return await self._answered(request)
        except _Rejected as error:
            return _says(error.status, str(error))
        except InvalidQuery as error:
            return _says(HTTPStatus.BAD_REQUEST, f"The query is invalid: {error}.")
        except Unreadable as error:
            return _says(HTTPStatus.BAD_GATEWAY, f"The cluster does not answer: {error}.")
        except Unanswerable as error:
            return _says(HTTPStatus.NOT_FOUND, f"No answer: {error}.")

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        if not _names_loopback(request.host):
            raise _Rejected(HTTPStatus.MISDIRECTED_REQUEST, "This page is available on its own machine only.")
        if request.method != HTTPMethod.GET:
            raise _Rejected(HTTPStatus.METHOD_NOT_ALLOWED, "This page is read-only.")
        if (file := self._files.get(request.path)) is not None:
            return web.Response(body=file[0], headers=_HEADERS | {"Content-Type": file[1]})
        if request.path == _STREAM:
            return await self._stream(request)
        if request.path not in self._answers:
            raise _Rejected(HTTPStatus.NOT_FOUND, "There is no such page.")
        answer = await self._answers[request.path](request.query)
        return web.Response(body=_ENCODE(answer), headers=_HEADERS | {"Content-Type": _JSON})

    async def _stream(self, request: web.BaseRequest) -> web.StreamResponse:
        query = request.query
        since = Since(
            query.get("instance", "")[:LONGEST_TEXT],
            number(query.get("version"), -1),
            number(query.get("models"), 0),
        )
        response = web.StreamResponse(headers=_HEADERS | {"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        async for message in Stream(self._view.reading, self._instance, self._problem).messages(since):
            await response.write(_ENCODE(message) + b"\n")
        return response

    async def _pods(self, query: Mapping[str, str]) -> dict[int, Any]:
        if query.get("instance", self._instance) != self._instance:
            # Row numbers differ there.
            raise _Rejected(HTTPStatus.CONFLICT, "The page shows the data of another process.")
        tables = self._tables
        rows = [number(text, -1) for text in query.get("rows", "").split(",")[:_MOST_ROWS]]
        return {row: pods_on(tables, row) for row in rows if 0 <= row < tables.capacity and tables.valid[row]}

    async def _node(self, query: Mapping[str, str]) -> Any:  # noqa: ANN401 - what is encoded
        detail = node_detail(self._tables, query.get("name", ""))
        if detail is None:
            raise _Rejected(HTTPStatus.NOT_FOUND, "The node no longer exists.")
        return detail

    async def _points(self, _query: Mapping[str, str]) -> Any:  # noqa: ANN401 - what is encoded
        return self.history.points()

    async def _found(self, query: Mapping[str, str]) -> list[dict[str, str]]:
        text = query.get("text", "")[:LONGEST_TEXT]
        found = found_pods(self._tables, text, _MOST_FOUND) if text else []
        return [{"namespace": key.namespace, "name": key.name, "node": node} for key, node in found]

    async def _why(self, query: Mapping[str, str]) -> Any:  # noqa: ANN401 - what is encoded
        return await why(self._view, query.get("namespace", ""), query.get("name", ""))

    async def _what_if(self, query: Mapping[str, str]) -> Any:  # noqa: ANN401 - what is encoded
        return await what_if(self._view, query)


def _names_loopback(host: str) -> bool:
    """Return whether the host is a loopback address. host: as a browser writes it, with or without a port."""
    name, colon, port = host.rpartition(":")
    name = (name if colon and port.isdigit() else host).removeprefix("[").removesuffix("]")
    return name == _LOOPBACK_NAME or is_loopback(name)


def _says(status: HTTPStatus, message: str) -> web.Response:
    headers = _HEADERS | {"Content-Type": _JSON}
    return web.Response(body=_ENCODE({"error": message}), status=status, headers=headers)
