"""Faults of watches, as the client sees them."""

import asyncio

import pytest

from scheduler.kube.port import (
    PODS,
    ApiSilent,
    WatchExpired,
)
from scheduler.testing.cluster.faults import (
    Break,
    Verb,
    WatchBreaks,
)
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


async def test_a_watch_that_breaks_later_still_delivers_everything_in_order() -> None:
    of = world("a")
    cluster = client(of)
    cluster.faults.add(Verb.WATCH, WatchBreaks(Break.LOST, 1), count=1)
    since = "1"
    of.pods.create(pod("b"))

    assert await next_names(cluster, since, 1) == ["Changed a"]
    assert await next_names(cluster, since, 2) == ["Changed a", "Changed b"]


async def test_a_stalled_watch_delivers_nothing_until_it_is_resumed() -> None:
    of = world("a")
    cluster = client(of)
    async with watched(cluster, PODS, since=str(of.version)) as events:
        next_event = asyncio.ensure_future(anext(events))
        cluster.break_watches(Break.STALLED, PODS)
        of.pods.create(pod("b"))
        await everything_ready()
        assert not next_event.done()

        cluster.resume_watches()

        assert told(await next_event) == "Changed b"


async def test_a_client_gives_up_a_stalled_watch_after_the_allowed_silence() -> None:
    of, time = world("a"), HandDrivenTime()
    cluster = client(of, time)
    async with watched(cluster, PODS, since=str(of.version)) as events:
        next_event = asyncio.ensure_future(anext(events))
        await everything_ready()
        cluster.break_watches(Break.STALLED)
        await time.advance(89.0)
        assert not next_event.done()
        await time.advance(1.0)

        with pytest.raises(ApiSilent, match="no data for 90 s"):
            await next_event


async def test_a_watch_opened_during_a_stall_is_stalled_too() -> None:
    of = world("a")
    cluster = client(of)
    cluster.break_watches(Break.STALLED)
    async with watched(cluster, PODS) as events:
        next_event = asyncio.ensure_future(anext(events))
        await everything_ready()
        assert not next_event.done()
        cluster.resume_watches()

        assert told(await next_event) == "ListBegins"


async def test_a_watch_breaks_on_command() -> None:
    of = world("a")
    cluster = client(of)
    async with watched(cluster, PODS) as events:
        listed = [told(await anext(events)) for _ in range(3)]
        cluster.break_watches(Break.LOST)

        with pytest.raises(ApiSilent):
            await anext(events)
    assert listed == ["ListBegins", "Changed a", "ListEnds"]


async def test_the_history_is_compacted_under_a_client_that_was_away() -> None:
    of = world("a")
    since = str(of.version)
    of.pods.create(pod("b"))

    of.compact_history()

    with pytest.raises(WatchExpired):
        await next_names(client(of), since, 1)
