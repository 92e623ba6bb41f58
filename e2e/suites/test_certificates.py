"""A client certificate that ends while the scheduler runs, and is replaced as whoever renews certificates does it."""

import asyncio
import ssl
from http import HTTPStatus
from pathlib import Path

import yaml

from e2e.control_plane import provider
from e2e.control_plane.admin import Access, Admin, ask
from e2e.control_plane.cluster import ControlPlane
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.suites.gpu_site import gpu_site

WHO = ("rotating", "system:masters")
# Enough to start the scheduler and bind a pod.
LASTS_S = 15
REFUSED_WITHIN_S = 2 * LASTS_S


def shown_by(cluster: ControlPlane, kubeconfig: Path) -> Access:
    """A client with the certificate that the kubeconfig names at this moment."""
    user = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]
    tls = ssl.create_default_context(cafile=str(cluster.ca_file))
    tls.load_cert_chain(user["client-certificate"], user["client-key"])
    return Access(cluster.url, tls, None)


async def refused(access: Access) -> None:
    """Wait until the API server takes that certificate no longer."""
    async with asyncio.timeout(REFUSED_WITHIN_S):
        while ask(access, "/api/v1/namespaces/default").status != HTTPStatus.UNAUTHORIZED:  # noqa: ASYNC110 - its clock
            await asyncio.sleep(0.2)


async def test_pods_are_bound_after_the_certificate_of_the_start_has_ended(
    cluster: provider.Target, admin: Admin, namespace: str, tmp_path: Path
) -> None:
    assert isinstance(cluster, ControlPlane)
    kubeconfig = cluster.certificate_kubeconfig_path(*WHO, LASTS_S)
    old = shown_by(cluster, kubeconfig)
    with SchedulerProcess(kubeconfig, tmp_path) as scheduler:
        await scheduler.ready()
        async with gpu_site(admin, namespace, scheduler) as site:
            await site.nodes(a=[16])
            await site.pod("before", 2)
            await site.bound("before")

            assert ask(old, "/api/v1/namespaces/default").status == HTTPStatus.OK
            cluster.certificate_kubeconfig_path(*WHO)
            await refused(old)
            await site.pod("after", 3)
            await site.bound("after")
            await site.event("after", "Scheduled")

    assert scheduler.lines("credentials.certificates_changed")
    assert [line["event"] for line in scheduler.lines() if line["level"] in {"warning", "error"}] == []
