"""Fixtures for tests on a real API server.

cluster    one for each worker, from the provider that E2E_PROVIDER names
control_plane  the same, for tests that stop its servers or make users: ours alone
admin      a client of it, in the test's own event loop; a test that leaves nodes or pods on the shared one fails
namespace  a fresh one, gone after the test
node_ready the machine can have nodes (`e2e.node.local_node`): for tests that start their own
node       a real node `n1`, one for each lane of tests on nodes, in a cluster of its own: `node.cluster`
on_node    a client of that cluster
nvidia     a cluster with our scheduler, one for each module, for nodes with NVIDIA's toolkit
controlled a cluster with the controllers of Kubernetes, one for each worker
operator   a client of that cluster
place      a namespace there of the test's own, with the account that pods run as
shared     our scheduler and our device plugin there, with simulated cards of 15, 15 and 80 GiB
scheduler  our scheduler as configured by default, one for each module, on `cluster`
site       nodes with cards for it, and pods in `namespace`

Workers of one run share nothing (`lanes`).

A test on a node is skipped, with the reason, where this machine or this user cannot have one; with
CI set that is a failure.

A test that stays inside its namespace says so by `@pytest.mark.any_cluster`; all others run only
where the cluster is ours alone. One that needs the scheduler and the device plugin installed says so
by `@pytest.mark.installed`; it runs on a cluster of E2E_PROVIDER=existing or kind, and on that of
`make cluster` in `suites/harness/test_local_cluster.py`.
"""

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus

import pytest

from e2e import lanes
from e2e.control_plane import pinned, provider
from e2e.control_plane.admin import Admin, UnexpectedAnswer, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.node.local_node import LocalNode
from e2e.node.node_programs import NodeUnavailable, require
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import GpuSite, gpu_site
from e2e.support.nvidia_site import NvidiaSite, nvidia_site
from e2e.support.shared_node import SharedNode, shared_node

_AT_ONCE = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Background"}
_PROVIDER = pytest.StashKey[provider.Provider]()
_SHARED = pytest.StashKey[provider.Target]()


def pytest_configure(config: pytest.Config) -> None:
    """Choose the provider and the version, so that a wrong choice ends the run before any test."""
    config.addinivalue_line("markers", "any_cluster: stays inside a namespace of its own, on any cluster")
    config.addinivalue_line("markers", "installed: needs the scheduler and the device plugin installed")
    try:
        config.stash[_PROVIDER] = provider.chosen(os.environ)
        pinned.kubernetes_module()
    except (provider.NoSuchProvider, pinned.NoSuchKubernetes) as error:
        raise pytest.UsageError(str(error)) from None


def pytest_report_header() -> str:
    """Which Kubernetes the clusters of this run are, unless E2E_PROVIDER names somebody else's."""
    return f"kubernetes: {pinned.kubernetes_version()}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, and count as left out, what is not asked for, and what may not run on somebody else's cluster."""
    chosen = config.stash[_PROVIDER]
    kept = [
        item
        for item in items
        if (chosen.ours_alone or item.get_closest_marker("any_cluster"))
        and (chosen.installed or not item.get_closest_marker("installed"))
    ]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = sorted(kept, key=lanes.turn)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> lanes.LaneScheduling:
    """Spread the lanes over the workers, where there are several."""
    config.option.loadscopereorder = False
    return lanes.LaneScheduling(config, log)


@pytest.fixture(scope="session")
def cluster(pytestconfig: pytest.Config) -> Iterator[provider.Target]:
    with pytestconfig.stash[_PROVIDER].started() as started:
        pytestconfig.stash[_SHARED] = started
        yield started


@pytest.fixture(scope="session")
def control_plane(cluster: provider.Target) -> ControlPlane:
    assert isinstance(cluster, ControlPlane)
    return cluster


@pytest.fixture
async def admin(cluster: provider.Target, pytestconfig: pytest.Config) -> AsyncIterator[Admin]:
    async with Admin(cluster.access()) as client:
        yield client
        shared = cluster is pytestconfig.stash.get(_SHARED, None)
        if shared and pytestconfig.stash[_PROVIDER].ours_alone:
            assert await _left(client) == [], "other tests on this cluster would find them"


