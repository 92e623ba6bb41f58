"""Certificates that are replaced while the program runs, over both kinds of connections, against a server with TLS."""

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from http import HTTPMethod
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from scheduler.kube import port
from scheduler.kube.rest.client_config.connect import Connection
from scheduler.kube.rest.client_config.credentials import Credentials, Lifetime, Loaded, Source
from scheduler.kube.rest.client_config.kubeconfig import Kubeconfig
from scheduler.kube.rest.transport import Transport
from tests.support.byte_server import BODY, CREATED, ByteServer, connected, made_certificate, until

REFUSED: Final = b'HTTP/1.1 401 Unauthorized\r\nContent-Length: 28\r\n\r\n{"kind":"Status","code":401}'
NAMES: Final = ("old", "new", "server", "other")
Send = Callable[[Transport], Awaitable[bytes]]
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


async def by_session(transport: Transport) -> bytes:
    return await transport.send(HTTPMethod.POST, "/x", b"{}", answers="Status", timeout_s=5.0)


async def by_bare_connection(transport: Transport) -> bytes:
    return await transport.write(HTTPMethod.POST, "/x", b"{}", answers="Status", timeout_s=5.0)


@pytest.fixture(params=[by_session, by_bare_connection], ids=["session", "bare"])
def send(request: pytest.FixtureRequest) -> Send:
    asked: Send = request.param
    return asked


@dataclass
class Mutual:
    """A server that asks for a certificate. accepts: whose requests are not answered with 401. came: who sent each."""

    made: dict[str, tuple[Path, Path]]
    tls: ssl.SSLContext
    accepts: set[str] = field(default_factory=lambda: set(NAMES))
    came: list[str] = field(default_factory=list)
    bytes: ByteServer = field(default_factory=ByteServer)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Mutual"]:
        self.bytes.script = [self._answer]
        async with self.bytes.serving(self.tls):
            yield self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        who = dict(entry[0] for entry in writer.get_extra_info("peercert")["subject"])["commonName"]
        while True:
            await self.bytes.request(reader)
            self.came.append(who)
            writer.write(CREATED if who in self.accepts else REFUSED)


@pytest.fixture
async def server(made: dict[str, tuple[Path, Path]]) -> AsyncIterator[Mutual]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.verify_mode = ssl.CERT_REQUIRED
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

    async def connection(self) -> Connection:
        self.write("old", "old", "server")
        user = {"client-certificate": str(self.folder / "pair.crt"), "client-key": str(self.folder / "pair.key")}
        cluster = {"certificate-authority": str(self.folder / "ca.crt")}
        return await connected(self.folder, self.server.bytes.url, user, cluster)

    def in_line(self, name: str, server: str = "") -> Path:
        """Write a kubeconfig that holds all in itself. server: another address than that of ours."""
        pair = [base64.b64encode(path.read_bytes()).decode() for path in self.server.made[name]]
        ca = base64.b64encode(self.server.made["server"][0].read_bytes()).decode()
        document = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "api", "user": "me"}}],
            "clusters": [
                {
                    "name": "api",
                    "cluster": {"server": server or self.server.bytes.url, "certificate-authority-data": ca},
                }
            ],
            "users": [{"name": "me", "user": {"client-certificate-data": pair[0], "client-key-data": pair[1]}}],
        }
        path = self.folder / "kubeconfig"
        path.write_text(json.dumps(document), encoding="utf-8")
        return path


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
