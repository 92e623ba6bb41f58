"""An API server on a loopback port, for the client's requests: lists, pages, streamed lists, watches.

A POST succeeds. Any other answer, and every error, is put into `script` by the test, and answers the next request.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from aiohttp import web
from aiohttp.test_utils import TestServer

Json: TypeAlias = dict[str, Any]
Answer: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def manifest(name: str, **metadata: object) -> Json:
    """Return a pod with one volume, as the server would send it; deliberately includes `spec` and `status`."""
    meta = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": "7"} | metadata
    volume = {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}
    spec = {"containers": [{"name": "main"}], "volumes": [volume]}
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Pending"}}


def line(kind: str, item: Json) -> bytes:
    return json.dumps({"type": kind, "object": item}).encode() + b"\n"


def bookmark(version: str, *, ends_list: bool = False) -> bytes:
    annotations = {"annotations": {"k8s.io/initial-events-end": "true"}} if ends_list else {}
    meta = {"resourceVersion": version, "creationTimestamp": None} | annotations
    return line("BOOKMARK", {"kind": "Pod", "metadata": meta, "spec": {"containers": None}})


def status(code: int, message: str = "", **headers: str) -> Answer:
    """Return an error as the API server words it."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": message, "code": code}, status=code, headers=headers)

    return answer


def stranger(code: int, text: str, content_type: str = "text/html") -> Answer:
    """Return the answer of a load balancer or a proxy in place of the API server."""

    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code, text=text, content_type=content_type)

    return answer


BOUND: Final[Json] = {"kind": "Status", "status": "Success", "code": 201}


def ok(body: Json) -> Answer:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.json_response(body)

    return answer


def streamed(*chunks: bytes, then: Awaitable[Any] | None = None) -> Answer:
    """Return a watch that sends these chunks, waits for `then` and ends gracefully."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
        if then is not None:
            await then
        return response

    return answer


def cut(*chunks: bytes) -> Answer:
    """Return a watch whose connection is lost after these chunks."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = await streamed(*chunks)(request)
        assert request.transport is not None
        request.transport.abort()
        return response

    return answer


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Json:
        decoded: Json = json.loads(self.body)
        return decoded


@dataclass
class ApiServer:
    """The server. items: list at `version`. live: lines of a watch after the list. tokens: None accepts any.

    trusted: the CA fields of a kubeconfig's cluster.
    """

    items: list[Json] = field(default_factory=list)
    version: str = "100"
    live: list[bytes] = field(default_factory=list)
    streams_lists: bool = True
    tokens: set[str] | None = None
    script: list[Answer] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    url: str = ""
    held: asyncio.Event = field(default_factory=asyncio.Event)
    trusted: dict[str, str] = field(default_factory=dict)

    @asynccontextmanager
    async def serving(self, certificate: tuple[Path, Path] | None = None) -> AsyncIterator["ApiServer"]:
        """Serve while the context lasts. certificate: with its key, for TLS; clients send credentials only with TLS."""
        app, tls = web.Application(), None
        app.router.add_route("*", "/{path:.*}", self._answer)
        if certificate is not None:
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(*certificate)
            self.trusted = {"certificate-authority": str(certificate[0])}
        server = TestServer(app, host="127.0.0.1")
        await server.start_server(ssl=tls)
        try:
            self.url = str(server.make_url("")).rstrip("/")
            yield self
            self.held.set()
        finally:
            await server.close()

    async def silent(self, _: web.Request) -> web.StreamResponse:
        """Give no answer before `held` is set."""
        await self.held.wait()
        return web.json_response(BOUND)

    def queries(self) -> list[dict[str, str]]:
        return [seen.query for seen in self.seen]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        headers = dict(request.headers)
        self.seen.append(Seen(request.method, request.path, dict(request.query), headers, await request.read()))
        if self.tokens is not None and headers.get("Authorization", "").split(" ")[-1] not in self.tokens:
            return await status(401, "Unauthorized")(request)
        answer = self.script.pop(0) if self.script else self._default(request)
        return await answer(request)

    def _default(self, request: web.Request) -> Answer:
        query = request.query
        if request.method == "POST":
            return ok(BOUND)
        if "watch" not in query:
            return ok(self._page(int(query.get("limit", "0")), int(query.get("continue", "0"))))
        if "sendInitialEvents" not in query:
            return streamed(*self.live)
        if not self.streams_lists:
            return status(422, "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled")
        listed = [line("ADDED", item) for item in self.items]
        return streamed(*listed, bookmark(self.version, ends_list=True), *self.live)

    def _page(self, limit: int, start: int) -> Json:
        items = self.items[start : start + limit]
        rest = {"continue": str(start + limit)} if start + limit < len(self.items) else {}
        return {"kind": "PodList", "metadata": {"resourceVersion": self.version} | rest, "items": items}
