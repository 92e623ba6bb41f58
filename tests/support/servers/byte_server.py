"""A server on a loopback port that answers bytes set by a test, and the files for reaching it."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from scheduler.kube.rest.client_config.connect import Connection, connect
from tests.support.servers.api_server import Json
from tests.support.servers.listing_server import written_kubeconfig

BODY: Final = b'{"kind":"Status","status":"Success"}'
CREATED: Final = b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
Behaviour: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class ByteServer:
    """The server. script: behavior per connection, in order; the last one repeats. requests: as bytes."""

    script: list[Behaviour] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    closed: int = 0
    url: str = ""

    @asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["ByteServer"]:
        async with await asyncio.start_server(self.talk, "127.0.0.1", 0, ssl=tls) as listening:
            self.url = f"http{'s' if tls else ''}://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            yield self

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behaviour = self.script[min(self.connections, len(self.script) - 1)]
        self.connections += 1
        try:
            await behaviour(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.closed += 1
            writer.close()

    async def request(self, reader: asyncio.StreamReader) -> bytes:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        self.requests.append(head + await reader.readexactly(length))
        return self.requests[-1]

    def answers(self, *answers: bytes, then_ends: bool = False) -> Behaviour:
        """Answer each request with the next of these; then wait for the client to leave, or end the connection."""

        async def behaviour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for answer in answers:
                await self.request(reader)
                for piece in answer.split(b"|"):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
            if not then_ends:
                await reader.read()

        return behaviour

    async def silent(self, reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        """Read one request, and send no answer until the client leaves."""
        await self.request(reader)
        await reader.read()


def write_kubeconfig(folder: Path, url: str, user: Json | None = None, cluster: Json | None = None) -> Path:
    return written_kubeconfig(folder, url, user=user or {"token": "secret"}, cluster=cluster)


async def connected(folder: Path, url: str, user: Json | None = None, cluster: Json | None = None) -> Connection:
    return await connect({}, kubeconfig=write_kubeconfig(folder, url, user, cluster))


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not done():  # noqa: ASYNC110 - what the other end notices cannot be waited for
            await asyncio.sleep(0.001)


def made_certificate(folder: Path, name: str = "me") -> tuple[Path, Path]:
    """Return a self-signed certificate of 127.0.0.1, for servers and clients. name: its common name."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:api.example"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key
