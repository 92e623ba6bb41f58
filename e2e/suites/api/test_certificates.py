"""A client certificate that ends while the scheduler runs, and is replaced as whoever renews certificates does it."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path

import pytest
import yaml

from e2e.control_plane.admin import Access, Admin, ask
from e2e.control_plane.cluster import ControlPlane
from e2e.control_plane.readiness import NotReady
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import gpu_site

WHO = ("rotating", "system:masters")
# Enough to start the scheduler, and at a second try to do so on a machine that stalls.
LASTS_S = (16, 60)
BINDS_WITHIN_S = 6.0


def shown_by(cluster: ControlPlane, kubeconfig: Path) -> Access:
    """A client with the certificate that the kubeconfig names at this moment."""
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    tls = ssl.create_default_context(cafile=str(cluster.ca_file))
    tls.load_cert_chain(user["client-certificate"], user["client-key"])
    return Access(cluster.url, tls, None)


def status(access: Access) -> int:
    """What the API server answers whoever shows that certificate."""
    return ask(access, "/api/v1/namespaces/default").status


async def refused(access: Access, within_s: float) -> None:
    """Wait until the API server takes that certificate no longer."""
    async with asyncio.timeout(within_s):
        while status(access) != HTTPStatus.UNAUTHORIZED:  # noqa: ASYNC110 - its clock
            await asyncio.sleep(0.2)


@asynccontextmanager
async def started(kubeconfig: Path, folder: Path, ends_s: float) -> AsyncIterator[SchedulerProcess | None]:
    """The scheduler, None if so little is left of its certificate that it may bind nothing with it."""
    with SchedulerProcess(kubeconfig, folder) as scheduler:
        with contextlib.suppress(NotReady):
            await scheduler.ready()
        yield scheduler if time.monotonic() < ends_s - BINDS_WITHIN_S else None


async def test_pods_are_bound_after_the_certificate_of_the_start_has_ended(
    control_plane: ControlPlane, admin: Admin, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for lasts_s in LASTS_S:
        ends_s = time.monotonic() + lasts_s
        kubeconfig = control_plane.certificate_kubeconfig_path(*WHO, lasts_s)
        old = shown_by(control_plane, kubeconfig)
        async with started(kubeconfig, tmp_path_factory.mktemp("scheduler"), ends_s) as scheduler:
            if scheduler is None:
                continue
            async with gpu_site(admin, namespace, scheduler) as site:
                await site.nodes(a=[16])
                await site.pod("before", 2)
                await site.bound("before")

                assert status(old) == HTTPStatus.OK
                control_plane.certificate_kubeconfig_path(*WHO)
                await refused(old, 2.0 * lasts_s)
                await site.pod("after", 3)
                await site.bound("after")
                await site.event("after", "Scheduled")
        break

    assert scheduler is not None
    assert scheduler.lines("credentials.certificates_changed")
    assert [line["event"] for line in scheduler.lines() if line["level"] in {"warning", "error"}] == []
