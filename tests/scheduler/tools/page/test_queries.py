"""Answers of the page to `explain` and `what-if`: those of the commands, and nothing is left behind."""

import json

import pytest

from config.protocol import names
from scheduler.state.ledger import of_tables
from scheduler.tools.explain.answers import as_json
from tests.scheduler.tools.page.browser import Browser, browsing
from tests.support.builders import wire_node
from tests.support.explaining import there, waits, world


async def test_explain_says_what_the_command_says_and_changes_nothing(page: Browser) -> None:
    tables = page.view.reading.engine.tables
    before = of_tables(tables)
    _, why = await page.get("api/explain?namespace=default&name=big")
    assert why["answer"] == json.loads(as_json(await page.view.explained("default", "big")))
    assert why["headline"] == "Pod default/big fits on none of 2 nodes."
    assert why["answer"]["message"].startswith(
        "0/2 nodes are available: 2 Insufficient GPU memory on one card: wants 20, most free 16 (of 16)."
    )
    assert (why["answer"]["nearest"][0]["name"], why["answer"]["nearest"][0]["remedy"]) == (
        "a", "no pod could make room by ending",
    )  # fmt: skip
    await page.get("api/what-if?units=4&replicas=9")
    assert of_tables(tables) == before
    assert await page.get("api/explain?namespace=default&name=gone") == (
        404, {"error": "No answer: there is no pod gone in namespace default."},
    )  # fmt: skip


async def test_what_would_help_and_who_would_be_removed_is_said() -> None:
    of = world(a=[16, 16])
    for name in ("web-1", "web-2"):
        there(of, name, 5, "a", 0)
    waits(of, "urgent", 32, priority=7, annotations={names.GPU_COUNT: "2"})
    async with browsing(of) as browser:
        _, why = await browser.get("api/explain?namespace=default&name=urgent")
    assert why["answer"]["nearest"][0]["remedy"] == "fits once default/web-1, default/web-2 have ended"
    assert why["preempting"] == (
        "Preemption would evict default/web-1, default/web-2 from node a and give it card 0 (16) and 1 (16)."
    )


async def test_what_if_places_copies_as_the_command_does(page: Browser) -> None:
    _, fits = await page.get("api/what-if?units=4&replicas=9")
    # a: card 0 has 6 left, card 1 has 16; b has 8.
    assert fits["headline"] == "7 of 9 copies of default/what-if would fit now; 2 pending pods are not counted."
    assert sorted(fits["places"]) == [["a", "0 (4)", "1"], ["a", "1 (4)", "4"], ["b", "0 (4)", "2"]]
    assert fits["next"]["message"].startswith("0/2 nodes are available: 2 Insufficient GPU memory on one card")
    _, alone = await page.get("api/what-if?units=4&exclusive=true&replicas=3")
    assert alone["headline"][:6] == "2 of 3"
    _, elsewhere = await page.get("api/what-if?units=1&selector=zone=x")
    assert elsewhere["next"]["reasons"][0]["rule"] == "NodeAffinity"


async def test_what_if_judges_whole_pods() -> None:
    of = world(wire_node("a", [80], cpu="4"))
    async with browsing(of) as browser:
        _, fits = await browser.get("api/what-if?units=1&cpu=1500m&replicas=100")
    assert fits["headline"][:8] == "2 of 100"
    assert fits["next"]["message"].startswith("0/1 nodes are available: 1 Insufficient cpu.")


@pytest.mark.parametrize(
    "query",
    [
        "units=x",
        "units=-1",
        "units=1&cards=0",
        "units=1&cpu=lots",
        "units=1&selector=zone",
        "units=99999999999",
        "units=1&replicas=101",
    ],
)
async def test_what_cannot_be_asked_is_refused_in_words(page: Browser, query: str) -> None:
    status, answer = await page.get(f"api/what-if?{query}")
    assert (status, answer["error"].startswith("The query is invalid")) == (400, True)
