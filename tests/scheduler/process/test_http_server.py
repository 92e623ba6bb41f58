"""What a client can do to the server of probes and metrics: nothing that the next one would notice."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from scheduler.process import http_server, probes
from tests.scheduler.process.clients import GET, Clients, answering, connected, is_cut_off

# More than the kernel takes for a peer that reads nothing.
LONG = b"x" * 26_214_400


@asynccontextmanager
async def serving() -> AsyncIterator[Clients]:
    async with connected(await probes.serve(("127.0.0.1", 0), lambda: iter([LONG]), ready=str, alive=str)) as made:
        yield made


@pytest.fixture
async def connections() -> AsyncIterator[Clients]:
    async with serving() as made:
        yield made


async def test_a_probe_is_answered_while_clients_do_not_read_their_answers(connections: Clients) -> None:
    for _ in range(100):
        await connections.open(GET % b"/metrics")
    async with asyncio.timeout(20.0):
        while await connections.status(b"/metrics") != b"HTTP/1.1 503 Service Unavailable":
            pass

    for path in (b"/healthz", b"/readyz"):
        assert await connections.status(path) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize(
    ("module", "limit", "sent"),
    [
        pytest.param(http_server, "_IDLE_S", b"", id="nothing at all"),
        pytest.param(http_server, "_IDLE_S", b"GET /healthz HTTP/1.1\r\nX: ", id="a request without an end"),
        pytest.param(probes, "_ANSWERED_WITHIN_S", GET % b"/metrics", id="an answer that is not read"),
        pytest.param(http_server, "_IDLE_S", GET % b"/healthz", id="nothing after an answer"),
    ],
)
async def test_a_client_that_keeps_the_server_waiting_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, module: object, limit: str, sent: bytes
) -> None:
    monkeypatch.setattr(module, limit, 0.2)
    async with serving() as connections:
        reader = await connections.open(sent)
        await asyncio.sleep(0.5)

        assert connections.runner.server is not None
        assert connections.runner.server.connections == []
        assert await is_cut_off(reader)
    assert caplog.records == []


async def test_clients_that_do_not_read_do_not_keep_the_program_from_ending() -> None:
    async with asyncio.timeout(5.0), serving() as connections:
        for _ in range(10):
            await connections.open(GET % b"/metrics")
        await connections.status()
        await connections.runner.cleanup()


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", id="a long address"),
        pytest.param(b"GET / HTTP/1.1\r\n" + b"X: a\r\n" * 5000 + b"\r\n", id="many headers"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", id="TLS"),
        pytest.param(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="a bad chunk"),
    ],
)
async def test_what_is_no_request_is_refused_and_fills_no_log(
    connections: Clients, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    reader = await connections.open(sent)
    async with asyncio.timeout(5.0):
        status = await reader.readline()
        while await reader.read(2**16):
            pass
    assert status.split()[1] in {b"400", b"405"}
    assert caplog.records == []


async def test_who_is_cut_off_in_the_middle_of_an_answer_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        assert request.transport is not None
        request.transport.abort()
        while True:
            await response.write(b"x")

    async with answering(endless) as made:
        assert await is_cut_off(await made.open(GET % b"/"))
    assert caplog.records == []


async def test_a_bug_of_ours_in_an_answer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def bug(_request: web.BaseRequest) -> web.StreamResponse:
        message = "a bug of ours"
        raise KeyError(message)

    async with answering(bug) as made:
        assert await made.status() == b"HTTP/1.1 500 Internal Server Error"
    assert "a bug of ours" in caplog.text
