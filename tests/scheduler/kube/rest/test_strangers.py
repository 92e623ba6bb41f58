"""Only objects of the API are answers: what a load balancer or a proxy writes says nothing about a request.

Answers that come byte by byte, or without end, hold no watch, and take little memory.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final, TypeAlias

import pytest
from aiohttp import web

from deviceplugin.node.publisher import NodeApi
from scheduler.kube import port
from scheduler.kube.rest import transport
from scheduler.kube.rest.client import KubeCluster
from scheduler.kube.rest.client_config.connect import connect
from scheduler.kube.rest.watching import Listing, WatchOptions
from tests.scheduler.kube.rest.conftest import ClusterOf
from tests.scheduler.kube.rest.test_client import BINDING, EVENT, POD, UNSCHEDULABLE
from tests.support.servers.api_server import Answer, ApiServer, bookmark, status, stranger, streamed

Verb: TypeAlias = Callable[[KubeCluster], Awaitable[Any]]


async def watch(cluster: KubeCluster, since: str | None = "1") -> list[object]:
    """Everything until it ends. since: None for a list."""
    async with aclosing(cluster.watch(port.PODS, since)) as batches:  # type: ignore[type-var]  # a generator
        return [event async for batch in batches for event in batch]


VERBS: Final[dict[str, Verb]] = {
    "bind": lambda cluster: cluster.bind(BINDING, timeout_s=4.0),
    "get": lambda cluster: cluster.pod("default", "a"),
    "patch status": lambda cluster: cluster.set_pod_condition(POD, UNSCHEDULABLE),
    "create event": lambda cluster: cluster.create_event(EVENT),
    "patch event": lambda cluster: cluster.update_event(EVENT, port.EventSeries(2, 1.0)),
    "watch": watch,
    "list": lambda cluster: watch(cluster, None),
    "rights": lambda cluster: cluster.missing_rights(),
    "version": lambda cluster: cluster.server_version(),
}
STRANGERS: Final[dict[str, Answer]] = {
    "404 of a default backend": stranger(404, "default backend - 404", "text/plain"),
    "404 as JSON": stranger(404, '{"error": "no route"}', "application/json"),
    "403 of a firewall": stranger(403, "<html>\n<h1>Blocked</h1>"),
    "409 of nobody's": stranger(409, ""),
    "410 of a proxy": stranger(410, "Gone", "text/plain"),
    "302 to a sign-in page": stranger(302, "<a href='/login'>Found</a>"),
    "500 without a Status": stranger(500, "This request caused apiserver to panic.", "text/plain"),
    "502 of a proxy": stranger(502, "<html>Bad Gateway</html>"),
    "200 with a page": stranger(200, "<html>\n<h1>Welcome</h1>\n</html>\n"),
    "200 with another object": stranger(200, '{"kind": "Welcome"}\n', "application/json"),
    "200 with nothing": stranger(200, "", "text/plain"),
}

# As long as a token is, and more than an excerpt shows.
PLANTED: Final = "planted" + 150 * "eyJhbG.-_"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("answer", STRANGERS)
async def test_what_the_api_server_has_not_written_is_no_answer(
    api: ApiServer, cluster_of: ClusterOf, verb: str, answer: str
) -> None:
    api.script = [STRANGERS[answer]] * 20
    cluster = await cluster_of(watch=WatchOptions(listing=Listing.PAGED))

    with pytest.raises(port.ApiSilent, match=r"^not the API server's answer: ") as raised:
        await VERBS[verb](cluster)

    assert raised.value.status == int(answer[:3])
    assert "\n" not in raised.value.message


@pytest.mark.parametrize("verb", ["bind", "get", "watch", "list"])
@pytest.mark.parametrize(
    "echo",
    [
        pytest.param(
            stranger(404, f"GET /\nAuthorization: Bearer {PLANTED}\nAccept: */*", "text/plain"), id="its own text"
        ),
        pytest.param(stranger(404, f'{{"authorization":"bearer {PLANTED}"}}', "application/json"), id="JSON"),
        pytest.param(stranger(401, f"Basic  {PLANTED}==", "text/plain"), id="of a proxy"),
        pytest.param(stranger(429, f"Too many: Bearer {PLANTED}", "text/plain"), id="that asks for patience"),
        pytest.param(status(403, f"no: Bearer {PLANTED}"), id="in a Status"),
    ],
)
async def test_a_token_that_is_sent_back_is_not_told(
    api: ApiServer, cluster_of: ClusterOf, verb: str, echo: Answer
) -> None:
    api.script = [echo] * 20
    cluster = await cluster_of(watch=WatchOptions(listing=Listing.PAGED))

    with pytest.raises(port.ApiError) as raised:
        await VERBS[verb](cluster)

    assert "planted" not in raised.value.message
    assert "earer …" in raised.value.message or "Basic …" in raised.value.message


@pytest.mark.parametrize(
    "message",
    ["basic authentication failed", "no bearer token was sent", 'pods "bearer-of-bad-news-0123456789" not found'],
)
async def test_what_only_reads_like_one_is_told(api: ApiServer, cluster: KubeCluster, message: str) -> None:
    api.script = [status(403, message)] * 2

    with pytest.raises(port.ApiForbidden) as raised:
        await VERBS["bind"](cluster)

    assert raised.value.message == message


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}', id="failure"),
        pytest.param('{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","c', id="cut off"),
        pytest.param('{"kind":"Status","code":201}', id="that does not say"),
    ],
)
async def test_a_bind_is_bound_only_where_the_status_says_success(
    api: ApiServer, cluster: KubeCluster, text: str
) -> None:
    api.script = [stranger(201, text, "application/json")]

    with pytest.raises(port.ApiSilent) as raised:
        await cluster.bind(BINDING, timeout_s=4.0)

    assert raised.value.status == 201


async def test_a_proxy_that_asks_for_patience_is_obeyed_like_the_server(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [stranger(429, "Too many requests, please try again later.\n", "text/plain")]

    with pytest.raises(port.ApiThrottled, match=r"^Too many requests, please try again later\.$"):
        await cluster.bind(BINDING, timeout_s=4.0)


async def test_nobody_makes_us_wait_for_a_day(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [status(429, "slow", **{"Retry-After": "86400"})]

    with pytest.raises(port.ApiThrottled) as raised:
        await cluster.bind(BINDING, timeout_s=4.0)

    assert raised.value.retry_after_s == port.LONGEST_RETRY_AFTER_S


async def test_a_page_in_place_of_a_streamed_list_does_not_end_streaming(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [stranger(400, "Bad Request"), streamed(bookmark("5", ends_list=True))]

    with pytest.raises(port.ApiSilent):
        await watch(cluster, None)
    await watch(cluster, None)

    assert ["sendInitialEvents" in query for query in api.queries()] == [True, True]


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        pytest.param("denied\nERROR all is lost\r\n", "denied ERROR all is lost", id="lines"),
        pytest.param("\x1b[2Jdenied\x00\u202e", "[2Jdenied", id="what a terminal obeys"),
        pytest.param("x" * 2_000_000, "x" * 1023 + "…", id="megabytes"),
        pytest.param(" \n ", "Forbidden", id="nothing to see"),
    ],
)
async def test_the_message_of_a_webhook_is_one_line_of_bounded_length(
    api: ApiServer, cluster: KubeCluster, message: str, shown: str
) -> None:
    api.script = [status(403, message)]

    with pytest.raises(port.ApiForbidden) as raised:
        await cluster.bind(BINDING, timeout_s=4.0)

    assert raised.value.message == shown


@pytest.mark.parametrize("answer", STRANGERS)
async def test_the_device_plugins_writes_hear_no_stranger_either(
    api: ApiServer, kubeconfig: Callable[..., Any], answer: str
) -> None:
    node = NodeApi(await connect({}, kubeconfig=kubeconfig()), "n")
    api.script = [STRANGERS[answer]] * 4
    writes: list[Awaitable[None]] = [
        node.annotate({"a": "b"}),
        node.set_capacity({"a": 1}),
        node.evict(POD),
        node.mark_assigned(POD, {"a": "b"}),
    ]
    for write in writes:
        with pytest.raises(port.ApiSilent):
            await write
    await node.close()


# Without end


@pytest.mark.parametrize("code", [429, 503])
async def test_a_refusal_that_trickles_is_not_read_to_its_end(
    api: ApiServer, cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(transport, "_REFUSAL_READ_IN_S", 0.3)

    async def trickles(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=code)
        await response.prepare(request)
        while not api.held.is_set():
            await response.write(b"x")
            await asyncio.sleep(0.01)
        return response

    api.script = [trickles]

    async with asyncio.timeout(3):
        with pytest.raises(port.ApiSilent if code == 503 else port.ApiThrottled, match="xxx") as raised:
            await watch(cluster)

    assert raised.value.status == code


async def flooded(api: ApiServer, response: web.StreamResponse) -> web.StreamResponse:
    """Send 64 MiB on one line, or as much of it as is taken, and hold the connection."""
    with contextlib.suppress(ConnectionError):
        for _ in range(64):
            await response.write(b"x" * 2**20)
    await api.held.wait()
    return response


async def test_a_refusal_without_end_is_cut(
    api: ApiServer, cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MOST_BYTES", 1_000)

    async def refuses(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=503)
        await response.prepare(request)
        return await flooded(api, response)

    api.script = [refuses, refuses]

    async with asyncio.timeout(3):
        with pytest.raises(port.ApiSilent, match="503"):
            await watch(cluster)
        with pytest.raises(port.ApiSilent, match="503"):
            await cluster.pod("default", "a")


async def test_a_line_without_end_ends_the_watch(api: ApiServer, cluster: KubeCluster) -> None:
    async def streams(request: web.Request) -> web.StreamResponse:
        return await flooded(api, await streamed()(request))

    api.script = [streams]

    async with asyncio.timeout(10):
        with pytest.raises(port.ApiSilent, match=r"^a line of the watch has over \d+ bytes$"):
            await watch(cluster)
