"""The legacy extender's inspect API over real HTTP, and how long it blocks the event loop."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp
import pytest

from config.protocol import names
from scheduler.app import inspect_pages
from scheduler.legacy.inspect_api import PATH, InspectApi
from scheduler.process.probes import serve
from scheduler.state.tables import Tables
from tests.support.builders import bound, cluster, pod, wire_node
from tests.support.placing import on_card
from tests.support.repository import ROOT

# Longest block of the event loop, for answers of any size.
MOST_HELD_S = 0.02


@asynccontextmanager
async def served(
    tables: Tables, who: str = "all", missing: Callable[[], str] = str
) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    pages = inspect_pages(who, InspectApi(tables, missing))
    runner = await serve(("127.0.0.1", 0), lambda: iter(()), ready=str, alive=str, pages=pages)
    try:
        async with aiohttp.ClientSession() as session:
            yield session, f"http://127.0.0.1:{runner.addresses[0][1]}{PATH}"
    finally:
        await runner.cleanup()


async def answer(tables: Tables, below: str = "", missing: str = "") -> tuple[int, object]:
    async with served(tables, missing=lambda: missing) as (session, url), session.get(f"{url}{below}") as response:
        assert response.content_type == "application/json"
        return response.status, json.loads(await response.read())


def held() -> Tables:
    tables = cluster(a=[15, 15], b=[16])
    tables.upsert_node(wire_node("plain"))
    tables.add(bound(pod("p", 3, namespace="ns"), "a", on_card(0, 3)))
    tables.add(bound(pod("q", 4), "a", on_card(1, 4)))
    return tables


A = {
    "name": "a",
    "totalGPU": 30,
    "usedGPU": 7,
    "devs": [
        {"id": 0, "totalGPU": 15, "usedGPU": 3, "pods": [{"name": "p", "namespace": "ns", "usedGPU": 3}]},
        {"id": 1, "totalGPU": 15, "usedGPU": 4, "pods": [{"name": "q", "namespace": "default", "usedGPU": 4}]},
    ],
}
B = {"name": "b", "totalGPU": 16, "usedGPU": 0, "devs": [{"id": 0, "totalGPU": 16, "usedGPU": 0, "pods": []}]}


@pytest.mark.parametrize("below", ["", "/"])
async def test_all_nodes_with_cards_are_shown_as_the_extender_shows_them(below: str) -> None:
    assert await answer(held(), below) == (200, {"nodes": [A, B]})


async def test_one_node_is_shown_alone() -> None:
    assert await answer(held(), "/a") == (200, {"nodes": [A]})
    assert await answer(held(), "/plain") == (200, {"nodes": []})


async def test_a_node_that_is_not_there_is_an_error_in_the_answer() -> None:
    assert await answer(held(), "/gone%20away") == (404, {"error": "there is no node gone away", "nodes": []})
    assert (await answer(cluster()))[1] == {"nodes": []}


async def test_before_the_cluster_is_known_the_answer_says_so() -> None:
    assert await answer(held(), missing="waiting for pods") == (503, {"error": "waiting for pods", "nodes": []})


async def test_a_head_has_no_body_and_nothing_lies_below_a_node() -> None:
    async with served(held()) as (session, url):
        async with session.head(url) as head:
            assert (head.status, await head.read()) == (200, b"")
        async with session.get(f"{url}/a/b") as deeper:
            assert deeper.status == 404


@pytest.mark.parametrize(("who", "status"), [("all", 200), ("local", 200), ("none", 404)])
async def test_who_may_read_is_configured(who: str, status: int) -> None:
    async with served(held(), who) as (session, url), session.get(url) as response:
        assert response.status == status


async def test_a_pod_whose_card_is_not_known_counts_on_each_as_it_is_booked() -> None:
    tables = cluster(a=[15, 15])
    tables.add(bound(pod("lost", 2), "a"))
    _, document = await answer(tables)
    (node,) = document["nodes"]  # type: ignore[index]
    assert [dev["usedGPU"] for dev in node["devs"]] == [2, 2]


def large(nodes: int, cards: int, pods: int) -> Tables:
    """pods: on each card."""
    tables = cluster()
    for node in range(nodes):
        tables.upsert_node(wire_node(f"n{node}", [80] * cards))
        for card in range(cards):
            for number in range(pods):
                name = f"p-{node}-{card}-{number}"
                written = {names.MEM_IDX: str(card), names.UNIT_MIB: "1024"}
                tables.add(bound(pod(name, 1), f"n{node}", written))
    return tables


async def longest_hold_s(asking: asyncio.Task[object]) -> float:
    """CPU time of this thread between two turns of another task, during a request."""
    longest_s = 0.0
    while not asking.done():
        began_s = time.thread_time()
        await asyncio.sleep(0)
        longest_s = max(longest_s, time.thread_time() - began_s)
    return longest_s


@pytest.mark.parametrize("shape", [(400, 8, 1), (1, 8, 500)], ids=["many nodes", "many pods on one"])
async def test_a_large_answer_comes_in_slices(shape: tuple[int, int, int]) -> None:
    api = InspectApi(large(*shape), str)
    asking: asyncio.Task[object] = asyncio.create_task(api.answer(""))
    assert await longest_hold_s(asking) < MOST_HELD_S
    document = json.loads(b"".join((await api.answer("")).pieces))
    assert sum(len(dev["pods"]) for node in document["nodes"] for dev in node["devs"]) == shape[0] * shape[1] * shape[2]


async def test_who_asks_at_the_same_time_gets_the_same_answer() -> None:
    api = InspectApi(held(), str)
    first, second = await asyncio.gather(api.answer(""), api.answer(""))
    assert first.pieces is second.pieces


async def test_the_document_shows_what_is_answered() -> None:
    tables = cluster(**{"gpu-node-b": [15]})
    tables.add(bound(pod("p", 3, namespace="ns"), "gpu-node-b", on_card(0, 3)))
    _, _, rest = (ROOT / "docs/inspect.md").read_text(encoding="utf-8").partition('```json\n{"nodes":[{')
    answered = b"".join((await InspectApi(tables, str).answer("")).pieces).decode()
    assert '{"nodes":[{' + rest.partition("\n```")[0] == answered
