"""Clients of a bounded server on loopback that send it byte by byte what a test says."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from scheduler.process.bounded_server import DEFAULT_LIMITS, Answer, BoundedServer, Limits

GET = b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n"


class Clients(list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]):
    """Opened by `open`, closed at the end of the test."""

    def __init__(self, runner: web.ServerRunner) -> None:
        self.runner = runner
        self.port = runner.addresses[0][1]

    async def open(
        self, sent: bytes = b"", tls: ssl.SSLContext | None = None, peer: str = "127.0.0.1"
    ) -> asyncio.StreamReader:
        """peer: the address that it comes from."""
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, limit=2**10, ssl=tls, local_addr=(peer, 0)
        )
        self.append((reader, writer))
        writer.write(sent)
        return reader

    async def status(self, path: bytes = b"/healthz", tls: ssl.SSLContext | None = None) -> bytes:
        """Status line, soon, also on a busy machine; b"" when the connection is cut off."""
        return await first_line(await self.open(GET % path, tls))


async def first_line(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(5.0):
        return (await reader.readline()).strip()


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


@asynccontextmanager
async def connected(runner: web.ServerRunner) -> AsyncIterator[Clients]:
    """Clients of a server, which ends with them."""
    made = Clients(runner)
    try:
        yield made
    finally:
        for _, writer in made:
            writer.transport.abort()
        await runner.cleanup()


@asynccontextmanager
async def answering(
    answer: Answer, limits: Limits = DEFAULT_LIMITS, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Clients]:
    runner = web.ServerRunner(BoundedServer(answer, limits, tls), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with connected(runner) as made:
        yield made
