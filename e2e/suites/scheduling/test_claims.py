"""Real claims: bound by kube-controller-manager, made by a small provisioner; pods end on the right node.

The scheduler has exactly the rights of deploy/manifests.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from e2e.control_plane.admin import Admin, Json, done
from e2e.control_plane.cluster import ControlPlane
from e2e.programs import manifests
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess
from e2e.support.claims_site import VOLUMES, Site, claim_is_bound, claims_site, selected_node
from e2e.support.gpu_site import gpu_pod, is_bound
from tests.support.volumes import HOSTNAME, volume, with_claims


@pytest.fixture
async def site(controlled: ControlPlane, operator: Admin, place: str, tmp_path: Path) -> AsyncIterator[Site]:
    """With a scheduler that has the rights of its own account."""
    await manifests.apply(operator, *manifests.documents("rbac.yaml"))
    kubeconfig = controlled.kubeconfig_for(await manifests.token(operator), "service-account")
    with SchedulerProcess(kubeconfig, tmp_path, NO_PREDECESSOR) as scheduler:
        await scheduler.ready()
        async with claims_site(operator, place, scheduler) as made:
            yield made


@pytest.fixture
async def provisioned(site: Site) -> AsyncIterator[Site]:
    """The same, with a provisioner."""
    provisioner = asyncio.create_task(site.provision())
    yield site
    provisioner.cancel()


def local(name: str, node: str, size: str = "1Gi") -> Json:
    return volume(name, class_name="local", on=(node,), size=size, local={"path": f"/disks/{name}"})


async def test_a_volume_that_is_there_takes_its_pod_to_its_node(site: Site, operator: Admin, place: str) -> None:
    await site.comes(VOLUMES, local(f"{place}-b", "b"))
    await site.claim("data", class_name="local")
    await site.of.pod("p", 3, **with_claims("data"))
    bound, found = await site.bound("p"), await site.read("data")
    kept = done(await operator.get(f"{VOLUMES}/{place}-b")).body
    lines = site.of.scheduler.lines()

    assert bound["spec"]["nodeName"] == "b"
    assert (claim_is_bound(found), found["spec"]["volumeName"]) == (True, f"{place}-b")
    assert kept["spec"]["claimRef"]["uid"] == found["metadata"]["uid"]
    assert [line for line in lines if line["level"] in {"warning", "error"}] == []


async def test_eight_pods_get_eight_local_volumes_of_their_nodes(site: Site, place: str) -> None:
    for number in range(8):
        await site.comes(VOLUMES, local(f"{place}-{number}", "ab"[number % 2]))
        await site.claim(f"data-{number}", class_name="local")
    for number in range(8):
        await site.of.pod(f"p-{number}", 2, **with_claims(f"data-{number}"))
    nodes = [(await site.bound(f"p-{number}"))["spec"]["nodeName"] for number in range(8)]
    taken = [(await site.read(f"data-{number}"))["spec"]["volumeName"] for number in range(8)]

    assert sorted(taken) == [f"{place}-{number}" for number in range(8)]
    assert nodes == ["ab"[int(name.rpartition("-")[2]) % 2] for name in taken]


async def test_a_volume_is_made_where_the_pod_goes(provisioned: Site) -> None:
    await provisioned.claim("data", class_name="fast")
    await provisioned.of.pod("p", 3, nodeSelector={HOSTNAME: "b"}, **with_claims("data"))
    bound, found = await provisioned.bound("p"), await provisioned.read("data")

    assert bound["spec"]["nodeName"] == selected_node(found) == "b"
    assert claim_is_bound(found)


async def test_nothing_is_lost_when_the_scheduler_is_killed_between_selected_node_and_binding(site: Site) -> None:
    await site.claim("data", class_name="fast")
    await site.of.pod("p", 3, **with_claims("data"))
    scheduler = site.of.scheduler
    node = await site.selected("data")
    scheduler.kill()
    before = await site.of.read("p")
    provisioner = asyncio.create_task(site.provision())
    scheduler.start()
    await scheduler.ready()
    bound, found = await site.bound("p"), await site.read("data")
    provisioner.cancel()

    assert not is_bound(before)
    assert (bound["spec"]["nodeName"], claim_is_bound(found)) == (node, True)


async def test_the_claims_of_a_stateful_set_and_of_an_ephemeral_volume(
    provisioned: Site, operator: Admin, place: str
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
    await operator.create(path, stateful)
    bound = [await provisioned.bound(f"db-{number}") for number in range(3)]
    claims = {found["metadata"]["name"]: found for found in await operator.items(provisioned.claims_path)}
    done(await operator.delete(f"{path}/db"))

    for pod in bound:
        name = pod["metadata"]["name"]
        for one in (f"data-{name}", f"{name}-scratch"):
            assert claim_is_bound(claims[one])
            assert selected_node(claims[one]) == pod["spec"]["nodeName"]
