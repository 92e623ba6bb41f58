"""Small worlds and readers of watches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from scheduler.kube import objects
from scheduler.kube.port import PODS, Binding, Kind, PodKey, T, WatchEvent
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.watching import WatchTiming
from scheduler.testing.cluster.world import World

NEVER = WatchTiming(bookmark_every_s=None, silence_s=90.0)


async def everything_ready() -> None:
    """Turns of the loop, more than any chain of callbacks in these tests is long."""
    for _ in range(20):
        await asyncio.sleep(0)


async def passes(seconds: float) -> None:
    """Virtual time, and everything that happens in it."""
    await asyncio.sleep(seconds)
    await everything_ready()


def world(*pods: str, history_limit: int = 1000) -> World:
    """A world in which these pods of namespace `ns` wait for a node."""
    made = World(lambda: 1_800_000_000.0, history_limit)
    for name in pods:
        made.pods.create(pod(name))
    return made


def client(of: World) -> MemoryCluster:
    return MemoryCluster(of, timing=NEVER)


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
