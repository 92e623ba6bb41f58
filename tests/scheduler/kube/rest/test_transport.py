import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web

from scheduler.kube import port
from scheduler.kube.rest.client_config.connect import connect
from scheduler.kube.rest.transport import Transport
from tests.scheduler.kube.rest.conftest import Send, by_bare_connection
from tests.support.servers.api_server import BOUND, ApiServer, status
from tests.support.servers.byte_server import BODY, ByteServer, connected

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)


@pytest.fixture
async def transport(kubeconfig: Callable[..., Path]) -> AsyncIterator[Transport]:
    made = Transport(await connect({}, kubeconfig=kubeconfig()), connections=2)
    yield made
    await made.close()


async def watched(transport: Transport, stall_s: float) -> list[bytes]:
    async with transport.stream("/x", stall_s) as chunks:
        return [chunk async for chunk in chunks]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        pytest.param(302, port.ApiRejected, id="a redirect is not followed"),
        pytest.param(400, port.ApiRejected, id="bad request"),
        pytest.param(401, port.ApiForbidden, id="unauthorized"),
        pytest.param(403, port.ApiForbidden, id="forbidden"),
        pytest.param(404, port.ApiNotFound, id="not found"),
        pytest.param(409, port.ApiConflict, id="conflict"),
        pytest.param(410, port.WatchExpired, id="gone"),
        pytest.param(413, port.ApiRejected, id="too large"),
        pytest.param(422, port.ApiRejected, id="invalid"),
        pytest.param(429, port.ApiThrottled, id="throttled"),
        pytest.param(500, port.ApiFailed, id="failed"),
        pytest.param(503, port.ApiFailed, id="unavailable"),
        pytest.param(504, port.ApiFailed, id="gateway time-out"),
        pytest.param(599, port.ApiFailed, id="a status of nobody's"),
    ],
)
async def test_each_refusal_has_its_error_with_the_servers_message(
    api: ApiServer, transport: Transport, send: Send, code: int, error: type[port.ApiError]
) -> None:
    api.script = [status(code, "pods is busy", Location="/elsewhere")] * 2

    with pytest.raises(port.ApiError, match=r"^pods is busy$") as raised:
        await send(transport)

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
    api: ApiServer, transport: Transport, send: Send, header: dict[str, str], seconds: float
) -> None:
    api.script = [status(429, "slow", **header)]

    with pytest.raises(port.ApiThrottled) as raised:
        await send(transport)

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
    api: ApiServer, transport: Transport, send: Send, text: bytes, words: str
) -> None:
    async def answer(_: web.Request) -> web.StreamResponse:
        return web.Response(status=502, body=text)

    api.script = [answer]

    with pytest.raises(port.ApiSilent, match=words) as raised:
        await send(transport)

    assert (raised.value.status, len(raised.value.message) <= 256) == (502, True)


async def test_a_request_without_an_answer_is_given_up_in_time(
    api: ApiServer, transport: Transport, send: Send
) -> None:
    api.script = [api.silent]

    with pytest.raises(port.ApiSilent, match=r"no answer within 0\.2 s"):
        await send(transport, timeout_s=0.2)


async def test_waiting_for_a_free_connection_counts_too(api: ApiServer, transport: Transport, send: Send) -> None:
    api.script = [api.silent, api.silent]
    busy = [asyncio.ensure_future(send(transport)) for _ in range(2)]
    await asyncio.sleep(0)

    with pytest.raises(port.ApiSilent):
        await send(transport, timeout_s=0.2)

    api.held.set()
    assert [json.loads(answer) for answer in await asyncio.gather(*busy)] == [BOUND, BOUND]
    assert len(api.seen) == 2


async def test_an_unreachable_server_is_silence(api: ApiServer, send: Send, kubeconfig: Callable[..., Path]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        api.url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        transport = Transport(await connect({}, kubeconfig=kubeconfig()), connections=1)

        with pytest.raises(port.ApiSilent, match="connection failed"):
            await send(transport)
        await transport.close()


async def test_a_request_carries_what_the_server_reads_and_nothing_else(
    api: ApiServer, transport: Transport, send: Send
) -> None:
    await send(transport, "/x?a=b%2Fc")

    (seen,) = api.seen
    assert (seen.method, seen.path, seen.query, seen.body) == ("POST", "/x", {"a": "b/c"}, b"{}")
    assert seen.headers.keys() == {"Host", "Accept", "Content-Type", "Content-Length", "User-Agent"}


async def test_a_connection_that_was_kept_and_then_lost_is_silence_and_the_post_is_not_sent_again(
    server: ByteServer, tmp_path: Path, send: Send
) -> None:
    async def dies_with_the_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        writer.write(ANSWER)
        await server.request(reader)

    server.script = [dies_with_the_second, server.answers(ANSWER)]
    transport = Transport(await connected(tmp_path, server.url), connections=1)
    await send(transport)

    with pytest.raises(port.ApiSilent, match="connection failed"):
        await send(transport)

    assert (len(server.requests), server.connections) == (2, 1)
    await send(transport)
    await transport.close()


async def test_the_password_of_a_proxy_reaches_the_proxy_and_no_message(server: ByteServer, tmp_path: Path) -> None:
    heads = []

    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")

    server.script = [refuses]
    proxy = server.url.replace("http://", "http://me:planted@")
    transport = Transport(await connected(tmp_path, "https://api.example", cluster={"proxy-url": proxy}), connections=1)

    with pytest.raises(port.ApiSilent, match="407") as raised:
        await by_bare_connection(transport)

    await transport.close()
    assert b"Proxy-Authorization: Basic bWU6cGxhbnRlZA==" in heads[0]
    assert "planted" not in raised.value.message


async def test_a_watch_does_not_wait_for_a_proxy_that_never_answers(server: ByteServer, tmp_path: Path) -> None:
    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    server.script = [silent]
    proxied = await connected(tmp_path, "https://api.example", cluster={"proxy-url": server.url})
    transport = Transport(proxied, connections=1)

    async with asyncio.timeout(5):
        with pytest.raises(
            port.ApiSilent, match=r"^connection failed: Connection timeout to host https://api\.example"
        ):
            await watched(transport, stall_s=0.2)

    await transport.close()


async def test_a_token_that_comes_back_as_a_header_that_is_none_is_not_told(
    server: ByteServer, tmp_path: Path, send: Send
) -> None:
    async def sends_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: " + b" ".join(head.split()) + b"\r\n\r\n")

    server.script = [sends_back]
    user = {"token": "planted" * 5}
    transport = Transport(await connected(tmp_path, server.url, user), connections=1)

    with pytest.raises(port.ApiSilent) as raised:
        await send(transport)

    await transport.close()
    assert "planted" not in raised.value.message
    assert "\n" not in raised.value.message
