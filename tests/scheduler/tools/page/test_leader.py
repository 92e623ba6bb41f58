"""A replica that stands by and its leader: two pages by TLS on loopback, and whom the token of a viewer reaches."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from http import HTTPStatus

import aiohttp
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from scheduler.tools.page import leader as page_leader
from scheduler.tools.page.files import files, form_of
from scheduler.tools.page.leader import FORWARDED, own_url, page_url
from scheduler.tools.page.server import MOST_STREAMS
from scheduler.tools.page.tls import ServerCertificate
from tests.support.builders import engine
from tests.support.servers.byte_server import made_certificate, until
from tests.support.servers.page_replicas import TOKEN, Replica, Site, elsewhere, lines

FORM = form_of(files())


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[ServerCertificate]:
    return [ServerCertificate(*made_certificate(tmp_path_factory.mktemp(name))) for name in ("ours", "others")]


@pytest.fixture
async def site(pairs: list[ServerCertificate]) -> AsyncIterator[Site]:
    async with aiohttp.ClientSession(read_bufsize=2**20) as session:
        made = Site(session)
        await made.leader.serve(pairs[0])
        await made.standby.serve(pairs[0])
        made.standby.named = made.leader.url
        yield made
        await made.standby.close()
        await made.leader.close()


OWN, LEADERS = ("the-standby", ["s"]), ("the-leader", ["l"])


async def test_what_a_replica_that_stands_by_is_asked_the_leader_answers(site: Site) -> None:
    assert await site.nodes_of() == LEADERS
    assert (await site.get("/api/node?name=l"))[0] == HTTPStatus.OK
    assert (await site.get("/api/node?name=s"))[0] == HTTPStatus.NOT_FOUND
    assert (await site.get("/api/history"))[1][-1]["units"] == 16
    assert set((await site.get("/api/pods?rows=0"))[1]) == {"0"}
    assert (await site.get("/api/what-if?units=16"))[1]["copies"] == 1
    assert (await site.get("/api/what-if?units=x"))[0] == HTTPStatus.BAD_REQUEST
    # Both have asked who looks.
    assert (site.standby.reviewer.asked, site.leader.reviewer.asked) == ([TOKEN], [TOKEN])


async def test_what_changes_at_the_leader_comes_at_once(site: Site) -> None:
    async with site.stream() as answer:
        assert (await lines(answer, "now"))[-1] | {"problem": ""} == {
            "t": "now", "leads": True, "leader": "the-leader", "problem": "",
        }  # fmt: skip
        site.leader.engine.node_gone("l")
        assert (await lines(answer, "rows"))[-1]["name"] == [""]
    leader = site.leader.page
    assert leader is not None
    # Who leaves lets go of the leader, too.
    await until(lambda: leader.followers == 0)


async def test_a_page_that_comes_again_gets_only_what_has_changed_at_the_leader(site: Site) -> None:
    first = await site.follow("ready")
    again = await site.follow("ready", instance=first[0]["instance"], version=str(first[-1]["version"]), models="2")
    assert [(found[0]["whole"], len(found)) for found in (first, again)] == [(True, 3), (False, 2)]


async def test_a_token_that_is_not_known_goes_nowhere(site: Site) -> None:
    site.token = "t-bob"  # noqa: S105 - of nobody
    assert (await site.get("/api/history"))[0] == HTTPStatus.UNAUTHORIZED
    assert (site.standby.reviewer.asked, site.leader.reviewer.asked) == (["t-bob"], [])


async def test_whom_the_leader_refuses_gets_nothing(site: Site) -> None:
    site.leader.reviewer.known = "another"
    assert await site.get("/api/history") == (
        HTTPStatus.UNAUTHORIZED, {"error": "The cluster does not accept this token; it may have expired."},
    )  # fmt: skip


async def test_another_certificate_gets_no_token_and_the_own_tables_answer(
    site: Site, pairs: list[ServerCertificate]
) -> None:
    heard: list[str] = []

    async def listen(request: web.BaseRequest) -> web.StreamResponse:
        heard.append(str(request.headers))
        return web.Response(text="{}")

    async with AsyncExitStack() as stack:
        site.standby.named = await elsewhere(stack, listen, pairs[1].context)
        with capture_logs() as logged:
            assert await site.nodes_of() == OWN
            assert (await site.get("/api/node?name=s"))[0] == HTTPStatus.OK
    assert heard == []
    assert [(one["event"], one["log_level"], one["reason"]) for one in logged] == [
        ("page.leader_not_reached", "warning", "it presents a different certificate")
    ]
    assert TOKEN not in str(logged)


async def test_a_server_without_tls_gets_no_token(site: Site) -> None:
    heard = bytearray()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.extend(await reader.read(2**16))
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    site.standby.named = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert await site.nodes_of() == OWN
    server.close()
    assert heard
    assert TOKEN.encode() not in heard


async def test_a_certificate_that_is_replaced_is_the_one_that_has_to_be_shown(
    site: Site, pairs: list[ServerCertificate], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await site.nodes_of() == LEADERS
    monkeypatch.setattr(pairs[0], "fingerprint", pairs[1].fingerprint)
    assert await site.nodes_of() == OWN


async def test_a_leader_that_is_gone_leaves_the_own_tables_and_its_successor_is_asked(
    site: Site, pairs: list[ServerCertificate]
) -> None:
    assert await site.nodes_of() == LEADERS
    await site.leader.close()
    with capture_logs() as logged:
        assert await site.nodes_of() == OWN
    assert [one["reason"].startswith("[Errno ") for one in logged] == [True]
    now = (await site.follow())[-1]
    assert (now["leads"], now["leader"]) == (False, "the-leader")
    successor = Replica("the-next", engine(n=[16]), leads=True)
    await successor.serve(pairs[0])
    site.standby.named = successor.url
    assert await site.nodes_of() == ("the-next", ["n"])
    await successor.close()


async def test_a_stream_breaks_off_with_the_leader_that_sends_it(site: Site) -> None:
    async with site.stream() as answer:
        await lines(answer, "now")
        await site.leader.close()
        with pytest.raises(aiohttp.ClientError):
            async with asyncio.timeout(5):
                await answer.content.read()


async def test_a_stream_ends_once_the_lease_names_another_page_or_none(site: Site) -> None:
    for named in ("https://127.0.0.1:1", None):
        site.standby.named = site.leader.url
        async with site.stream() as answer:
            await lines(answer, "now")
            site.standby.named = named
            async with asyncio.timeout(5):
                await answer.content.read()


async def test_a_stream_ends_with_the_lease_also_where_the_leader_says_nothing_more(
    site: Site, pairs: list[ServerCertificate]
) -> None:
    silent = asyncio.Event()

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"t":"now"}\n')
        await silent.wait()
        return response

    async with AsyncExitStack() as stack, asyncio.timeout(5):
        site.standby.named = await elsewhere(stack, answer, pairs[0].context)
        async with site.stream() as following:
            await lines(following, "now")
            site.standby.named = None
            await following.content.read()
        silent.set()


async def test_one_connection_is_enough_for_questions_one_after_the_other(
    site: Site, pairs: list[ServerCertificate]
) -> None:
    asked_over: list[object] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        asked_over.append(request.transport)
        return web.Response(text="{}")

    async with AsyncExitStack() as stack:
        site.standby.named = await elsewhere(stack, answer, pairs[0].context)
        for _ in range(5):
            assert await site.get("/api/history") == (HTTPStatus.OK, {})
        assert (len(asked_over), len(set(asked_over))) == (5, 1)


async def test_what_was_passed_on_is_not_passed_on_again(site: Site) -> None:
    # Each is named to the other; neither leads.
    site.leader.named, site.leader.leads = site.standby.url, False
    assert await site.nodes_of() == OWN
    site.leader.leads = True
    assert await site.nodes_of() == LEADERS
    status, refused = await site.get("/api/history", form=FORM)
    assert (status, refused["error"][:31]) == (HTTPStatus.SERVICE_UNAVAILABLE, "This replica is not the leader,")


async def test_a_leader_that_is_asked_by_another_replica_asks_nobody(
    site: Site, pairs: list[ServerCertificate]
) -> None:
    heard: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        heard.append(request.path)
        return web.Response(text="{}")

    async with AsyncExitStack() as stack:
        site.leader.named = await elsewhere(stack, answer, pairs[0].context)
        assert (await site.get("/api/history"))[1][-1]["units"] == 16
        assert heard == []
        assert await site.get("/api/history", site.leader) == (HTTPStatus.OK, {})
        assert heard == ["/api/history"]


async def test_a_lease_that_names_this_very_replica_is_no_loop(site: Site) -> None:
    site.standby.named = site.standby.url
    assert await site.nodes_of() == OWN
    assert (await site.get("/api/node?name=s"))[0] == HTTPStatus.OK


async def test_a_leader_of_another_version_is_not_asked(site: Site) -> None:
    assert (await site.get("/api/history", site.leader, form="another"))[0] == HTTPStatus.SERVICE_UNAVAILABLE
    assert (await site.get("/api/history", site.leader, form=FORM))[0] == HTTPStatus.OK


async def test_questions_of_a_page_go_to_whom_it_follows(site: Site) -> None:
    # The leader comes back while a page follows the other one: its rows are not the leader's.
    leaders, site.standby.named = site.standby.named, None
    own = (await site.follow())[0]["instance"]
    site.standby.named = leaders
    assert (await site.get(f"/api/node?name=s&instance={own}"))[0] == HTTPStatus.OK
    assert (await site.get(f"/api/pods?rows=0&instance={own}"))[0] == HTTPStatus.OK
    assert (await site.get(f"/api/pods?rows=0&instance={own}", site.leader))[0] == HTTPStatus.CONFLICT
    followed = (await site.follow())[0]["instance"]
    assert (await site.get(f"/api/pods?rows=0&instance={followed}"))[0] == HTTPStatus.OK
    site.standby.named = None
    assert (await site.get(f"/api/pods?rows=0&instance={followed}"))[0] == HTTPStatus.CONFLICT


async def test_when_the_leader_is_full_the_own_tables_are_shown(site: Site) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    at = f"{site.leader.url}/api/stream"
    streams = [await site.session.get(at, headers=headers, ssl=False) for _ in range(MOST_STREAMS)]
    assert await site.nodes_of() == OWN
    for one in streams:
        one.close()


async def test_streams_that_are_passed_on_count_as_the_own_ones(site: Site) -> None:
    streams = [await site.stream() for _ in range(MOST_STREAMS)]
    async with site.stream() as answer:
        assert answer.status == HTTPStatus.SERVICE_UNAVAILABLE
    for one in streams:
        one.close()


async def test_a_redirect_is_not_followed_and_no_header_of_the_leader_is_passed_back(
    site: Site, pairs: list[ServerCertificate]
) -> None:
    heard: list[tuple[str, list[str]]] = []
    to: list[str] = []

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        heard.append((request.path, sorted(request.headers)))
        if to:
            return web.Response(status=HTTPStatus.TEMPORARY_REDIRECT, headers={"Location": to[0]})
        return web.Response(text="{}", headers={"Set-Cookie": "a=b", "Access-Control-Allow-Origin": "*"})

    async with AsyncExitStack() as stack:
        site.standby.named = await elsewhere(stack, answer, pairs[0].context)
        headers = {"Authorization": f"Bearer {TOKEN}", "Cookie": "c=d", "X-Other": "e"}
        async with site.session.get(f"{site.standby.url}/api/history?x=y", headers=headers, ssl=False) as passed:
            assert (passed.status, await passed.read()) == (HTTPStatus.OK, b"{}")
            assert not {"Set-Cookie", "Access-Control-Allow-Origin"} & set(passed.headers)
            assert passed.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert heard.pop() == ("/api/history", ["Accept", "Authorization", FORWARDED, "Host"])
        to.append(site.leader.url + "/api/history")
        assert (await site.get("/api/history"))[1][-1]["units"] == 8
        assert heard.pop()[0] == "/api/history"
    assert site.leader.reviewer.asked == []


@pytest.mark.parametrize("stream", [True, False])
async def test_a_leader_that_says_nothing_is_not_waited_for_long(
    site: Site, pairs: list[ServerCertificate], monkeypatch: pytest.MonkeyPatch, *, stream: bool
) -> None:
    monkeypatch.setattr(page_leader, "_SILENT_S", 0.2)
    silent = asyncio.Event()

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        await silent.wait()
        return web.Response()

    async with AsyncExitStack() as stack, asyncio.timeout(5):
        site.standby.named = await elsewhere(stack, answer, pairs[0].context)
        if stream:
            assert await site.nodes_of() == OWN
        else:
            assert (await site.get("/api/node?name=s"))[0] == HTTPStatus.OK
        silent.set()


async def test_what_never_ends_is_cut_off(
    site: Site, pairs: list[ServerCertificate], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_leader, "_MOST_BYTES", 2**20)

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 2**16)
            await asyncio.sleep(0)  # a connection that has broken off raises only once the loop knows

    async with AsyncExitStack() as stack, asyncio.timeout(20):
        site.standby.named = await elsewhere(stack, answer, pairs[0].context)
        with pytest.raises(aiohttp.ClientError):
            await site.get("/api/history")
        # A stream may end anywhere: the page asks again.
        async with site.stream() as following:
            assert len(await following.content.read()) <= 2**20


@pytest.mark.parametrize(
    "written",
    [
        None,
        "",
        "http://10.0.0.1:10264",
        "https://leader.example:10264",
        "https://10.0.0.1",
        "https://10.0.0.1:0",
        "https://10.0.0.1:10264/",
        "https://10.0.0.1:10264@evil.example:1",
        "https://user@10.0.0.1:1",
        "https://10.0.0.1:10264\n",
        "https://10.0.0.256:1",
        "https://[fe80::1%lo]:1",
        "https://[10.0.0.1:1",
        "https://10.0.0.1:1 " + "x" * 10**6,
    ],
)
async def test_a_lease_that_names_no_page_of_a_pod_is_not_followed(site: Site, written: str | None) -> None:
    site.standby.named = written
    assert page_url(written) == ""
    assert await site.nodes_of() == OWN


@pytest.mark.parametrize(
    ("listen", "pod_ip", "url"),
    [
        (("", 10264), "10.0.0.1", "https://10.0.0.1:10264"),
        (("0.0.0.0", 1), "10.0.0.1", "https://10.0.0.1:1"),  # noqa: S104 - nothing listens
        (("::", 1), "fd00::1", "https://[fd00::1]:1"),
        (("10.0.0.1", 1), "10.0.0.1", "https://10.0.0.1:1"),
        (("10.0.0.2", 1), "10.0.0.1", ""),
        (("127.0.0.1", 1), "10.0.0.1", ""),
        (("localhost", 1), "10.0.0.1", ""),
        (("", 1), "", ""),
        (("", 1), "no address", ""),
    ],
)
def test_a_page_is_shown_to_others_where_they_reach_it(listen: tuple[str, int], pod_ip: str, url: str) -> None:
    assert own_url(listen, pod_ip) == url


def test_the_form_is_that_of_the_files() -> None:
    served = files()
    assert form_of(served) == form_of(dict(reversed([*served.items()])))
    assert form_of({**served, "/app.js": (b"//", "text/javascript")}) != form_of(served)
