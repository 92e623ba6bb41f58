"""The scheduler or the API server ends in the middle of a backlog: every pod is bound once, no card over-committed."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from config.settings.scheduler import DEFAULT_BIND_TIMEOUT_S
from e2e.bench import ledger, workload
from e2e.bench.ledger import Audit
from e2e.control_plane import provider
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess
from e2e.suites.pod_history import PodHistory

# Pods are packed card by card: a scheduler that has forgotten the first 300 would fill the same cards again.
SIZE = workload.Size(nodes=24, pods=1000, templates=50)
FIRST = 300
NODES = "/api/v1/nodes"
SHIPPED: Mapping[str, Any] = {}
EVERY_POD_ONCE = Audit(placed=SIZE.pods, unannotated=0, misbooked=0, overcommitted_cards=0, overcommitted_nodes=0)


@dataclass(frozen=True, slots=True)
class Backlog:
    """Pods that wait at `path`, nodes that can take them, and what has been seen of them."""

    cluster: ControlPlane
    admin: Admin
    path: str
    history: PodHistory

    async def until_bound(self, count: int) -> None:
        """Return when so many pods have been seen with a node."""
        await self.history.until(lambda: len(self.history.bound_at_s) >= count, within_s=60)

    async def check(self) -> None:
        """Every pod was bound once, and what lies on the cards, recomputed from what the API server has, fits."""
        pods = await self.admin.items(self.path)
        assert self.history.faults(pods) == []
        assert ledger.judged(await self.admin.items(NODES), pods) == EVERY_POD_ONCE


@pytest.fixture
async def backlog(cluster: provider.Target, admin: Admin, namespace: str) -> AsyncIterator[Backlog]:
    assert isinstance(cluster, ControlPlane)
    path = f"/api/v1/namespaces/{namespace}/pods"
    await admin.create_all(NODES, workload.nodes(SIZE))
    await admin.create_all(path, workload.pods(SIZE))
    history = PodHistory(admin, path)
    following = asyncio.create_task(history.follow())
    yield Backlog(cluster, admin, path, history)
    following.cancel()
    await asyncio.wait({following})
    await admin.delete(NODES)


async def test_a_scheduler_that_is_killed_in_the_middle_goes_on_where_it_was(backlog: Backlog, tmp_path: Path) -> None:
    bound_at_s = backlog.history.bound_at_s
    with SchedulerProcess(backlog.cluster.kubeconfig_path(), tmp_path, NO_PREDECESSOR) as first:
        await backlog.until_bound(FIRST)
        first.kill()
    before = len(bound_at_s)

    with SchedulerProcess(backlog.cluster.kubeconfig_path(), tmp_path, SHIPPED) as second:
        restarted_s = time.monotonic()
        await backlog.until_bound(SIZE.pods)
        waited = await second.said("start.waiting")

    assert FIRST <= before < SIZE.pods
    await backlog.check()
    assert waited["reason"] == "a bind request of the previous process may still take effect"
    # What the first one had sent takes effect at once; what the second one sends comes after the wait.
    late_s = [at_s - restarted_s for at_s in bound_at_s.values()]
    assert not [at_s for at_s in late_s if DEFAULT_BIND_TIMEOUT_S / 2 < at_s < DEFAULT_BIND_TIMEOUT_S]


async def test_an_api_server_that_ends_in_the_middle_costs_no_pod_and_no_card(backlog: Backlog, tmp_path: Path) -> None:
    with SchedulerProcess(backlog.cluster.kubeconfig_path(), tmp_path, NO_PREDECESSOR) as scheduler:
        await backlog.until_bound(FIRST)
        os.kill(backlog.cluster.pids["kube-apiserver"], signal.SIGKILL)
        backlog.cluster.stop_apiserver()
        before = len(backlog.history.bound_at_s)
        backlog.cluster.start_apiserver()
        await backlog.until_bound(SIZE.pods)
        sent_again = scheduler.lines("bind.retry")
        scheduler.child.check_alive()

    assert before < SIZE.pods
    assert sent_again
    await backlog.check()
