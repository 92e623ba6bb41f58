"""HTTP to one API server: sends paths and bodies as bytes, returns bytes, raises errors of `port`.

A request through the session costs a quarter of one through kubernetes.aio with its defaults: `trust_env` alone causes
two lookups per request in threads. A request over a bare connection (bare_connections.py) costs a third of that.
"""

import asyncio
import contextlib
import os
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from http import HTTPMethod, HTTPStatus
from typing import Final

import aiohttp
import yarl
from multidict import CIMultiDict, istr

from scheduler.kube import port
from scheduler.kube.rest.bare_connections import JSON, KEEP_ALIVE_S, Connections, Path, new_socket
from scheduler.kube.rest.client_config.connect import Connection
from scheduler.kube.rest.client_config.credentials import Headers, NotRenewed
from scheduler.kube.rest.failures import error_from_answer, expect_kind, not_an_answer, one_line
from scheduler.kube.rest.http1 import MOST_BYTES, HttpAnswer

STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"

# Excerpt of a page that is not a watch.
_EXCERPT: Final = 512
_AGENT: Final = "gpushare-scheduler"
_CONNECT_S: Final = 10.0
_REFUSAL_READ_IN_S: Final = 10.0
# Limit for a whole connection: waiting for a free one, the proxy, TLS.
_MADE_S: Final = 2 * _CONNECT_S
# Also limits the time that the event loop spends on one chunk of a watch.
_READ_BUFFER: Final = 2**18
# Without Accept-Encoding the server does not compress, which saves both sides more time than the network costs.
_NOT_BY_ITSELF: Final = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")
# Before CPython 3.12, accessing a member of HTTPStatus by name takes as long as parsing a header.
_MULTIPLE_CHOICES: Final = int(HTTPStatus.MULTIPLE_CHOICES)
_UNAUTHORIZED: Final = int(HTTPStatus.UNAUTHORIZED)

_USER_OF_URL: Final = re.compile(r"//[^/@\s]*@")


class Stalled(port.ApiSilent):
    """A watch delivered no data for too long."""


