import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from http import HTTPMethod
from pathlib import Path

import pytest
from aiohttp import web

from scheduler.kube import port
from scheduler.kube.rest.connect import connect
from scheduler.kube.rest.transport import Transport
from tests.support.api_server import ApiServer, ok, status

POD = b'{"kind":"Pod"}'


@pytest.fixture
async def transport(kubeconfig: Callable[..., Path]) -> AsyncIterator[Transport]:
    made = Transport(await connect({}, kubeconfig=kubeconfig()), connections=2)
    yield made
    await made.close()


async def get(transport: Transport, path: str = "/x", timeout_s: float = 5.0) -> bytes:
    return await transport.send(HTTPMethod.GET, path, answers="Pod", timeout_s=timeout_s)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        pytest.param(302, port.ApiRefused, id="a redirect is not followed"),
        pytest.param(400, port.ApiRefused, id="bad request"),
        pytest.param(401, port.ApiForbidden, id="unauthorized"),
        pytest.param(403, port.ApiForbidden, id="forbidden"),
        pytest.param(404, port.ApiNotFound, id="not found"),
        pytest.param(409, port.ApiConflict, id="conflict"),
        pytest.param(410, port.WatchExpired, id="gone"),
        pytest.param(413, port.ApiRefused, id="too large"),
        pytest.param(422, port.ApiRefused, id="invalid"),
        pytest.param(429, port.ApiThrottled, id="throttled"),
        pytest.param(500, port.ApiFailed, id="failed"),
        pytest.param(503, port.ApiFailed, id="unavailable"),
        pytest.param(504, port.ApiFailed, id="gateway time-out"),
        pytest.param(599, port.ApiFailed, id="a status of nobody's"),
    ],
)
async def test_each_refusal_has_its_error_with_the_servers_message(
    api: ApiServer, transport: Transport, code: int, error: type[port.ApiError]
) -> None:
    api.script = [status(code, "pods is busy", Location="/elsewhere")] * 2

    with pytest.raises(port.ApiError, match=r"^pods is busy$") as raised:
        await get(transport)

    assert type(raised.value) is error
    assert raised.value.status == code
    assert [seen.path for seen in api.seen] == ["/x"] * (2 if code == 401 else 1)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        pytest.param({"Retry-After": "7"}, 7.0, id="seconds"),
        pytest.param({}, 0.0, id="none named"),
        pytest.param({"Retry-After": "Sat, 21 Nov 2026 04:10:00 GMT"}, 0.0, id="a date"),
    ],
)
async def test_a_throttled_request_says_how_long_to_wait(
    api: ApiServer, transport: Transport, header: dict[str, str], seconds: float
) -> None:
    api.script = [status(429, "slow", **header)]

    with pytest.raises(port.ApiThrottled) as raised:
        await get(transport)

    assert raised.value.retry_after_s == seconds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param(b"<html>Bad gateway</html>", "<html>Bad gateway</html>", id="of a proxy"),
        pytest.param(b"", "Bad Gateway", id="empty"),
        pytest.param(b'{"message": "\xff"}', "message", id="not UTF-8"),
        pytest.param(b"x" * 5000, "x" * 127 + "…", id="cut"),
    ],
)
async def test_a_refusal_without_a_status_object_has_a_message_too(
    api: ApiServer, transport: Transport, text: bytes, words: str
) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=502, body=text)

    api.script = [answer]

    with pytest.raises(port.ApiSilent, match=words) as raised:
        await get(transport)

    assert (raised.value.status, len(raised.value.message) <= 256) == (502, True)


async def test_a_request_without_an_answer_is_given_up_in_time(api: ApiServer, transport: Transport) -> None:
    async def silent(_: web.Request) -> web.StreamResponse:
        await api.held.wait()
        return web.Response()

    api.script = [silent]

    with pytest.raises(port.ApiSilent, match=r"no answer within 0\.2 s"):
        await get(transport, timeout_s=0.2)


async def test_waiting_for_a_free_connection_counts_too(api: ApiServer, transport: Transport) -> None:
    async def silent(_: web.Request) -> web.StreamResponse:
        await api.held.wait()
        return web.Response(body=POD)

    api.script = [silent, silent]
    busy = [asyncio.create_task(get(transport)) for _ in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(port.ApiSilent):
        await get(transport, timeout_s=0.2)

    api.held.set()
    assert await asyncio.gather(*busy) == [POD, POD]
    assert len(api.seen) == 2


async def test_a_lost_connection_is_silence(api: ApiServer, transport: Transport) -> None:
    async def hang_up(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    api.script = [hang_up]

    with pytest.raises(port.ApiSilent, match="connection failed"):
        await transport.send(HTTPMethod.POST, "/x", b"{}", answers="Pod", timeout_s=5.0)

    assert len(api.seen) == 1


async def test_an_unreachable_server_is_silence(api: ApiServer, kubeconfig: Callable[..., Path]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        api.url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        transport = Transport(await connect({}, kubeconfig=kubeconfig()), connections=1)

        with pytest.raises(port.ApiSilent, match="connection failed"):
            await get(transport)
        await transport.close()


async def test_connections_are_kept(api: ApiServer, transport: Transport) -> None:
    peers = set()

    async def note(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername"))
        return web.Response(body=POD + b" " * 100_000)

    api.script = [note] * 4
    for _ in range(4):
        await get(transport)

    assert len(peers) == 1


async def test_a_request_carries_what_the_server_reads_and_nothing_else(api: ApiServer, transport: Transport) -> None:
    api.script = [ok({"kind": "Pod"})]

    await transport.send(HTTPMethod.POST, "/x?a=b%2Fc", b"{}", answers="Pod", timeout_s=5.0)

    (seen,) = api.seen
    assert (seen.method, seen.path, seen.query, seen.body) == ("POST", "/x", {"a": "b/c"}, b"{}")
    assert seen.headers.keys() == {
        "Host",
        "Accept",
        "Authorization",
        "Content-Type",
        "Content-Length",
        "User-Agent",
    }
    assert seen.headers["Authorization"] == "Bearer secret"
