"""Between the scheduler and the API server: TLS ends here, so that each request is met by itself.

    client ──TLS──▶ Proxy ──a mishap decides: forward, hold, twice, not at all──▶ API server
           ◀── the answer, half of it, another one, or an end of the connection ──

    REACHABLE --away--> AWAY: connections end and are refused, or stay and bring nothing --after so long--> REACHABLE

It changes nothing unless a mishap says so (`mishaps`), and passes on bodies, bytes of watches included, as they come.
A client that gives up, or ends, takes its request with it, as with the API server itself.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPMethod
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import aiohttp
from aiohttp import web

from e2e.control_plane import commands
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.processes import free_ports

_NOT_PASSED_ON: Final = frozenset({"host", "connection", "content-length", "transfer-encoding", "keep-alive"})
_STOP_WITHIN_S: Final = 0.2


class Answer(NamedTuple):
    """Whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Cut(Exception):
    """The client's connection ends now; before that, `begun` of an answer with so many more bytes is sent."""

    def __init__(self, begun: Answer | None = None) -> None:
        """begun: an answer of which half is sent."""
        super().__init__()
        self.begun = begun


@dataclass(slots=True)
class Passing:
    """One request on its way. released: set when nobody may hold it any longer."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    forward: "Callable[[Passing], Awaitable[Answer]]"
    begin: "Callable[[Passing], Awaitable[None]]"
    released: asyncio.Event

    @property
    def is_binding(self) -> bool:
        """Whether it binds a pod."""
        return self.method == HTTPMethod.POST and "/binding" in self.path

    @property
    def is_lease(self) -> bool:
        """Whether it writes a Lease."""
        return self.method != HTTPMethod.GET and "/leases" in self.path

    @property
    def is_watch(self) -> bool:
        """Whether its answer has no end."""
        return self.method == HTTPMethod.GET and "watch=true" in self.path

    async def hold(self, seconds: float) -> None:
        """Wait so long, or until it is released."""
        try:
            async with asyncio.timeout(seconds):
                await self.released.wait()
        except TimeoutError:
            pass

    async def sent(self) -> Answer:
        """Have the API server answer."""
        return await self.forward(self)

    async def half_sent(self) -> None:
        """Have the API server get half of the body, and then an end of the connection."""
        await self.begin(self)


Mishap: TypeAlias = Callable[[Passing], Awaitable[Answer]]
"""What becomes of a request. Raises Cut."""
Choose: TypeAlias = Callable[[Passing], Mishap | None]
"""The mishap of this request, None for none."""
Note: TypeAlias = Callable[[Passing], None]
"""Told of each request that arrives."""


@dataclass(slots=True)
class WatchTrouble:
    """lag_s: how late what a watch brings arrives. lasts_s: after so long it is cut. expired: the next ones get 410."""

    lag_s: Callable[[], float] = lambda: 0.0
    lasts_s: Callable[[], float] = lambda: 3600.0
    expired: Callable[[], bool] = lambda: False


@dataclass(slots=True)
class Proxy:
    """choose: the mishap of each request that is no watch. watches: what happens to those that are.

    note: told of what arrives. seen: how many requests did. server: where the next one goes; None for the
    first API server of the cluster.
    """

    cluster: ControlPlane
    port: int
    session: aiohttp.ClientSession
    choose: Choose = lambda _: None
    note: Note = lambda _: None
    watches: WatchTrouble = field(default_factory=WatchTrouble)
    server: Callable[[], str] | None = None
    seen: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)
    _reachable: asyncio.Event = field(default_factory=asyncio.Event)
    _silent: bool = False
    _connections: set[asyncio.Transport] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._reachable.set()

    @property
    def url(self) -> str:
        """What a client takes for the API server."""
        return f"https://127.0.0.1:{self.port}"

    def kubeconfig(self, direct: Path) -> Path:
        """The same user as in that kubeconfig, by way of this proxy."""
        document = json.loads(direct.read_text(encoding="utf-8"))
        document["clusters"][0]["cluster"]["server"] = self.url
        path = direct.with_name(f"through-{self.port}-{direct.name}")
        path.write_text(commands.as_yaml(document), encoding="utf-8")
        return path

    def release(self) -> None:
        """Send at once all that is held: whoever sent it is gone, and it may not take effect much later."""
        self.released.set()
        self.released = asyncio.Event()

    async def away(self, seconds: float, *, silent: bool) -> None:
        """For so long nothing gets through. silent: connections stay, as when a network loses everything."""
        self._silent = silent
        self._reachable.clear()
        if not silent:
            for connection in self._connections:
                connection.abort()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._reachable.set()

    async def meet(self, request: web.Request) -> web.StreamResponse:
        """Handle one request."""
        transport = request.transport
        if transport is None:
            return web.Response()
        self._connections.add(transport)
        try:
            if not self._reachable.is_set():
                # It was lost on its way.
                await self._again_reachable()
                return await _cut(request, None)
            return await self._met(request)
        finally:
            self._connections.discard(transport)

    async def _again_reachable(self) -> None:
        if self._silent:
            await self._reachable.wait()

    async def _met(self, request: web.Request) -> web.StreamResponse:
        self.seen += 1
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _NOT_PASSED_ON}
        passing = Passing(
            request.method, request.raw_path, headers, await request.read(), self._forward, self._begin, self.released
        )
        self.note(passing)
        if passing.is_watch:
            return await self._watch(request, passing)
        mishap = self.choose(passing)
        try:
            answer = await (mishap(passing) if mishap else passing.sent())
        except (Cut, aiohttp.ClientError, OSError) as error:
            return await _cut(request, error.begun if isinstance(error, Cut) else None)
        await self._again_reachable()
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    async def _forward(self, passing: Passing) -> Answer:
        async with self._request(passing) as response:
            return Answer(response.status, _own(response.headers), await response.read())

    async def _begin(self, passing: Passing) -> None:
        address = urlsplit(self._server())
        _, writer = await asyncio.open_connection(address.hostname, address.port, ssl=self.cluster.access().tls)
        lines = [f"{passing.method} {passing.path} HTTP/1.1", f"Host: {address.netloc}"]
        lines += [f"{key}: {value}" for key, value in passing.headers.items()]
        lines += [f"Content-Length: {len(passing.body)}", "", ""]
        writer.write("\r\n".join(lines).encode() + passing.body[: len(passing.body) // 2])
        await writer.drain()
        writer.transport.abort()

    def _server(self) -> str:
        return self.server() if self.server else self.cluster.url

    def _request(self, passing: Passing) -> "aiohttp.client._RequestContextManager":
        # The path is percent-encoded already.
        return self.session.request(
            passing.method, self._server() + passing.path, data=passing.body or None, headers=passing.headers
        )

    async def _watch(self, request: web.Request, passing: Passing) -> web.StreamResponse:
        if self.watches.expired() and "resourceVersion=" in passing.path:
            return web.json_response(status_body(410, "Expired", "too old resource version"), status=410)
        try:
            async with asyncio.timeout(self.watches.lasts_s()), self._request(passing) as response:
                answer = web.StreamResponse(status=response.status, headers=_own(response.headers))
                await answer.prepare(request)
                async for late_s, chunk in _lagging(response.content, self.watches.lag_s):
                    await asyncio.sleep(late_s)
                    await self._again_reachable()
                    await answer.write(chunk)
                return answer
        except (aiohttp.ClientError, OSError, TimeoutError):
            return await _cut(request, None)


@asynccontextmanager
async def proxy(cluster: ControlPlane) -> AsyncIterator[Proxy]:
    """One that listens, with the certificate of the API server."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(cluster.server_certificate.certificate, cluster.server_certificate.key)
    connector = aiohttp.TCPConnector(ssl=cluster.access().tls, limit=0)
    (port,) = free_ports(1)
    async with aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None),
        auto_decompress=False,
        # Otherwise aiohttp asks for compressed answers where the program does not.
        skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
    ) as session:
        made = Proxy(cluster, port, session)
        application = web.Application(client_max_size=2**24)
        application.router.add_route("*", "/{path:.*}", made.meet)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=_STOP_WITHIN_S, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
            yield made
        finally:
            made.release()
            await runner.cleanup()


