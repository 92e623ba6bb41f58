"""The API server is away, comes back, or no longer knows who we are: what a user waits for, and what the probes say."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.programs import manifests
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess
from e2e.support.gpu_site import GpuSite, gpu_site
from scheduler.kube import port
from tests.support.clocks.quickest import quickest

# A client that doubled its waits from 0.1 s without a limit would ask again 4 s after the return of the server.
AWAY_S = 8.0
KINDS = ", ".join(sorted(kind.name for kind in port.KINDS))
BOUND_WITHIN_S = 2.0
# A tenth of the default, so that an absence of seconds is a long one.
SOON_NOT_READY = {**NO_PREDECESSOR, "notReadyAfter": "3s"}
Away = Callable[[ControlPlane], Awaitable[None]]


@pytest.fixture
async def site(
    control_plane: ControlPlane, admin: Admin, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[GpuSite]:
    folder = tmp_path_factory.mktemp("scheduler")
    with SchedulerProcess(control_plane.kubeconfig_path(), folder, SOON_NOT_READY) as scheduler:
        await scheduler.ready()
        async with gpu_site(admin, namespace, scheduler) as made:
            yield made


async def killed(cluster: ControlPlane) -> None:
    """No connection is accepted; started again, it has forgotten every watch."""
    with cluster.cut_off(kill=True):
        await asyncio.sleep(AWAY_S)


async def stopped(cluster: ControlPlane) -> None:
    """Connections stay, and nothing comes."""
    pid = cluster.pids["kube-apiserver"]
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(AWAY_S)
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize("away", [killed, stopped])
async def test_a_new_pod_is_bound_within_two_seconds_of_the_servers_return(
    site: GpuSite, control_plane: ControlPlane, capsys: pytest.CaptureFixture[str], away: Away
) -> None:
    await site.nodes(a=[16])

    async def bound_after_s(turn: int) -> float:
        await away(control_plane)
        returned_s = time.monotonic()
        await site.pod(f"p-{turn}", 3)
        await site.bound(f"p-{turn}")
        return time.monotonic() - returned_s

    # A watch is made again up to a second later.
    took_s = await quickest(bound_after_s, BOUND_WITHIN_S)
    with capsys.disabled():
        sys.stdout.write(f"\n  {away.__name__} for {AWAY_S:.0f} s: bound {took_s:.2f} s after its return\n")
    assert took_s < BOUND_WITHIN_S


async def test_readiness_and_metrics_say_since_when_the_server_is_away(
    site: GpuSite, control_plane: ControlPlane
) -> None:
    with control_plane.cut_off():
        # A watch is said once it has failed for 3 s, and they do not all notice in the same moment.
        said = await site.scheduler.readyz_until(lambda said: f"has not served {KINDS} for" in said)
        series = await site.scheduler.metrics()
    await site.scheduler.readyz_until(lambda said: said == "ok\n")

    assert re.search(rf"the API server has not served {KINDS} for \d+ s: connection failed", said)
    assert all(
        series["gpushare_scheduler_api_failing_seconds", kind] >= 3
        and series["gpushare_scheduler_api_last_answer_age_seconds", kind] >= 3
        for kind in KINDS.split(", ")
    )
    reasons = [line["reason"] for line in site.scheduler.lines("api.unreachable")]
    assert len(reasons) == len(set(reasons)) <= 2  # the connection that broke, and those that were refused


async def test_a_dead_token_is_said_once_and_by_the_probe(
    control_plane: ControlPlane, admin: Admin, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await manifests.apply(admin, *manifests.documents("rbac.yaml"))
    config = control_plane.kubeconfig_for(await manifests.token(admin, manifests.SCHEDULER, None), "dead-token")
    with SchedulerProcess(config, tmp_path_factory.mktemp("scheduler"), SOON_NOT_READY) as scheduler:
        await scheduler.ready()
        # A token is that of one account: another one of the same name does not know it.
        await admin.delete(f"/api/v1/namespaces/{manifests.NAMESPACE}/serviceaccounts/{manifests.SCHEDULER}")
        with control_plane.cut_off():
            pass
        # As above: not all of them notice in the same moment.
        await scheduler.readyz_until(lambda said: "nauthorized" in said and f"has not served {KINDS} for" in said)
        await asyncio.sleep(5)
        lines = scheduler.lines("api.unauthorized")

    await manifests.remove(admin, *manifests.documents("rbac.yaml"))
    assert len(lines) == 1
