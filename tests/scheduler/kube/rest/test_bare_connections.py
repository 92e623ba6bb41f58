"""When connections are made, used again and ended, against a server that does what a test says."""

import asyncio
import socket
import time
from contextlib import ExitStack
from http import HTTPMethod
from pathlib import Path
from typing import Any

import pytest

from scheduler.kube.rest import bare_connections
from scheduler.kube.rest.bare_connections import Connections
from tests.scheduler.kube.rest.conftest import HEADERS, post
from tests.support.servers.byte_server import BODY, CREATED, ByteServer, connected, until


async def test_no_more_connections_than_allowed_are_open(server: ByteServer, bare: Connections) -> None:
    server.script = [server.answers(*[CREATED] * 9)]

    answers = await asyncio.gather(*(post(bare) for _ in range(9)))

    assert [answer.body for answer in answers] == [BODY] * 9
    assert server.connections == 2


async def test_a_connection_that_the_server_has_ended_meanwhile_is_not_used_again(
    server: ByteServer, bare: Connections
) -> None:
    server.script = [server.answers(CREATED, then_ends=True), server.answers(CREATED)]
    await post(bare)
    await until(lambda: server.closed == 1)
    await until(lambda: bare.open == 0)

    assert (await post(bare)).status == 201

    assert len(server.requests) == 2


async def test_after_a_pause_of_the_process_an_old_connection_is_not_used_again(
    server: ByteServer, bare: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare_connections, "KEEP_ALIVE_S", 0.05)
    server.script = [server.answers(CREATED, CREATED)]
    await post(bare)

    time.sleep(0.06)  # noqa: ASYNC251 - no timer runs meanwhile
    await post(bare)

    assert server.connections == 2


async def test_who_gives_up_costs_the_connection_and_the_next_gets_its_own_answer(
    server: ByteServer, bare: Connections
) -> None:
    answered = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await server.request(reader)
        await answered.wait()
        writer.write(CREATED.replace(b"201", b"500"))
        await reader.read()

    server.script = [late, server.answers(CREATED)]
    waits = asyncio.create_task(bare.send(HTTPMethod.POST, "/x", b"{}", ()))
    await until(lambda: len(server.requests) == 1)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    answered.set()

    assert (await post(bare)).status == 201
    assert server.connections == 2
    await until(lambda: server.closed == 1)


async def test_nothing_is_sent_when_its_time_is_over(server: ByteServer, bare: Connections) -> None:
    server.script = [server.silent, server.answers(CREATED)]
    with pytest.raises(TimeoutError):
        await bare.send(HTTPMethod.POST, "/x", b"{}", (), until_s=time.monotonic())

    assert (await post(bare)).status == 201
    assert len(server.requests) == 1


async def test_the_end_is_an_error_for_those_who_wait(server: ByteServer, bare: Connections) -> None:
    server.script = [server.silent]
    waits = [asyncio.create_task(post(bare)) for _ in range(2)]
    await until(lambda: len(server.requests) == 2)

    bare.close()

    found = await asyncio.gather(*waits, return_exceptions=True)
    assert [type(error) for error in found] == [ConnectionError] * 2
    await until(lambda: server.closed == 2)


async def test_a_connection_that_is_not_used_is_ended(
    server: ByteServer, bare: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bare_connections, "KEEP_ALIVE_S", 0.2)
    server.script = [server.answers(*[CREATED] * 99)]
    await asyncio.gather(post(bare), post(bare))

    while server.closed == 0:
        await asyncio.sleep(0.02)
        await post(bare)

    assert bare.open == 1
    await until(lambda: bare.open == 0)
    await until(lambda: server.closed == server.connections)


@pytest.mark.parametrize("first", [b"", b"SSH-2.0-OpenSSH\r\n"], ids=["ends", "greets"])
async def test_a_server_that_does_not_wait_for_the_request_is_an_error_at_once(
    server: ByteServer, bare: Connections, first: bytes
) -> None:
    async def does_not_wait(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)

    server.script = [does_not_wait]

    for _ in range(5):
        with pytest.raises(ConnectionError):
            await post(bare)

    await until(lambda: bare.open == 0)


async def test_who_gives_up_waiting_for_a_connection_takes_none_away(server: ByteServer, bare: Connections) -> None:
    server.script = [server.silent, server.silent, server.answers(*[CREATED] * 9)]
    busy = [asyncio.create_task(post(bare)) for _ in range(2)]
    await until(lambda: len(server.requests) == 2)
    waits = asyncio.create_task(post(bare))
    await asyncio.sleep(0)

    for task in (waits, *busy):
        task.cancel()
    await asyncio.gather(waits, *busy, return_exceptions=True)

    assert [answer.status for answer in await asyncio.gather(*(post(bare) for _ in range(9)))] == [201] * 9
    assert (len(server.requests), server.connections) == (11, 4)


async def test_who_gives_up_while_a_connection_is_made_leaves_none(server: ByteServer, bare: Connections) -> None:
    server.script = [server.answers(CREATED, CREATED)]
    for turns in range(8):
        connecting = asyncio.create_task(post(bare))
        for _ in range(turns):
            await asyncio.sleep(0)
        connecting.cancel()
        await asyncio.gather(connecting, return_exceptions=True)

    await until(lambda: bare.open == 0)
    assert (await post(bare)).status == 201
    await until(lambda: server.connections - server.closed == 1)


async def test_after_the_end_nothing_is_sent(server: ByteServer, bare: Connections) -> None:
    server.script = [server.answers(CREATED, CREATED)]
    connecting = asyncio.create_task(post(bare))
    await asyncio.sleep(0)

    bare.close()

    with pytest.raises(ConnectionError, match="closed"):
        await connecting
    with pytest.raises(ConnectionError, match="closed"):
        await post(bare)
    await until(lambda: server.connections == server.closed)
    assert (server.requests, bare.open) == ([], 0)


async def test_an_address_where_nobody_answers_does_not_keep_it_from_the_next_one(
    server: ByteServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.script = [server.answers(CREATED)]
    port = int(server.url.rpartition(":")[2])
    loop = asyncio.get_running_loop()

    async def two_addresses(host: str, *_: object, **__: object) -> list[Any]:
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (ip, port)) for ip in (("127.0.0.2", "127.0.0.1") if host == "api.example" else (host,))]

    with ExitStack() as open_sockets:
        silent = open_sockets.enter_context(socket.create_server(("127.0.0.2", port), backlog=0))
        for _ in range(3):  # whoever comes after these is not even refused
            waiting = open_sockets.enter_context(socket.socket())
            waiting.setblocking(False)  # noqa: FBT003 - its only name
            waiting.connect_ex(silent.getsockname())
        bare = Connections(await connected(tmp_path, f"http://api.example:{port}"), HEADERS, most=1)
        monkeypatch.setattr(loop, "getaddrinfo", two_addresses)

        assert (await post(bare)).status == 201
        bare.close()
