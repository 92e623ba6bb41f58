"""PodGroups on a real kube-apiserver: the native ones, and those of scheduler-plugins and Volcano."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Final

import pytest

from e2e.control_plane import pinned
from e2e.control_plane.admin import Admin, Json
from e2e.control_plane.cluster import ControlPlane
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import GpuSite, condition, gpu_pod, gpu_site, is_bound, is_unschedulable

_NAMESPACE: Final = "pod-groups"
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_NATIVE: Final = "scheduling.k8s.io"
_PLUGINS: Final = "scheduling.x-k8s.io"
_VOLCANO: Final = "scheduling.volcano.sh"
_VERSIONS: Final = {
    _NATIVE: "v1alpha2" if pinned.kubernetes_version().startswith("v1.36.") else "v1beta1",
    _PLUGINS: "v1alpha1",
    _VOLCANO: "v1beta1",
}
# Until a kind that was not served is asked for again.
_SERVED_WITHIN_S: Final = 60.0


def crd(api_group: str) -> Json:
    """A definition of PodGroups with the one field that matters here."""
    minimum = {"type": "object", "properties": {"minMember": {"type": "integer", "format": "int32"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": minimum}}}
    # Groups of Kubernetes' own name need a mark of their approval.
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"}
    return {
        "metadata": {"name": f"podgroups.{api_group}", "annotations": approved},
        "spec": {
            "group": api_group,
            "names": {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup", "listKind": "PodGroupList"},
            "scope": "Namespaced",
            "versions": [{"name": _VERSIONS[api_group], "served": True, "storage": True, "schema": schema}],
        },
    }


def marked(pod: Json, api_group: str) -> Json:
    """The pod as one of the PodGroup `train`."""
    if api_group == _NATIVE:
        pod["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    elif api_group == _PLUGINS:
        pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "train"}
    else:
        pod["metadata"]["annotations"] = {"scheduling.k8s.io/group-name": "train"}
    return pod


def group(api_group: str, minimum: int) -> Json:
    """A PodGroup of so many pods."""
    native = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    return {
        "apiVersion": f"{api_group}/{_VERSIONS[api_group]}",
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": native if api_group == _NATIVE else {"minMember": minimum},
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
            await admin.create(_CRDS, crd(_PLUGINS))
            await _served(admin, _PLUGINS)
        with SchedulerProcess(cluster.kubeconfig_path(), tmp_path) as scheduler:
            await scheduler.ready()
            async with gpu_site(admin, _NAMESPACE, scheduler) as made:
                yield made


@pytest.mark.parametrize("api_group", [_NATIVE, _PLUGINS, _VOLCANO])
async def test_pods_start_together_as_their_pod_group_says(site: GpuSite, api_group: str) -> None:
    await site.nodes(a=[16, 16])
    pods = [f"p{number}" for number in range(3)]
    for name in pods:
        await site.admin.create(site.pods_path, marked(gpu_pod(name, 16), api_group))
    if api_group == _VOLCANO:
        # While the scheduler runs.
        await site.admin.create(_CRDS, crd(api_group))
    await site.admin.create(await _served(site.admin, api_group), group(api_group, 3))

    waiting = [await site.seen(name, _lacks_room, within_s=_SERVED_WITHIN_S) for name in pods]
    needed = f"PodGroup train of {api_group} needs 3 pods at once: pod p"
    assert all(needed in condition(pod)["message"] for pod in waiting)
    await site.nodes(b=[16])
    for name in pods:
        await site.seen(name, is_bound)
    assert [line for line in site.scheduler.lines() if line["level"] in {"warning", "error"}] == []


def _lacks_room(pod: Json) -> bool:
    return is_unschedulable(pod) and "at once" in condition(pod)["message"]


async def _served(admin: Admin, api_group: str) -> str:
    """Return the path of the PodGroups of an API group, once they are served."""
    path = f"/apis/{api_group}/{_VERSIONS[api_group]}/namespaces/{_NAMESPACE}/podgroups"
    async with asyncio.timeout(_SERVED_WITHIN_S):
        while (await admin.get(path)).status != HTTPStatus.OK:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.1)
    return path
