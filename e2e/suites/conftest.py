"""What many suites start with: the scheduler as configured by default, and nodes with cards for it."""

from collections.abc import AsyncIterator, Iterator

import pytest

from e2e.control_plane import provider
from e2e.control_plane.admin import Admin
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import GpuSite, gpu_site


@pytest.fixture(scope="module")
def scheduler(cluster: provider.Target, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedulerProcess]:
    with SchedulerProcess(cluster.kubeconfig_path(), tmp_path_factory.mktemp("scheduler")) as started:
        yield started


@pytest.fixture
async def site(scheduler: SchedulerProcess, admin: Admin, namespace: str) -> AsyncIterator[GpuSite]:
    await scheduler.ready()
    async with gpu_site(admin, namespace, scheduler) as made:
        yield made
