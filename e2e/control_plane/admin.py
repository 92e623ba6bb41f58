"""Clients of the API server for tests: raw paths and bodies, no models, no retries.

`Access` has one user's address and credentials, `Admin` is that user's session, `seen` waits for an object to be as
wanted, `ask` sends one request without an event loop. Deliberately not the scheduler's own client, so that neither can
hide the other's mistakes.
"""

import asyncio
import http.client
import ssl
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias
from urllib.parse import urlsplit

import aiohttp
import msgspec

IN_FLIGHT: Final = 48
_ANSWER_WITHIN_S: Final = 60.0
_REPLY_WITHIN_S: Final = 5.0
_PAGE: Final = "1000"
_MERGE_PATCH: Final = "application/merge-patch+json"

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Access:
    """Address and credentials of a client.

    url: without a path. authorization: value of that header; None: the TLS context has a client certificate instead.
    """

    url: str
    tls: ssl.SSLContext
    authorization: str | None


class Reply(NamedTuple):
    """Status code and raw body."""

    status: int
    body: bytes


class ApiResponse(NamedTuple):
    """Status code and decoded body."""

    status: int
    body: Json


class UnexpectedAnswer(Exception):
    """The API server did not do what the test requires; the message has its answer."""


class NotSeen(Exception):
    """The object did not reach the wanted state; the message has its last state."""


class Admin:
    """One user's session with one API server; enter it inside the event loop that uses it."""

    def __init__(self, access: Access) -> None:
        self._access = access
        headers = {"Authorization": access.authorization} if access.authorization else {}
        self._session = aiohttp.ClientSession(
            access.url,
            headers=headers,
            connector=aiohttp.TCPConnector(ssl=access.tls, limit=0),
            timeout=aiohttp.ClientTimeout(total=_ANSWER_WITHIN_S),
        )

    async def __aenter__(self) -> Self:
        """Open the session; sends nothing yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._session.close()
        await asyncio.sleep(0)  # so that the loop notices

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> ApiResponse:
        """Read one object or list."""
        return await self._send("GET", path, query=query)

    async def post(self, path: str, body: Json) -> ApiResponse:
        """Create an object, or call a subresource."""
        return await self._send("POST", path, body)

    async def put(self, path: str, body: Json) -> ApiResponse:
        """Replace an object."""
        return await self._send("PUT", path, body)

    async def patch(self, path: str, body: Json) -> ApiResponse:
        """Change an object by a merge patch."""
        return await self._send("PATCH", path, body, content_type=_MERGE_PATCH)

    async def delete(self, path: str, body: Json | None = None, query: Mapping[str, str] | None = None) -> ApiResponse:
        """Delete an object or a collection; `body` may be DeleteOptions."""
        return await self._send("DELETE", path, body, query=query)

    async def create(self, path: str, body: Json) -> Json:
        """Create an object and return it. Raises UnexpectedAnswer if it is not created."""
        answer = await self.post(path, body)
        if answer.status != HTTPStatus.CREATED:
            message = f"POST {path}: {answer.status} {answer.body.get('message', answer.body)}"
            raise UnexpectedAnswer(message)
        return answer.body

    async def create_all(self, path: str, bodies: Iterable[Json]) -> None:
        """Create thousands of objects, up to IN_FLIGHT at once. Raises UnexpectedAnswer in an ExceptionGroup."""
        waiting = iter(bodies)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.create_task(self._create_each(path, waiting))

    async def delete_all(self, path: str, body: Json | None = None) -> None:
        """Delete thousands of objects, one request each: a request for the collection would time out."""
        waiting = iter([item["metadata"]["name"] for item in await self.items(path)])
        async with asyncio.TaskGroup() as tasks:
            for _ in range(IN_FLIGHT):
                tasks.create_task(self._delete_each(path, waiting, body))

    async def items(self, path: str) -> list[Json]:
        """Return everything in a list, page by page. Raises UnexpectedAnswer."""
        found: list[Json] = []
        query = {"limit": _PAGE}
        while True:
            status, page = await self.get(path, query)
            if status != HTTPStatus.OK:
                message = f"GET {path}: {status} {page.get('message', page)}"
                raise UnexpectedAnswer(message)
            found += page["items"]
            if not (rest := page["metadata"].get("continue")):
                return found
            query["continue"] = rest

    async def watch(self, path: str, query: Mapping[str, str] | None = None) -> AsyncGenerator[bytes, None]:
        """Yield watch events, one undecoded JSON document each, until the server ends the watch.

        Without a resourceVersion in `query`, it begins with the existing objects. Raises UnexpectedAnswer.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_ANSWER_WITHIN_S)
        async with self._session.get(path, params={"watch": "1", **(query or {})}, timeout=timeout) as response:
            if response.status != HTTPStatus.OK:
                message = f"watch {path}: {response.status} {await response.text()}"
                raise UnexpectedAnswer(message)
            unfinished = b""
            try:
                async for chunk in response.content.iter_any():
                    *lines, unfinished = (unfinished + chunk).split(b"\n")
                    for line in lines:
                        yield line
            finally:
                # The server keeps sending, so a graceful end of the TLS connection would outlast the event loop.
                if response.connection and response.connection.transport:
                    response.connection.transport.abort()

    async def _create_each(self, path: str, waiting: Iterator[Json]) -> None:
        for body in waiting:
            await self.create(path, body)

    async def _delete_each(self, path: str, waiting: Iterator[str], body: Json | None) -> None:
        for name in waiting:
            await self.delete(f"{path}/{name}", body)

    async def _send(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> ApiResponse:
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type}
        async with self._session.request(method, path, params=query, data=data, headers=headers) as response:
            raw = await response.read()
        decoded = msgspec.json.decode(raw) if raw.startswith(b"{") else {"message": raw.decode(errors="replace")}
        return ApiResponse(response.status, decoded)


