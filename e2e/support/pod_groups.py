"""PodGroups on a real kube-apiserver: their definitions, where Kubernetes itself serves none."""

import asyncio
from http import HTTPStatus
from typing import Final

from e2e.control_plane import pinned
from e2e.control_plane.admin import Admin, Json

NATIVE: Final = "scheduling.k8s.io"
PLUGINS: Final = "scheduling.x-k8s.io"
VOLCANO: Final = "scheduling.volcano.sh"
VERSIONS: Final = {
    NATIVE: "v1alpha2" if pinned.kubernetes_version().startswith("v1.36.") else "v1beta1",
    PLUGINS: "v1alpha1",
    VOLCANO: "v1beta1",
}
# Until a kind that was not served is asked for again.
SERVED_WITHIN_S: Final = 60.0
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


async def define(admin: Admin, api_group: str) -> None:
    """Define the PodGroups of an API group, unless they are, and wait until they are served."""
    if (await admin.get(f"{_CRDS}/podgroups.{api_group}")).status == HTTPStatus.NOT_FOUND:
        await admin.create(_CRDS, _crd(api_group))
    await served(admin, api_group, "default")


async def served(admin: Admin, api_group: str, namespace: str) -> str:
    """Return the path of the PodGroups in the namespace, once they are served."""
    path = f"/apis/{api_group}/{VERSIONS[api_group]}/namespaces/{namespace}/podgroups"
    async with asyncio.timeout(SERVED_WITHIN_S):
        while (await admin.get(path)).status != HTTPStatus.OK:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.1)
    return path


def _crd(api_group: str) -> Json:
    """A definition with the one field that matters here."""
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
            "versions": [{"name": VERSIONS[api_group], "served": True, "storage": True, "schema": schema}],
        },
    }
