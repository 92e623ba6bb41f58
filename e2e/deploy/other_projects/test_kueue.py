"""Kueue itself, with the queue and the Job of docs/working-with.md: it admits by GPU memory, this scheduler places.

At night: Kueue takes ten minutes of CPU to build.
"""

import copy
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Admin, Json, done, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.deploy.chart.helm import Helm
from e2e.deploy.other_projects import example_pods
from e2e.deploy.other_projects.kueue import KueueProcess
from e2e.deploy.other_projects.test_working_with import examples, written
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import GpuSite, card, cards_of, gpu_node, gpu_site, is_bound

NAMESPACE: Final = "default"
JOBS: Final = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
WORKLOADS: Final = f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{NAMESPACE}/workloads"
SOON_S: Final = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    with ControlPlane(controller_manager=True) as started:
        yield started


@pytest.fixture
async def site(cluster: ControlPlane, scheduler: SchedulerProcess, helm: Helm, tmp_path: Path) -> AsyncIterator[GpuSite]:
    kueue = KueueProcess(cluster, helm, tmp_path)
    async with Admin(cluster.access()) as admin:
        await kueue.apply(admin)
        with kueue:
            await kueue.mount(admin)
            await scheduler.ready()
            async with gpu_site(admin, NAMESPACE, scheduler) as made:
                yield made


async def pod_of(site: GpuSite, job: str) -> Json:
    """The Job's pod, once it has a node."""
    query = {"labelSelector": f"batch.kubernetes.io/job-name={job}"}
    return await seen(site.admin, site.pods_path, is_bound, query, within_s=SOON_S)


async def told_to_wait(site: GpuSite, job: str) -> str:
    """What Kueue says of a Job that has to wait."""
    message = ""

    def waits(workload: Json) -> bool:
        nonlocal message
        if workload["metadata"]["ownerReferences"][0]["name"] != job:
            return False
        conditions = workload.get("status", {}).get("conditions", [])
        said = [one["message"] for one in conditions if one["type"] == "QuotaReserved" and one["status"] == "False"]
        message = said[0] if said else ""
        return bool(said)

    await seen(site.admin, WORKLOADS, waits, {}, within_s=SOON_S)
    return message


@pytest.mark.nightly
async def test_jobs_start_as_the_quota_of_gpu_memory_lets_them_and_their_pods_get_cards(site: GpuSite) -> None:
    node = gpu_node("a", [16])
    node["metadata"]["labels"] = {"gpushare": "true"}
    await site.add_nodes(node)
    *queue, job = next(one for one in examples() if one[-1]["kind"] == "Job")
    units = example_pods.requested(job["spec"]["template"]["spec"])
    for document in queue:
        done(await written(site.admin, document))

    for name in ("first", "second"):
        made = copy.deepcopy(job)
        made["metadata"]["name"] = name
        del made["spec"]["suspend"]  # Kueue's webhook suspends it.
        assert done(await written(site.admin, made)).body["spec"]["suspend"] is True
        if name == "first":
            first = await pod_of(site, name)

    assert first["spec"]["nodeSelector"] == {"gpushare": "true"}
    assert cards_of(first) == {"0": card("a", 0)}
    assert f"insufficient unused quota for {names.GPU_MEM}" in await told_to_wait(site, "second")
    assert done(await site.admin.get(f"{JOBS}/second")).body["spec"]["suspend"] is True
    assert [pod["metadata"]["name"] for pod in await site.admin.items(site.pods_path)] == [first["metadata"]["name"]]

    ended = {"status": {"phase": "Succeeded"}}
    done(await site.admin.patch(f"{site.pods_path}/{first['metadata']['name']}/status", ended))

    second = await pod_of(site, "second")
    assert cards_of(second) == {"0": card("a", 0)}
    assert 2 * units > 12, "otherwise the quota of the example lets both in at once"
