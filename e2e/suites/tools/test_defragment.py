"""`defragment` on a real kube-apiserver with the scheduler at work. There is no kubelet and no controller manager.

So the test makes the successor of a pod that is evicted, as its ReplicaSet would, and ends the pod.
"""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from config.protocol import names
from e2e.control_plane import provider
from e2e.control_plane.admin import Json, done
from e2e.support.gpu_site import NODES, GpuSite, cards_of, gpu_pod
from e2e.support.kubectl_gpushare import kubectl_gpushare

BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-of-web", "controller": True}


def owned(name: str, units: int) -> Json:
    """A pod of the ReplicaSet. It has a grace period, so that the test sees it go."""
    made = gpu_pod(name, units)
    made["metadata"] |= {"ownerReferences": [OWNER], "labels": {"app": "web"}}
    return made


def asks(site: GpuSite, folder: Path, units: int) -> Path:
    """A manifest of the pod that asks."""
    file = folder / "asks.yaml"
    made: Json = {"apiVersion": "v1", "kind": "Pod", **gpu_pod("asks", units)}
    made["metadata"]["namespace"] = site.namespace
    file.write_text(yaml.safe_dump(made), encoding="utf-8")
    return file


@pytest.fixture
async def half_used(site: GpuSite) -> GpuSite:
    """Two cards of a node, each with half of it used: first a whole one is taken, and given back."""
    await site.nodes(a=[16, 16])
    for name, units in (("web-0", 8), ("filler", 8), ("web-1", 8)):
        await site.admin.create(site.pods_path, owned(name, units))
        await site.bound(name)
    await site.delete_pod("filler")
    return site


async def cordon(site: GpuSite) -> str:
    """Of node a."""
    node = done(await site.admin.get(f"{NODES}/a")).body
    return str(node["metadata"]["annotations"].get(names.CORDON, ""))


async def replace_what_is_evicted(site: GpuSite) -> str:
    """As controller and kubelet: the name of the pod that was evicted."""
    while True:
        for pod in done(await site.admin.get(site.pods_path)).body["items"]:
            if "deletionTimestamp" in pod["metadata"] or "DisruptionTarget" in json.dumps(pod["status"]):
                name = str(pod["metadata"]["name"])
                await site.admin.create(site.pods_path, owned(f"{name}-again", 8))
                await site.admin.delete(f"{site.pods_path}/{name}", {"gracePeriodSeconds": 0})
                return name
        await asyncio.sleep(0.1)


async def test_a_pod_is_evicted_and_the_one_that_waits_gets_the_card(
    half_used: GpuSite, cluster: provider.Target, tmp_path: Path
) -> None:
    site, file = half_used, asks(half_used, tmp_path, 16)
    await site.admin.create(site.pods_path, gpu_pod("asks", 16))
    await site.unschedulable("asks")
    replacing = asyncio.create_task(replace_what_is_evicted(site))
    ran = await asyncio.to_thread(
        kubectl_gpushare, cluster, tmp_path, "defragment", "--execute", "--timeout", "40", "-f", str(file)
    )
    # First: where it fails, nobody may be evicted.
    assert (ran.returncode, "Done." in ran.stderr) == (0, True), ran.stderr
    evicted = await asyncio.wait_for(replacing, 15)
    assert await cordon(site) == ""
    bound = await site.bound("asks")
    other = await site.read(f"{evicted}-again")
    assert cards_of(bound).keys().isdisjoint(cards_of(other))


async def test_a_budget_refuses_and_nothing_is_left_behind(
    half_used: GpuSite, cluster: provider.Target, tmp_path: Path
) -> None:
    """Nobody counts budgets here: the status is as the test writes it, and the API server has the last word."""
    site, file = half_used, asks(half_used, tmp_path, 16)
    path = BUDGETS.format(site.namespace)
    await site.admin.create(
        path, {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 2}}
    )
    ran = kubectl_gpushare(cluster, tmp_path, "defragment", "--execute", "-f", str(file))
    assert (ran.returncode, "no plan of at most 10 moves was found" in ran.stdout) == (1, True)
    assert await cordon(site) == ""
    await site.admin.delete(f"{path}/web")
