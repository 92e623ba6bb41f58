import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.kube import port
from scheduler.kube.rest import watching
from scheduler.kube.rest.client import KubeCluster
from scheduler.kube.rest.watching import BATCH, LineSplitter, Listing, WatchOptions
from tests.scheduler.kube.rest.conftest import ClusterOf
from tests.support.servers.api_server import ApiServer, bookmark, cut, line, manifest, ok, status, streamed

PAGED = WatchOptions(listing=Listing.PAGED, page=10)
STREAMED = WatchOptions(listing=Listing.STREAMED)


async def batches(cluster: KubeCluster, since: str | None = None) -> AsyncIterator[list[Any]]:
    async for batch in cluster.watch(port.PODS, since):
        assert len(batch) <= BATCH
        yield batch


async def until_error(cluster: KubeCluster, got: list[Any]) -> None:
    async for batch in batches(cluster, since="1"):
        got += batch


async def events(cluster: KubeCluster, since: str | None = None) -> list[Any]:
    return [event async for batch in batches(cluster, since) for event in batch]


def names(events: list[Any]) -> list[str]:
    return [event.object.metadata.name for event in events if isinstance(event, port.Changed)]


async def test_pages_and_a_stream_give_the_same_events(api: ApiServer, cluster_of: ClusterOf) -> None:
    api.items = [manifest(f"p{number}") for number in range(35)] + [{"metadata": {"name": "bad", "uid": 1}}]
    api.live = [line("DELETED", manifest("p3")), bookmark("120")]

    from_pages = await events(await cluster_of(watch=PAGED))
    from_stream = await events(await cluster_of(watch=STREAMED))

    assert from_pages == from_stream
    assert from_stream[0] == port.ListBegins()
    assert port.ListEnds("100") in from_stream
    assert len(names(from_stream)) == 35


async def test_a_list_is_a_consistent_read_and_comes_in_pages(api: ApiServer, cluster_of: ClusterOf) -> None:
    api.items = [manifest(f"p{number}") for number in range(25)]

    await events(await cluster_of(watch=PAGED))

    lists = [query for query in api.queries() if "watch" not in query]
    assert [query.get("continue") for query in lists] == [None, "10", "20"]
    assert all("resourceVersion" not in query for query in lists)
    assert api.queries()[-1]["resourceVersion"] == "100"


async def test_a_streamed_list_sends_what_the_protocol_requires(api: ApiServer, cluster_of: ClusterOf) -> None:
    await events(await cluster_of(watch=STREAMED))

    (query,) = api.queries()
    seconds = int(query.pop("timeoutSeconds"))
    assert 300 <= seconds <= 600
    assert query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
    }


async def test_an_accepted_watch_says_so_before_there_is_anything_to_tell(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [streamed(then=api.held.wait())]

    async with aclosing(cluster.watch(port.PODS, "1")) as source:  # type: ignore[type-var]
        assert await anext(source) == []


async def test_watches_end_at_different_times(api: ApiServer, cluster: KubeCluster) -> None:
    for _ in range(5):
        await events(cluster, since="1")

    assert len({query["timeoutSeconds"] for query in api.queries()}) > 1


async def test_a_server_that_refuses_to_stream_gets_paged_lists_from_then_on(
    api: ApiServer, cluster: KubeCluster
) -> None:
    api.streams_lists, api.items = False, [manifest("a")]

    assert names(await events(cluster)) == ["a"]
    assert names(await events(cluster)) == ["a"]
    assert sum("sendInitialEvents" in query for query in api.queries()) == 1


async def test_a_server_that_ignores_streaming_gets_paged_lists(api: ApiServer, cluster: KubeCluster) -> None:
    api.items = [manifest("a")]
    api.script = [streamed(line("ADDED", manifest("a")), bookmark("90"))]

    assert (await events(cluster))[-2:] == [(await events(cluster))[-2], port.ListEnds("100")]


async def test_a_forced_stream_does_not_fall_back(api: ApiServer, cluster_of: ClusterOf) -> None:
    api.streams_lists = False

    with pytest.raises(port.ApiRejected, match="WatchList"):
        await events(await cluster_of(watch=STREAMED))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        pytest.param(403, port.ApiForbidden, id="forbidden"),
        pytest.param(404, port.ApiNotFound, id="not found"),
        pytest.param(429, port.ApiThrottled, id="throttled"),
        pytest.param(500, port.ApiFailed, id="failed"),
    ],
)
async def test_a_refusal_for_another_reason_does_not_end_streaming(
    api: ApiServer, cluster: KubeCluster, code: int, error: type[port.ApiError]
) -> None:
    api.script = [status(code, "no")]

    with pytest.raises(error, match=r"^no$"):
        await events(cluster)

    await events(cluster)
    assert all("sendInitialEvents" in query for query in api.queries())


