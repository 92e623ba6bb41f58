"""The page's server over real HTTP on loopback: what it shows, and what it rejects."""

import asyncio
import json
import socket
from typing import Any

import pytest

from scheduler.kube.port import NODES
from scheduler.process.startup import StartupError
from scheduler.testing.cluster.faults import Break
from scheduler.tools.page import server as page_server
from scheduler.tools.page.history import point
from scheduler.tools.page.server import files, page_served
from tests.scheduler.tools.page.browser import Browser, browsing, filled
from tests.support.builders import engine, manifest, pod, wire_node
from tests.support.explaining import Limited, waits, world

HOSTILE = "<script>alert(1)</script>"


async def test_a_page_gets_the_whole_cluster_then_what_waits(page: Browser) -> None:
    lines = await page.lines()
    assert [line["t"] for line in lines] == ["begin", "rows", "ready", "now", "waiting"]
    rows = lines[1]
    assert (rows["name"], rows["cards"], rows["units"]) == (["a", "b"], [2, 1], [16, 16, 8])
    assert (rows["taken"], rows["pods"], rows["out"]) == ([10, 0, 0], [2, 0, 0], [0, 0, 0])
    assert rows["on"] == {"0": [["default", "web-2", [0, 6], 0], ["default", "web-1", [0, 4], 0]], "1": []}
    assert lines[3]["problem"] == ""
    assert lines[-1]["pods"][0] | {"waitedS": 0} == {
        "namespace": "default", "name": "big", "state": "fits nowhere", "priority": 0, "units": 20, "cards": 1,
        "exclusive": False, "isolated": False, "wrong": False, "waitedS": 0, "gate": "",
    }  # fmt: skip


async def test_what_a_pod_waits_for_is_what_its_condition_says(page: Browser) -> None:
    waits(page.view.cluster.world, "gated", 20, schedulingGates=[{"name": "g"}])  # type: ignore[attr-defined]
    async with asyncio.timeout(5):
        while len((waiting := (await page.lines())[-1])["pods"]) < 3:
            pass
    assert {one["name"]: one["state"] for one in waiting["pods"]} == {
        "big": "fits nowhere", "new": "waiting", "gated": "gated",
    }  # fmt: skip
    assert waiting["counts"] == {"unschedulable": 1, "waiting": 1, "gated": 1}


async def test_what_changes_follows_and_a_page_that_comes_again_gets_only_that() -> None:
    of = filled()
    async with browsing(of) as browser:
        async with browser.session.get(browser.url + "api/stream") as following:
            seen: list[dict[str, Any]] = []
            async for line in following.content:
                seen.append(json.loads(line))
                if seen[-1]["t"] == "ready":
                    of.nodes.add(wire_node("c", [80]))
                if seen[-1]["t"] == "rows" and seen[-1]["name"] == ["c"]:
                    break
        assert seen[-1]["units"] == [80]
        of.nodes.delete("c")
        async with asyncio.timeout(5):
            while "c" in browser.view.reading.engine.tables.row_of:  # noqa: ASYNC110 - the engine tells nobody
                await asyncio.sleep(0.01)
        again = f"api/stream?instance={seen[0]['instance']}&version={seen[-1]['version']}&models=2"
        gone = await browser.lines(again, "ready")
        assert (gone[0]["whole"], gone[1]["name"]) == (False, [""])
        assert "models" not in gone[1]
        assert (await browser.lines(f"api/stream?instance=other&version={seen[-1]['version']}", "ready"))[0]["whole"]


async def test_a_kind_that_may_not_be_read_is_left_out() -> None:
    async with browsing(filled(), "persistentvolumes") as browser:
        assert (await browser.lines())[3]["problem"] == ""
        assert browser.view.unread[0].startswith("left out, because reading them is not allowed: persistentvolumes;")


async def test_a_watch_that_does_not_come_back_is_told_and_the_last_data_stay(page: Browser) -> None:
    cluster = page.view.cluster
    assert isinstance(cluster, Limited)
    cluster.refused = ("nodes",)
    cluster.break_watches(Break.ENDED, NODES)
    async with asyncio.timeout(5):
        while not (problem := (await page.lines(until="now"))[-1]["problem"]):
            pass
    assert problem == "nodes: nodes is forbidden"
    assert (await page.lines())[1]["name"] == ["a", "b"]


