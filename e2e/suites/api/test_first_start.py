"""The first start in a cluster without a Lease, on a real API server: how soon it binds, and for whom it waits."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from e2e.control_plane import provider
from e2e.control_plane.admin import Admin, done
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import NODES, gpu_node, gpu_pod

AFTER_READINESS_S: Final = 2.0
# A wait that a test can bear: of renewDeadline and bindTimeout.
WAITS_S: Final = 5.0
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
_AT_ONCE: Final = {"gracePeriodSeconds": 0}


@pytest.fixture
def configuration(namespace: str) -> dict[str, Any]:
    """Of a scheduler whose name and Lease nobody has used."""
    lease = {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1500ms", "resourceName": namespace}
    return {"bindTimeout": "1s", "leaderElection": lease, "profiles": [{"schedulerName": namespace}]}


@pytest.fixture
async def pods(admin: Admin, namespace: str) -> AsyncIterator[str]:
    """The path of the pods; there is a node for them."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    await admin.create(NODES, gpu_node(namespace, [16, 16]))
    yield path
    await admin.delete(path, _AT_ONCE)
    await admin.delete(f"{NODES}/{namespace}")
    await admin.delete(f"{_LEASES}/{namespace}")


async def bound_after_s(admin: Admin, pods: str, name: str, scheduler: SchedulerProcess) -> float:
    """Seconds from readiness until the pod, which comes before the scheduler, is bound."""
    namespace = pods.split("/")[4]
    await admin.create(pods, gpu_pod(name, 16, schedulerName=namespace))
    with scheduler:
        await scheduler.ready()
        since = datetime.now(UTC)
        line = await scheduler.said("pod.bound", within_s=30.0)
    after_s = (datetime.fromisoformat(line["timestamp"]) - since).total_seconds()
    print(f"first binding {after_s:.2f} s after readiness")  # noqa: T201 - the figure
    return after_s


async def test_the_first_scheduler_binds_at_once_and_waits_for_another_that_was_at_work(
    cluster: provider.Target, admin: Admin, tmp_path: Path, pods: str, configuration: dict[str, Any]
) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    first, second = (SchedulerProcess(cluster.kubeconfig_path(), folder, configuration) for folder in folders)

    assert await bound_after_s(admin, pods, "p", first) <= AFTER_READINESS_S

    # As in a cluster where the scheduler before elected nobody.
    done(await admin.delete(f"{_LEASES}/{configuration['leaderElection']['resourceName']}"))
    assert WAITS_S - 1.0 <= await bound_after_s(admin, pods, "q", second) <= WAITS_S + 3.0