class Transport:
    """A pool of connections to one API server. Create it inside the event loop that uses it.

    has_answered: whether the session received the head of an answer, with any status. Bare connections do not count.
    """

    def __init__(self, connection: Connection, connections: int) -> None:
        """connections: maximum; further requests wait for a free one, within their time-out."""
        self._credentials = connection.credentials
        self._url = connection.url
        self._server_name = connection.server_name
        self._session = _session(connection.proxy, connections)
        headers = {"Accept": JSON, "User-Agent": _AGENT}
        self._bare = None if connection.proxy else Connections(connection, headers, connections)
        self._identity: Headers = ()
        self._headers: dict[str, CIMultiDict[str]] = {}
        self.has_answered = False

    async def send(
        self,
        method: HTTPMethod,
        path: str,
        body: bytes | None = None,
        *,
        answers: str,
        timeout_s: float,
        content_type: str = JSON,
    ) -> bytes:
        """Send a request, and return the body of a successful answer (status below 300).

        path: with its query, percent-encoded. answers: kind of the expected object, "" for any text. timeout_s: for
        everything, including a renewal of credentials; then the request is aborted, and the connection closed.
        Raises ApiError; in particular ApiSilent for an answer that is not from the API server.
        """
        return await self._body_of(self._whole(method, path, body, content_type), answers, timeout_s)

    async def write(
        self, method: HTTPMethod, path: Path, body: bytes, *, answers: str, timeout_s: float, content_type: str = JSON
    ) -> bytes:
        """Like `send`, at a third of the cost; through a proxy, at the same cost.

        path: see Path; through a proxy, a function is called before a connection is taken.
        """
        if self._bare is None:
            written = self._whole(method, path, body, content_type)
        else:
            until_s = time.monotonic() + timeout_s
            written = self._written(self._bare, method, path, body, content_type=content_type, until_s=until_s)
        return await self._body_of(written, answers, timeout_s)

    @asynccontextmanager
    async def stream(self, path: str, stall_s: float) -> AsyncIterator[AsyncIterator[bytes]]:
        """GET an endless body: its chunks as they arrive, after the server has accepted the request.

        stall_s: longest time without a byte. Raises ApiError, also inside the context: Stalled after this time.
        """
        # `connect`: the other two do not limit aiohttp's wait for a proxy's answer to CONNECT.
        made_in_s = min(_MADE_S, stall_s)
        limits = aiohttp.ClientTimeout(connect=made_in_s, sock_connect=_CONNECT_S, sock_read=stall_s)
        try:
            response = await self._answer(HTTPMethod.GET, path, None, JSON, limits)
            # Never returned to the pool, because a watch has no end.
            async with response:
                if response.status >= _MULTIPLE_CHOICES:
                    raise error_from_answer(response.status, response.headers, await _refusal(response))
                if response.content_type != JSON:
                    raise not_an_answer(response.status, await response.content.read(_EXCERPT))
                yield response.content.iter_any()
        except aiohttp.ConnectionTimeoutError as error:
            raise _silent(error) from error
        except TimeoutError as error:
            raise Stalled(f"no data for {stall_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _silent(error) from error

    async def close(self) -> None:
        """Close every connection. Pending requests raise ApiSilent."""
        await self._credentials.close()
        if self._bare is not None:
            self._bare.close()
        await self._session.close()

    async def _body_of(self, answering: Awaitable[HttpAnswer], answers: str, timeout_s: float) -> bytes:
        """Body of an answer within the time-out, checked as in `send`."""
        try:
            async with asyncio.timeout(timeout_s):
                answer = await answering
        except TimeoutError as error:
            raise port.ApiSilent(f"no answer within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise _silent(error) from error
        if answer.status >= _MULTIPLE_CHOICES:
            raise error_from_answer(answer.status, answer.headers, answer.body)
        if answers:
            expect_kind(answers, answer.status, answer.body)
        return answer.body

    async def _written(
        self, bare: Connections, method: HTTPMethod, path: Path, body: bytes, *, content_type: str, until_s: float
    ) -> HttpAnswer:
        """Send over bare connections."""
        identity = await self._credentials.identity()
        over = self._credentials.tls
        answer = await bare.send(method, path, body, identity, until_s, content_type=content_type)
        if answer.status != _UNAUTHORIZED:
            return answer
        renewed = await self._renewed(identity, over)
        return await bare.send(method, path, body, renewed, until_s, content_type=content_type)

    async def _whole(self, method: HTTPMethod, path: Path, body: bytes | None, content_type: str) -> HttpAnswer:
        """Send through the session, and read the answer to its end."""
        response = await self._answer(method, path, body, content_type)
        # A connection whose answer was not read to its end does not return to the pool.
        async with response:
            body = await (_refusal(response) if response.status >= _MULTIPLE_CHOICES else response.read())
        return HttpAnswer(response.status, response.headers, body)

    async def _answer(
        self,
        method: HTTPMethod,
        path: Path,
        body: bytes | None,
        content_type: str,
        limits: aiohttp.ClientTimeout | None = None,
    ) -> aiohttp.ClientResponse:
        """Send the request. After a 401, renew the credentials and send it again: the first one was not executed."""
        identity = await self._credentials.identity()
        over = self._credentials.tls
        response = await self._sent(method, path, body, self._headers_for(identity, content_type), limits)
        if response.status != _UNAUTHORIZED:
            return response
        response.release()
        identity = await self._renewed(identity, over)
        return await self._sent(method, path, body, self._headers_for(identity, content_type), limits)

    async def _renewed(self, refused: Headers, over: ssl.SSLContext) -> Headers:
        """Identity to use after `refused` was answered with 401. over: TLS context of that connection."""
        try:
            await self._credentials.renew(refused, over)
        except NotRenewed as error:
            message = f"credentials are not accepted and could not be renewed: {error}"
            raise port.ApiForbidden(message, HTTPStatus.UNAUTHORIZED) from error
        return await self._credentials.identity()

    async def _sent(
        self,
        method: HTTPMethod,
        path: Path,
        body: bytes | None,
        headers: CIMultiDict[str],
        limits: aiohttp.ClientTimeout | None,
    ) -> aiohttp.ClientResponse:
        response = await self._session.request(
            method.value,
            yarl.URL(self._url + (path if isinstance(path, str) else path()), encoded=True),
            data=body,
            headers=headers,
            timeout=limits or self._session.timeout,
            allow_redirects=False,
            ssl=self._credentials.tls,
            server_hostname=self._server_name,
        )
        self.has_answered = True
        return response

    def _headers_for(self, identity: Headers, content_type: str) -> CIMultiDict[str]:
        """Headers for this identity and content type, built once for each content type."""
        if identity is not self._identity:
            self._headers.clear()
            self._identity = identity
        if (headers := self._headers.get(content_type)) is None:
            headers = CIMultiDict({"Accept": JSON, "User-Agent": _AGENT, "Content-Type": content_type})
            headers.extend(identity)
            self._headers[content_type] = headers
        return headers


def _session(proxy: str | None, connections: int) -> aiohttp.ClientSession:
    skip: Iterable[str] = map(istr, _NOT_BY_ITSELF)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, keepalive_timeout=KEEP_ALIVE_S, socket_factory=new_socket),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
        trust_env=False,
        auto_decompress=False,
        skip_auto_headers=skip,
        read_bufsize=_READ_BUFFER,
        proxy=proxy,
    )


async def _refusal(response: aiohttp.ClientResponse) -> bytes:
    """Body of a rejection, cut if it takes too long or is longer than any from the API server."""
    said = bytearray()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REFUSAL_READ_IN_S):
            while len(said) < MOST_BYTES and (piece := await response.content.readany()):
                said += piece
    return bytes(said)


def _silent(error: aiohttp.ClientError | OSError) -> port.ApiSilent:
    if isinstance(error, aiohttp.ClientConnectorCertificateError | ssl.SSLError):
        return port.ApiSilent(f"TLS: {error}")
    if isinstance(error, aiohttp.ClientConnectorError) and (number := error.os_error.errno or 0) > 0:
        return port.ApiSilent(f"connection failed: {error.host}:{error.port}: {os.strerror(number)}")
    # A proxy's failure contains its address, and that of another protocol its bytes.
    told = one_line(_USER_OF_URL.sub("//", str(error))) or type(error).__name__
    return port.ApiSilent(f"connection failed: {told}")
