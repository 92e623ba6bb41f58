"""A page of a small cluster, and a browser that looks at it."""

import json
from typing import Any

import aiohttp

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.kube.rest.reviews import User
from scheduler.tools.page.access import Guard
from scheduler.tools.page.page_parts import SchedulerParts, page_parts
from scheduler.tools.page.server import PageServer, serve_page
from tests.support.builders import READER, UNIT_MIB, bound, engine, pod


class Reviewer:
    """`t-ann` may look, and list the pods of team-a. known: the token that is accepted."""

    def __init__(self) -> None:
        self.known = "t-ann"

    async def user_of(self, token: str) -> User | None:
        return User("ann") if token == self.known else None

    async def may_get_url(self, user: User, path: str) -> bool:
        return (user.username, path) == ("ann", "/gpushare")

    async def may_list_pods(self, user: User, namespace: str) -> bool:
        return (user.username, namespace) == ("ann", "team-a")


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


async def serving(made: Engine, guard: Guard, *, leads: bool = True) -> PageServer:
    of = SchedulerParts(engine=made, reader=READER, unit_mib=UNIT_MIB, leads=lambda: leads, problem=lambda: "")
    return await serve_page(page_parts(of, guard), ("127.0.0.1", 0))


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
