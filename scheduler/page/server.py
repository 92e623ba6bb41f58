"""The page's own HTTP server: files that anybody may read, and answers for those who may see the cluster.

It is not the one of the probes: what pages do, however many, must not keep the kubelet's questions waiting. Whoever is
not refused waits for its turn; at most MOST_STREAMS pages follow the cluster at once.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPMethod, HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from config.protocol.quantity import QuantityError
from config.settings.page import is_loopback
from scheduler.page import static
from scheduler.page.access import Guard, Refused, Viewer
from scheduler.page.history import History
from scheduler.page.questions import MOST_REPLICAS, Wanted, find, what_if, why
from scheduler.page.rows import Sees, found_pods, node_detail, pods_on
from scheduler.page.steps import Steps
from scheduler.page.stream import Shown, Since, Stream
from scheduler.pods.pod import PodReader
from scheduler.process.bounded_server import BoundedServer, Limits
from scheduler.process.probes import Turns

MOST_STREAMS: Final = 8
_LIMITS: Final = Limits(connections=48, answer_s=75.0)
_SHUTDOWN_S: Final = 0.5
# A page that reads nothing for so long is cut off.
_WRITTEN_WITHIN_S: Final = 10.0
_ANSWERS_EVERY_S: Final = 0.01
# A question asks every rule about every node.
_QUESTIONS_EVERY_S: Final = 0.25
_MOST_ROWS: Final = 100
_MOST_FOUND: Final = 50
_LONGEST_TEXT: Final = 253
_LARGEST: Final = 2**24
_MOST_CARDS: Final = 256
_STREAM: Final = "/api/stream"
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

Answer = Callable[[web.BaseRequest, Viewer], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSite:
    """What is served, and to whom. reader, unit_mib: as the engine's. access: who may see it."""

    shown: Shown
    history: History
    reader: PodReader
    unit_mib: int
    access: Guard


class PageServer:
    """Serves until closed."""

    def __init__(self, handler: "_Handler", runner: web.ServerRunner, history: asyncio.Task[None]) -> None:
        """runner: that listens; see `serve_page`."""
        self._handler, self._runner, self._history = handler, runner, history

    @property
    def followers(self) -> int:
        """Pages that follow the cluster at present."""
        return self._handler.followers

    @property
    def port(self) -> int:
        """That it listens on."""
        port: int = self._runner.addresses[0][1]
        return port

    async def close(self) -> None:
        """End every answer."""
        self._history.cancel()
        await self._handler.site.access.close()
        await self._runner.cleanup()


async def serve_page(site: PageSite, address: tuple[str, int], tls: ssl.SSLContext | None = None) -> PageServer:
    """Raises OSError, with nothing left behind, when the address cannot be listened on. host: "" for every one."""
    host, port = address
    handler = _Handler(site, local=tls is None and is_loopback(host))
    runner = web.ServerRunner(BoundedServer(handler.answer, _LIMITS), shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port, ssl_context=tls).start()
    except OSError:
        await runner.cleanup()
        raise
    return PageServer(handler, runner, asyncio.create_task(site.history.run()))


def files() -> Mapping[str, tuple[bytes, str]]:
    """(content, type) of each file of the page, by path. Read once: a request names no file of the machine."""
    folder = Path(static.__path__[0])
    found = {
        f"/{file.name}": (file.read_bytes(), _TYPES[file.suffix]) for file in folder.iterdir() if file.suffix in _TYPES
    }
    return found | {"/": found["/index.html"]}


