"""The page's server over real HTTP and TLS on loopback: what it shows, to whom, and what it refuses."""

import asyncio
import contextlib
import dataclasses
import json
import os
import socket
import ssl
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from scheduler.kube import objects
from scheduler.tools.page import server as page_server
from scheduler.tools.page.access import Access, Everybody
from scheduler.tools.page.files import files
from scheduler.tools.page.history import UsageHistory, point
from scheduler.tools.page.page_parts import leader_name, replica_name
from scheduler.tools.page.server import MOST_STREAMS, serve_page
from scheduler.tools.page.tls import ServerCertificate
from tests.scheduler.tools.page.browser import Browser, filled, parts_of, reviewer_of_ann, serving
from tests.support.builders import engine, pod, wire_node
from tests.support.servers.byte_server import made_certificate, until

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
async def guarded(session: aiohttp.ClientSession) -> AsyncIterator[Browser]:
    page = await serving(filled(), Access(reviewer_of_ann(), asyncio.get_running_loop().time))
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
        "exclusive": False, "isolated": False, "wrong": False, "attempts": 1, "waitedS": 0, "gate": "",
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
        200, (404, {"error": "No pod team-b/big is waiting here any longer."}),
    )  # fmt: skip
    assert set(pods) == {"0", "1"}
    assert found == [{"namespace": "team-a", "name": "web", "node": "a"}]
    for answer in (lines, node, pods, found, why):
        assert "team-b" not in json.dumps(answer)
    assert {one["pod"] for near in why["answer"]["nearest"] for card in near["cards"] for one in card["pods"]} == {
        "team-a/web", "a pod of another namespace",
    }  # fmt: skip


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
    reviewer = reviewer_of_ann()
    access = Access(reviewer, lambda: now[0])
    parts = parts_of(filled(), access)
    object.__setattr__(parts.shown, "now_s", lambda: now[0])
    page = await serve_page(parts, ("127.0.0.1", 0))
    headers = {"Authorization": "Bearer t-ann"}
    async with session.get(f"http://127.0.0.1:{page.port}/api/stream", headers=headers) as following:
        await following.content.readline()

        reviewer.users.clear()
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


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    return [made_certificate(tmp_path_factory.mktemp(name)) for name in ("first", "second")]


def written(pair: tuple[Path, Path], folder: Path, *, moment: int) -> tuple[Path, Path]:
    """Copied, with that time of change."""
    own = folder / "tls.crt", folder / "tls.key"
    for source, target in zip(pair, own, strict=True):
        target.write_bytes(source.read_bytes())
        os.utime(target, ns=(moment, moment))
    return own


async def shown(port: int) -> bytes | None:
    """The certificate that a client is shown."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=anybody)
    found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    assert isinstance(found, bytes)
    return found


def plain(pem: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.read_text())


async def test_what_ends_the_history_by_a_bug_is_told() -> None:
    class Broken(UsageHistory):
        async def run(self) -> None:
            bug = "a bug"
            raise KeyError(bug)

    made = engine()
    parts = parts_of(made, Everybody())
    broken = Broken(made.tables, made.queue.lengths, lambda: 0.0)
    with capture_logs() as logs:
        page = await serve_page(dataclasses.replace(parts, history=broken), ("127.0.0.1", 0))
        await asyncio.sleep(0.01)
    await page.close()

    assert [(line["event"], line["task"], repr(line["exc_info"])) for line in logs] == [
        ("page.task_failed", "history", "KeyError('a bug')")
    ]


async def test_connections_that_never_begin_the_handshake_have_their_number(
    pairs: list[tuple[Path, Path]], tmp_path: Path
) -> None:
    certificate = ServerCertificate(*written(pairs[0], tmp_path, moment=1))
    page = await serving(engine(), Everybody(), tls=certificate.context)
    silent = [await asyncio.open_connection("127.0.0.1", page.port) for _ in range(60)]

    async with asyncio.timeout(3):
        for reader, _ in silent[:12]:
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert await shown(page.port) == plain(pairs[0][0])

    for _, writer in silent:
        writer.transport.abort()
    await page.close()


async def test_it_serves_by_tls_and_a_new_pair_is_used(pairs: list[tuple[Path, Path]], tmp_path: Path) -> None:
    certificate = ServerCertificate(*written(pairs[0], tmp_path, moment=1))
    page = await serving(engine(), Everybody(), tls=certificate.context)
    assert await shown(page.port) == plain(pairs[0][0])
    # Half of a pair is not used.
    (tmp_path / "tls.key").write_bytes(pairs[1][1].read_bytes())
    await certificate.look()
    assert await shown(page.port) == plain(pairs[0][0])
    assert certificate.fingerprint == sha256(plain(pairs[0][0])).digest()
    written(pairs[1], tmp_path, moment=2)
    await certificate.look()
    assert await shown(page.port) == plain(pairs[1][0])
    assert certificate.fingerprint == sha256(plain(pairs[1][0])).digest()
    async with aiohttp.ClientSession() as session:
        trusted = ssl.create_default_context(cafile=str(pairs[1][0]))
        trusted.check_hostname = False
        async with session.get(f"https://127.0.0.1:{page.port}/api/history", ssl=trusted) as answer:
            assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"http://127.0.0.1:{page.port}/")
    await page.close()


async def test_the_fingerprint_of_a_chain_is_that_of_the_certificate_that_is_shown(
    pairs: list[tuple[Path, Path]], tmp_path: Path
) -> None:
    cert, key = written(pairs[0], tmp_path, moment=1)
    cert.write_text(f"Of the page\n{pairs[0][0].read_text()}{pairs[1][0].read_text()}")
    assert ServerCertificate(cert, key).fingerprint == sha256(plain(pairs[0][0])).digest()


@pytest.mark.parametrize("wrong", ["", "no certificate"])
def test_files_that_are_no_pair_are_an_error_at_the_start(
    pairs: list[tuple[Path, Path]], tmp_path: Path, wrong: str
) -> None:
    cert, key = written(pairs[0], tmp_path, moment=1)
    cert.write_text(wrong)
    with pytest.raises(OSError, match=r".+"):
        ServerCertificate(cert, key)
    with pytest.raises(FileNotFoundError):
        ServerCertificate(tmp_path / "none", key)
