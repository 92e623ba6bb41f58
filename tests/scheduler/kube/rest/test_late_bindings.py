"""What only the leader may send, and could not be sent at once: who leads, and how much time is left, is asked then."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from scheduler.kube import port
from scheduler.kube.objects import PodCondition
from scheduler.kube.port import NodeForClaim, VolumeForClaim
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from tests.scheduler.kube.rest.test_client import BINDING
from tests.support.servers.byte_server import CREATED, ByteServer, connected, until


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
    options = ClientOptions(connections=1, leaders_timeout_s=4.0)
    cluster = KubeCluster(connection, random.Random(1), options)  # noqa: S311 - a seed, no secret
    made = Bindings(cluster)
    server.script = [lambda reader, writer: made.holds(reader, writer, server)]
    await until(lambda: len(server.requests) == 1)
    yield made
    await cluster.close()


OF_THE_LEADER = [
    pytest.param(lambda cluster: cluster.bind(BINDING, timeout_s=4.0), id="a Binding"),
    pytest.param(lambda cluster: cluster.delete_pod(BINDING.pod), id="a deletion"),
    pytest.param(lambda cluster: cluster.set_nominated_node(BINDING.pod, "n"), id="a nomination"),
    pytest.param(lambda cluster: cluster.set_pod_condition(BINDING.pod, PodCondition("C", "True")), id="a condition"),
    pytest.param(lambda cluster: cluster.select_node(NodeForClaim("ns", "c", "1", "n")), id="a claim"),
    pytest.param(
        lambda cluster: cluster.bind_volume(VolumeForClaim("v", "1", "ns", "c", "u", kept=False)), id="a volume"
    ),
]


@pytest.mark.parametrize("send", OF_THE_LEADER)
async def test_who_leads_no_more_when_a_connection_is_free_sends_nothing(
    server: ByteServer, one_at_a_time: Bindings, send: Callable[[KubeCluster], Awaitable[None]]
) -> None:
    leads = True
    one_at_a_time.cluster.leads = lambda: leads
    waits = asyncio.ensure_future(send(one_at_a_time.cluster))
    await asyncio.sleep(0)

    leads = False
    one_at_a_time.answered.set()
    with pytest.raises(port.NotSent, match="is not the leader"):
        await waits

    await one_at_a_time.before
    assert len(server.requests) == 1


@pytest.mark.parametrize("send", OF_THE_LEADER)
async def test_what_only_the_leader_may_send_takes_effect_in_time(
    server: ByteServer, one_at_a_time: Bindings, send: Callable[[KubeCluster], Awaitable[None]]
) -> None:
    one_at_a_time.answered.set()
    await one_at_a_time.before

    with contextlib.suppress(port.ApiSilent):  # the answer is that of a Binding
        await send(one_at_a_time.cluster)

    assert server.requests[1].split()[1].endswith(b"?timeout=4s")


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