async def test_nothing_is_kept_of_a_pod_that_has_gone() -> None:
    of = world(a=[16])
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
    document = manifest("other", 4, scheduler="default-scheduler")
    of.pods.create(document | {"metadata": document["metadata"] | {"ownerReferences": [owner]}})  # type: ignore[operator]
    async with browsing(of) as browser:
        reading = browser.view.reading
        assert [*reading.of_others, *reading.controllers] == ["uid-default-other"] * 2
        of.pods.remove("default", "other")
        async with asyncio.timeout(5):
            while reading.of_others or reading.controllers:
                await browser.lines()


async def test_a_node_and_the_pods_on_it(page: Browser) -> None:
    _, node = await page.get("api/node?name=a")
    assert [one["taken"] for one in node["cards"]] == [10, 0]
    assert [one["name"] for one in node["pods"]] == ["web-2", "web-1"]
    _, pods = await page.get("api/pods?rows=0,1,99,-1,x")
    assert set(pods) == {"0", "1"}
    assert (await page.get("api/pods?rows=0&instance=other"))[0] == 409
    assert (await page.get("api/node?name=none"))[0] == 404
    _, found = await page.get("api/find?text=web-2")
    assert found == [{"namespace": "default", "name": "web-2", "node": "a"}]


async def test_history_has_the_figures_of_now(page: Browser) -> None:
    _, points = await page.get("api/history")
    assert points[-1] | {"atS": 0} == {
        "atS": 0, "units": 40, "booked": 10, "fragmented": 0.0, "empty": 2, "cards": 3, "waiting": 2,
    }  # fmt: skip


def test_history_knows_what_no_usual_pod_can_use() -> None:
    made = engine(a=[16, 16], b=[8])
    made.tables.pod_seen(pod("usual", 16), 0.0)
    assert point(made, 0.0).fragmented == round(8 / 40, 4)


async def test_every_answer_forbids_what_the_page_does_not_need(page: Browser) -> None:
    for path in (*files(), "/api/history", "/nothing"):
        async with page.session.get(page.url + path.removeprefix("/")) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; ")
            assert "unsafe" not in policy
            assert (answer.headers["Cache-Control"], answer.headers["X-Content-Type-Options"]) == (
                "no-store",
                "nosniff",
            )


async def test_nothing_can_be_changed_and_no_file_of_the_machine_is_served(page: Browser) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        async with page.session.request(method, page.url + "api/history") as answer:
            assert answer.status == 405
    for path in ("../server.py", "__init__.py", "static/app.js", "/etc/passwd", "api/"):
        assert (await page.get(path))[0] == 404


async def test_a_page_of_another_site_cannot_pose_as_this_one(page: Browser) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example"):
        for path in ("api/history", "api/stream", ""):
            assert (await page.get(path, Host=host))[0] == 421
    for host in ("localhost:8080", "127.0.0.1", "[::1]:9"):
        assert (await page.get("api/history", Host=host))[0] == 200


async def test_too_many_pages_are_rejected_and_one_that_leaves_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(page_server, "_MOST_REQUESTS", 2)
    async with browsing(filled()) as browser:
        streams = [await browser.session.get(browser.url + "api/stream") for _ in range(2)]
        assert (await browser.session.head(browser.url)).status == 503
        streams.pop().close()
        async with asyncio.timeout(5):
            while (await browser.session.head(browser.url + "api/stream")).status != 405:
                pass
        streams.pop().close()


async def test_a_name_with_markup_is_sent_as_text() -> None:
    of = world(a=[16])
    waits(of, HOSTILE, 20)
    async with browsing(of) as browser:
        assert (await browser.lines())[-1]["pods"][0]["name"] == HOSTILE


async def test_a_port_that_is_taken_is_named(page: Browser) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=f"cannot serve the page on port {port}: address already in use"):
            async with page_served(page.view, str, port):
                pass