@pytest.fixture
async def namespace(admin: Admin, pytestconfig: pytest.Config) -> AsyncIterator[str]:
    name = await _make_namespace(admin)
    yield name
    if pytestconfig.stash[_PROVIDER].has_controllers:
        await _remove_namespace(admin, name)
    else:
        await _remove_without_controllers(admin, name)


@pytest.fixture(scope="session")
def node_ready() -> None:
    try:
        require()
    except NodeUnavailable as error:
        if os.environ.get("CI"):
            pytest.fail(str(error), pytrace=False)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def node(node_ready: None) -> Iterator[LocalNode]:  # noqa: ARG001 - asked for its skip
    # The nightly tests have hundreds of pods on it.
    with ControlPlane(controller_manager=True) as own, LocalNode(own, "n1", kubelet={"maxPods": 500}) as started:
        yield started


@pytest.fixture(scope="session")
def shared(node: LocalNode) -> Iterator[SharedNode]:
    with shared_node(node, readingInterval="1s") as started:
        yield started


@pytest.fixture(scope="module")
def nvidia(node_ready: None) -> Iterator[NvidiaSite]:  # noqa: ARG001 - asked for its skip
    with nvidia_site() as started:
        yield started


@pytest.fixture
async def on_node(node: LocalNode) -> AsyncIterator[Admin]:
    async with Admin(node.cluster.access()) as client:
        yield client


@pytest.fixture(scope="session")
def controlled() -> Iterator[ControlPlane]:
    with ControlPlane(controller_manager=True) as started:
        yield started


@pytest.fixture
async def operator(controlled: ControlPlane) -> AsyncIterator[Admin]:
    async with Admin(controlled.access()) as client:
        yield client


@pytest.fixture
async def place(operator: Admin) -> str:
    name = await _make_namespace(operator)
    path = f"/api/v1/namespaces/{name}/serviceaccounts"
    await seen(operator, path, lambda found: found["metadata"]["name"] == "default", {}, within_s=45.0)
    return name


@pytest.fixture(scope="module")
def scheduler(cluster: provider.Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    with SchedulerProcess(cluster.kubeconfig_path(), tmp_path_factory.mktemp("scheduler")) as started:
        yield started


@pytest.fixture
async def site(scheduler: SchedulerProcess, admin: Admin, namespace: str) -> AsyncIterator[GpuSite]:
    await scheduler.ready()
    async with gpu_site(admin, namespace, scheduler) as made:
        yield made


async def _left(admin: Admin) -> list[str]:
    """Nodes and pods that are there, as a path of names."""
    found = [*await admin.items("/api/v1/nodes"), *await admin.items("/api/v1/pods")]
    return ["/".join(filter(None, (one["metadata"].get("namespace"), one["metadata"]["name"]))) for one in found]


async def _make_namespace(admin: Admin) -> str:
    """Make an empty namespace and return its name."""
    name = f"e2e-{secrets.token_hex(4)}"
    await admin.create("/api/v1/namespaces", {"metadata": {"name": name}})
    return name


async def _remove_namespace(admin: Admin, name: str) -> None:
    """Delete the namespace; the controllers of the cluster then empty it."""
    answer = await admin.delete(f"/api/v1/namespaces/{name}")
    if answer.status not in {HTTPStatus.OK, HTTPStatus.ACCEPTED, HTTPStatus.NOT_FOUND}:
        message = f"namespace {name} stays: {answer.status} {answer.body.get('message')}"
        raise UnexpectedAnswer(message)


async def _remove_without_controllers(admin: Admin, name: str) -> None:
    """Do what the namespace controller does: delete what is in it, then take its finalizer off."""
    for prefix in await _collections(admin):
        base, plural = prefix
        await admin.delete(f"{base}/namespaces/{name}/{plural}", _AT_ONCE)
    await _remove_namespace(admin, name)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
    await admin.put(f"/api/v1/namespaces/{name}/finalize", body)


async def _collections(admin: Admin) -> list[tuple[str, str]]:
    """(base path, plural) of every namespaced resource that can be deleted as a collection."""
    groups = (await admin.get("/apis")).body["groups"]
    bases = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
    found: list[tuple[str, str]] = []
    for base in bases:
        resources = (await admin.get(base)).body["resources"]
        found += [(base, r["name"]) for r in resources if r["namespaced"] and "deletecollection" in r["verbs"]]
    return found