class _Handler:
    """local: only programs of this machine reach it, so a name of some other host in a request is a trick."""

    def __init__(self, site: PageSite, *, local: bool) -> None:
        self.site = site
        self._local = local
        self._files = files()
        self.followers = 0
        self._steps = Steps()
        answers, questions = Turns(_ANSWERS_EVERY_S), Turns(_QUESTIONS_EVERY_S)
        self._answers: Mapping[str, tuple[Turns, Answer]] = {
            "/api/pods": (answers, self._pods),
            "/api/node": (answers, self._node),
            "/api/history": (answers, self._points),
            "/api/find": (questions, self._found),
            "/api/explain": (questions, self._why),
            "/api/what-if": (questions, self._what_if),
        }

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """As BoundedServer asks for it."""
        try:
            return await self._answered(request)
        except Refused as refused:
            return _says(refused.status, refused.message)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._local and not _names_loopback(request.host):
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, "This page is for programs of its own machine.")
        if request.method not in {HTTPMethod.GET, HTTPMethod.HEAD}:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "Nothing can be changed here.")
        if request.method == HTTPMethod.HEAD and request.path == _STREAM:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "The stream has no end, and so no head of its own.")
        file = self._files.get(request.path)
        if file is not None:
            return web.Response(body=file[0], headers=_HEADERS | {"Content-Type": file[1]})
        if request.path != _STREAM and request.path not in self._answers:
            raise Refused(HTTPStatus.NOT_FOUND, "There is nothing here.")
        authorization = request.headers.get("Authorization", "")
        viewer = await self.site.access.viewer(authorization)
        if request.path == _STREAM:
            return await self._stream(request, viewer, authorization)
        turns, handler = self._answers[request.path]
        await turns.come()
        answer = await handler(request, viewer)
        self.site.access.learn(viewer)
        return web.Response(body=_ENCODE(answer), headers=_HEADERS | {"Content-Type": "application/json"})

    async def _stream(self, request: web.BaseRequest, viewer: Viewer, authorization: str) -> web.StreamResponse:
        if self.followers >= MOST_STREAMS:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_STREAMS} pages are open already; close one.")
        response = web.StreamResponse(headers=_HEADERS | {"Content-Type": "application/x-ndjson"})

        async def send(line: bytes) -> None:
            async with asyncio.timeout(_WRITTEN_WITHIN_S):
                await response.write(line)

        query = request.query
        since = Since(
            query.get("instance", "")[:_LONGEST_TEXT],
            _number(query.get("version"), -1),
            _number(query.get("models"), 0),
        )
        self.followers += 1
        try:
            await response.prepare(request)
            await Stream(self.site.shown, self.site.access, authorization, send).run(viewer, since)
        except (Refused, TimeoutError):
            # The page asks again, and is told; or it does not read.
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.followers -= 1
        return response

    def _sees(self, viewer: Viewer) -> Sees:
        now_s = self.site.shown.now_s()
        return lambda namespace: viewer.sees(namespace, now_s)

    async def _pods(self, request: web.BaseRequest, viewer: Viewer) -> dict[int, Any]:
        tables, sees = self.site.shown.engine.tables, self._sees(viewer)
        rows = [_number(text, -1) for text in request.query.get("rows", "").split(",")[:_MOST_ROWS]]
        return {row: pods_on(tables, row, sees) for row in rows if 0 <= row < tables.capacity and tables.valid[row]}

    async def _node(self, request: web.BaseRequest, viewer: Viewer) -> Any:  # noqa: ANN401 - what is encoded
        detail = node_detail(self.site.shown.engine.tables, request.query.get("name", ""), self._sees(viewer))
        if detail is None:
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such node any more.")
        return detail

    async def _points(self, _request: web.BaseRequest, _viewer: Viewer) -> Any:  # noqa: ANN401 - what is encoded
        return self.site.history.points()

    async def _found(self, request: web.BaseRequest, viewer: Viewer) -> list[dict[str, str]]:
        text = request.query.get("text", "")[:_LONGEST_TEXT]
        found = []
        for one in found_pods(self.site.shown.engine.tables, text, _MOST_FOUND, self._sees(viewer)) if text else ():
            if one is None:
                await asyncio.sleep(0)
            else:
                found.append({"namespace": one[0].namespace, "name": one[0].name, "node": one[1]})
        return found

    async def _why(self, request: web.BaseRequest, viewer: Viewer) -> Any:  # noqa: ANN401 - what is encoded
        namespace, name = request.query.get("namespace", ""), request.query.get("name", "")
        sees, engine = self._sees(viewer), self.site.shown.engine
        # Whoever may not list a namespace does not learn which pods it has.
        entry = await find(engine, namespace, name) if sees(namespace) else None
        if entry is None:
            raise Refused(HTTPStatus.NOT_FOUND, f"No pod {namespace}/{name} waits here any more.")
        return await self._steps.answer(why(engine, self.site.unit_mib, entry.pod, sees), viewer.user.username)

    async def _what_if(self, request: web.BaseRequest, viewer: Viewer) -> Any:  # noqa: ANN401 - what is encoded
        try:
            wanted = _wanted(request.query)
            return what_if(self.site.shown.engine, self.site.reader, self.site.unit_mib, wanted, self._sees(viewer))
        except (QuantityError, ValueError) as error:
            raise Refused(HTTPStatus.BAD_REQUEST, f"This cannot be asked: {error}.") from error


def _wanted(query: Mapping[str, str]) -> Wanted:
    """Raises ValueError."""
    selector: dict[str, str] = {}
    for term in query.get("selector", "")[: 4 * _LONGEST_TEXT].split(","):
        key, equals, value = term.strip().partition("=")
        if bool(equals) is not bool(term.strip()):
            message = f"expected labels as key=value, found {term.strip()!r}"
            raise ValueError(message)
        selector |= {key.strip(): value.strip()} if equals else {}
    units, cards = _number(query.get("units"), -1), _number(query.get("cards"), 1)
    replicas = _number(query.get("replicas"), 1)
    if not 1 <= replicas <= MOST_REPLICAS:
        message = f"expected 1 to {MOST_REPLICAS} copies"
        raise ValueError(message)
    if not 0 <= units <= _LARGEST or not 1 <= cards <= _MOST_CARDS:
        message = f"expected 0 to {_LARGEST} units of memory and 1 to {_MOST_CARDS} cards"
        raise ValueError(message)
    return Wanted(
        units=units,
        cards=cards,
        exclusive=query.get("exclusive", "") == "true",
        cpu=query.get("cpu", "")[:_LONGEST_TEXT],
        memory=query.get("memory", "")[:_LONGEST_TEXT],
        selector=selector,
        replicas=replicas,
    )


def _number(text: str | None, otherwise: int) -> int:
    readable = text is not None and text.isascii() and text.isdigit() and len(text) < len(str(2**63))
    return int(text) if text is not None and readable else otherwise


def _names_loopback(host: str) -> bool:
    """host: as a browser writes it, with or without a port."""
    name, colon, port = host.rpartition(":")
    name = name if colon and port.isdigit() else host
    return is_loopback(name.removeprefix("[").removesuffix("]"))


def _says(status: HTTPStatus, message: str) -> web.Response:
    headers = _HEADERS | {"Content-Type": "application/json"}
    return web.Response(body=_ENCODE({"error": message}), status=status, headers=headers)