async def test_a_refusal_after_the_list_is_a_refusal(api: ApiServer, cluster: KubeCluster) -> None:
    api.live = [line("ERROR", {"code": 400, "message": "bad"})]

    with pytest.raises(port.ApiRejected, match=r"^bad$"):
        await events(cluster)


async def test_an_old_version_is_expired_after_what_came_before(api: ApiServer, cluster: KubeCluster) -> None:
    api.live = [line("ADDED", manifest("a")) + line("ERROR", {"code": 410, "message": "too old"})]
    got: list[Any] = []

    with pytest.raises(port.WatchExpired, match="too old"):
        await until_error(cluster, got)

    assert names(got) == ["a"]


async def test_a_list_that_expires_between_two_pages_begins_again(api: ApiServer, cluster_of: ClusterOf) -> None:
    api.items = [manifest(f"p{number}") for number in range(15)]
    first = {"kind": "PodList", "metadata": {"resourceVersion": "90", "continue": "x"}, "items": [manifest("old")]}
    api.script = [ok(first), status(410, "The provided continue parameter is too old")]

    got = await events(await cluster_of(watch=PAGED))

    begun = [index for index, event in enumerate(got) if event == port.ListBegins()]
    assert len(begun) == 2
    assert names(got[begun[1] :]) == [f"p{number}" for number in range(15)]
    assert got[-1] == port.ListEnds("100")


async def test_a_list_that_always_expires_is_abandoned(api: ApiServer, cluster_of: ClusterOf) -> None:
    first = {"kind": "PodList", "metadata": {"resourceVersion": "90", "continue": "x"}, "items": []}
    api.script = [ok(first), status(410, "too old")] * 3

    with pytest.raises(port.WatchExpired):
        await events(await cluster_of(watch=PAGED))


async def test_one_bad_object_costs_one_object(api: ApiServer, cluster: KubeCluster) -> None:
    bad = manifest("bad") | {"spec": {"containers": "none"}}
    api.items = [manifest("a"), bad, manifest("b")]
    api.live = [line("MODIFIED", bad), line("MODIFIED", manifest("c"))]

    got = await events(cluster)

    assert names(got) == ["a", "b", "c"]
    assert [event.name for event in got if isinstance(event, port.Undecodable)] == ["default/bad"] * 2


async def test_a_line_of_several_megabytes_passes(api: ApiServer, cluster: KubeCluster) -> None:
    value = "x" * 3_000_000
    api.live = [line("MODIFIED", manifest("a", annotations={"large": value})), line("ADDED", manifest("b"))]

    got = await events(cluster, since="1")

    assert names(got) == ["a", "b"]
    assert got[0].object.metadata.annotations == {"large": value}


async def test_others_run_between_the_batches_of_a_long_list(api: ApiServer, cluster_of: ClusterOf) -> None:
    api.items = [manifest(f"p{number}") for number in range(4 * BATCH)]
    cluster = await cluster_of(watch=WatchOptions(listing=Listing.PAGED, page=4 * BATCH))
    turns: list[int] = []
    turn = 0

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    async with aclosing(cluster.watch(port.PODS, None)) as source:  # type: ignore[type-var]
        async for batch in source:
            turns += [turn] if len(batch) == BATCH else []
    counting.cancel()

    assert len(turns) == len(set(turns)) == 4


