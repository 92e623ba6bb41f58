"""What a client can do to the server of probes and metrics: nothing that the next one would notice."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import cast

import pytest
from aiohttp import web

from scheduler.process.bounded_server import Answer, BoundedServer, Limits
from scheduler.process.places import wrote
from scheduler.process.probes import Turns, serve
from tests.support.clocks.virtual_time import in_virtual_time

GET = b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n"
# More than the kernel takes for a peer that reads nothing.
LONG = b"x" * 65_536, 400


class Connections(list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]):
    """Opened by `open`, closed at the end of the test."""

    def __init__(self, runner: web.ServerRunner) -> None:
        self.runner = runner
        self.port = runner.addresses[0][1]

    async def open(self, sent: bytes = b"", peer: str = "127.0.0.1") -> asyncio.StreamReader:
        """peer: the address that it comes from."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**10, local_addr=(peer, 0))
        self.append((reader, writer))
        writer.write(sent)
        return reader

    async def status(self, path: bytes = b"/healthz") -> bytes:
        """Of an answer, soon, also on a busy machine; b"" when the connection is cut off."""
        reader = await self.open(GET % path)
        async with asyncio.timeout(5.0):
            return (await reader.readline()).strip()


@asynccontextmanager
async def serving(limits: Limits) -> AsyncIterator[Connections]:
    def scrape() -> Iterator[bytes]:
        piece, times = LONG
        return iter([piece] * times)

    async with connected(await serve(("127.0.0.1", 0), scrape, ready=str, alive=str, limits=limits)) as made:
        yield made


@asynccontextmanager
async def answering(answer: Answer, limits: Limits) -> AsyncIterator[Connections]:
    runner = web.ServerRunner(BoundedServer(answer, limits), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with connected(runner) as made:
        yield made


@asynccontextmanager
async def connected(runner: web.ServerRunner) -> AsyncIterator[Connections]:
    """Connections to a server, which ends with them."""
    made = Connections(runner)
    try:
        yield made
    finally:
        for _, writer in made:
            writer.transport.abort()
        await runner.cleanup()


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    async with serving(Limits()) as made:
        yield made


async def is_cut_off(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(2.0):
            while await reader.read(2**16):
                pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


async def test_a_probe_is_answered_while_all_places_are_taken_by_requests_that_never_end(
    connections: Connections,
) -> None:
    slow = [await connections.open(b"GET /metrics HTTP/1.1\r\nX: ") for _ in range(200)]

    assert await connections.status() == b"HTTP/1.1 200 OK"
    assert [await is_cut_off(reader) for reader in slow[:3]] == [True, True, True]


async def test_a_probe_is_answered_while_all_places_are_taken_by_clients_that_do_not_read(
    connections: Connections,
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

        async with asyncio.timeout(5.0):
            assert (await probe.readline()).strip() == b"HTTP/1.1 200 OK"


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
    connections: Connections, sent: bytes, caplog: pytest.LogCaptureFixture
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

    runner = web.ServerRunner(BoundedServer(endless))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made = Connections(runner)
    assert await is_cut_off(await made.open(GET % b"/"))
    for _, writer in made:
        writer.transport.abort()
    await runner.cleanup()
    assert caplog.records == []


async def test_a_bug_of_ours_in_an_answer_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def bug(_request: web.BaseRequest) -> web.StreamResponse:
        message = "a bug of ours"
        raise KeyError(message)

    runner = web.ServerRunner(BoundedServer(bug))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made = Connections(runner)
    assert await made.status() == b"HTTP/1.1 500 Internal Server Error"
    for _, writer in made:
        writer.close()
        await writer.wait_closed()
    await runner.cleanup()
    assert "a bug of ours" in caplog.text


@in_virtual_time
async def test_answers_come_one_after_the_other_however_many_ask() -> None:
    now_s, turns, answered_s = asyncio.get_running_loop().time, Turns(0.05), []

    async def handle(_: web.BaseRequest) -> web.StreamResponse:
        answered_s.append(now_s())
        return web.Response()

    asking = [asyncio.ensure_future(turns.each(handle)(cast("web.BaseRequest", None))) for _ in range(32)]
    await asyncio.sleep(0.01)
    for leaves in asking[1:31]:
        leaves.cancel()
    await asyncio.wait(asking)

    assert answered_s == [0.0, 0.05]


@in_virtual_time
async def test_an_answer_after_a_pause_waits_for_nobody() -> None:
    now_s, turns, answered_s = asyncio.get_running_loop().time, Turns(0.05), []

    async def handle(_: web.BaseRequest) -> web.StreamResponse:
        answered_s.append(now_s())
        return web.Response()

    for _ in range(3):
        await turns.each(handle)(cast("web.BaseRequest", None))
        await asyncio.sleep(1.0)

    assert answered_s == [0.0, 1.0, 2.0]
