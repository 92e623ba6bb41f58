"""Clients of a server on loopback that send it byte by byte what a test says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from scheduler.process.http_server import Handler, http_server

GET = b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n"


class Clients(list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]):
    """Opened by `open`, closed at the end of the test."""

    def __init__(self, runner: web.ServerRunner) -> None:
        self.runner = runner
        self.port = runner.addresses[0][1]

    async def open(self, sent: bytes = b"") -> asyncio.StreamReader:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**10)
        self.append((reader, writer))
        writer.write(sent)
        return reader

    async def status(self, path: bytes = b"/healthz") -> bytes:
        """Status line, soon, also on a busy machine; b"" when the connection is cut off."""
        async with asyncio.timeout(5.0):
            return (await (await self.open(GET % path)).readline()).strip()


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
async def answering(handler: Handler) -> AsyncIterator[Clients]:
    runner = http_server(handler)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    async with connected(runner) as made:
        yield made
