import asyncio
from itertools import pairwise

import pytest

from scheduler.kube.port import NODES, PODS, ApiRejected, Bookmark, Changed, ListBegins, ListEnds, WatchExpired
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.watching import BATCH, WatchTiming
from tests.scheduler.tools.simulate.builders import (
    HandDrivenTime,
    client,
    everything_ready,
    next_names,
    pod,
    told,
    watched,
    world,
)


async def test_a_list_comes_first_and_then_each_change() -> None:
    of = world("a", "b")
    async with watched(client(of), PODS) as events:
        listed = [told(await anext(events)) for _ in range(4)]
        of.pods.create(pod("c"))
        of.pods.delete("ns", "a")
        changes = [told(await anext(events)) for _ in range(3)]

    assert listed == ["ListBegins", "Changed a", "Changed b", "ListEnds"]
    assert changes == ["Changed c", "Changed a", "Deleted a"]


async def test_a_list_shows_one_moment_however_slowly_it_is_read() -> None:
    of = world("a")
    async with watched(client(of), PODS) as events:
        await anext(events)
        of.pods.create(pod("b"))
        rest = [await anext(events) for _ in range(3)]

    assert [told(event) for event in rest] == ["Changed a", "ListEnds", "Changed b"]


async def test_a_large_list_comes_in_batches_and_yields_between_them() -> None:
    of = world(*(f"p{i:04}" for i in range(600)))
    turns = 0

    async def neighbour() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(neighbour())
    sizes, seen_at = [], []
    async for batch in client(of).watch(PODS, None):
        sizes.append(len(batch))
        seen_at.append(turns)
        if isinstance(batch[-1], ListEnds):
            break
    other.cancel()

    assert sizes == [BATCH, BATCH, 602 - 2 * BATCH]
    assert all(earlier < later for earlier, later in pairwise(seen_at))


async def test_a_finished_pod_is_deleted_once_as_it_last_was() -> None:
    of = world("a")
    since = str(of.version)
    of.pods.finish("ns", "a", "Failed", reason="OutOfcpu")
    of.pods.remove("ns", "a")
    of.pods.create(pod("b"))

    assert await next_names(client(of), since, 2) == ["Deleted a", "Changed b"]
    assert [told(e) for e in (await anext(client(of).watch(PODS, None)))] == ["ListBegins", "Changed b", "ListEnds"]


async def test_changes_that_a_kind_does_not_show_wake_nobody_else() -> None:
    of = world()
    of.nodes.add({"metadata": {"name": "n"}})
    async with watched(client(of), NODES, since=str(of.version)) as events:
        next_event = asyncio.ensure_future(anext(events))
        of.pods.create(pod("a"))
        of.nodes.patch("n", labels={"zone": "z"})
        event = await next_event

    assert isinstance(event, Changed)
    assert event.object.metadata.labels == {"zone": "z"}


async def test_a_version_that_the_history_no_longer_holds_has_expired() -> None:
    of = world("a", history_limit=2)
    since = str(of.version)
    for name in "bcde":
        of.pods.create(pod(name))

    with pytest.raises(WatchExpired):
        await next_names(client(of), since, 1)


async def test_a_compacted_history_ends_no_open_watch() -> None:
    of = world("a")
    async with watched(client(of), PODS, since="1") as events:
        await anext(events)
        of.pods.create(pod("b"))
        of.compact_history()

        assert told(await anext(events)) == "Changed b"


async def test_a_reader_too_slow_for_the_history_is_cut_off() -> None:
    of = world(history_limit=2)
    batches = client(of).watch(PODS, None)
    await anext(batches)
    for name in "abcde":
        of.pods.create(pod(name))

    with pytest.raises(StopAsyncIteration):
        await anext(batches)


async def test_bookmarks_tell_the_version_when_nothing_happens() -> None:
    of, time = world("a"), HandDrivenTime()
    cluster = MemoryCluster(of, sleep=time.sleep, timing=WatchTiming(bookmark_every_s=60.0))
    async with watched(cluster, PODS, since=str(of.version)) as events:
        next_event = asyncio.ensure_future(anext(events))
        await everything_ready()
        of.nodes.add({"metadata": {"name": "n"}})
        await time.advance(59.0)
        assert not next_event.done()
        await time.advance(1.0)

        assert await next_event == Bookmark(str(of.version))


async def test_a_version_that_is_not_a_number_is_refused() -> None:
    with pytest.raises(ApiRejected):
        await next_names(client(world()), "yesterday", 1)


async def test_closing_the_client_ends_its_watches_and_keeps_the_world() -> None:
    of = world("a")
    first = client(of)
    batches = first.watch(PODS, None)
    await anext(batches)

    await first.close()

    with pytest.raises(StopAsyncIteration):
        await anext(batches)
    assert isinstance((await anext(client(of).watch(PODS, None)))[0], ListBegins)
    assert len(of.pods.collection.listeners) == 1


async def test_a_backlog_of_changes_comes_in_batches_and_nothing_is_left_out() -> None:
    of = world()
    since = str(of.version)
    names = [f"p{i:04}" for i in range(600)]
    for name in names:
        of.pods.create(pod(name))

    batches = client(of).watch(PODS, since)
    seen = [await anext(batches) for _ in range(4)]

    assert [len(batch) for batch in seen] == [0, BATCH, BATCH, 600 - 2 * BATCH]
    assert [told(event) for batch in seen for event in batch] == [f"Changed {name}" for name in names]
