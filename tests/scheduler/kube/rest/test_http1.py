"""What is sent, and how answers are read, against a server that answers byte by byte what a test says."""

import asyncio
from http import HTTPMethod

import pytest

from scheduler.kube.rest import http1
from scheduler.kube.rest.bare_connections import Connections
from tests.scheduler.kube.rest.conftest import post
from tests.support.servers.byte_server import BODY, CREATED, ByteServer, until


async def test_a_request_is_these_bytes(server: ByteServer, bare: Connections) -> None:
    server.script = [server.answers(CREATED)]

    answer = await post(bare, "/a?timeout=4s", b'{"a":1}')

    authority = server.url.removeprefix("http://").encode()
    assert server.requests == [
        b"POST /a?timeout=4s HTTP/1.1\r\nHost: %b\r\nAccept: application/json\r\n"
        b"Content-Type: application/json\r\n"
        b'Authorization: Bearer secret\r\nContent-Length: 7\r\n\r\n{"a":1}' % authority
    ]
    assert answer == (201, {}, BODY)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param(b"HTTP/1.1 201 Created\r\nContent-|Length: 36\r\n\r\n{|" + BODY[1:], (201, {}, BODY), id="pieces"),
        pytest.param(
            b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n" + BODY[:8] + b"|\r\n1c\r\n"
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
    server: ByteServer, bare: Connections, sent: bytes, expected: tuple[int, dict[str, str], bytes]
) -> None:
    server.script = [server.answers(sent, CREATED)]

    assert await post(bare) == expected
    assert (await post(bare)).status == 201

    assert server.connections == 1


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(
            b"HTTP/1.1 201 Created\r\nConnection: close\r\nContent-Length: 36\r\n\r\n" + BODY, id="as it says"
        ),
        pytest.param(b"HTTP/1.1 201 Created\r\nConnection: close\r\n\r\n" + BODY[:5] + b"|" + BODY[5:], id="no length"),
        pytest.param(b"HTTP/1.0 201 Created\r\nContent-Length: 36\r\n\r\n" + BODY, id="HTTP 1.0"),
    ],
)
async def test_a_connection_that_the_server_ends_with_its_answer_is_not_used_again(
    server: ByteServer, bare: Connections, sent: bytes
) -> None:
    server.script = [server.answers(sent, then_ends=True), server.answers(CREATED)]

    assert await post(bare) == (201, {}, BODY)
    assert (await post(bare)).status == 201

    assert (server.connections, len(server.requests)) == (2, 2)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        pytest.param(b"", "before the answer", id="nothing"),
        pytest.param(b"HTTP/1.1 20", "in the middle of the answer", id="half a head"),
        pytest.param(b"HTTP/1.1 201 Created\r\nContent-Length: 36\r\n\r\n{", "in the middle of the answer", id="half"),
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
    server: ByteServer, bare: Connections, sent: bytes, words: str
) -> None:
    server.script = [server.answers(sent, then_ends=True), server.answers(CREATED)]

    with pytest.raises(ConnectionError, match=words):
        await post(bare)

    assert len(server.requests) == 1
    assert (await post(bare)).status == 201


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 2000, id="a body"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 400, id="chunks"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * 2000, id="a chunk's name"),
        pytest.param(b"HTTP/1.1 200 OK\r\nRetry-After: " + b"7" * 2000, id="a header"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 400, id="headers"),
        pytest.param(b"HTTP/1.1 200 " + b"x" * 2000, id="a reason"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" * 100, id="interim answers"),
    ],
)
async def test_an_answer_without_end_is_given_up(
    server: ByteServer, bare: Connections, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http1, "MOST_BYTES", 1000)
    server.script = [server.answers(sent)]

    with pytest.raises(ConnectionError, match="over 1000 bytes"):
        await post(bare)

    await until(lambda: server.closed == 1)


async def test_the_bound_is_for_one_answer_and_not_for_a_connection(
    server: ByteServer, bare: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "MOST_BYTES", len(CREATED))
    server.script = [server.answers(CREATED, CREATED)]

    assert [(await post(bare)).status for _ in range(2)] == [201] * 2

    assert server.connections == 1


async def test_a_second_answer_to_one_request_is_for_nobody(server: ByteServer, bare: Connections) -> None:
    server.script = [server.answers(CREATED + CREATED.replace(b"201", b"500")), server.answers(CREATED)]

    assert (await post(bare)).status == 201
    assert (await post(bare)).status == 201

    await until(lambda: server.closed == 1)
    assert server.connections == 2


async def test_the_beginning_of_a_second_answer_does_not_become_that_of_the_next_request(
    server: ByteServer, bare: Connections
) -> None:
    half, rest = b"HTTP/1.1 500 Oo", b"ps\r\nContent-Length: 0\r\n\r\n"
    server.script = [server.answers(CREATED + half, rest), server.answers(CREATED)]

    assert [(await post(bare)).status for _ in range(2)] == [201] * 2

    assert server.connections == 2


async def test_an_answer_that_nobody_has_asked_for_costs_the_connection(server: ByteServer, bare: Connections) -> None:
    async def talks_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.answers(CREATED, then_ends=True)(reader, writer)
        writer.write(CREATED.replace(b"201", b"500"))
        await reader.read()

    server.script = [talks_first, server.answers(CREATED)]
    await post(bare)
    await until(lambda: bare.open == 0)

    assert (await post(bare)).status == 201
    assert server.connections == 2


@pytest.mark.parametrize("token", ["a\r\nX-Remote-User: admin", "a\x00", "a\x7f", "a\nb"])
async def test_a_token_never_becomes_another_header(server: ByteServer, bare: Connections, token: str) -> None:
    server.script = [server.answers(CREATED)]

    with pytest.raises(ConnectionError, match="check the token"):
        await bare.send(HTTPMethod.POST, "/x", b"{}", (("Authorization", f"Bearer {token}"),))

    assert server.requests == []
