"""Real claims: bound by kube-controller-manager, made by a small provisioner; pods end on the right node.

The scheduler has exactly the rights of deploy/manifests.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.control_plane.admin import Admin, Json, done, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.programs import manifests
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess
from e2e.suites.gpu_site import NODES, GpuSite, gpu_pod, gpu_site, is_bound
from scheduler.state.volumes.claim import BIND_COMPLETED
from tests.support.volumes import HOSTNAME, SELECTED_NODE, claim, storage_class, volume, with_claims

VOLUMES: Final = "/api/v1/persistentvolumes"
CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
LOCAL: Final = storage_class("local", provisioner="kubernetes.io/no-provisioner")
FAST: Final = storage_class("fast", provisioner="example.com/test")
_SOON_S: Final = 45.0


@pytest.fixture(scope="module")
def controlled() -> Iterator[ControlPlane]:
    """A cluster with the controllers of Kubernetes."""
    with ControlPlane(controller_manager=True) as made:
        yield made


@pytest.fixture
async def operator(controlled: ControlPlane) -> AsyncIterator[Admin]:
    async with Admin(controlled.access()) as client:
        yield client


@pytest.fixture
async def kubeconfig(controlled: ControlPlane, operator: Admin) -> Path:
    """Of the scheduler's own account."""
    for document in manifests.documents("rbac.yaml"):
        await manifests.apply(operator, document)
    return controlled.kubeconfig_for(await manifests.token(operator), "service-account")


class Site:
    """One namespace, in which claims are."""

    def __init__(self, of: GpuSite) -> None:
        self.of = of
        self.admin = of.admin
        self._made: list[str] = []

    @property
    def claims_path(self) -> str:
        return f"/api/v1/namespaces/{self.of.namespace}/persistentvolumeclaims"

    async def comes(self, path: str, manifest: Json) -> None:
        """Of no namespace; it is gone after the test."""
        await self.admin.create(path, manifest)
        self._made.append(f"{path}/{manifest['metadata']['name']}")

    async def claim(self, name: str, **options: Any) -> None:  # noqa: ANN401 - as `claim`
        made = claim(name, **options)
        await self.admin.create(self.claims_path, {**made, "metadata": {"name": name}})

    async def read(self, name: str) -> Json:
        return done(await self.admin.get(f"{self.claims_path}/{name}")).body

    async def selected(self, name: str) -> str:
        """Wait for the scheduler to write a node into the claim."""
        query = {"fieldSelector": f"metadata.name={name}"}
        found = await seen(self.admin, self.claims_path, lambda one: bool(_selected(one)), query, within_s=_SOON_S)
        return _selected(found)

    async def bound(self, name: str) -> Json:
        return await self.of.seen(name, is_bound, within_s=_SOON_S)

    async def provision(self) -> None:
        """Make a volume for every claim that has a node, for as long as nobody stops this: as a provisioner does."""
        while True:
            for found in await self.admin.items(self.claims_path):
                if _selected(found) and not found["spec"].get("volumeName"):
                    await self._make(found)
            await asyncio.sleep(0.1)

    async def clear(self) -> None:
        await self.admin.delete(self.of.pods_path, {"gracePeriodSeconds": 0})
        await self.admin.delete(self.claims_path)
        for path in self._made:
            await self.admin.delete(path)

    async def _make(self, found: Json) -> None:
        meta, name = found["metadata"], f"pvc-{found['metadata']['uid']}"
        made = volume(name, class_name="fast", on=(_selected(found),), hostPath={"path": "/made"})
        made["spec"]["claimRef"] = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
        if f"{VOLUMES}/{name}" not in self._made:
            await self.comes(VOLUMES, made)


def _is_bound(found: Json) -> bool:
    """As schedulers see it: the controller writes the phase of the claim after that, in a request of its own."""
    return bool(found["spec"].get("volumeName")) and BIND_COMPLETED in found["metadata"].get("annotations", {})


def _selected(found: Json) -> str:
    selected: str = found["metadata"].get("annotations", {}).get(SELECTED_NODE, "")
    return selected


@asynccontextmanager
async def claims_site(operator: Admin, namespace: str, scheduler: SchedulerProcess) -> AsyncIterator[Site]:
    """Nodes a and b, and the two classes."""
    async with gpu_site(operator, namespace, scheduler) as of:
        site = Site(of)
        await of.nodes(a=[16], b=[16])
        for name in ("a", "b"):
            done(await operator.patch(f"{NODES}/{name}", {"metadata": {"labels": {HOSTNAME: name}}}))
        for one in (LOCAL, FAST):
            await site.comes(CLASSES, one)
        try:
            yield site
        finally:
            await site.clear()


