"""The page's server over real HTTP on loopback: what it shows, to whom, and what it refuses."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Generator
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from config.protocol import names
from scheduler.core.engine import Engine
from scheduler.kube import objects
from scheduler.kube.rest.reviews import User
from scheduler.state.ledger import of_tables
from scheduler.tools.explain.answers import as_json
from scheduler.tools.explain.pod_summary import explain
from scheduler.tools.explain.reading import ClusterSnapshot, answer_of
from scheduler.tools.page import server as page_server
from scheduler.tools.page.access import Access, Everybody, Guard
from scheduler.tools.page.files import files
from scheduler.tools.page.history import point
from scheduler.tools.page.page_parts import SchedulerParts, leader_name, page_parts, replica_name
from scheduler.tools.page.server import MOST_STREAMS, PageServer, serve_page
from tests.support.builders import READER, UNIT_MIB, bound, engine, pod, wire_node
from tests.support.servers.byte_server import until

HOSTILE = "<script>alert(1)</script>"


class Reviewer:
    """`t-ann` may look, and list the pods of team-a. known: the token that is accepted."""

    def __init__(self) -> None:
        self.known = "t-ann"

    async def user_of(self, token: str) -> User | None:
        return User("ann") if token == self.known else None

    async def may_get_url(self, user: User, path: str) -> bool:
        return (user.username, path) == ("ann", "/gpushare")

    async def may_list_pods(self, user: User, namespace: str) -> bool:
        return (user.username, namespace) == ("ann", "team-a")


def filled() -> Engine:
    """Two nodes; on a's card 0 a pod of team-a and one of team-b; two pods wait that fit nowhere."""
    made = engine(a=[16, 16], b=[8])
    for namespace, units in (("team-a", 4), ("team-b", 6)):
        on_card = {names.MEM_IDX: "0", names.UNIT_MIB: str(UNIT_MIB)}
        made.pod_assigned(bound(pod("web", units, namespace=namespace, annotations=on_card), "a"))
        made.pod_waiting(pod("big", 20, namespace=namespace), 0.0)
    while made.decide(0.0, 0) is not None:
        pass
    return made


async def serving(made: Engine, guard: Guard, *, leads: bool = True) -> PageServer:
    of = SchedulerParts(engine=made, reader=READER, unit_mib=UNIT_MIB, leads=lambda: leads, problem=lambda: "")
    return await serve_page(page_parts(of, guard), ("127.0.0.1", 0))


class Browser:
    """A session with the address of the page, and a token or none."""

    def __init__(self, session: aiohttp.ClientSession, port: int, token: str | None = None) -> None:
        self.session, self.url = session, f"http://127.0.0.1:{port}"
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def get(self, path: str, **headers: str) -> tuple[int, Any]:
        async with self.session.get(self.url + path, headers=self.headers | headers) as answer:
            return answer.status, json.loads(await answer.read())

    async def lines(self, path: str = "/api/stream", until: str = "waiting") -> list[dict[str, Any]]:
        """What the stream sends, up to the first line of a sort."""
        found = []
        async with self.session.get(self.url + path, headers=self.headers) as answer:
            assert answer.status == 200
            async for line in answer.content:
                found.append(json.loads(line))
                if found[-1]["t"] == until:
                    return found
        message = f"the stream has ended before {until}"
        raise AssertionError(message)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(read_bufsize=2**20) as made:
        yield made


@pytest.fixture
async def open_page(session: aiohttp.ClientSession) -> AsyncIterator[Browser]:
    page = await serving(filled(), Everybody())
    yield Browser(session, page.port)
    await page.close()


@pytest.fixture
async def guarded(session: aiohttp.ClientSession) -> AsyncIterator[Browser]:
    page = await serving(filled(), Access(Reviewer(), asyncio.get_running_loop().time))
    yield Browser(session, page.port, "t-ann")
    await page.close()


def sorts(lines: list[dict[str, Any]]) -> list[str]:
    return [line["t"] for line in lines]


async def test_a_page_gets_the_whole_cluster_then_what_waits(open_page: Browser) -> None:
    lines = await open_page.lines()
    assert sorts(lines) == ["begin", "rows", "ready", "now", "waiting"]
    rows = lines[1]
    assert (rows["name"], rows["cards"], rows["units"]) == (["a", "b"], [2, 1], [16, 16, 8])
    assert (rows["taken"], rows["pods"], rows["out"]) == ([10, 0, 0], [2, 0, 0], [0, 0, 0])
    assert rows["on"] == {"0": [["team-b", "web", [0, 6], 0], ["team-a", "web", [0, 4], 0]], "1": []}
    assert [one["namespace"] for one in lines[-1]["pods"]] == ["team-a", "team-b"]
    assert lines[-1]["pods"][0] | {"waitedS": 0} == {
        "namespace": "team-a", "name": "big", "state": "fits nowhere", "priority": 0, "units": 20, "cards": 1,
        "exclusive": False, "wrong": False, "attempts": 1, "waitedS": 0, "gate": "",
    }  # fmt: skip


