"""A page of a small cluster, and a browser that looks at it."""

import asyncio
import json
import ssl
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.kube.rest.reviews import User
from scheduler.tools.page.access import Guard
from scheduler.tools.page.page_parts import SchedulerParts, page_parts
from scheduler.tools.page.server import PageParts, PageServer, serve_page
from tests.support.builders import READER, UNIT_MIB, bound, engine, pod


@dataclass
class Reviewer:
    """users: by token. may_look, lists: by name of the user. asked: every question. open: answers wait for it."""

    users: dict[str, User] = field(default_factory=dict)
    may_look: set[str] = field(default_factory=set)
    lists: dict[str, set[str]] = field(default_factory=dict)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    broken: Exception | None = None
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def user_of(self, token: str) -> User | None:
        self.asked.append(("token", token))
        await self.open.wait()
        if self.broken is not None:
            raise self.broken
        return self.users.get(token)

    async def may_get_url(self, user: User, path: str) -> bool:
        self.asked.append(("url", user.username, path))
        return user.username in self.may_look

    async def may_list_pods(self, user: User, namespace: str) -> bool:
        self.asked.append(("pods", user.username, namespace))
        return namespace in self.lists.get(user.username, ())

    def count(self, kind: str) -> int:
        return sum(one[0] == kind for one in self.asked)


def reviewer_of_ann() -> Reviewer:
    """`t-ann` may look, and list the pods of team-a; answers at once."""
    made = Reviewer({"t-ann": User("ann")}, {"ann"}, {"ann": {"team-a"}})
    made.open.set()
    return made


def filled() -> Engine:
    """Two nodes; on a's card 0 a pod of team-a and one of team-b; two pods wait that fit nowhere."""
    made = engine(a=[16, 16], b=[8])
    for namespace, units in (("team-a", 4), ("team-b", 6)):
        on_card = {names.MEM_IDX: "0", names.UNIT_MIB: str(UNIT_MIB)}
        made.pod_assigned(bound(pod("web", units, namespace=namespace, annotations=on_card), "a"))
        made.pod_waiting(pod("big", 20, namespace=namespace), 0.0)
    while made.decide(0.0, 0) is not None:
        pass
    return made


def parts_of(made: Engine, guard: Guard, *, leads: bool = True) -> PageParts:
    of = SchedulerParts(engine=made, reader=READER, unit_mib=UNIT_MIB, leads=lambda: leads, problem=lambda: "")
    return page_parts(of, guard)


async def serving(made: Engine, guard: Guard, *, leads: bool = True, tls: ssl.SSLContext | None = None) -> PageServer:
    return await serve_page(parts_of(made, guard, leads=leads), ("127.0.0.1", 0), tls)


class Browser:
    """A session with the address of the page, and a token or none."""

    def __init__(self, session: aiohttp.ClientSession, port: int, token: str | None = None) -> None:
        self.session, self.url = session, f"http://127.0.0.1:{port}"
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(self.url + path, headers=self.headers | headers) as answer:
            return answer.status, json.loads(await answer.read())

    async def lines(self, path: str = "/api/stream", until: str = "waiting") -> list[dict[str, Any]]:
        """What the stream sends, up to the first line of a sort."""
        found = []
        async with self.session.get(self.url + path, headers=self.headers) as answer:
            assert answer.status == 200
            async for line in answer.content:
                found.append(json.loads(line))
                if found[-1]["t"] == until:
                    return found
        message = f"the stream has ended before {until}"
        raise AssertionError(message)
