"""Claims and volumes of one test on a real cluster, and the small provisioner that creates volumes there.

Everything that a test creates is removed before the next one begins.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from e2e.control_plane.admin import Admin, Json, done, seen
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import NODES, GpuSite, gpu_site, is_bound
from scheduler.state.volumes.claim import BIND_COMPLETED
from tests.support.volumes import HOSTNAME, SELECTED_NODE, claim, storage_class, volume

VOLUMES: Final = "/api/v1/persistentvolumes"
CLASSES: Final = "/apis/storage.k8s.io/v1/storageclasses"
LOCAL: Final = storage_class("local", provisioner="kubernetes.io/no-provisioner")
FAST: Final = storage_class("fast", provisioner="example.com/test")
SOON_S: Final = 45.0


class Site:
    """One namespace with claims."""

    def __init__(self, of: GpuSite) -> None:
        self.of = of
        self.admin = of.admin
        self._made: list[str] = []

    @property
    def claims_path(self) -> str:
        """Path of its claims."""
        return f"/api/v1/namespaces/{self.of.namespace}/persistentvolumeclaims"

    async def comes(self, path: str, manifest: Json) -> None:
        """Create a cluster-scoped object that is removed after the test."""
        await self.admin.create(path, manifest)
        self._made.append(f"{path}/{manifest['metadata']['name']}")

    async def claim(self, name: str, **options: Any) -> None:  # noqa: ANN401 - as `claim`
        """Create a claim: see `claim`."""
        made = claim(name, **options)
        await self.admin.create(self.claims_path, {**made, "metadata": {"name": name}})

    async def read(self, name: str) -> Json:
        """Return the claim's current state."""
        return done(await self.admin.get(f"{self.claims_path}/{name}")).body

    async def selected(self, name: str) -> str:
        """Wait for the scheduler to write a node into the claim; return the node."""
        query = {"fieldSelector": f"metadata.name={name}"}
        found = await seen(self.admin, self.claims_path, lambda one: bool(selected_node(one)), query, within_s=SOON_S)
        return selected_node(found)

    async def bound(self, name: str) -> Json:
        """Wait for the pod to be bound."""
        return await self.of.seen(name, is_bound, within_s=SOON_S)

    async def provision(self) -> None:
        """Create a volume for every claim that has a node, as a provisioner does, until cancelled."""
        while True:
            for found in await self.admin.items(self.claims_path):
                if selected_node(found) and not found["spec"].get("volumeName"):
                    await self._make(found)
            await asyncio.sleep(0.1)

    async def clear(self) -> None:
        """Remove the pods, their claims, and everything created with `comes`."""
        await self.admin.delete(self.of.pods_path, {"gracePeriodSeconds": 0})
        await self.admin.delete(self.claims_path)
        for path in self._made:
            await self.admin.delete(path)

    async def _make(self, found: Json) -> None:
        meta, name = found["metadata"], f"pvc-{found['metadata']['uid']}"
        made = volume(name, on=(selected_node(found),), hostPath={"path": "/made"})
        asked = found["spec"]
        made["spec"] |= {"accessModes": asked["accessModes"], "capacity": asked["resources"]["requests"]}
        made["spec"]["storageClassName"] = asked["storageClassName"]
        made["spec"]["claimRef"] = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
        if f"{VOLUMES}/{name}" not in self._made:
            await self.comes(VOLUMES, made)


def claim_is_bound(found: Json) -> bool:
    """Return whether the claim counts as bound for schedulers: its phase follows in a separate request."""
    return bool(found["spec"].get("volumeName")) and BIND_COMPLETED in found["metadata"].get("annotations", {})


def selected_node(found: Json) -> str:
    """Return the node that a scheduler has written into the claim; "" if none."""
    selected: str = found["metadata"].get("annotations", {}).get(SELECTED_NODE, "")
    return selected


@asynccontextmanager
async def claims_site(operator: Admin, namespace: str, scheduler: SchedulerProcess) -> AsyncIterator[Site]:
    """Create nodes a and b, and the two classes."""
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
