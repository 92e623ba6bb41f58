"""A small client of the API server for tests: raw paths and bodies, no models, no retries.

Deliberately not the scheduler's own client, so that one cannot hide the other's mistakes.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeAlias

import aiohttp
import msgspec

from e2e.control_plane.access import Access

IN_FLIGHT: Final = 48
_ANSWER_WITHIN_S: Final = 60.0
_PAGE: Final = "1000"
_MERGE_PATCH: Final = "application/merge-patch+json"

Json: TypeAlias = dict[str, Any]


class Answer(NamedTuple):
    """Status code and decoded body."""

    status: int
    body: Json


class UnexpectedAnswer(Exception):
    """The API server did not do what the test rests on; the message has what it said."""


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
        """Nothing is sent yet."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        await self._session.close()
        await asyncio.sleep(0)  # so that the loop gets to see that

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        """Read one object or list."""
        return await self._send("GET", path, query=query)

    async def post(self, path: str, body: Json) -> Answer:
        """Create an object, or call a subresource."""
        return await self._send("POST", path, body)

    async def put(self, path: str, body: Json) -> Answer:
        """Replace an object."""
        return await self._send("PUT", path, body)

    async def patch(self, path: str, body: Json, content_type: str = _MERGE_PATCH) -> Answer:
        """Change an object; a merge patch unless `content_type` says otherwise."""
        return await self._send("PATCH", path, body, content_type=content_type)

    async def delete(self, path: str, body: Json | None = None, query: Mapping[str, str] | None = None) -> Answer:
        """Delete an object or a collection; `body` may be DeleteOptions."""
        return await self._send("DELETE", path, body, query=query)

    async def create(self, path: str, body: Json) -> Json:
        """Create an object that has to come into being; returns it. Raises UnexpectedAnswer."""
        answer = await self.post(path, body)
        if answer.status != HTTPStatus.CREATED:
            message = f"POST {path}: {answer.status} {answer.body.get('message', answer.body)}"
            raise UnexpectedAnswer(message)
        return answer.body

    async def create_all(self, path: str, bodies: Iterable[Json], *, in_flight: int = IN_FLIGHT) -> None:
        """Create thousands: up to `in_flight` requests at once. Raises UnexpectedAnswer in an ExceptionGroup."""
        waiting = iter(bodies)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(in_flight):
                tasks.create_task(self._create_each(path, waiting))

    async def items(self, path: str) -> list[Json]:
        """Everything in a list, page by page. Raises UnexpectedAnswer."""
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

        Without a resourceVersion in `query` it begins with what there is. Raises UnexpectedAnswer.
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
                # The server goes on talking, so a polite end of the TLS connection would outlast the event loop.
                if response.connection and response.connection.transport:
                    response.connection.transport.abort()

    async def _create_each(self, path: str, waiting: Iterator[Json]) -> None:
        for body in waiting:
            await self.create(path, body)

    async def _send(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Answer:
        data = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": content_type}
        async with self._session.request(method, path, params=query, data=data, headers=headers) as response:
            raw = await response.read()
        decoded = msgspec.json.decode(raw) if raw.startswith(b"{") else {"message": raw.decode(errors="replace")}
        return Answer(response.status, decoded)
