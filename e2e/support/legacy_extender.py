"""Writes of the legacy extender and the legacy device plugin, call by call, on nodes and pods of a `GpuSite`.

Extender: it annotates the pod, then binds it without annotations. Source: gpushare-scheduler-extender,
pkg/cache/nodeinfo.go, Allocate; pkg/utils/pod.go. Plugin: totals in the node's status; one annotation on the pod that
it identified for an Allocate. Source: gpushare-device-plugin, pkg/gpu/nvidia/podmanager.go, allocate.go.
"""

from typing import Final

from config.protocol import names
from e2e.control_plane.admin import Json, done
from e2e.support.gpu_site import GpuSite, gpu_node
from tests.support.legacy import DEFAULT, chosen

UNITS: Final = 15


def legacy_node(name: str, cards: int) -> Json:
    """Return a node with cards of 15 units, which announces only totals."""
    node = gpu_node(name, [UNITS] * cards)
    del node["metadata"]["annotations"]
    return node


async def created(site: GpuSite, name: str, units: int, **spec: object) -> Json:
    """Create a pod for the default scheduler."""
    return await site.pod(name, units, schedulerName=DEFAULT, **spec)


async def annotated(site: GpuSite, name: str, index: int, units: int) -> None:
    """Send the extender's first call."""
    annotations = chosen(index, units, UNITS, assigned=False)
    done(await site.admin.patch(f"{site.pods_path}/{name}", {"metadata": {"annotations": annotations}}))


async def bound(site: GpuSite, name: str, node: str) -> None:
    """Send the extender's second call; the kubelet and the plugin then start the pod."""
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    done(await site.admin.post(f"{site.pods_path}/{name}/binding", {"metadata": {"name": name}, "target": target}))


async def started(site: GpuSite, name: str) -> None:
    """Mark the pod as started: the plugin has allocated the card that it found, and the container runs."""
    said = {names.MEM_ASSIGNED: "true", names.MEM_ASSUME_TIME: "1785000001000000000"}
    done(await site.admin.patch(f"{site.pods_path}/{name}", {"metadata": {"annotations": said}}))
    done(await site.admin.patch(f"{site.pods_path}/{name}/status", {"status": {"phase": "Running"}}))


async def running(site: GpuSite, name: str, units: int, node: str, index: int) -> None:
    """Take a pod from its creation until it runs."""
    await created(site, name, units)
    await annotated(site, name, index, units)
    await bound(site, name, node)
    await started(site, name)
