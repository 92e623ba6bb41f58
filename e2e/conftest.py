"""Fixtures for tests on a real API server.

cluster    one for the whole run, from the provider that E2E_PROVIDER names
admin      a client of it, in the test's own event loop
namespace  a fresh one, gone after the test
node_ready the machine can have nodes (`e2e.node.node`): for tests that start their own
node       a real node `n1`, one for the whole run, in a cluster of its own: `node.cluster`
on_node    a client of that cluster
shared     our scheduler and our device plugin there, with simulated cards of 15, 15 and 80 GiB

A test on a node is skipped, with the reason, where this machine or this user cannot have one; with
CI set that is a failure.

A test that stays inside its namespace says so by `@pytest.mark.any_cluster`; all others run only
where the cluster is ours alone.
"""

import os
from collections.abc import AsyncIterator, Iterator

import pytest

from e2e.control_plane import namespaces, provider
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import Cluster
from e2e.node.node import Node, NodeUnavailable, require
from e2e.suites.shared_node import SharedNode, shared_node

_PROVIDER = pytest.StashKey[provider.Provider]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--nightly`: what takes too long for every change, and nothing else."""
    parser.addoption("--nightly", action="store_true", help="run the tests marked nightly, and no others")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the provider, so that a wrong choice ends the run before any test."""
    config.addinivalue_line("markers", "nightly: takes long; run by make test-nightly alone")
    config.addinivalue_line("markers", "any_cluster: stays inside a namespace of its own, on any cluster")
    try:
        config.stash[_PROVIDER] = provider.chosen(os.environ)
    except provider.NoSuchProvider as error:
        raise pytest.UsageError(str(error)) from None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, and count as left out, what is not asked for, and what may not run on somebody else's cluster."""
    nightly, anywhere = config.getoption("--nightly"), config.stash[_PROVIDER].ours_alone
    kept = [
        item
        for item in items
        if bool(item.get_closest_marker("nightly")) is nightly and (anywhere or item.get_closest_marker("any_cluster"))
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[provider.Target]:
    with pytestconfig.stash[_PROVIDER].started() as started:
        yield started


@pytest.fixture
async def admin(cluster: provider.Target) -> AsyncIterator[Admin]:
    async with Admin(cluster.access()) as client:
        yield client


@pytest.fixture
async def namespace(admin: Admin, pytestconfig: pytest.Config) -> AsyncIterator[str]:
    name = await namespaces.create(admin)
    yield name
    if pytestconfig.stash[_PROVIDER].has_controllers:
        await namespaces.remove(admin, name)
    else:
        await namespaces.remove_without_controllers(admin, name)


@pytest.fixture(scope="session")
def node_ready() -> None:
    try:
        require()
    except NodeUnavailable as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def node(node_ready: None) -> Iterator[Node]:  # noqa: ARG001 - asked for its skip
    # The nightly tests have hundreds of pods on it.
    with Cluster(controller_manager=True) as own, Node(own, "n1", kubelet={"maxPods": 500}) as started:
        yield started


@pytest.fixture(scope="session")
def shared(node: Node) -> Iterator[SharedNode]:
    with shared_node(node, readingInterval="1s") as started:
        yield started


@pytest.fixture
async def on_node(node: Node) -> AsyncIterator[Admin]:
    async with Admin(node.cluster.access()) as client:
        yield client
