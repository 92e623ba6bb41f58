"""PodGroups on a real kube-apiserver: the native ones, and those of scheduler-plugins and Volcano."""

from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest

from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.cluster import ControlPlane
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import GpuSite, condition, gpu_pod, gpu_site, is_bound, is_unschedulable
from e2e.support.pod_groups import NATIVE, PLUGINS, SERVED_WITHIN_S, VERSIONS, VOLCANO, define, served

_NAMESPACE: Final = "pod-groups"


def marked(pod: Json, api_group: str) -> Json:
    """The pod as one of the PodGroup `train`."""
    if api_group == NATIVE:
        pod["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    elif api_group == PLUGINS:
        pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
    else:
        pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "train"}
    return pod


def group(api_group: str, minimum: int) -> Json:
    """A PodGroup of so many pods."""
    native = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    return {
        "apiVersion": f"{api_group}/{VERSIONS[api_group]}",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": native if api_group == NATIVE else {"minMember": minimum},
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    with ControlPlane(pod_groups=True) as own:
        yield own


@pytest.fixture
async def site(cluster: ControlPlane, tmp_path: Path) -> AsyncIterator[GpuSite]:
    async with Admin(cluster.access()) as admin:
        status, _ = await admin.get(f"/api/v1/namespaces/{_NAMESPACE}")
        if status == HTTPStatus.NOT_FOUND:
            await admin.create("/api/v1/namespaces", {"metadata": {"name": _NAMESPACE}})
            await define(admin, PLUGINS)
        with SchedulerProcess(cluster.kubeconfig_path(), tmp_path) as scheduler:
            await scheduler.ready()
            async with gpu_site(admin, _NAMESPACE, scheduler) as made:
                yield made


@pytest.mark.parametrize("api_group", [NATIVE, PLUGINS, VOLCANO])
async def test_pods_start_together_as_their_pod_group_says(site: GpuSite, api_group: str) -> None:
    await site.nodes(a=[16, 16])
    pods = [f"p{number}" for number in range(3)]
    for name in pods:
        await site.admin.create(site.pods_path, marked(gpu_pod(name, 16), api_group))
    if api_group == VOLCANO:
        # While the scheduler runs.
        await define(site.admin, VOLCANO)
    path = await served(site.admin, api_group, _NAMESPACE)
    await site.admin.create(path, group(api_group, 3))

    waiting = [await site.seen(name, _lacks_room, within_s=SERVED_WITHIN_S) for name in pods]
    needed = f"PodGroup train of {api_group} needs 3 pods at once: 2 fit, then pod p"
    assert all(needed in condition(pod)["message"] for pod in waiting)
    await site.nodes(b=[16])
    for name in pods:
        await site.seen(name, is_bound)
    assert [line for line in site.scheduler.lines() if line["level"] in {"warning", "error"}] == []


def _lacks_room(pod: Json) -> bool:
    return is_unschedulable(pod) and "at once" in condition(pod)["message"]
