"""What a client can do to the server of probes and metrics: nothing that the next one would notice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from aiohttp import web

from scheduler.process.bounded_server import Limits
from scheduler.process.places import wrote
from scheduler.process.probes import Turns, serve
from tests.scheduler.process.clients import GET, Clients, answering, connected, first_line, is_cut_off
from tests.support.clocks.virtual_time import in_virtual_time, now_s

# More than the kernel takes for a peer that reads nothing.
LONG = b"x" * 65_536, 400


@asynccontextmanager
async def serving(limits: Limits) -> AsyncIterator[Clients]:
    def scrape() -> Iterator[bytes]:
        piece, times = LONG
        return iter([piece] * times)

    async with connected(await serve(("127.0.0.1", 0), scrape, ready=str, alive=str, limits=limits)) as made:
        yield made


@pytest.fixture
async def connections() -> AsyncIterator[Clients]:
    async with serving(Limits()) as made:
        yield made


async def test_a_probe_is_answered_while_all_places_are_taken_by_requests_that_never_end(
    connections: Clients,
) -> None:
    slow = [await connections.open(b"GET /metrics HTTP/1.1\r\nX: ") for _ in range(200)]

    assert await connections.status() == b"HTTP/1.1 200 OK"
    assert [await is_cut_off(reader) for reader in slow[:3]] == [True, True, True]


async def test_a_probe_is_answered_while_all_places_are_taken_by_clients_that_do_not_read(
    connections: Clients,
) -> None:
    for _ in range(100):
        await connections.open(GET % b"/metrics")

    for _ in range(5):
        assert await connections.status() == b"HTTP/1.1 200 OK"


async def test_the_connection_of_who_has_one_is_not_cut_off_for_those_of_who_has_many() -> None:
    async with serving(Limits(connections=8)) as connections:
        probe = await connections.open()
        for _ in range(40):
            await connections.open(GET % b"/readyz", peer="127.0.0.2")
        connections[0][1].write(GET % b"/readyz")

        assert await first_line(probe) == b"HTTP/1.1 200 OK"


async def test_liveness_waits_for_no_turn() -> None:
    async with serving(Limits()) as connections:
        readers = [await connections.open(GET % b"/readyz") for _ in range(60)]
        last = asyncio.create_task(readers[-1].readline())

        assert await connections.status(b"/healthz") == b"HTTP/1.1 200 OK"
        assert not last.done()
        await last


async def test_an_answer_that_goes_on_outlives_connections_without_one() -> None:
    async def streams(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x")
            wrote(request, asyncio.get_running_loop().time())
            await asyncio.sleep(0.01)

    async with answering(streams, Limits(connections=4)) as made:
        first = await made.open(GET % b"/")
        await first.readuntil(b"\r\n\r\n")
        for _ in range(12):
            await made.open()
        assert not await is_cut_off(first)


async def test_of_answers_the_one_that_was_written_to_last_stays() -> None:
    written = asyncio.Event()

    async def streams(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"x")
        while request.path == "/goes-on":
            wrote(request, asyncio.get_running_loop().time())
            written.set()
            await asyncio.sleep(0.001)
            await response.write(b"x")
        await asyncio.Event().wait()
        return response

    async with answering(streams, Limits(connections=4)) as made:
        first = await made.open(GET % b"/goes-on")
        await first.readuntil(b"\r\n\r\n")
        for _ in range(12):
            await (await made.open(GET % b"/")).readuntil(b"\r\n\r\n")
            # Later than the others, which may have come within the millisecond.
            written.clear()
            await written.wait()
        assert not await is_cut_off(first)


@pytest.mark.parametrize(
    ("limits", "sent"),
    [
        pytest.param(Limits(request_s=0.2), b"", id="nothing at all"),
        pytest.param(Limits(request_s=0.2), b"GET /healthz HTTP/1.1\r\nX: ", id="a request without an end"),
        pytest.param(Limits(answer_s=0.2), GET % b"/metrics", id="an answer that is not read"),
        pytest.param(Limits(idle_s=0.2), GET % b"/healthz", id="nothing after an answer"),
    ],
)
async def test_a_client_that_keeps_the_server_waiting_is_cut_off(limits: Limits, sent: bytes) -> None:
    async with serving(limits) as connections:
        reader = await connections.open(sent)
        await asyncio.sleep(0.5)

        assert await is_cut_off(reader)


async def test_clients_that_do_not_read_do_not_keep_the_program_from_ending() -> None:
    async with asyncio.timeout(5.0), serving(Limits()) as connections:
        for _ in range(10):
            await connections.open(GET % b"/metrics")
        await connections.status()
        await connections.runner.cleanup()


async def test_a_client_that_sends_the_next_request_in_time_keeps_its_connection() -> None:
    async with serving(Limits(request_s=0.5, answer_s=0.5, idle_s=0.5)) as connections:
        reader = await connections.open()
        for _ in range(5):
            connections[-1][1].write(GET % b"/healthz")
            async with asyncio.timeout(1.0):
                assert await reader.readuntil(b"ok\n")
            await asyncio.sleep(0.2)


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


class Noting:
    """A handler whose requests take turns. answered_s: when it was called."""

    def __init__(self) -> None:
        self.answered_s: list[float] = []
        self._in_turn = Turns(0.05).each(self._handle)

    async def asks(self) -> web.StreamResponse:
        return await self._in_turn(cast("web.BaseRequest", None))

    async def _handle(self, _: web.BaseRequest) -> web.StreamResponse:
        self.answered_s.append(now_s())
        return web.Response()


@in_virtual_time
async def test_answers_come_one_after_the_other_however_many_ask() -> None:
    noting = Noting()
    asking = [asyncio.ensure_future(noting.asks()) for _ in range(32)]
    await asyncio.sleep(0.01)
    for leaves in asking[1:31]:
        leaves.cancel()
    await asyncio.wait(asking)

    assert noting.answered_s == [0.0, 0.05]


@in_virtual_time
async def test_an_answer_after_a_pause_waits_for_nobody() -> None:
    noting = Noting()
    for _ in range(3):
        await noting.asks()
        await asyncio.sleep(1.0)

    assert noting.answered_s == [0.0, 1.0, 2.0]
