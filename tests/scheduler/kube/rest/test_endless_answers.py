"""Answers that come byte by byte, or without end: they hold no watch, and take little memory."""

import asyncio
import contextlib

import pytest
from aiohttp import web

from scheduler.kube import port
from scheduler.kube.rest import transport
from scheduler.kube.rest.client import KubeCluster
from tests.support.servers.api_server import ApiServer, streamed


async def watched(cluster: KubeCluster) -> None:
    """Until it ends."""
    async for _ in cluster.watch(port.PODS, "1"):
        pass


@pytest.mark.parametrize("code", [429, 503])
async def test_a_refusal_that_trickles_is_not_read_to_its_end(
    api: ApiServer, cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(transport, "_REFUSAL_READ_IN_S", 0.3)

    async def trickles(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=code)
        await response.prepare(request)
        while not api.held.is_set():
            await response.write(b"x")
            await asyncio.sleep(0.01)
        return response

    api.script = [trickles]

    async with asyncio.timeout(3):
        with pytest.raises(port.ApiSilent if code == 503 else port.ApiThrottled, match="xxx") as raised:
            await watched(cluster)

    assert raised.value.status == code


async def test_a_refusal_without_end_is_cut(
    api: ApiServer, cluster: KubeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "MOST_BYTES", 1_000)

    async def floods(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=503)
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                await response.write(b"x" * 100_000)
        await api.held.wait()
        return response

    api.script = [floods, floods]

    async with asyncio.timeout(3):
        with pytest.raises(port.ApiSilent, match="503"):
            await watched(cluster)
        with pytest.raises(port.ApiSilent, match="503"):
            await cluster.pod("default", "a")


async def test_a_line_without_end_ends_the_watch(api: ApiServer, cluster: KubeCluster) -> None:
    async def floods(request: web.Request) -> web.StreamResponse:
        response = await streamed()(request)
        with contextlib.suppress(ConnectionError):
            for _ in range(64):
                await response.write(b"x" * 2**20)
        await api.held.wait()
        return response

    api.script = [floods]

    async with asyncio.timeout(10):
        with pytest.raises(port.ApiSilent, match=r"^a line of the watch has over \d+ bytes$"):
            await watched(cluster)
