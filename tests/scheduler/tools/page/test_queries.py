"""Answers of the page to `explain` and `what-if`, and the queue of questions: who asks much leaves room for others."""

import asyncio
import json
from collections.abc import Generator
from http import HTTPStatus

import aiohttp
import pytest

from config.protocol import names
from scheduler.state.ledger import of_tables
from scheduler.tools.explain.answers import as_json
from scheduler.tools.explain.pod_summary import explain
from scheduler.tools.explain.reading import ClusterSnapshot, answer_of
from scheduler.tools.page import server as page_server
from scheduler.tools.page.access import AccessDenied, Everybody
from scheduler.tools.page.query_queue import QueryQueue
from tests.scheduler.tools.page.browser import Browser, filled, serving
from tests.support.builders import UNIT_MIB, engine, pod, wire_node


async def test_explain_says_what_the_command_says_and_changes_nothing(session: aiohttp.ClientSession) -> None:
    made = filled()
    page = await serving(made, Everybody())
    before = of_tables(made.tables)
    _, why = await Browser(session, page.port).get("/api/explain?namespace=team-a&name=big")
    waits = next(entry.pod for entry in made.queue if entry.pod.key.namespace == "team-a")
    said = answer_of(explain(ClusterSnapshot(made, UNIT_MIB), waits))
    assert why["answer"] == json.loads(as_json(said))
    assert why["headline"] == "Pod team-a/big fits on none of 2 nodes."
    assert why["answer"]["message"].startswith(
        "0/2 nodes are available: 2 Insufficient GPU memory on one card: wants 20, most free 16 (of 16)."
    )
    assert (why["answer"]["nearest"][0]["name"], why["answer"]["nearest"][0]["remedy"]) == (
        "a", "no pod could make room by ending",
    )  # fmt: skip
    assert of_tables(made.tables) == before
    assert not made.tables.cluster_events
    await page.close()


async def test_what_would_help_and_who_would_be_removed_is_said(session: aiohttp.ClientSession) -> None:
    made = filled()
    made.budgets_listed()
    made.pod_waiting(pod("urgent", 32, namespace="team-a", priority=7, annotations={names.GPU_COUNT: "2"}), 0.0)
    page = await serving(made, Everybody())
    _, why = await Browser(session, page.port).get("/api/explain?namespace=team-a&name=urgent")
    assert why["answer"]["nearest"][0]["remedy"] == "fits once team-a/web, team-b/web have ended"
    assert why["preempting"] == (
        "Preemption would evict team-a/web, team-b/web from node a and give it card 0 (16) and 1 (16)."
    )
    await page.close()


async def test_one_long_question_is_asked_at_a_time_and_few_may_wait(
    session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, may_end = 0, asyncio.Event()

    def endless(*_: object) -> Generator[None, None, dict[str, str]]:
        nonlocal asked
        asked += 1
        while not may_end.is_set():
            yield
        asked -= 1
        return {}

    monkeypatch.setattr(page_server, "why", endless)
    monkeypatch.setattr(page_server, "_QUESTIONS_EVERY_S", 0.0)
    page = await serving(filled(), Everybody())
    browser = Browser(session, page.port)
    waiting = [asyncio.create_task(browser.get("/api/explain?namespace=team-a&name=big")) for _ in range(5)]
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED, timeout=20)
    assert [one.result()[0] for one in done] == [429]
    assert asked == 1
    assert (await browser.get("/api/history"))[0] == 200
    may_end.set()
    assert sorted(one.result()[0] for one in (await asyncio.wait(waiting, timeout=20))[0]) == [*[200] * 4, 429]
    await page.close()


async def test_what_if_places_copies_as_the_command_does(open_page: Browser) -> None:
    _, fits = await open_page.get("/api/what-if?units=4&replicas=9")
    # a: card 0 has 6 left, card 1 has 16; b has 8.
    assert (fits["nodes"], fits["copies"]) == (2, 1 + 4 + 2)
    assert fits["rooms"][0] == {"node": "a", "copies": 5}
    assert fits["headline"] == ("7 of 9 copies of default/what-if would fit now; 2 pending pods are not counted.")
    assert sorted(fits["places"]) == [["a", "0 (4)", "1"], ["a", "1 (4)", "4"], ["b", "0 (4)", "2"]]
    assert fits["next"]["message"].startswith("0/2 nodes are available: 2 Insufficient GPU memory on one card")
    _, alone = await open_page.get("/api/what-if?units=4&exclusive=true&replicas=3")
    assert (alone["nodes"], alone["copies"], alone["headline"][:6]) == (2, 2, "2 of 3")
    _, none = await open_page.get("/api/what-if?units=17")
    assert (none["nodes"], none["copies"], none["next"]["message"].startswith("0/2 nodes")) == (0, 0, True)
    _, elsewhere = await open_page.get("/api/what-if?units=1&selector=zone=x")
    assert (elsewhere["nodes"], elsewhere["next"]["reasons"][0]["rule"]) == (0, "NodeAffinity")


async def test_what_if_judges_whole_pods(session: aiohttp.ClientSession) -> None:
    made = engine()
    made.node_changed(wire_node("a", [80], cpu="4"))
    page = await serving(made, Everybody())
    _, fits = await Browser(session, page.port).get("/api/what-if?units=1&cpu=1500m&replicas=16")
    assert (fits["copies"], fits["headline"][:7]) == (80, "2 of 16")
    assert fits["next"]["message"] == "0/1 nodes are available: 1 Insufficient cpu."
    await page.close()


@pytest.mark.parametrize(
    "query",
    [
        "units=x",
        "units=-1",
        "units=1&cards=0",
        "units=1&cpu=lots",
        "units=1&selector=zone",
        "units=99999999999",
        "units=1&replicas=17",
    ],
)
async def test_what_cannot_be_asked_is_refused_in_words(open_page: Browser, query: str) -> None:
    status, answer = await open_page.get(f"/api/what-if?{query}")
    assert (status, answer["error"].startswith("The query is invalid")) == (400, True)


def question(until: asyncio.Event) -> Generator[None, None, str]:
    while not until.is_set():
        yield
    return "answered"


async def test_who_asks_much_leaves_room_for_others() -> None:
    steps, may_end = QueryQueue(), asyncio.Event()
    asked = [asyncio.create_task(steps.answer(question(may_end), "greedy")) for _ in range(4)]
    await asyncio.sleep(0)
    with pytest.raises(AccessDenied) as refused:
        await steps.answer(question(may_end), "greedy")
    asked.append(asyncio.create_task(steps.answer(question(may_end), "modest")))
    may_end.set()

    assert refused.value.status == HTTPStatus.TOO_MANY_REQUESTS
    assert await asyncio.gather(*asked) == ["answered"] * 5
    assert await steps.answer(question(may_end), "greedy") == "answered"


async def test_who_leaves_may_ask_again() -> None:
    steps, never = QueryQueue(), asyncio.Event()
    asked = [asyncio.create_task(steps.answer(question(never), "one")) for _ in range(4)]
    await asyncio.sleep(0)
    for one in asked:
        one.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    never.set()

    assert await steps.answer(question(never), "one") == "answered"
