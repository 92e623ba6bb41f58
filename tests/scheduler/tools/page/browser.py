"""The page of a small cluster, and a browser that looks at it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.objects import PodCondition
from scheduler.kube.port import KINDS, PodKey
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.asking import ClusterView, empty_view
from scheduler.tools.cli.following import Following
from scheduler.tools.page.server import page_served
from tests.support.explaining import Limited, there, waits, world


def filled() -> World:
    """Two nodes; on a's card 0 two pods; of two pods that wait, the scheduler has told one."""
    of = world(a=[16, 16], b=[8])
    for name, units in (("web-1", 4), ("web-2", 6)):
        there(of, name, units, "a", 0)
    for name in ("big", "new"):
        waits(of, name, 20)
    condition = PodCondition("PodScheduled", "False", "Unschedulable", "0/2 nodes are available.")
    of.pods.set_condition(PodKey("default", "big", "uid-default-big"), condition)
    return of


@dataclass
class Browser:
    """A session with the address of the page. view: what the page shows."""

    session: aiohttp.ClientSession
    url: str
    view: ClusterView

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(self.url + path, headers=headers) as answer:
            return answer.status, json.loads(await answer.read())

    async def lines(self, path: str = "api/stream", until: str = "waiting") -> list[dict[str, Any]]:
        """What the stream sends, up to the first line of a sort."""
        found = []
        async with self.session.get(self.url + path) as answer:
            assert answer.status == 200
            async for line in answer.content:
                found.append(json.loads(line))
                if found[-1]["t"] == until:
                    return found
        message = f"the stream has ended before {until}"
        raise AssertionError(message)


@asynccontextmanager
async def browsing(of: World, *refused: str) -> AsyncIterator[Browser]:
    """The page of a cluster that is followed. refused: names of kinds that may not be read."""
    view, handled = empty_view(Limited(of, *refused), SchedulerConfiguration(), KINDS)
    listed, following = asyncio.Event(), Following(view, handled)

    async def show(_: ClusterView) -> None:
        listed.set()

    watching = asyncio.create_task(following.run(show))
    async with (
        page_served(view, following.problem, 0) as url,
        aiohttp.ClientSession(read_bufsize=2**20) as session,
    ):
        await listed.wait()
        yield Browser(session, url, view)
    watching.cancel()
