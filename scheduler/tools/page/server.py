"""HTTP server of the page: public files, and answers for authorized viewers.

It is separate from the probes' server, because any number of pages must not delay the kubelet's probes. Accepted
requests are answered one at a time; at most MOST_STREAMS pages follow the cluster at once.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPMethod, HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web

from config.protocol.quantity import QuantityError
from config.settings.page import is_loopback
from scheduler.pods.pod import PodReader
from scheduler.process.bounded_server import BoundedServer, Limits
from scheduler.process.places import wrote
from scheduler.process.probes import Turns
from scheduler.tools.page.access import AccessDenied, Guard, Viewer
from scheduler.tools.page.background import in_background
from scheduler.tools.page.files import files, form_of
from scheduler.tools.page.history import UsageHistory
from scheduler.tools.page.leader import FORWARDED, Back, LeaderPage
from scheduler.tools.page.parameters import LONGEST_TEXT, number, wanted_pod
from scheduler.tools.page.queries import find, what_if, why
from scheduler.tools.page.query_queue import QueryQueue
from scheduler.tools.page.rows import Sees, found_pods, node_detail, pods_on
from scheduler.tools.page.stream import Shown, Since, Stream

MOST_STREAMS: Final = 8
_LIMITS: Final = Limits(connections=48, answer_s=75.0)
_SHUTDOWN_S: Final = 0.5
# A page that reads nothing for this time is cut off.
_WRITTEN_WITHIN_S: Final = 10.0
_ANSWERS_EVERY_S: Final = 0.01
# A query runs every rule on every node.
_QUESTIONS_EVERY_S: Final = 0.25
_MOST_ROWS: Final = 100
_MOST_FOUND: Final = 50
_STREAM: Final = "/api/stream"
_JSON: Final = "application/json"
_LINES: Final = "application/x-ndjson"
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
class PageParts:
    """Content and access of a page. reader, unit_mib: those of the engine. access: decides about viewers.

    leader: where this replica forwards queries while on standby; None if it answers them itself.
    """

    shown: Shown
    history: UsageHistory
    reader: PodReader
    unit_mib: int
    access: Guard
    leader: LeaderPage | None = None


class PageServer:
    """Server of the page, until closed."""

    def __init__(self, handler: "_Handler", runner: web.ServerRunner, history: asyncio.Task[None]) -> None:
        """runner: is already listening; see `serve_page`."""
        self._handler, self._runner, self._history = handler, runner, history

    @property
    def followers(self) -> int:
        """Number of pages that currently follow the cluster."""
        return self._handler.followers

    @property
    def port(self) -> int:
        """Port on which the server listens."""
        port: int = self._runner.addresses[0][1]
        return port

    async def close(self) -> None:
        """Stop serving, and end all answers in progress."""
        self._history.cancel()
        await self._handler.parts.access.close()
        await self._runner.cleanup()
        await _let_go(self._handler.parts)


async def serve_page(parts: PageParts, address: tuple[str, int], tls: ssl.SSLContext | None = None) -> PageServer:
    """Start the server. address: (host, port); host "" for all addresses.

    Raises OSError if the address cannot be listened on, and leaves nothing behind.
    """
    host, port = address
    handler = _Handler(parts, local=tls is None and is_loopback(host))
    runner = web.ServerRunner(BoundedServer(handler.answer, _LIMITS, tls), shutdown_timeout=_SHUTDOWN_S)
    await runner.setup()
    try:
        await web.TCPSite(runner, host or None, port).start()
    except OSError:
        await runner.cleanup()
        await _let_go(parts)
        raise
    return PageServer(handler, runner, in_background("history", parts.history.run()))


async def _let_go(parts: PageParts) -> None:
    if parts.leader is not None:
        await parts.leader.close()


class _Handler:
    """Request handler.

    local: only programs on this machine can reach it, so a request with another host name is an attack.
    """

    def __init__(self, parts: PageParts, *, local: bool) -> None:
        self.parts = parts
        self._local = local
        self._files = files()
        self._form = form_of(self._files)
        self.followers = 0
        self._queries = QueryQueue()
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
        """Return the response to a request, for BoundedServer."""
        try:
            return await self._answered(request)
        except AccessDenied as refused:
            return _says(refused.status, refused.message)

    async def _answered(self, request: web.BaseRequest) -> web.StreamResponse:
        if self._local and not _names_loopback(request.host):
            raise AccessDenied(HTTPStatus.MISDIRECTED_REQUEST, "This page is available on its own machine only.")
        if request.method not in {HTTPMethod.GET, HTTPMethod.HEAD}:
            raise AccessDenied(HTTPStatus.METHOD_NOT_ALLOWED, "This page is read-only.")
        if request.method == HTTPMethod.HEAD and request.path == _STREAM:
            raise AccessDenied(HTTPStatus.METHOD_NOT_ALLOWED, "The stream does not support HEAD.")
        file = self._files.get(request.path)
        if file is not None:
            return web.Response(body=file[0], headers=_HEADERS | {"Content-Type": file[1]})
        if request.path != _STREAM and request.path not in self._answers:
            raise AccessDenied(HTTPStatus.NOT_FOUND, "There is no such page.")
        self._refuse_unless_asked_as_leader(request)
        viewer = await self.parts.access.viewer(request.headers.get("Authorization", ""))
        if request.path == _STREAM:
            return await self._stream(request, viewer)
        turns, handler = self._answers[request.path]
        await turns.come()
        if (passed := await self._of_leader(request, _JSON)) is not None:
            return passed
        answer = await handler(request, viewer)
        self.parts.access.learn(viewer)
        return web.Response(body=_ENCODE(answer), headers=_HEADERS | {"Content-Type": _JSON})

    def _refuse_unless_asked_as_leader(self, request: web.BaseRequest) -> None:
        """Reject a forwarded request unless we lead: the Lease may name a replica that no longer leads."""
        form = request.headers.get(FORWARDED)
        if form is not None and (form != self._form or not self.parts.shown.leads()):
            raise AccessDenied(
                HTTPStatus.SERVICE_UNAVAILABLE, "This replica is not the leader, or runs another version."
            )

    async def _of_leader(self, request: web.BaseRequest, media_type: str) -> web.StreamResponse | None:
        """Return the leader's answer on a standby replica; None if the local tables must answer."""
        leader, stream = self.parts.leader, request.path == _STREAM
        if leader is None or FORWARDED in request.headers or request.method != HTTPMethod.GET:
            return None
        if not stream and request.query.get("instance") == self.parts.shown.instance:
            # The page follows this replica, because the leader did not answer.
            return None
        back = Back(stream, _HEADERS | {"Content-Type": media_type}, _WRITTEN_WITHIN_S)
        return await leader.answered(request, self._form, back)

    async def _stream(self, request: web.BaseRequest, viewer: Viewer) -> web.StreamResponse:
        if self.followers >= MOST_STREAMS:
            raise AccessDenied(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_STREAMS} pages are open already; close one.")
        self.followers += 1
        try:
            passed = await self._of_leader(request, _LINES)
            return await self._own_stream(request, viewer) if passed is None else passed
        finally:
            self.followers -= 1

    async def _own_stream(self, request: web.BaseRequest, viewer: Viewer) -> web.StreamResponse:
        response = web.StreamResponse(headers=_HEADERS | {"Content-Type": _LINES})

        async def send(line: bytes) -> None:
            async with asyncio.timeout(_WRITTEN_WITHIN_S):
                await response.write(line)
            wrote(request, asyncio.get_running_loop().time())

        query, authorization = request.query, request.headers.get("Authorization", "")
        since = Since(
            query.get("instance", "")[:LONGEST_TEXT],
            number(query.get("version"), -1),
            number(query.get("models"), 0),
        )
        try:
            await response.prepare(request)
            await Stream(self.parts.shown, self.parts.access, authorization, send).run(viewer, since)
        except (AccessDenied, TimeoutError):
            # The page reconnects and gets an error; or it does not read.
            if request.transport is not None:
                request.transport.abort()
        return response

    def _sees(self, viewer: Viewer) -> Sees:
        now_s = self.parts.shown.now_s()
        return lambda namespace: viewer.sees(namespace, now_s)

    async def _pods(self, request: web.BaseRequest, viewer: Viewer) -> dict[int, Any]:
        shown = self.parts.shown
        if request.query.get("instance", shown.instance) != shown.instance:
            # Row numbers differ there.
            raise AccessDenied(HTTPStatus.CONFLICT, "The page shows the data of another replica.")
        tables, sees = shown.engine.tables, self._sees(viewer)
        rows = [number(text, -1) for text in request.query.get("rows", "").split(",")[:_MOST_ROWS]]
        return {row: pods_on(tables, row, sees) for row in rows if 0 <= row < tables.capacity and tables.valid[row]}

    async def _node(self, request: web.BaseRequest, viewer: Viewer) -> Any:  # noqa: ANN401 - what is encoded
        detail = node_detail(self.parts.shown.engine.tables, request.query.get("name", ""), self._sees(viewer))
        if detail is None:
            raise AccessDenied(HTTPStatus.NOT_FOUND, "The node no longer exists.")
        return detail

    async def _points(self, _request: web.BaseRequest, _viewer: Viewer) -> Any:  # noqa: ANN401 - what is encoded
        return await self.parts.history.points()

    async def _found(self, request: web.BaseRequest, viewer: Viewer) -> list[dict[str, str]]:
        text = request.query.get("text", "")[:LONGEST_TEXT]
        found = []
        for one in found_pods(self.parts.shown.engine.tables, text, _MOST_FOUND, self._sees(viewer)) if text else ():
            if one is None:
                await asyncio.sleep(0)
            else:
                found.append({"namespace": one[0].namespace, "name": one[0].name, "node": one[1]})
        return found

    async def _why(self, request: web.BaseRequest, viewer: Viewer) -> Any:  # noqa: ANN401 - what is encoded
        namespace, name = request.query.get("namespace", ""), request.query.get("name", "")
        sees, engine = self._sees(viewer), self.parts.shown.engine
        # A viewer who may not list a namespace does not learn which pods it has.
        entry = await find(engine, namespace, name) if sees(namespace) else None
        if entry is None:
            raise AccessDenied(HTTPStatus.NOT_FOUND, f"No pod {namespace}/{name} is waiting here any longer.")
        return await self._queries.answer(why(engine, self.parts.unit_mib, entry.pod, sees), viewer.user.username)

    async def _what_if(self, request: web.BaseRequest, viewer: Viewer) -> Any:  # noqa: ANN401 - what is encoded
        try:
            wanted = wanted_pod(request.query)
            return what_if(self.parts.shown.engine, self.parts.reader, self.parts.unit_mib, wanted, self._sees(viewer))
        except (QuantityError, ValueError) as error:
            raise AccessDenied(HTTPStatus.BAD_REQUEST, f"The query is invalid: {error}.") from error


def _names_loopback(host: str) -> bool:
    """Return whether the host is a loopback address. host: as a browser writes it, with or without a port."""
    name, colon, port = host.rpartition(":")
    name = name if colon and port.isdigit() else host
    return is_loopback(name.removeprefix("[").removesuffix("]"))


def _says(status: HTTPStatus, message: str) -> web.Response:
    headers = _HEADERS | {"Content-Type": _JSON}
    return web.Response(body=_ENCODE({"error": message}), status=status, headers=headers)
