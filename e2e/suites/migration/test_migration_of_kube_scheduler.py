"""kube-scheduler with the legacy extender, without it while it is configured, and without both: docs/migrate.md.

"5. Remove the extender": in which order, and what the other order would do.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from config.protocol import names
from e2e.control_plane.admin import Json
from e2e.control_plane.cluster import ControlPlane
from e2e.programs.legacy_extender import LegacyExtender
from e2e.support.gpu_site import GpuSite, condition, gpu_node, is_unschedulable
from e2e.support.kubectl_gpushare import kubectl_gpushare
from e2e.support.legacy_extender import UNITS, created, legacy_node


@contextmanager
def kube_scheduler(cluster: ControlPlane, *extenders: Json) -> Iterator[None]:
    child = cluster.start_scheduler({"extenders": list(extenders), "podMaxBackoffSeconds": 1})
    try:
        yield
    finally:
        child.stop()


def is_in_error(pod: Json) -> bool:
    return condition(pod).get("reason") == "SchedulerError"


async def test_without_its_extender_kube_scheduler_places_no_gpu_pods_and_unconfigured_it_gives_them_no_card(
    site: GpuSite, control_plane: ControlPlane, tmp_path: Path
) -> None:
    moved = gpu_node("moved", [UNITS])
    moved["spec"] = {"taints": [{"key": "gpushare-migrated", "value": "true", "effect": "NoSchedule"}]}
    await site.add_nodes(legacy_node("old", 2), moved)
    extender = LegacyExtender(site.admin, {"old": [UNITS, UNITS], "moved": [UNITS]})
    with kube_scheduler(control_plane, extender.configuration()):
        async with extender.running():
            for number in range(2):
                await created(site, f"binpack-{number}", 10)
                await site.bound(f"binpack-{number}")
            # The node that is moved has room, and its taint keeps the extender's pods out. 12 units are more than both
            # cards have left together: without the extender too this pod waits, and takes nothing from "late".
            await created(site, "waiting", 12)
            await site.seen("waiting", is_unschedulable)
        assert extender.taken == {"old": [10, 10], "moved": [0]}
        await created(site, "late", 2)
        await site.seen("late", is_in_error)
        cpu = {"name": "c", "image": "none"}
        await created(site, "cpu", 0, containers=[cpu])
        await site.bound("cpu")
    with kube_scheduler(control_plane):
        late = await site.bound("late")
    assert (late["spec"]["nodeName"], names.MEM_IDX in late["metadata"].get("annotations", {})) == ("old", False)
    ran = await asyncio.to_thread(kubectl_gpushare, control_plane, tmp_path, "adopt")
    assert (ran.returncode, f"pod/{site.namespace}/late on node old" in ran.stdout) == (1, True)
    assert "without-card: 1 pod" in ran.stdout
    assert f"{site.namespace}/binpack-1  extender" in ran.stdout
