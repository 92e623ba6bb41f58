"""An HTTP proxy on loopback that wants a password, as between a scheduler and the API server of another network.

OPEN --fails_with(answer)--> every tunnel ends, and each new one is answered so --open--> OPEN
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_WRONG_PASSWORD: Final = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
_CHUNK: Final = 2**16


@dataclass(slots=True)
class Tunnel:
    """user, password: whom it lets through. opened: tunnels so far."""

    user: str
    password: str
    port: int = 0
    opened: int = 0
    _answer: bytes = b""
    _clients: dict[asyncio.Task[None], asyncio.StreamWriter] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """With the password, as people write it into HTTPS_PROXY and `proxy-url`."""
        return f"http://{self.user}:{self.password}@127.0.0.1:{self.port}"

    @property
    def header(self) -> str:
        """What a client shows."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def fails_with(self, answer: bytes) -> None:
        """End every tunnel, and open no other."""
        self._answer = answer
        for writer in self._clients.values():
            writer.transport.abort()

    def open(self) -> None:
        """Let everybody through again who knows the password."""
        self._answer = b""

    async def end(self) -> None:
        """End every tunnel, and wait for that."""
        self.fails_with(_WRONG_PASSWORD)
        if self._clients:
            await asyncio.wait([*self._clients])

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One client."""
        client = asyncio.get_running_loop().create_task(self._served(reader, writer))
        self._clients[client] = writer
        client.add_done_callback(self._clients.pop)

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        right = f"Proxy-Authorization: {self.header}\r\n" in head
        if self._answer or not right:
            writer.write(self._answer or _WRONG_PASSWORD)
            await writer.drain()
            return
        host, _, port = head.split(" ", 2)[1].partition(":")
        to_reader, to_writer = await asyncio.open_connection(host, int(port))
        self.opened += 1
        writer.write(_ESTABLISHED)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(reader, to_writer))
                tasks.create_task(_pump(to_reader, writer))
        finally:
            to_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    # The other direction has nobody left to talk to.
    writer.close()


@asynccontextmanager
async def tunnel(user: str, password: str) -> AsyncIterator[Tunnel]:
    """One that listens, open."""
    made = Tunnel(user, password)
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.end()
