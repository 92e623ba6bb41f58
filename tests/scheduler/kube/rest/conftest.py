import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPMethod
from pathlib import Path
from typing import Final, TypeAlias

import pytest
import uvloop

from scheduler.kube.rest.bare_connections import Connections
from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.rest.client_config.connect import connect
from scheduler.kube.rest.http1 import HttpAnswer
from scheduler.kube.rest.transport import Transport
from scheduler.kube.rest.watching import WatchOptions
from tests.support.servers.api_server import ApiServer, Json
from tests.support.servers.byte_server import ByteServer, connected, write_kubeconfig

ClusterOf: TypeAlias = Callable[..., Awaitable[KubeCluster]]
Send: TypeAlias = Callable[..., Awaitable[bytes]]
HEADERS: Final = {"Accept": "application/json"}
# The program runs on the first. What a transport promises is tried on both.
LOOPS: Final = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}

_ON_BOTH: Final = ("test_bare_connections", "test_http1", "test_credential_plugin")


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    return LOOPS if item.path.name.startswith(_ON_BOTH) else {"asyncio": LOOPS["asyncio"]}


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer().serving() as server:
        yield server


@pytest.fixture
def kubeconfig(api: ApiServer, tmp_path: Path) -> Callable[..., Path]:
    """Writes a kubeconfig for `api` with one user."""

    def write(user: Json | None = None) -> Path:
        return write_kubeconfig(tmp_path, api.url, user, dict(api.trusted))

    return write


@pytest.fixture
async def cluster_of(kubeconfig: Callable[..., Path]) -> AsyncIterator[ClusterOf]:
    """Makes clients of `api`, closed after the test."""
    made: list[KubeCluster] = []

    async def make(
        user: Json | None = None, watch: WatchOptions | None = None, options: ClientOptions | None = None
    ) -> KubeCluster:
        connection = await connect({}, kubeconfig=kubeconfig(user))
        options = options or ClientOptions(watch=watch or WatchOptions())
        made.append(KubeCluster(connection, random.Random(1), options))  # noqa: S311 a seed, no secret
        return made[-1]

    yield make
    for cluster in made:
        await cluster.close()


@pytest.fixture
async def cluster(cluster_of: ClusterOf) -> KubeCluster:
    return await cluster_of()


@pytest.fixture
async def server() -> AsyncIterator[ByteServer]:
    async with ByteServer().serving() as made:
        yield made


@pytest.fixture
async def bare(server: ByteServer, tmp_path: Path) -> AsyncIterator[Connections]:
    """Two connections at most."""
    made = Connections(await connected(tmp_path, server.url), HEADERS, most=2)
    yield made
    made.close()


async def by_session(transport: Transport, path: str = "/x", timeout_s: float = 10.0) -> bytes:
    return await transport.send(HTTPMethod.POST, path, b"{}", answers="Status", timeout_s=timeout_s)


async def by_bare_connection(transport: Transport, path: str = "/x", timeout_s: float = 10.0) -> bytes:
    return await transport.write(HTTPMethod.POST, path, b"{}", answers="Status", timeout_s=timeout_s)


@pytest.fixture(params=[by_session, by_bare_connection], ids=["session", "bare"])
def send(request: pytest.FixtureRequest) -> Send:
    """Both ways that a POST can go, which find the same."""
    asked: Send = request.param
    return asked


async def post(bare: Connections, path: str = "/x", body: bytes = b"{}") -> HttpAnswer:
    async with asyncio.timeout(5):
        return await bare.send(HTTPMethod.POST, path, body, (("Authorization", "Bearer secret"),))
