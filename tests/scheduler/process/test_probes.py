"""Probes and metrics over real HTTP on loopback."""

import errno
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from scheduler.metrics.metrics import Metrics
from scheduler.process.probes import serve
from tests.support.builders import cluster, wire_node

# The kernel of the machine that runs the tests may have no IPv6 loopback.
NEEDS_IPV6 = pytest.mark.skipif(not Path("/proc/sys/net/ipv6").exists(), reason="this machine has no IPv6")


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@asynccontextmanager
async def serving(
    host: str = "127.0.0.1", port: int = 0, *, metrics: Metrics | None = None, missing: Callable[[], str] = str
) -> AsyncIterator[int]:
    """A server, and its port."""
    scrape = (metrics or Metrics(cluster(), dict, per_card=False)).scrape
    runner = await serve((host, port), scrape, ready=missing, alive=str)
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def get(session: aiohttp.ClientSession, port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    async with session.get(f"http://{host}:{port}{path}") as answer:
        return answer.status, await answer.text()


async def test_health_is_ok_and_readiness_says_what_is_missing(client: aiohttp.ClientSession) -> None:
    missing = ""
    async with serving(missing=lambda: missing) as port:
        assert await get(client, port, "/healthz") == (200, "ok\n")
        assert await get(client, port, "/readyz") == (200, "ok\n")
        missing = "waiting for pods"
        assert await get(client, port, "/readyz") == (503, "waiting for pods\n")


async def test_metrics_are_those_of_the_moment(client: aiohttp.ClientSession) -> None:
    tables = cluster(a=[16])
    async with serving(metrics=Metrics(tables, dict, per_card=False)) as port:
        tables.remove_node("a")
        tables.upsert_node(wire_node("b", [16]))
        status, text = await get(client, port, "/metrics")

    nodes = [line for line in text.splitlines() if line.startswith("gpushare_scheduler_node_memory_bytes")]
    assert (status, nodes) == (200, ['gpushare_scheduler_node_memory_bytes{node="b"} 17179869184'])


async def test_what_is_not_there_and_what_is_not_a_question(client: aiohttp.ClientSession) -> None:
    async with serving() as port:
        assert (await get(client, port, "/elsewhere"))[0] == 404
        async with client.post(f"http://127.0.0.1:{port}/metrics", data=b"x") as answer:
            assert answer.status == 405
        async with client.head(f"http://127.0.0.1:{port}/metrics") as answer:
            assert (answer.status, await answer.read()) == (200, b"")


@pytest.mark.parametrize("host", ["127.0.0.1", pytest.param("[::1]", marks=NEEDS_IPV6)])
async def test_without_a_host_both_families_are_served(client: aiohttp.ClientSession, host: str) -> None:
    async with serving("") as port:
        assert (await get(client, port, "/healthz", host))[0] == 200


async def test_without_ipv6_ipv4_is_served(client: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_ipv6(*_: object, **__: object) -> socket.socket:
        raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")

    monkeypatch.setattr(socket, "create_server", no_ipv6)
    async with serving("") as port:
        assert (await get(client, port, "/healthz"))[0] == 200


async def test_a_port_that_is_taken_is_an_error_on_both_families() -> None:
    async with serving("") as port:
        with pytest.raises(OSError, match="in use"):
            async with serving("", port):
                pass
