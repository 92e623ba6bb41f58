import random
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml

from scheduler.kube.rest.client import ClientOptions, KubeCluster
from scheduler.kube.rest.connect import connect
from scheduler.kube.rest.watching import WatchOptions
from tests.support.api_server import ApiServer, Json

ClusterOf: TypeAlias = Callable[..., Awaitable[KubeCluster]]


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer().serving() as server:
        yield server


@pytest.fixture
def kubeconfig(api: ApiServer, tmp_path: Path) -> Callable[..., Path]:
    """Writes a kubeconfig for `api` with one user."""

    def write(user: Json | None = None, **cluster: str) -> Path:
        document = {
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "api", "user": "me"}}],
            "clusters": [{"name": "api", "cluster": {"server": api.url, **cluster}}],
            "users": [{"name": "me", "user": user or {"token": "secret"}}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

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
