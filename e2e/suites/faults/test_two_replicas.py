"""A backlog of pods on a real API server, in the middle of which a scheduler ends, and another one goes on.

Of two replicas, under the rights of deploy/manifests, the leader ends in good order, is killed, or is stopped and goes
on later. Every pod is bound once, no card over-committed, and the other one schedules in time.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

from config.settings.scheduler import DEFAULT_BIND_TIMEOUT_S
from e2e.bench import workload
from e2e.control_plane import pinned
from e2e.control_plane.admin import Admin
from e2e.control_plane.cluster import ControlPlane
from e2e.fire.recording import Recording
from e2e.fire.witness import Witness
from e2e.programs import manifests
from e2e.programs.scheduler_process import NO_PREDECESSOR, SchedulerProcess

# Pods are packed card by card: a scheduler that has forgotten the first 300 would fill the same cards again.
SIZE: Final = workload.Size(nodes=24, pods=1000, templates=50)
FIRST: Final = 300
# Eight cards of 79 units each: room for more than FIRST of the largest pods, and for fewer than all of the smallest.
_HALF: Final = 12
_NODES: Final = "/api/v1/nodes"


@dataclass(frozen=True, slots=True)
class Backlog:
    """Pods that wait at `path`, and what has been seen of them."""

    cluster: ControlPlane
    admin: Admin
    path: str
    recording: Recording

    async def until_bound(self, count: int, within_s: float = 60.0) -> None:
        """Return when so many pods have been seen with a node."""
        await self.recording.until(lambda: self.witness.bound >= count, within_s=within_s)

    @property
    def witness(self) -> Witness:
        return self.recording.witness

    def faults(self) -> list[str]:
        """[] when every pod was bound once, is still there, and fits on its cards."""
        lost = [f"{pod.name} is gone or waits" for pod in self.witness.pods.values() if pod.gone or not pod.node]
        return lost + [self.witness.report()] * bool(self.witness.faults)

    async def make_half_of_the_nodes(self) -> None:
        """From now on some can be bound, and not all, however late it is seen that the first of them are."""
        await self.admin.create_all(_NODES, islice(workload.nodes(SIZE), _HALF))

    async def make_the_other_nodes(self) -> None:
        """From now on the rest can be bound, too."""
        await self.admin.create_all(_NODES, islice(workload.nodes(SIZE), _HALF, None))


@pytest.fixture
async def backlog(control_plane: ControlPlane, admin: Admin, namespace: str) -> AsyncIterator[Backlog]:
    """The pods, followed until the end; there is no node yet."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    await admin.create_all(path, workload.pods(SIZE))
    recording = Recording(control_plane.etcd_url, Witness())
    following = asyncio.create_task(recording.follow())
    yield Backlog(control_plane, admin, path, recording)
    following.cancel()
    await asyncio.wait({following})
    await admin.delete(_NODES)


# Less than half of what is shipped, so that a test takes less than half of the time.
QUICK: Final[dict[str, Any]] = {
    "bindTimeout": "1s",
    "leaderElection": {"leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1500ms"},
}
SHIPPED: Final[dict[str, Any]] = {}
ALONE: Final[dict[str, Any]] = {"leaderElection": {"leaderElect": False}}
HANDED_OVER_S: Final = 2.0


@dataclass(frozen=True)
class Site:
    """after_a_kill_s: leaseDuration and twice retryPeriod."""

    backlog: Backlog
    leader: SchedulerProcess
    standby: SchedulerProcess
    after_a_kill_s: float

    async def pause_s(self, since: datetime) -> float:
        """Time until the standby schedules, once all pods are bound.

        Not until its first pod: that waits for nodes, which the test makes after the leader has ended.
        """
        await self.backlog.until_bound(SIZE.pods)
        if faults := self.backlog.faults():
            pytest.fail("\n".join(faults))
        assert self.standby.lines("pod.bound")
        schedules = self.standby.lines("leader.schedules")[0]
        return (datetime.fromisoformat(schedules["timestamp"]) - since).total_seconds()


