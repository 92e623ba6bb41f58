"""Watches: what a kind shows, lists and changes in batches, and each fault, as the client sees it."""

import asyncio
from itertools import pairwise

import pytest

from scheduler.kube.objects import ObjectMeta, PodObject, PodSpec, PodStatus
from scheduler.kube.port import (
    PODS,
    ApiRejected,
    ApiSilent,
    Bookmark,
    Kind,
    ListBegins,
    ListEnds,
    WatchExpired,
)
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.faults import (
    Break,
    Verb,
    WatchBreaks,
)
from scheduler.testing.cluster.store import shown_by
from scheduler.testing.cluster.watching import BATCH, WatchTiming
from tests.scheduler.testing.cluster.builders import (
    client,
    everything_ready,
    next_names,
    passes,
    pod,
    told,
    watched,
    world,
)


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
    of = world("a")
    cluster = MemoryCluster(of, timing=WatchTiming(bookmark_every_s=60.0))
    async with watched(cluster, PODS, since=str(of.version)) as events:
        next_event = asyncio.ensure_future(anext(events))
        await everything_ready()
        of.nodes.add({"metadata": {"name": "n"}})
        await passes(59.0)
        assert not next_event.done()
        await passes(1.0)

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


@pytest.mark.parametrize(
    ("how", "error"),
    [
        pytest.param(Break.LOST, ApiSilent, id="lost"),
        pytest.param(Break.EXPIRED, WatchExpired, id="410 in the stream"),
        pytest.param(Break.ENDED, StopAsyncIteration, id="closed in good order"),
    ],
)
@pytest.mark.parametrize("after", [0, 1, 3, 5])
async def test_a_watch_breaks_after_exactly_so_many_events(how: Break, error: type[Exception], after: int) -> None:
    of = world("a", "b")
    cluster = client(of)
    cluster.faults.add(Verb.WATCH, WatchBreaks(how, after), count=1)
    async with watched(cluster, PODS) as events:
        of.pods.create(pod("c"))
        for _ in range(after):
            await anext(events)

        with pytest.raises(error):
            await anext(events)

    assert len(await next_names(cluster, None, 5)) == 5


@pytest.mark.parametrize("opened_first", [True, False], ids=["an open watch", "a watch opened during a stall"])
async def test_a_stalled_watch_delivers_nothing_until_it_is_resumed(*, opened_first: bool) -> None:
    of = world("a")
    cluster = client(of)
    if not opened_first:
        cluster.break_watches(Break.STALLED)
    async with watched(cluster, PODS, since=str(of.version)) as events:
        next_event = asyncio.ensure_future(anext(events))
        if opened_first:
            cluster.break_watches(Break.STALLED, PODS)
        of.pods.create(pod("b"))
        await everything_ready()
        assert not next_event.done()

        cluster.resume_watches()

        assert told(await next_event) == "Changed b"


async def test_a_client_gives_up_a_stalled_watch_after_the_allowed_silence() -> None:
    of = world("a")
    cluster = client(of)
    async with watched(cluster, PODS, since=str(of.version)) as events:
        next_event = asyncio.ensure_future(anext(events))
        await everything_ready()
        cluster.break_watches(Break.STALLED)
        await passes(89.0)
        assert not next_event.done()
        await passes(1.0)

        with pytest.raises(ApiSilent, match="no data for 90 s"):
            await next_event


def pod_kind(selector: str, path: str = "/api/v1/pods") -> Kind[PodObject]:
    return Kind("pods", PodObject, path, selector)


POD = PodObject(ObjectMeta(name="p", namespace="ns"), PodSpec(node_name="n"), PodStatus(phase="Running"))


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        pytest.param(PODS, True, id="not finished"),
        pytest.param(pod_kind("status.phase!=Running"), False, id="finished"),
        pytest.param(pod_kind("spec.nodeName=n"), True, id="on a node"),
        pytest.param(pod_kind("spec.nodeName==n,status.phase=Pending"), False, id="one term of two"),
        pytest.param(pod_kind("", "/api/v1/namespaces/ns/pods"), True, id="its namespace"),
        pytest.param(pod_kind("", "/api/v1/namespaces/other/pods"), False, id="another namespace"),
    ],
)
def test_a_kind_shows_what_its_path_and_its_selector_say(kind: Kind[PodObject], *, shown: bool) -> None:
    assert shown_by(kind)(POD) is shown


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        pytest.param("spec.hostname=x", "field label not supported: spec.hostname", id="unknown field"),
        pytest.param("status.phase", "invalid field selector", id="no operator"),
    ],
)
def test_a_selector_that_a_server_refuses_is_refused(selector: str, message: str) -> None:
    with pytest.raises(ApiRejected, match=message):
        shown_by(pod_kind(selector))