@pytest.mark.parametrize("leads", [True, False])
async def test_a_standby_shows_what_the_leader_has_decided_about_a_pod(
    session: aiohttp.ClientSession, *, leads: bool
) -> None:
    made = engine(a=[16])
    no_fit = objects.PodCondition("PodScheduled", "False", "Unschedulable")
    for name, condition in (
        ("big", no_fit),
        ("failed", objects.PodCondition("PodScheduled", "False", "SchedulerError")),
        ("new", None),
    ):
        made.pod_waiting(replace(pod(name, 20), condition=condition), 0.0)
    made.pod_waiting(pod("gated", 20, schedulingGates=[{"name": "g"}]), 0.0)
    page = await serving(made, Everybody(), leads=leads)
    waiting = (await Browser(session, page.port).lines())[-1]
    states = {one["name"]: one["state"] for one in waiting["pods"]}
    if leads:  # which decides about them by itself
        assert states == {"big": "ready", "failed": "ready", "new": "ready", "gated": "gated"}
        assert waiting["counts"] == {"active": 3, "backoff": 0, "unschedulable": 0, "gated": 1}
    else:
        assert states == {"big": "fits nowhere", "failed": "waiting", "new": "waiting", "gated": "gated"}
        assert waiting["counts"] == {"unschedulable": 1, "waiting": 2, "gated": 1}
    await page.close()


@pytest.mark.parametrize(
    ("holder", "shown"),
    [
        pytest.param("vm_2", "another process on vm", id="on the same host"),
        pytest.param("vm_1", "vm", id="this replica, which begins to lead"),
        pytest.param("gpushare-scheduler-x_2", "gpushare-scheduler-x", id="another pod"),
        pytest.param("", "", id="nobody"),
        pytest.param("by-hand", "by-hand", id="any text"),
    ],
)
def test_two_replicas_on_one_host_are_told_apart(holder: str, shown: str) -> None:
    assert leader_name("vm_1", holder) == shown
    assert replica_name("vm_1") == "vm"


async def test_what_changes_follows_and_a_page_that_comes_again_gets_only_that(session: aiohttp.ClientSession) -> None:
    made = filled()
    page = await serving(made, Everybody())
    browser = Browser(session, page.port)
    first = await browser.lines(until="ready")
    made.pod_gone("uid-team-b-web")
    again = f"/api/stream?instance={first[0]['instance']}&version={first[-1]['version']}&models=2"
    second = await browser.lines(again, until="ready")
    assert (second[0]["whole"], second[1]["row"], second[1]["taken"]) == (False, [0], [4, 0])
    assert "models" not in second[1]
    other = await browser.lines(f"/api/stream?instance=other&version={first[-1]['version']}", until="ready")
    assert other[0]["whole"]
    async with session.get(browser.url + "/api/stream") as following:
        seen: list[dict[str, Any]] = []
        async for line in following.content:
            seen.append(json.loads(line))
            if seen[-1]["t"] == "ready":
                made.node_changed(wire_node("c", [80]))
            if seen[-1]["t"] == "rows" and seen[-1]["name"] == ["c"]:
                break
    assert seen[-1]["units"] == [80]
    made.node_gone("c")
    gone = await browser.lines(f"/api/stream?instance={seen[0]['instance']}&version={seen[-1]['version']}", "ready")
    assert gone[1]["name"] == [""]
    await page.close()


async def test_who_may_not_look_gets_nothing_but_words(guarded: Browser) -> None:
    for path in ("/api/stream", "/api/pods?rows=0", "/api/node?name=a", "/api/history", "/api/find?text=web",
                 "/api/explain?namespace=team-a&name=big", "/api/what-if?units=1"):  # fmt: skip
        assert await guarded.get(path, Authorization="Bearer other") == (
            401, {"error": "The cluster does not accept this token; it may have expired."},
        )  # fmt: skip