@pytest.fixture(
    params=[pytest.param(QUICK, id="quick"), pytest.param(SHIPPED, id="shipped", marks=pytest.mark.nightly)]
)
def configuration(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


@pytest.fixture
async def kubeconfig(control_plane: ControlPlane, admin: Admin) -> AsyncIterator[Path]:
    """Of the ServiceAccount, with exactly its rights."""
    rbac = manifests.documents("rbac.yaml")
    await manifests.apply(admin, *rbac)
    yield control_plane.kubeconfig_for(await manifests.token(admin), "service-account")
    await manifests.remove(admin, *rbac)


@pytest.fixture
async def site(
    backlog: Backlog, kubeconfig: Path, configuration: dict[str, Any], tmp_path: Path
) -> AsyncIterator[Site]:
    """The leader schedules, the other one stands by, and the first of the pods are bound."""
    async with AsyncExitStack() as stack:
        replicas = []
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            replicas.append(stack.enter_context(SchedulerProcess(kubeconfig, folder, configuration)))
            await replicas[0].said("leader.schedules", within_s=30.0)
        leader, standby = replicas
        await standby.said("leader.standby")
        await standby.said("kubernetes.version", version=pinned.kubernetes_version())
        await standby.ready()
        await backlog.make_half_of_the_nodes()
        await backlog.until_bound(FIRST)
        yield Site(backlog, leader, standby, 9.0 if configuration else 19.0)


async def test_a_leader_that_ends_in_good_order_hands_over_at_once(site: Site) -> None:
    assert standing(await site.leader.metrics()) == (1.0, True)
    assert standing(await site.standby.metrics()) == (0.0, False)
    since = datetime.now(UTC)
    await asyncio.to_thread(site.leader.stop)
    await site.backlog.make_the_other_nodes()

    pause_s = await site.pause_s(since)

    print(f"hand-over in good order: {pause_s:.2f} s")  # noqa: T201 - the figure
    assert pause_s <= HANDED_OVER_S
    assert standing(await site.standby.metrics()) == (1.0, True)
    assert site.leader.lines("leader.given_up")
    assert not site.leader.lines("leader.lost")


async def test_a_leader_that_is_killed_is_replaced_in_time(site: Site) -> None:
    since = datetime.now(UTC)
    await asyncio.to_thread(site.leader.kill)
    await site.backlog.make_the_other_nodes()

    pause_s = await site.pause_s(since)

    print(f"hand-over after a kill: {pause_s:.2f} s")  # noqa: T201 - the figure
    assert pause_s <= site.after_a_kill_s


async def test_a_leader_that_is_stopped_and_goes_on_later_binds_nothing_any_more(site: Site) -> None:
    since = datetime.now(UTC)
    os.kill(site.leader.child.pid, signal.SIGSTOP)
    await site.backlog.make_the_other_nodes()
    await site.standby.said("leader.schedules", within_s=site.after_a_kill_s)
    await site.backlog.until_bound(site.backlog.witness.bound + 50)

    os.kill(site.leader.child.pid, signal.SIGCONT)

    pause_s = await site.pause_s(since)
    lost = await site.leader.said("leader.lost")
    print(f"hand-over after a stop: {pause_s:.2f} s")  # noqa: T201 - the figure
    assert pause_s <= site.after_a_kill_s
    assert lost["reason"].startswith("not renewed for ") or lost["reason"].endswith("holds it now")
    assert await asyncio.to_thread(site.leader.child.process.wait, 10.0) == 1


async def test_a_scheduler_that_is_killed_in_the_middle_goes_on_where_it_was(backlog: Backlog, tmp_path: Path) -> None:
    await backlog.make_half_of_the_nodes()
    with SchedulerProcess(backlog.cluster.kubeconfig_path(), tmp_path, NO_PREDECESSOR) as first:
        await backlog.until_bound(FIRST)
        first.kill()
    before = backlog.witness.bound
    await backlog.make_the_other_nodes()

    with SchedulerProcess(backlog.cluster.kubeconfig_path(), tmp_path, ALONE) as second:
        restarted = datetime.now(UTC)
        await backlog.until_bound(SIZE.pods)
        waited = await second.said("start.waiting")

    assert FIRST <= before < SIZE.pods
    assert backlog.faults() == []
    assert waited["reason"] == "a bind request of the previous process may still take effect"
    # The log has the lines of the first one, too.
    bound = [datetime.fromisoformat(line["timestamp"]) for line in second.lines("pod.bound")]
    assert min(at for at in bound if at > restarted) - restarted > timedelta(seconds=DEFAULT_BIND_TIMEOUT_S)


def standing(metrics: dict[tuple[str, str], float]) -> tuple[float, bool]:
    """(whether it leads, whether it speaks for the cluster)."""
    speaks = any(name == "scheduler_pending_pods" for name, _ in metrics)
    return metrics["leader_election_master_status", "gpushare-scheduler"], speaks
