"""A pod whose managedFields are deeper than decoders go is seen like any other, and so is its end."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from e2e.control_plane.admin import Admin, ask
from e2e.control_plane.cluster import ControlPlane
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess
from e2e.support.gpu_site import GpuSite

ALONE: Final[Mapping[str, Any]] = {"leaderElection": {"leaderElect": False}, "bindTimeout": "0s"}
# kube-apiserver takes 9,980, and seconds for it.
LEVELS: Final = 2_000
OWNED: Final = b'{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":%s}'


async def deepen(site: GpuSite, cluster: ControlPlane, name: str) -> None:
    """As whoever may update the pod can."""
    deep = b'{"f:a":' * LEVELS + b"{}" + b"}" * LEVELS
    patch = b'{"metadata":{"managedFields":[%s]}}' % (OWNED % deep)
    path = f"{site.pods_path}/{name}"
    answer = await asyncio.to_thread(ask, cluster.access(), path, "PATCH", patch)
    assert (answer.status, answer.body.count(b"f:a")) == (HTTPStatus.OK, LEVELS)


async def delete(site: GpuSite, cluster: ControlPlane, name: str) -> None:
    """Without reading the answer, which is as deep."""
    path = f"{site.pods_path}/{name}?gracePeriodSeconds=0"
    assert (await asyncio.to_thread(ask, cluster.access(), path, "DELETE")).status == HTTPStatus.OK


async def test_its_card_is_its_own_until_it_is_gone(site: GpuSite, control_plane: ControlPlane) -> None:
    await site.nodes(a=[16])
    await site.pod("deep", 16)
    await site.bound("deep")
    await deepen(site, control_plane, "deep")
    await site.pod("next", 16)
    assert "most free 0 (of 16)" in await site.unschedulable("next")

    await delete(site, control_plane, "deep")
    await site.bound("next")


async def test_a_scheduler_that_starts_books_it(
    control_plane: ControlPlane, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    with SchedulerProcess(control_plane.kubeconfig_path(), tmp_path, NO_PREDECESSOR) as first:
        await first.ready()
        site = GpuSite(admin, namespace, first)
        await site.nodes(a=[16])
        await site.pod("deep", 16)
        await site.bound("deep")
        await deepen(site, control_plane, "deep")
    with SchedulerProcess(control_plane.kubeconfig_path(), tmp_path, ALONE) as second:
        await second.ready()
        site.scheduler = second
        await site.pod("next", 16)
        assert "most free 0 (of 16)" in await site.unschedulable("next")
        await delete(site, control_plane, "deep")
        await site.bound("next")
        await site.clear()
