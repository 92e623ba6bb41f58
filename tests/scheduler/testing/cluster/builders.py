"""Small worlds and readers of watches."""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count

from scheduler.kube import objects
from scheduler.kube.port import PODS, Binding, Kind, PodKey, T, WatchEvent
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.watching import WatchTiming
from scheduler.testing.cluster.world import World

NEVER = WatchTiming(bookmark_every_s=None, silence_s=90.0)


class HandDrivenTime:
    """A clock that stands still until it is told to go."""

    def __init__(self, now_s: float = 1_800_000_000.0) -> None:
        self._now_s = now_s
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now_s(self) -> float:
        return self._now_s

    def pass_by(self, seconds: float) -> None:
        """Go on without anybody waking."""
        self._now_s += seconds

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now_s + seconds, next(self._order), woken))
        await woken

    async def advance(self, seconds: float) -> None:
        """Let everything that is ready run, then the sleepers of the coming seconds, each at its time."""
        await everything_ready()
        ends_at_s = self._now_s + seconds
        while self._sleepers and self._sleepers[0][0] <= ends_at_s:
            self._now_s, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
            await everything_ready()
        self._now_s = ends_at_s


async def everything_ready() -> None:
    """Turns of the loop, more than any chain of callbacks in these tests is long."""
    for _ in range(20):
        await asyncio.sleep(0)


def world(*pods: str, history_limit: int = 1000) -> World:
    """A world in which these pods of namespace `ns` wait for a node."""
    made = World(lambda: 1_800_000_000.0, history_limit)
    for name in pods:
        made.pods.create(pod(name))
    return made


def client(of: World, time: HandDrivenTime | None = None) -> MemoryCluster:
    """A client that waits by hand-driven time, so never by itself."""
    return MemoryCluster(of, sleep=(time or HandDrivenTime()).sleep, timing=NEVER)


def pod(name: str, namespace: str = "ns") -> objects.PodObject:
    return objects.PodObject(objects.ObjectMeta(name=name, namespace=namespace))


def binding(of: World, name: str, node: str = "node-a", **annotations: str) -> Binding:
    found = of.pods.collection.existing("ns", name)
    return Binding(PodKey("ns", name, found.metadata.uid), node, annotations)


def node_of(of: World, name: str) -> str:
    return of.pods.collection.existing("ns", name).spec.node_name


@asynccontextmanager
async def watched(
    cluster: MemoryCluster, kind: Kind[T], since: str | None = None
) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
    """The events of one watch, one by one."""
    batches = cluster.watch(kind, since)

    async def events() -> AsyncIterator[WatchEvent[T]]:
        async for batch in batches:
            for event in batch:
                yield event

    one_by_one = events()
    try:
        yield one_by_one
    finally:
        await one_by_one.aclose()  # type: ignore[attr-defined]  # a generator, whatever the Protocol calls it
        await batches.aclose()  # type: ignore[attr-defined]  # as above


async def next_names(cluster: MemoryCluster, since: str | None, how_many: int) -> list[str]:
    """Kind of event and name of the next events about pods."""
    async with watched(cluster, PODS, since) as events:
        return [told(await anext(events)) for _ in range(how_many)]


def told(event: object) -> str:
    """`Changed p`, or the class of an event that names nothing."""
    about = getattr(event, "object", None)
    return type(event).__name__ + (f" {about.metadata.name}" if about is not None else "")
