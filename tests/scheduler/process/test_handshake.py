"""Connections count from the moment they are accepted, and none stays in its TLS handshake."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from aiohttp import web

from scheduler.process.bounded_server import Limits
from tests.scheduler.process.clients import GET, Clients, answering, first_line, is_cut_off
from tests.support.servers.byte_server import made_certificate, until

ROOT = GET % b"/"
ANYBODY = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
ANYBODY.check_hostname, ANYBODY.verify_mode = False, ssl.CERT_NONE


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*made_certificate(tmp_path_factory.mktemp("pair")))
    return context


@asynccontextmanager
async def serving(tls: ssl.SSLContext, limits: Limits) -> AsyncIterator[Clients]:
    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response()

    async with answering(answer, limits, tls) as clients:
        before = files()
        yield clients
    await until(lambda: files() <= before)


def files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", ROOT])
async def test_however_many_are_opened_few_are_kept(tls: ssl.SSLContext, sent: bytes) -> None:
    async with serving(tls, Limits(connections=8)) as clients:
        opened = files()
        many = [await clients.open(sent) for _ in range(100)]

        assert all([await is_cut_off(reader) for reader in many[:80]])
        assert files() <= opened + 100 + 16
        assert await clients.status(tls=ANYBODY) == b"HTTP/1.1 200 OK"


async def test_one_that_says_nothing_is_cut_off_in_time(tls: ssl.SSLContext) -> None:
    async with serving(tls, Limits(handshake_s=0.2)) as clients:
        assert await is_cut_off(await clients.open())
        assert await is_cut_off(await clients.open(b"\x16\x03\x01"))


async def test_after_the_handshake_the_time_for_a_request_begins(tls: ssl.SSLContext) -> None:
    async with serving(tls, Limits(handshake_s=0.2, request_s=0.6)) as clients:
        reader = await clients.open(tls=ANYBODY)
        await asyncio.sleep(0.4)
        clients[-1][1].write(ROOT)

        assert await first_line(reader) == b"HTTP/1.1 200 OK"


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(tls: ssl.SSLContext) -> None:
    async with serving(tls, Limits(connections=2)) as clients:
        for _ in range(30):
            assert await clients.status(tls=ANYBODY) == b"HTTP/1.1 200 OK"


async def test_what_is_no_handshake_fills_no_log(tls: ssl.SSLContext, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(tls, Limits()) as clients:
        with suppress(ConnectionError):
            await (await clients.open(ROOT)).read()
        await clients.open(b"\x16\x03\x01")
        clients[-1][1].close()
        assert await clients.status(tls=ANYBODY) == b"HTTP/1.1 200 OK"

    assert caplog.records == []


async def test_the_program_ends_while_a_handshake_is_under_way(tls: ssl.SSLContext) -> None:
    async with asyncio.timeout(5), serving(tls, Limits()) as clients:
        silent = await clients.open(b"\x16\x03\x01")
        await clients.status(tls=ANYBODY)
    assert await is_cut_off(silent)