async def test_pods_of_other_namespaces_have_no_name_anywhere(guarded: Browser) -> None:
    await guarded.lines()  # what is not known yet is asked for
    await asyncio.sleep(0.1)
    lines = await guarded.lines()
    rows = next(line for line in lines if line["t"] == "rows")
    assert rows["on"]["0"] == [["", None, [0, 6], 0], ["team-a", "web", [0, 4], 0]]
    assert [one["namespace"] for one in lines[-1]["pods"]] == ["team-a"]
    assert sum(lines[-1]["counts"].values()) == 2
    _, node = await guarded.get("/api/node?name=a")
    _, pods = await guarded.get("/api/pods?rows=0,1,99,-1,x")
    _, found = await guarded.get("/api/find?text=web")
    status, why = await guarded.get("/api/explain?namespace=team-a&name=big")
    assert (status, await guarded.get("/api/explain?namespace=team-b&name=big")) == (
        200, (404, {"error": "No pod team-b/big waits here any more."}),
    )  # fmt: skip
    assert set(pods) == {"0", "1"}
    assert found == [{"namespace": "team-a", "name": "web", "node": "a"}]
    for answer in (lines, node, pods, found, why):
        assert "team-b" not in json.dumps(answer)
    assert {one["pod"] for near in why["answer"]["nearest"] for card in near["cards"] for one in card["pods"]} == {
        "team-a/web", "a pod of another namespace",
    }  # fmt: skip


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
        "a", "no pod that leaves would make room",
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
    assert why["answer"]["nearest"][0]["remedy"] == "fits once team-a/web, team-b/web are gone"
    assert why["preempting"] == (
        "Preemption would remove team-a/web, team-b/web from node a and give it card 0 (16) and 1 (16)."
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
    assert fits["headline"] == (
        "7 of 9 copies of default/what-if would fit now; 2 pods that wait already are left aside."
    )
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
    assert (status, answer["error"].startswith("This cannot be asked")) == (400, True)


async def test_history_has_the_figures_of_now(open_page: Browser) -> None:
    _, points = await open_page.get("/api/history")
    assert points[-1] | {"atS": 0} == {
        "atS": 0, "units": 40, "booked": 10, "fragmented": 0.0, "empty": 2, "cards": 3,
        "waiting": 2,
    }  # fmt: skip


async def test_history_knows_what_no_usual_pod_can_use() -> None:
    made = filled()
    made.tables.target.note(pod("usual", 16), 0.0)
    found = await point(made.tables, 0, 0.0)
    assert found.fragmented == round((6 + 8) / 30, 4)


async def test_every_answer_forbids_what_the_page_does_not_need(open_page: Browser) -> None:
    for path in (*files(), "/api/history", "/nothing"):
        async with open_page.session.get(open_page.url + path) as answer:
            policy = answer.headers["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self'; ")
            assert "unsafe" not in policy
            assert (answer.headers["Cache-Control"], answer.headers["X-Content-Type-Options"]) == (
                "no-store",
                "nosniff",
            )


async def test_nothing_can_be_changed_and_no_file_of_the_machine_is_served(open_page: Browser) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        async with open_page.session.request(method, open_page.url + "/api/history") as answer:
            assert answer.status == 405
    async with open_page.session.head(open_page.url + "/api/stream") as answer:
        assert answer.status == 405
    for path in ("/../access.py", "/__init__.py", "/static/app.js", "//etc/passwd", "/api/"):
        assert (await open_page.get(path))[0] == 404


async def test_a_page_of_another_site_cannot_pose_as_this_one(open_page: Browser) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example"):
        assert (await open_page.get("/api/history", Host=host))[0] == 421
    for host in ("localhost:8080", "127.0.0.1", "[::1]:9"):
        assert (await open_page.get("/api/history", Host=host))[0] == 200


async def test_few_pages_follow_at_once_and_one_that_leaves_makes_room(open_page: Browser) -> None:
    streams = [await open_page.session.get(open_page.url + "/api/stream") for _ in range(MOST_STREAMS)]
    status, answer = await open_page.get("/api/stream")
    assert (status, answer["error"]) == (503, f"{MOST_STREAMS} pages are open already; close one.")
    streams.pop().close()
    async with asyncio.timeout(5):
        while (await open_page.session.get(open_page.url + "/api/stream")).status != 200:  # noqa: ASYNC110 - from outside
            await asyncio.sleep(0.02)


async def test_a_page_that_reads_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "_WRITTEN_WITHIN_S", 0.2)
    made = engine(**{f"{'x' * 240}-{number}": [16] for number in range(500)})
    page = await serving(made, Everybody())
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.connect(("127.0.0.1", page.port))
        silent.sendall(b"GET /api/stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
        async with asyncio.timeout(60):
            await until(lambda: bool(page.followers))
            while page.followers:
                for name in made.tables.row_of:
                    made.cards_marked_unhealthy(name, frozenset())
                await asyncio.sleep(0.01)
    await page.close()


async def test_a_right_that_is_withdrawn_ends_the_stream(session: aiohttp.ClientSession) -> None:
    now = [0.0]
    reviewer = Reviewer()
    access = Access(reviewer, lambda: now[0])
    of = SchedulerParts(engine=filled(), reader=READER, unit_mib=UNIT_MIB, leads=lambda: True, problem=lambda: "")
    parts = page_parts(of, access)
    object.__setattr__(parts.shown, "now_s", lambda: now[0])
    page = await serve_page(parts, ("127.0.0.1", 0))
    headers = {"Authorization": "Bearer t-ann"}
    async with session.get(f"http://127.0.0.1:{page.port}/api/stream", headers=headers) as following:
        await following.content.readline()

        reviewer.known = ""
        viewer = await access.viewer("Bearer t-ann")
        viewer.until_s = 0.0
        with pytest.raises(aiohttp.ClientError):
            async with asyncio.timeout(5):
                await following.content.read()
    await page.close()


async def test_a_name_with_markup_is_sent_as_text(session: aiohttp.ClientSession) -> None:
    made = engine(a=[16])
    made.pod_waiting(pod(HOSTILE, 20), 0.0)
    page = await serving(made, Everybody())
    lines = await Browser(session, page.port).lines()
    assert lines[-1]["pods"][0]["name"] == HOSTILE
    await page.close()
