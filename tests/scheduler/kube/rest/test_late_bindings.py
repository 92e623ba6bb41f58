"""A Binding that could not be sent at once: who leads, and how much time is left, is asked when it is sent."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from scheduler.kube import port
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from tests.scheduler.kube.rest.test_client import BINDING
from tests.support.byte_server import CREATED, ByteServer, connected, until


class Bindings:
    """Binds over one connection, which `before` has until it is answered."""

    def __init__(self, cluster: KubeCluster) -> None:
        self.cluster = cluster
        self.before = asyncio.create_task(cluster.bind(BINDING, timeout_s=4.0))
        self.answered = asyncio.Event()

    async def holds(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: ByteServer) -> None:
        await server.request(reader)
        await self.answered.wait()
        writer.write(CREATED)
        await server.answers(CREATED)(reader, writer)


@pytest.fixture
async def one_at_a_time(server: ByteServer, tmp_path: Path) -> AsyncIterator[Bindings]:
    connection = await connected(tmp_path, server.url)
    cluster = KubeCluster(connection, random.Random(1), ClientOptions(connections=1))  # noqa: S311 - a seed, no secret
    made = Bindings(cluster)
    server.script = [lambda reader, writer: made.holds(reader, writer, server)]
    await until(lambda: len(server.requests) == 1)
    yield made
    await cluster.close()


async def test_who_leads_no_more_when_a_connection_is_free_sends_no_binding(
    server: ByteServer, one_at_a_time: Bindings
) -> None:
    leads = True
    one_at_a_time.cluster.leads = lambda: leads
    waits = asyncio.create_task(one_at_a_time.cluster.bind(BINDING, timeout_s=4.0))
    await asyncio.sleep(0)

    leads = False
    one_at_a_time.answered.set()
    with pytest.raises(port.NotSent, match="does not lead"):
        await waits

    await one_at_a_time.before
    assert len(server.requests) == 1


async def test_the_server_is_told_how_much_time_is_left(server: ByteServer, one_at_a_time: Bindings) -> None:
    waits = asyncio.create_task(one_at_a_time.cluster.bind(BINDING, timeout_s=2.05))
    await asyncio.sleep(0.1)

    one_at_a_time.answered.set()
    await waits

    assert [request.split()[1].partition(b"?")[2] for request in server.requests] == [b"timeout=4s", b"timeout=2s"]


@pytest.mark.parametrize("through_proxy", [False, True])
async def test_who_leads_no_more_does_not_repeat_a_binding_after_a_401(
    server: ByteServer, tmp_path: Path, *, through_proxy: bool
) -> None:
    refused = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 28\r\n\r\n" + b'{"kind":"Status","code":401}'
    server.script = [server.answers(refused, CREATED)]
    reached = {"proxy-url": server.url} if through_proxy else {}
    url = "http://api.example" if through_proxy else server.url
    cluster = KubeCluster(await connected(tmp_path, url, cluster=reached), random.Random(1))  # noqa: S311 - a seed
    cluster.leads = lambda: not server.requests

    with pytest.raises(port.NotSent):
        await cluster.bind(BINDING, timeout_s=4.0)

    await cluster.close()
    assert len(server.requests) == 1
