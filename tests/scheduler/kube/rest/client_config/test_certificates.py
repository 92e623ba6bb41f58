"""TLS over both kinds of connections: whose certificates, whose names, and certificates that are replaced meanwhile."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from scheduler.kube import port
from scheduler.kube.rest.client_config.connect import Connection
from scheduler.kube.rest.client_config.credentials import Credentials, Lifetime, Loaded, Source
from scheduler.kube.rest.client_config.kubeconfig import Kubeconfig
from scheduler.kube.rest.transport import Transport
from tests.scheduler.kube.rest.conftest import Send, by_bare_connection
from tests.support.servers.api_server import Json
from tests.support.servers.byte_server import (
    BODY,
    CREATED,
    ByteServer,
    connected,
    made_certificate,
    until,
    write_kubeconfig,
)

REFUSED: Final = b'HTTP/1.1 401 Unauthorized\r\nContent-Length: 28\r\n\r\n{"kind":"Status","code":401}'
NAMES: Final = ("old", "new", "server", "other")
Log = list[Any]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    """Certificates and their keys, by name."""
    folder = tmp_path_factory.mktemp("certificates")
    return {name: made_certificate(folder, name) for name in NAMES}


@pytest.fixture
def log() -> Iterable[Log]:
    with structlog.testing.capture_logs() as lines:
        yield lines


@dataclass
class Mutual:
    """A server that asks for a certificate, and would speak HTTP/2.

    accepts: whose requests are not answered with 401. came: who sent each. spoken: protocol of each connection.
    """

    made: dict[str, tuple[Path, Path]]
    tls: ssl.SSLContext
    accepts: set[str] = field(default_factory=lambda: set(NAMES))
    came: list[str] = field(default_factory=list)
    spoken: list[str | None] = field(default_factory=list)
    bytes: ByteServer = field(default_factory=ByteServer)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Mutual"]:
        self.bytes.script = [self._answer]
        async with self.bytes.serving(self.tls):
            yield self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        who = dict(entry[0] for entry in writer.get_extra_info("peercert")["subject"])["commonName"]
        self.spoken.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())
        while True:
            await self.bytes.request(reader)
            self.came.append(who)
            writer.write(CREATED if who in self.accepts else REFUSED)


@pytest.fixture
async def server(made: dict[str, tuple[Path, Path]]) -> AsyncIterator[Mutual]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.set_alpn_protocols(["h2", "http/1.1"])
    tls.load_cert_chain(*made["server"])
    for certificate, _ in made.values():
        tls.load_verify_locations(certificate)
    async with Mutual(made, tls).serving() as serving:
        yield serving


@dataclass
class Files:
    """What a kubeconfig in `folder` names: a pair, and a CA."""

    server: Mutual
    folder: Path

    def write(self, certificate: str = "", key: str = "", ca: str = "") -> None:
        """Replace them by those of this name, "" leaves one as it is."""
        for target, name, part in (("pair.crt", certificate, 0), ("pair.key", key, 1), ("ca.crt", ca, 0)):
            if name:
                (self.folder / target).write_bytes(self.server.made[name][part].read_bytes())

    async def connection(self, user: Json | None = None, **cluster: str) -> Connection:
        """user: instead of the one with the pair. cluster: beside its CA."""
        self.write("old", "old", "server")
        pair = {"client-certificate": str(self.folder / "pair.crt"), "client-key": str(self.folder / "pair.key")}
        cluster = {"certificate-authority": str(self.folder / "ca.crt"), **cluster}
        return await connected(self.folder, self.server.bytes.url, user or pair, cluster)

    def in_line(self, name: str, server: str = "") -> Path:
        """Write a kubeconfig that holds all in itself. server: another address than that of ours."""
        pair = [base64.b64encode(path.read_bytes()).decode() for path in self.server.made[name]]
        ca = base64.b64encode(self.server.made["server"][0].read_bytes()).decode()
        user = {"client-certificate-data": pair[0], "client-key-data": pair[1]}
        return write_kubeconfig(self.folder, server or self.server.bytes.url, user, {"certificate-authority-data": ca})


@pytest.fixture
def files(server: Mutual, tmp_path: Path) -> Files:
    return Files(server, tmp_path)


class AtEachRequest:
    """A source that is asked at each request instead of once a minute."""

    def __init__(self, source: Source) -> None:
        self.source = source

    async def load(self) -> Loaded:
        return replace(await self.source.load(), lifetime=Lifetime(refresh_after_s=0.0))


async def asking_often(kubeconfig: Path, url: str) -> Transport:
    """A transport whose requests all start to look at the files."""
    credentials = Credentials(AtEachRequest(Kubeconfig([kubeconfig], None)))
    await credentials.load()
    return Transport(Connection(url=url, credentials=credentials, source="test"), connections=4)


async def sent_until(done: Callable[[], bool], transport: Transport, send: Send) -> None:
    """A load runs beside the request that starts it."""
    async with asyncio.timeout(5):
        while not done():
            assert await send(transport) == BODY


async def test_a_client_certificate_is_shown_and_needs_no_header_and_no_other_protocol(
    server: Mutual, files: Files
) -> None:
    transport = Transport(await files.connection(), connections=1)

    assert [await by_bare_connection(transport) for _ in range(2)] == [BODY, BODY]

    await transport.close()
    await until(lambda: server.bytes.closed == 1)
    assert (server.came, server.bytes.connections) == (["old", "old"], 1)
    assert server.spoken[0] in {None, "http/1.1"}
    assert not any(b"Authorization" in request for request in server.bytes.requests)


@pytest.mark.parametrize(
    ("user", "cluster", "words"),
    [
        pytest.param({"token": "t"}, {}, "the connection ended", id="a client without a certificate"),
        pytest.param(None, {"tls-server-name": "other.example"}, "TLS", id="a server with another name"),
    ],
)
async def test_a_handshake_that_fails_is_an_error_at_once_and_nothing_is_sent(
    server: Mutual, files: Files, user: Json | None, cluster: dict[str, str], words: str
) -> None:
    transport = Transport(await files.connection(user, **cluster), connections=1)

    for _ in range(5):
        with pytest.raises(port.ApiSilent, match=words):
            await by_bare_connection(transport)

    await transport.close()
    assert server.bytes.requests == []


async def test_a_request_under_way_when_the_certificate_changes_gets_its_answer_and_its_connection_ends(
    server: Mutual, files: Files
) -> None:
    answered = asyncio.Event()

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.bytes.request(reader)
        await answered.wait()
        writer.write(CREATED)
        await reader.read()

    server.bytes.script = [slowly, server.bytes.answers(CREATED)]
    connection = await files.connection()
    transport = Transport(connection, connections=2)
    under_way = asyncio.create_task(by_bare_connection(transport))
    await until(lambda: len(server.bytes.requests) == 1)
    files.write("new", "new")
    await connection.credentials.load()
    answered.set()

    assert await under_way == BODY
    await until(lambda: server.bytes.closed == 1)
    assert await by_bare_connection(transport) == BODY

    await transport.close()
    assert server.bytes.connections == 2


async def test_a_certificate_that_was_replaced_is_shown_when_the_old_one_is_refused(
    server: Mutual, files: Files, send: Send
) -> None:
    transport = Transport(await files.connection(), connections=4)
    await send(transport)
    files.write("new", "new")
    server.accepts = {"new"}

    assert [await send(transport) for _ in range(2)] == [BODY, BODY]

    await transport.close()
    assert server.came == ["old", "old", "new", "new"]


async def test_a_certificate_that_was_replaced_is_shown_before_the_old_one_is_refused(
    server: Mutual, files: Files, send: Send, log: Log
) -> None:
    await files.connection()
    transport = await asking_often(files.folder / "kubeconfig", server.bytes.url)
    await send(transport)
    files.write("new", "new")

    await sent_until(lambda: "new" in server.came, transport, send)
    server.accepts = {"new"}
    await send(transport)

    await transport.close()
    assert [line["event"] for line in log] == ["credentials.certificates_changed"]


async def test_idle_bare_connections_with_the_old_certificate_end_at_once(server: Mutual, files: Files) -> None:
    transport = Transport(await files.connection(), connections=4)
    await asyncio.gather(*(by_bare_connection(transport) for _ in range(3)))
    files.write("new", "new")
    server.accepts = {"new"}

    await by_bare_connection(transport)

    await until(lambda: server.bytes.closed == 3)
    await transport.close()


async def test_a_new_certificate_without_its_key_is_not_used_and_tried_again(
    server: Mutual, files: Files, send: Send, log: Log
) -> None:
    await files.connection()
    transport = await asking_often(files.folder / "kubeconfig", server.bytes.url)
    files.write(certificate="new")
    await sent_until(lambda: len(server.came) == 3, transport, send)
    assert server.came == ["old"] * 3

    files.write(key="new")
    server.accepts = {"new"}  # a 401 does not wait for the next try
    await send(transport)

    await transport.close()
    assert server.came[-1] == "new"
    assert [(line["event"], line["log_level"]) for line in log] == [
        ("credentials.not_renewed", "warning"),
        ("credentials.certificates_changed", "info"),
    ]
    assert "pair.crt" in log[0]["reason"]


@pytest.mark.parametrize("rest", ["", "-----BEGIN CERTIFICATE-----\nMIIB"], ids=["empty", "cut off"])
async def test_a_ca_file_that_is_not_whole_is_not_used(
    server: Mutual, files: Files, send: Send, log: Log, rest: str
) -> None:
    await files.connection()
    transport = await asking_often(files.folder / "kubeconfig", server.bytes.url)
    (files.folder / "ca.crt").write_text(rest, encoding="utf-8")

    await sent_until(lambda: len(server.came) == 3, transport, send)

    await transport.close()
    assert [line["event"] for line in log] == ["credentials.not_renewed"]


async def test_a_server_of_another_ca_is_trusted_once_the_file_says_so_and_the_old_one_no_longer(
    server: Mutual, files: Files, send: Send
) -> None:
    connection = await files.connection()
    files.write(ca="other")
    await connection.credentials.load()
    transport = Transport(connection, connections=4)
    with pytest.raises(port.ApiSilent, match="TLS"):
        await send(transport)

    server.tls.load_cert_chain(*server.made["other"])

    assert await send(transport) == BODY
    await transport.close()


async def test_a_kubeconfig_that_is_replaced_brings_what_it_holds_in_line(
    server: Mutual, files: Files, send: Send
) -> None:
    transport = await asking_often(files.in_line("old"), server.bytes.url)
    await send(transport)
    files.in_line("new")
    server.accepts = {"new"}

    await send(transport)

    await transport.close()
    assert (server.came[0], server.came[-1]) == ("old", "new")


@pytest.mark.parametrize("written", ["another server", "half", "nothing"])
async def test_what_is_no_kubeconfig_for_this_server_changes_nothing(
    server: Mutual, files: Files, send: Send, log: Log, written: str
) -> None:
    transport = await asking_often(files.in_line("old"), server.bytes.url)
    path = files.in_line("new", server="https://elsewhere.example" if written == "another server" else "")
    if written != "another server":
        path.write_bytes(path.read_bytes()[: len(path.read_bytes()) // 2] if written == "half" else b"")

    await sent_until(lambda: len(server.came) == 3, transport, send)

    await transport.close()
    assert server.came == ["old"] * 3
    assert [line["event"] for line in log] == ["credentials.not_renewed"]
    assert "BEGIN" not in str(log)


async def test_requests_that_are_refused_together_load_once(server: Mutual, files: Files, send: Send) -> None:
    class Counted:
        def __init__(self, source: Source) -> None:
            self.loads, self.source = 0, source

        async def load(self) -> Loaded:
            self.loads += 1
            return await self.source.load()

    await files.connection()
    source = Counted(Kubeconfig([files.folder / "kubeconfig"], None))
    credentials = Credentials(source)
    await credentials.load()
    connection = Connection(url=server.bytes.url, credentials=credentials, source="test")
    transport = Transport(connection, connections=4)
    files.write("new", "new")
    server.accepts = {"new"}

    assert await asyncio.gather(*(send(transport) for _ in range(8))) == [BODY] * 8

    await transport.close()
    assert source.loads == 2