def done(answer: ApiResponse) -> ApiResponse:
    """Return the answer. Raises UnexpectedAnswer unless the API server did what was requested."""
    if answer.status >= HTTPStatus.BAD_REQUEST:
        message = f"{answer.status} {answer.body.get('message', answer.body)}"
        raise UnexpectedAnswer(message)
    return answer


async def seen(
    admin: Admin, path: str, wanted: Callable[[Json], bool], query: Mapping[str, str], *, within_s: float
) -> Json:
    """Return the first object under `path`, existing or new, that is as wanted.

    query: narrows the watch, such as {"fieldSelector": "metadata.name=a"}. Raises NotSeen.
    """
    last: Json = {}
    try:
        async with asyncio.timeout(within_s):
            while True:
                # The server ends a watch now and then; the next one begins with the existing objects.
                async with aclosing(admin.watch(path, query)) as lines:
                    async for line in lines:
                        event = msgspec.json.decode(line)
                        last = event["object"]
                        if event["type"] in {"ADDED", "MODIFIED"} and wanted(last):
                            return last
    except TimeoutError:
        message = f"{path} {dict(query)}: not seen within {within_s} s; the last that was: {last}"
        raise NotSeen(message) from None


def ask(access: Access, path: str, method: str = "GET", merge_patch: bytes | None = None) -> Reply:
    """Send one request on a separate connection. Raises OSError, http.client.HTTPException."""
    connection = http.client.HTTPSConnection(urlsplit(access.url).netloc, context=access.tls, timeout=_REPLY_WITHIN_S)
    headers = {"Authorization": access.authorization} if access.authorization else {}
    if merge_patch is not None:
        headers["Content-Type"] = _MERGE_PATCH
    try:
        connection.request(method, path, merge_patch, headers)
        answer = connection.getresponse()
        return Reply(answer.status, answer.read())
    finally:
        connection.close()