@pytest.fixture
async def place(operator: Admin, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own, with the account that pods run as."""
    name = f"claims-{abs(hash(request.node.name)) % 10**8}"
    await operator.create("/api/v1/namespaces", {"metadata": {"name": name}})
    path = f"/api/v1/namespaces/{name}/serviceaccounts"
    await seen(operator, path, lambda found: found["metadata"]["name"] == "default", {}, within_s=_SOON_S)
    return name


def local(name: str, node: str, size: str = "1Gi") -> Json:
    return volume(name, class_name="local", on=(node,), size=size, local={"path": f"/disks/{name}"})


async def test_a_volume_that_is_there_takes_its_pod_to_its_node(
    kubeconfig: Path, operator: Admin, place: str, tmp_path: Path
) -> None:
    with SchedulerProcess(kubeconfig, tmp_path, NO_PREDECESSOR) as scheduler:
        await scheduler.ready()
        async with claims_site(operator, place, scheduler) as site:
            await site.comes(VOLUMES, local(f"{place}-b", "b"))
            await site.claim("data", class_name="local")
            await site.of.pod("p", 3, **with_claims("data"))
            bound, found = await site.bound("p"), await site.read("data")
            kept = done(await operator.get(f"{VOLUMES}/{place}-b")).body
            lines = scheduler.lines()

    assert bound["spec"]["nodeName"] == "b"
    assert (_is_bound(found), found["spec"]["volumeName"]) == (True, f"{place}-b")
    assert kept["spec"]["claimRef"]["uid"] == found["metadata"]["uid"]
    assert [line for line in lines if line["level"] in {"warning", "error"}] == []


async def test_eight_pods_get_eight_local_volumes_of_their_nodes(
    kubeconfig: Path, operator: Admin, place: str, tmp_path: Path
) -> None:
    with SchedulerProcess(kubeconfig, tmp_path, NO_PREDECESSOR) as scheduler:
        await scheduler.ready()
        async with claims_site(operator, place, scheduler) as site:
            for number in range(8):
                await site.comes(VOLUMES, local(f"{place}-{number}", "ab"[number % 2]))
                await site.claim(f"data-{number}", class_name="local")
            for number in range(8):
                await site.of.pod(f"p-{number}", 2, **with_claims(f"data-{number}"))
            nodes = [(await site.bound(f"p-{number}"))["spec"]["nodeName"] for number in range(8)]
            taken = [(await site.read(f"data-{number}"))["spec"]["volumeName"] for number in range(8)]

    assert sorted(taken) == [f"{place}-{number}" for number in range(8)]
    assert nodes == ["ab"[int(name.rpartition("-")[2]) % 2] for name in taken]


async def test_a_volume_is_made_where_the_pod_goes(
    kubeconfig: Path, operator: Admin, place: str, tmp_path: Path
) -> None:
    with SchedulerProcess(kubeconfig, tmp_path, NO_PREDECESSOR) as scheduler:
        await scheduler.ready()
        async with claims_site(operator, place, scheduler) as site:
            provisioner = asyncio.create_task(site.provision())
            await site.claim("data", class_name="fast")
            await site.of.pod("p", 3, nodeSelector={HOSTNAME: "b"}, **with_claims("data"))
            bound, found = await site.bound("p"), await site.read("data")
            provisioner.cancel()

    assert bound["spec"]["nodeName"] == _selected(found) == "b"
    assert _is_bound(found)


async def test_nothing_is_lost_when_the_scheduler_is_killed_between_selected_node_and_binding(
    kubeconfig: Path, operator: Admin, place: str, tmp_path: Path
) -> None:
    with SchedulerProcess(kubeconfig, tmp_path, NO_PREDECESSOR) as scheduler:
        await scheduler.ready()
        async with claims_site(operator, place, scheduler) as site:
            await site.claim("data", class_name="fast")
            await site.of.pod("p", 3, **with_claims("data"))
            node = await site.selected("data")
            scheduler.kill()
            before = await site.of.read("p")
            provisioner = asyncio.create_task(site.provision())
            scheduler.start()
            await scheduler.ready()
            bound, found = await site.bound("p"), await site.read("data")
            provisioner.cancel()

    assert not is_bound(before)
    assert (bound["spec"]["nodeName"], _is_bound(found)) == (node, True)


async def test_the_claims_of_a_stateful_set_and_of_an_ephemeral_volume(
    kubeconfig: Path, operator: Admin, place: str, tmp_path: Path
) -> None:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    template = gpu_pod("t", 2, volumes=[scratch])
    template["metadata"] = {"labels": {"app": "db"}}
    stateful = {
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db",
            "replicas": 3,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "db"}},
            "template": template,
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": spec}],
        },
    }
    path = f"/apis/apps/v1/namespaces/{place}/statefulsets"
    with SchedulerProcess(kubeconfig, tmp_path, NO_PREDECESSOR) as scheduler:
        await scheduler.ready()
        async with claims_site(operator, place, scheduler) as site:
            provisioner = asyncio.create_task(site.provision())
            await operator.create(path, stateful)
            bound = [await site.bound(f"db-{number}") for number in range(3)]
            claims = {found["metadata"]["name"]: found for found in await operator.items(site.claims_path)}
            provisioner.cancel()
            done(await operator.delete(f"{path}/db"))

    for pod in bound:
        name = pod["metadata"]["name"]
        for one in (f"data-{name}", f"{name}-scratch"):
            assert _is_bound(claims[one])
            assert _selected(claims[one]) == pod["spec"]["nodeName"]
