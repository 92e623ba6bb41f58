"""Servers on loopback that record what a client of a kubeconfig sends: headers, certificate, server name, proxy.

client ──────────────────────────▶ plain or TLS server ─▶ one `Sent` a request
   └────▶ plain or TLS proxy ─────▶
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tests.support.servers.byte_server import made_certificate

_BODY: Final = b'{"kind":"Status","apiVersion":"v1","status":"Success","gitVersion":"v1"}'
_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b"
    % (len(_BODY), _BODY)
)
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"
_CHUNK: Final = 2**16
# Of what says who sends a request.
_IDENTITY: Final = ("authorization", "impersonate-")


@dataclass(frozen=True)
class Sent:
    """One request. identity: headers, sorted, names in small letters. certificate: common name of the client's.

    proxied: the authorization that its proxy was shown, None where no proxy was used.
    """

    path: str
    encrypted: bool
    identity: tuple[tuple[str, str], ...]
    certificate: str
    server_name: str | None
    proxied: str | None


@dataclass
class Recorder:
    """The servers' ports by name (`http`, `https`, `proxy`, `secure-proxy`), and what has come."""

    folder: Path
    ports: dict[str, int] = field(default_factory=dict)
    sent: list[Sent] = field(default_factory=list)
    _server_name: str | None = None
    _proxied: str | None = None

    def take(self) -> list[Sent]:
        """What has come since the last call."""
        sent, self.sent = self.sent, []
        self._server_name = self._proxied = None
        return sent

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Recorder"]:
        """Certificates `server` and `me` lie in the folder, each with its key."""
        server, me = made_certificate(self.folder, "server"), made_certificate(self.folder, "me")
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(*server)
        of_proxy = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        of_proxy.load_cert_chain(*server)
        tls.verify_mode = ssl.CERT_OPTIONAL
        tls.load_verify_locations(me[0])
        tls.sni_callback = self._named
        async with AsyncExitStack() as servers:
            for name, accept, context in (
                ("http", self._accept, None),
                ("https", self._accept, tls),
                ("proxy", self._accept_proxied, None),
                ("secure-proxy", self._accept_proxied, of_proxy),
            ):
                made = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
                self.ports[name] = made.sockets[0].getsockname()[1]
                await servers.enter_async_context(made)
            yield self

    def _named(self, _: ssl.SSLObject | ssl.SSLSocket, name: str | None, __: ssl.SSLContext) -> None:
        self._server_name = name

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            line, headers = _head(await reader.readuntil(b"\r\n\r\n"))
            self._record(line, headers, writer)
            writer.write(_ANSWER)
            await writer.drain()
        writer.close()

    def _record(self, line: str, headers: list[tuple[str, str]], writer: asyncio.StreamWriter) -> None:
        shown = dict(entry[0] for entry in (writer.get_extra_info("peercert") or {}).get("subject", ()))
        encrypted = writer.get_extra_info("ssl_object") is not None
        self.sent.append(
            Sent(
                urlsplit(line.split(" ")[1]).path,
                encrypted,
                tuple(sorted((name, value) for name, value in headers if name.startswith(_IDENTITY))),
                shown.get("commonName", ""),
                self._server_name if encrypted else None,
                self._proxied,
            )
        )

    async def _accept_proxied(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            line, headers = _head(await reader.readuntil(b"\r\n\r\n"))
            self._proxied = dict(headers).get("proxy-authorization", "")
            method, target, _ = line.split(" ")
            if method == "CONNECT":
                host, _, port = target.rpartition(":")
                await _tunnel(reader, writer, host, int(port))
            else:
                self._record(line, headers, writer)
                writer.write(_ANSWER)
                await writer.drain()
        writer.close()


async def _tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int) -> None:
    to_reader, to_writer = await asyncio.open_connection(host, port)
    writer.write(_ESTABLISHED)
    await asyncio.wait(
        [asyncio.ensure_future(_copy(reader, to_writer)), asyncio.ensure_future(_copy(to_reader, writer))],
        return_when=asyncio.ALL_COMPLETED,
    )


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    writer.close()


def _head(received: bytes) -> tuple[str, list[tuple[str, str]]]:
    """The request's line, and its headers with names in small letters."""
    line, *rest = received.decode().split("\r\n")
    pairs = (one.partition(":") for one in rest if one)
    return line, [(name.lower(), value.strip()) for name, _, value in pairs]