def status_body(code: int, reason: str, message: str) -> dict[str, object]:
    """A metav1.Status, as the API server refuses."""
    kind = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    return kind | {"message": message, "reason": reason, "code": code}


async def _lagging(content: aiohttp.StreamReader, lag_s: Callable[[], float]) -> AsyncIterator[tuple[float, bytes]]:
    """What comes, in its order, and how much longer each is to be kept back."""
    loop, came = asyncio.get_running_loop(), asyncio.Queue[tuple[float, bytes] | None]()

    async def read() -> None:
        try:
            async for chunk in content.iter_any():
                came.put_nowait((loop.time() + lag_s(), chunk))
        finally:
            came.put_nowait(None)

    reading = loop.create_task(read())
    try:
        while (arrived := await came.get()) is not None:
            yield max(0.0, arrived[0] - loop.time()), arrived[1]
        await reading
    finally:
        reading.cancel()


async def _cut(request: web.Request, begun: Answer | None) -> web.StreamResponse:
    """End the connection, after half of an answer if one has begun."""
    answer = web.StreamResponse(status=begun.status if begun else 200)
    transport = request.transport
    if begun is not None and transport is not None and not transport.is_closing():
        answer.content_type = "application/json"
        answer.content_length = len(begun.body)
        await answer.prepare(request)
        await answer.write(begun.body[: len(begun.body) // 2])
    if transport is not None:
        transport.abort()
    return answer


def _own(headers: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in headers.items() if key.lower() not in _NOT_PASSED_ON}
