"""Requests over bare connections, against a server that answers byte by byte what a test says."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest
import uvloop
import yaml

from scheduler.kube import port
from scheduler.kube.rest import bare_connections
from scheduler.kube.rest.bare_connections import Answer, Connections
from scheduler.kube.rest.connect import Connection, connect
from scheduler.kube.rest.transport import Transport
from tests.support.api_server import Json

HEADERS: Final = {"Accept": "application/json"}
CREATED: Final = b'HTTP/1.1 201 Created\r\nContent-Length: 17\r\n\r\n{"kind":"Status"}'
BODY: Final = b'{"kind":"Status"}'
AUTHORITY: Final = "certificate-authority"
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Server:
    """script: what it does on each connection, in order; the last one on all that follow. requests: as bytes."""

    script: list[Behaviour] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    closed: int = 0
    url: str = ""

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
        """One after each request, as many pieces as there are; then it waits for the client to go, or ends itself."""

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


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    async with await asyncio.start_server(made.talk, "127.0.0.1", 0) as listening:
        made.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        yield made


@pytest.fixture
async def bare(server: Server, tmp_path: Path) -> AsyncIterator[Connections]:
    made = Connections(await connected(tmp_path, server.url), HEADERS, most=2)
    yield made
    made.close()


async def connected(folder: Path, url: str, user: Json | None = None, cluster: Json | None = None) -> Connection:
    document = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "api", "user": "me"}}],
        "clusters": [{"name": "api", "cluster": {"server": url, **(cluster or {})}}],
        "users": [{"name": "me", "user": user or {"token": "secret"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return await connect({}, kubeconfig=path)


async def post(bare: Connections, path: str = "/x", body: bytes = b"{}") -> Answer:
    async with asyncio.timeout(5):
        return await bare.post(path, body, "Bearer secret")


async def until(done: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not done():  # noqa: ASYNC110 - what the other end notices cannot be waited for
            await asyncio.sleep(0.001)


async def test_a_request_is_these_bytes(server: Server, bare: Connections) -> None:
    server.script = [server.answers(CREATED)]

    answer = await post(bare, "/a?timeout=4s", b'{"a":1}')

    authority = server.url.removeprefix("http://").encode()
    assert server.requests == [
        b"POST /a?timeout=4s HTTP/1.1\r\nHost: %b\r\nAccept: application/json\r\n"
        b'Authorization: Bearer secret\r\nContent-Length: 7\r\n\r\n{"a":1}' % authority
    ]
    assert answer == (201, {}, BODY)


async def test_requests_one_after_the_other_share_a_connection(server: Server, bare: Connections) -> None:
    server.script = [server.answers(CREATED, CREATED, CREATED)]

    assert [(await post(bare)).status for _ in range(3)] == [201] * 3

    assert server.connections == 1


async def test_no_more_connections_than_allowed_are_open(server: Server, bare: Connections) -> None:
    server.script = [server.answers(*[CREATED] * 9)]

    answers = await asyncio.gather(*(post(bare) for _ in range(9)))

    assert [answer.body for answer in answers] == [BODY] * 9
    assert server.connections == 2


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param(b"HTTP/1.1 201 Created\r\nContent-|Length: 17\r\n\r\n{|" + BODY[1:], (201, {}, BODY), id="pieces"),
        pytest.param(
            b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n" + BODY[:8] + b"|\r\n9\r\n"
            b"" + BODY[8:] + b"\r\n0\r\n|\r\n",
            (201, {}, BODY),
            id="chunks",
        ),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n|" + CREATED, (201, {}, BODY), id="after an interim answer"),
        pytest.param(b"HTTP/1.1 103 Early\r\nX: y\r\n\r\n" + CREATED, (201, {}, BODY), id="together with one"),
        pytest.param(
            b"HTTP/1.1 429 Slow\r\nretry-after: 7\r\nContent-Length: 0\r\n\r\n",
            (429, {"Retry-After": "7"}, b""),
            id="throttled",
        ),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", (204, {}, b""), id="without a body"),
    ],
)
async def test_an_answer_is_read_however_it_comes_and_the_connection_used_again(
    server: Server, bare: Connections, sent: bytes, expected: tuple[int, dict[str, str], bytes]
) -> None:
    server.script = [server.answers(sent, CREATED)]

    assert await post(bare) == expected
    assert (await post(bare)).status == 201

    assert server.connections == 1


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(
            b"HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 17\r\n\r\n" + BODY, id="as it says"
        ),
        pytest.param(b"HTTP/1.1 201 Created\r\nConnection: close\r\n\r\n" + BODY[:5] + b"|" + BODY[5:], id="no length"),
        pytest.param(b"HTTP/1.0 201 Created\r\nContent-Length: 17\r\n\r\n" + BODY, id="HTTP 1.0"),
    ],
)
async def test_a_connection_that_the_server_ends_with_its_answer_is_not_used_again(
    server: Server, bare: Connections, sent: bytes
) -> None:
    server.script = [server.answers(sent, then_ends=True), server.answers(CREATED)]

    assert await post(bare) == (201, {}, BODY)
    assert (await post(bare)).status == 201

    assert (server.connections, len(server.requests)) == (2, 2)


async def test_a_connection_that_the_server_has_ended_meanwhile_is_not_used_again(
    server: Server, bare: Connections
) -> None:
    server.script = [server.answers(CREATED, then_ends=True), server.answers(CREATED)]
    await post(bare)
    await until(lambda: server.closed == 1)
    await until(lambda: bare.open == 0)

    assert (await post(bare)).status == 201

    assert len(server.requests) == 2


async def test_a_connection_that_was_idle_for_long_is_not_used_again(
    server: Server, bare: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = [server.answers(CREATED, CREATED)]
    await post(bare)
    monkeypatch.setattr(bare_connections, "KEEP_ALIVE_S", 0.0)

    await post(bare)
    await until(lambda: server.closed == 1)

    assert server.connections == 2


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        pytest.param(b"", "before the answer", id="nothing"),
        pytest.param(b"HTTP/1.1 20", "before the answer", id="half a head"),
        pytest.param(b"HTTP/1.1 201 Created\r\nContent-Length: 17\r\n\r\n{", "in the middle of the answer", id="half"),
        pytest.param(
            b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n" + BODY[:8] + b"\r\n",
            "in the middle of the answer",
            id="half the chunks",
        ),
        pytest.param(b"SSH-2.0-OpenSSH\r\n", "not HTTP", id="another protocol"),
        pytest.param(b"HTTP/1.1 201 Created\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}", "not HTTP", id="two"),
        pytest.param(b"HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "switch", id="an upgrade"),
    ],
)
async def test_what_is_no_whole_answer_is_an_error_and_is_sent_once(
    server: Server, bare: Connections, sent: bytes, words: str
) -> None:
    server.script = [server.answers(sent, then_ends=True), server.answers(CREATED)]

    with pytest.raises(ConnectionError, match=words):
        await post(bare)

    assert len(server.requests) == 1
    assert (await post(bare)).status == 201


async def test_an_answer_without_end_is_given_up(
    server: Server, bare: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare_connections, "MOST_BYTES", 1000)
    server.script = [server.answers(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 2000)]

    with pytest.raises(ConnectionError, match="over 1000 bytes"):
        await post(bare)

    await until(lambda: server.closed == 1)


async def test_a_second_answer_to_one_request_is_for_nobody(server: Server, bare: Connections) -> None:
    server.script = [server.answers(CREATED + CREATED.replace(b"201", b"500")), server.answers(CREATED)]

    assert (await post(bare)).status == 201
    assert (await post(bare)).status == 201

    await until(lambda: server.closed == 1)
    assert server.connections == 2


async def test_an_answer_that_nobody_has_asked_for_costs_the_connection(server: Server, bare: Connections) -> None:
    async def talks_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.answers(CREATED, then_ends=True)(reader, writer)
        writer.write(CREATED.replace(b"201", b"500"))
        await reader.read()

    server.script = [talks_first, server.answers(CREATED)]
    await post(bare)
    await until(lambda: bare.open == 0)

    assert (await post(bare)).status == 201
    assert server.connections == 2


async def test_who_gives_up_costs_the_connection_and_the_next_gets_its_own_answer(
    server: Server, bare: Connections
) -> None:
    answered = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        await answered.wait()
        writer.write(CREATED.replace(b"201", b"500"))
        await reader.read()

    server.script = [late, server.answers(CREATED)]
    waits = asyncio.create_task(bare.post("/x", b"{}", None))
    await until(lambda: len(server.requests) == 1)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    answered.set()

    assert (await post(bare)).status == 201
    assert server.connections == 2
    await until(lambda: server.closed == 1)


async def test_the_end_is_an_error_for_those_who_wait(server: Server, bare: Connections) -> None:
    server.script = [server.answers(CREATED)]
    server.script = [lambda reader, _: _forever(server, reader)]
    waits = [asyncio.create_task(post(bare)) for _ in range(2)]
    await until(lambda: len(server.requests) == 2)

    bare.close()

    found = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(error) for error in found] == [ConnectionError] * 2
    await until(lambda: server.closed == 2)


async def _forever(server: Server, reader: asyncio.StreamReader) -> None:
    await server.request(reader)
    await reader.read()


@pytest.mark.parametrize("token", ["a\r\nX-Remote-User: admin", "a\x00", "ä", "a\nb"])
async def test_a_token_never_becomes_another_header(server: Server, bare: Connections, token: str) -> None:
    server.script = [server.answers(CREATED)]

    with pytest.raises(ConnectionError, match="look at the token"):
        await bare.post("/x", b"{}", f"Bearer {token}")

    assert server.requests == []


async def test_a_path_of_the_servers_address_comes_first(server: Server, tmp_path: Path) -> None:
    server.script = [server.answers(CREATED)]
    bare = Connections(await connected(tmp_path, f"{server.url}/clusters/c-1"), HEADERS, most=1)

    await post(bare)
    bare.close()

    assert server.requests[0].startswith(b"POST /clusters/c-1/x HTTP/1.1\r\nHost: 127.0.0.1:")


# With TLS, on the event loop of the program


def made_certificate(folder: Path) -> tuple[Path, Path]:
    """Of 127.0.0.1, signed by itself, for servers and clients."""
    certificate, key = folder / "tls.crt", folder / "tls.key"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=me"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:api.example"]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return made_certificate(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop])
def test_over_tls_with_the_clients_certificate(
    loop: Callable[[], asyncio.AbstractEventLoop], certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    async def talk() -> None:
        server = Server()
        server.script = [server.answers(CREATED, CREATED)]
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificate[0]))
        tls.verify_mode = ssl.CERT_REQUIRED
        tls.load_cert_chain(*certificate)
        async with await asyncio.start_server(server.talk, "127.0.0.1", 0, ssl=tls) as listening:
            url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
            files = {"client-certificate": str(certificate[0]), "client-key": str(certificate[1])}
            bare = Connections(await connected(tmp_path, url, files, {AUTHORITY: str(certificate[0])}), HEADERS, most=1)
            assert (await bare.post("/x", b"{}", None)).status == 201
            assert b"Authorization" not in server.requests[0]
            assert (await bare.post("/x", b"{}", None)).status == 201
            assert server.connections == 1
            bare.close()
            await until(lambda: server.closed == 1)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(talk())


@pytest.mark.parametrize(("name", "accepted"), [("api.example", True), ("other.example", False)])
async def test_the_certificate_must_be_of_the_name_that_is_configured(
    certificate: tuple[Path, Path],
    tmp_path: Path,
    name: str,
    accepted: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    server = Server()
    server.script = [server.answers(CREATED)]
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*certificate)
    async with await asyncio.start_server(server.talk, "127.0.0.1", 0, ssl=tls) as listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        to = await connected(tmp_path, url, cluster={AUTHORITY: str(certificate[0]), "tls-server-name": name})
        transport = Transport(to, connections=1)
        sending = transport.post("/x", b"{}", answers="Status", timeout_s=5.0)
        if accepted:
            assert await sending == BODY
        else:
            with pytest.raises(port.ApiSilent, match="TLS"):
                await sending
        await transport.close()
    assert len(server.requests) == accepted
