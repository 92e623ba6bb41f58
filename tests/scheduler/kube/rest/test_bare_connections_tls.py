"""TLS: whose certificates, whose names, and what is not offered."""

import asyncio
import ssl
from http import HTTPMethod
from pathlib import Path

import pytest

from scheduler.kube import port
from scheduler.kube.rest.transport import Transport
from tests.support.servers.api_server import Json
from tests.support.servers.byte_server import BODY, CREATED, ByteServer, connected, made_certificate, until


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The file and the file of its key."""
    return made_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tls(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """For the server; it would speak HTTP/2."""
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate[0]))
    made.load_cert_chain(*certificate)
    made.set_alpn_protocols(["h2", "http/1.1"])
    return made


def trusting(certificate: tuple[Path, Path], **cluster: str) -> Json:
    return {"certificate-authority": str(certificate[0]), **cluster}


async def test_a_client_certificate_is_shown_and_needs_no_header(
    certificate: tuple[Path, Path], tls: ssl.SSLContext, tmp_path: Path
) -> None:
    tls.verify_mode = ssl.CERT_REQUIRED
    server = ByteServer()
    server.script = [server.answers(CREATED, CREATED)]
    user = {"client-certificate": str(certificate[0]), "client-key": str(certificate[1])}
    async with server.serving(tls):
        transport = Transport(await connected(tmp_path, server.url, user, trusting(certificate)), connections=1)

        for _ in range(2):
            assert await transport.write(HTTPMethod.POST, "/x", b"{}", answers="Status", timeout_s=5.0) == BODY

        await transport.close()
        await until(lambda: server.closed == 1)
    assert server.connections == 1
    assert not any(b"Authorization" in request for request in server.requests)


async def test_a_server_that_wants_a_client_certificate_is_an_error_at_once(
    certificate: tuple[Path, Path], tls: ssl.SSLContext, tmp_path: Path
) -> None:
    tls.verify_mode = ssl.CERT_REQUIRED
    server = ByteServer()
    server.script = [server.answers(CREATED)]
    async with server.serving(tls):
        transport = Transport(await connected(tmp_path, server.url, cluster=trusting(certificate)), connections=1)

        for _ in range(5):
            with pytest.raises(port.ApiSilent, match="the connection ended"):
                await transport.write(HTTPMethod.POST, "/x", b"{}", answers="Status", timeout_s=5.0)

        await transport.close()


@pytest.mark.parametrize(("name", "accepted"), [("api.example", True), ("other.example", False)])
async def test_the_certificate_must_be_of_the_name_that_is_configured(
    certificate: tuple[Path, Path],
    tls: ssl.SSLContext,
    tmp_path: Path,
    name: str,
    accepted: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    server = ByteServer()
    server.script = [server.answers(CREATED)]
    async with server.serving(tls):
        cluster = trusting(certificate, **{"tls-server-name": name})
        transport = Transport(await connected(tmp_path, server.url, cluster=cluster), connections=1)
        sending = transport.write(HTTPMethod.POST, "/x", b"{}", answers="Status", timeout_s=5.0)
        if accepted:
            assert await sending == BODY
        else:
            with pytest.raises(port.ApiSilent, match="TLS"):
                await sending
        await transport.close()
    assert len(server.requests) == accepted


async def test_another_protocol_than_this_is_not_offered(
    certificate: tuple[Path, Path], tls: ssl.SSLContext, tmp_path: Path
) -> None:
    chosen: list[str | None] = []
    server = ByteServer()

    async def notes(reader: object, writer: object) -> None:
        chosen.append(writer.get_extra_info("ssl_object").selected_alpn_protocol())  # type: ignore[attr-defined]
        await server.answers(CREATED)(reader, writer)  # type: ignore[arg-type]

    server.script = [notes]
    async with server.serving(tls):
        transport = Transport(await connected(tmp_path, server.url, cluster=trusting(certificate)), connections=1)
        await transport.write(HTTPMethod.POST, "/x", b"{}", answers="Status", timeout_s=5.0)
        await transport.close()
    assert chosen[0] in {None, "http/1.1"}


async def test_a_request_under_way_when_the_certificate_changes_gets_its_answer_and_its_connection_ends(
    certificate: tuple[Path, Path], tls: ssl.SSLContext, tmp_path: Path
) -> None:
    server, answered = ByteServer(), asyncio.Event()

    async def slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        await answered.wait()
        writer.write(CREATED)
        await reader.read()

    server.script = [slowly, server.answers(CREATED)]
    mine = tmp_path / "mine.crt", tmp_path / "mine.key"
    for target, source in zip(mine, certificate, strict=True):
        target.write_bytes(source.read_bytes())
    user = {"client-certificate": str(mine[0]), "client-key": str(mine[1])}
    async with server.serving(tls):
        connection = await connected(tmp_path, server.url, user, trusting(certificate))
        transport = Transport(connection, connections=2)
        under_way = asyncio.create_task(transport.write(HTTPMethod.POST, "/x", b"{}", answers="Status", timeout_s=5.0))
        await until(lambda: len(server.requests) == 1)
        for target, source in zip(mine, made_certificate(tmp_path, "new"), strict=True):
            target.write_bytes(source.read_bytes())
        await connection.credentials.load()
        answered.set()

        assert await under_way == BODY
        await until(lambda: server.closed == 1)
        assert await transport.write(HTTPMethod.POST, "/y", b"{}", answers="Status", timeout_s=5.0) == BODY

        await transport.close()
    assert server.connections == 2
