"""The scheduler or the API server ends in the middle of a backlog: every pod is bound once, no card over-committed."""

import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from config.settings.scheduler import DEFAULT_BIND_TIMEOUT_S
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess
from e2e.support.backlog import FIRST, SIZE, Backlog, backlog_in

ALONE: Mapping[str, Any] = {"leaderElection": {"leaderElect": False}}


@pytest.fixture
async def backlog(control_plane: ControlPlane, admin: Admin, namespace: str) -> AsyncIterator[Backlog]:
    async with backlog_in(control_plane, admin, namespace) as made:
        yield made


async def test_a_scheduler_that_is_killed_in_the_middle_goes_on_where_it_was(backlog: Backlog, tmp_path: Path) -> None:
    bound_at_s = backlog.history.bound_at_s
    await backlog.make_half_of_the_nodes()
    with SchedulerProcess(backlog.cluster.kubeconfig_path(), tmp_path, NO_PREDECESSOR) as first:
        await backlog.until_bound(FIRST)
        first.kill()
    before = len(bound_at_s)
    await backlog.make_the_other_nodes()

    with SchedulerProcess(backlog.cluster.kubeconfig_path(), tmp_path, ALONE) as second:
        restarted_s = time.monotonic()
        await backlog.until_bound(SIZE.pods)
        waited = await second.said("start.waiting")

    assert FIRST <= before < SIZE.pods
    assert await backlog.faults() == []
    assert waited["reason"] == "a bind request of the previous process may still take effect"
    # What the first one had sent takes effect at once; what the second one sends comes after the wait.
    late_s = [at_s - restarted_s for at_s in bound_at_s.values()]
    assert not [at_s for at_s in late_s if DEFAULT_BIND_TIMEOUT_S / 2 < at_s < DEFAULT_BIND_TIMEOUT_S]


async def test_an_api_server_that_ends_in_the_middle_costs_no_pod_and_no_card(backlog: Backlog, tmp_path: Path) -> None:
    await backlog.make_nodes()
    with SchedulerProcess(backlog.cluster.kubeconfig_path(), tmp_path, NO_PREDECESSOR) as scheduler:
        await backlog.until_bound(FIRST)
        with backlog.cluster.cut_off(kill=True):
            before = len(backlog.history.bound_at_s)
        await backlog.until_bound(SIZE.pods)
        sent_again = scheduler.lines("bind.retry")
        scheduler.child.check_alive()

    assert before < SIZE.pods
    assert sent_again
    assert await backlog.faults() == []