@pytest.mark.parametrize(
    ("since", "sent"),
    [
        pytest.param("1", [bookmark("5")], id="after a bookmark"),
        pytest.param("1", [bookmark("5"), line("ADDED", manifest("a"))], id="later"),
        pytest.param(None, [], id="before a list"),
        pytest.param(None, [line("ADDED", manifest("a"))], id="within a list"),
    ],
)
async def test_a_stalled_connection_is_noticed(
    api: ApiServer, cluster_of: ClusterOf, since: str | None, sent: list[bytes]
) -> None:
    api.script = [streamed(*sent, then=api.held.wait())]
    cluster = await cluster_of(watch=WatchOptions(stall_s=0.2))

    with pytest.raises(port.ApiSilent, match=r"no data for 0\.2 s"):
        await events(cluster, since)


@pytest.mark.parametrize(
    ("since", "sent"),
    [
        pytest.param("1", [], id="nothing ever"),
        pytest.param("1", [line("ADDED", manifest("a"))], id="an event"),
        pytest.param(None, [bookmark("5", ends_list=True)], id="a list"),
    ],
)
async def test_silence_before_the_first_bookmark_ends_the_watch_normally(
    api: ApiServer, cluster_of: ClusterOf, since: str | None, sent: list[bytes]
) -> None:
    api.script = [streamed(*sent, then=api.held.wait())]
    cluster = await cluster_of(watch=WatchOptions(stall_s=0.5))

    await events(cluster, since)

    assert len(api.seen) == 1


async def test_a_server_that_never_answers_a_watch_is_noticed(api: ApiServer, cluster_of: ClusterOf) -> None:
    api.script = [api.silent]
    cluster = await cluster_of(watch=WatchOptions(stall_s=0.2))

    with pytest.raises(port.ApiSilent):
        await events(cluster, since="1")


@pytest.mark.parametrize("silent_at", ["the list", "the watch"])
async def test_the_last_change_is_not_waited_for_at_a_server_that_says_nothing(
    api: ApiServer, cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch, silent_at: str
) -> None:
    monkeypatch.setattr(watching, "_GLANCE_WITHIN_S", 0.3)

    listed = ok({"metadata": {"resourceVersion": "9"}, "kind": "PodList"})
    api.script = [api.silent] if silent_at == "the list" else [listed, api.silent]

    async with asyncio.timeout(3):
        with pytest.raises(port.ApiSilent, match=r"^no answer within 0\.3 s to a check for changes$"):
            await cluster.last_change(port.PODS, "1")


async def test_a_lost_connection_is_not_a_normal_end(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [cut(line("ADDED", manifest("a")), b'{"type": "ADD')]
    got: list[Any] = []

    with pytest.raises(port.ApiSilent):
        await until_error(cluster, got)

    assert set(names(got)) <= {"a"}


async def test_a_line_that_the_end_cut_off_is_not_delivered(api: ApiServer, cluster: KubeCluster) -> None:
    api.live = [line("ADDED", manifest("a")), line("ADDED", manifest("b"))[:-20]]

    assert names(await events(cluster, since="1")) == ["a"]


async def test_a_page_that_is_not_a_list_is_a_server_failure(api: ApiServer, cluster_of: ClusterOf) -> None:
    api.script = [ok({"kind": "PodList", "hello": "world"})]

    with pytest.raises(port.ApiFailed, match="cannot be decoded"):
        await events(await cluster_of(watch=PAGED))


def split(chunks: list[bytes]) -> list[bytes]:
    splitter = LineSplitter()
    return [line for chunk in chunks for line in splitter.feed(chunk)]


@given(
    lines=st.lists(st.binary(min_size=1).filter(lambda line: b"\n" not in line)),
    cuts=st.lists(st.integers(min_value=0, max_value=400)),
)
def test_lines_are_the_same_wherever_the_chunks_end(lines: list[bytes], cuts: list[int]) -> None:
    text = b"".join(line + b"\n" for line in lines)
    ends = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    chunks = [text[start:end] for start, end in pairwise(ends)]

    assert split(chunks) == lines


def test_a_long_line_passes_in_many_small_pieces() -> None:
    line = b"x" * 1_600_000

    assert split([line[start : start + 100] for start in range(0, len(line), 100)] + [b"\n"]) == [line]
