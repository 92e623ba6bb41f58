"""Two replicas with TLS pages on loopback, and a browser at the standby."""

import asyncio
import json
import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any

import aiohttp
from aiohttp import web

from scheduler.core.engine import Engine
from scheduler.kube.rest.reviews import User
from scheduler.tools.page.access import Access
from scheduler.tools.page.leader import FORWARDED, LeaderPage
from scheduler.tools.page.page_parts import SchedulerParts, page_parts
from scheduler.tools.page.server import PageServer, serve_page
from scheduler.tools.page.tls import ServerCertificate
from tests.support.builders import READER, UNIT_MIB, engine

TOKEN = "t-ann"  # noqa: S105 - accepted by nobody but the reviewer below


class Reviewer:
    """Token reviewer: TOKEN may read everything. asked: every token submitted for review."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.known = TOKEN

    async def user_of(self, token: str) -> User | None:
        self.asked.append(token)
        return User("ann") if token == self.known else None

    async def may_get_url(self, user: User, path: str) -> bool:
        return (user.username, path) == ("ann", "/gpushare")

    async def may_list_pods(self, user: User, namespace: str) -> bool:
        return user.username == "ann" or not namespace


class Replica:
    """One replica's page. named: the leader's fields in the Lease."""

    def __init__(self, name: str, made: Engine, *, leads: bool) -> None:
        self.name, self.engine, self.leads = name, made, leads
        self.named: str | None = None
        self.leader_name = "the-leader"
        self.reviewer = Reviewer()
        self.page: PageServer | None = None

    async def serve(self, certificate: ServerCertificate) -> None:
        of = SchedulerParts(
            engine=self.engine, reader=READER, unit_mib=UNIT_MIB, leads=lambda: self.leads, problem=str,
            replica=self.name, leader=lambda: self.leader_name,
        )  # fmt: skip
        now_s = asyncio.get_running_loop().time
        leader = LeaderPage(lambda: self.named, lambda: certificate.fingerprint, now_s)
        cluster_view = page_parts(of, Access(self.reviewer, now_s), leader)
        self.page = await serve_page(cluster_view, ("127.0.0.1", 0), certificate.context)

    @property
    def url(self) -> str:
        assert self.page is not None
        return f"https://127.0.0.1:{self.page.port}"

    async def close(self) -> None:
        if self.page is not None:
            await self.page.close()
        self.page = None


class Site:
    """A leader with the node `l`, a standby with the node `s`, and a browser at the standby."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session
        self.leader = Replica("the-leader", engine(l=[16]), leads=True)
        self.standby = Replica("the-standby", engine(s=[8]), leads=False)
        self.token = TOKEN

    async def get(self, path: str, at: Replica | None = None, *, form: str | None = None) -> tuple[int, Any]:
        """Return (status, answer). at: the queried replica. form: as another replica sends it when it forwards."""
        headers = {"Authorization": f"Bearer {self.token}"} | ({} if form is None else {FORWARDED: form})
        async with self.session.get((at or self.standby).url + path, headers=headers, ssl=False) as answer:
            return answer.status, json.loads(await answer.read())

    def stream(self, **query: str) -> Any:  # noqa: ANN401 - a context manager of aiohttp
        headers = {"Authorization": f"Bearer {self.token}"}
        return self.session.get(f"{self.standby.url}/api/stream", params=query, headers=headers, ssl=False)

    async def follow(self, sort: str = "now", **query: str) -> list[dict[str, Any]]:
        """Return the standby's stream up to the first line of a sort."""
        async with self.stream(**query) as answer:
            assert answer.status == HTTPStatus.OK, await answer.text()
            return await lines(answer, sort)

    async def nodes_of(self) -> tuple[str, list[str]]:
        """Return (answering replica, its nodes)."""
        found = await self.follow()
        return found[0]["replica"], next(line["name"] for line in found if line["t"] == "rows")


async def lines(answer: aiohttp.ClientResponse, sort: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async for line in answer.content:
        found.append(json.loads(line))
        if found[-1]["t"] == sort:
            return found
    message = f"the stream has ended before {sort}"
    raise AssertionError(message)


async def elsewhere(stack: AsyncExitStack, answer: Callable[[web.BaseRequest], Any], tls: ssl.SSLContext | None) -> str:
    """Return the address of another program's server."""
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    return f"https://127.0.0.1:{runner.addresses[0][1]}"
