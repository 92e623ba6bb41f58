"""kube-scheduler and ours on the same small nodes until these are full, both as the processes that people run.

The API server lets any scheduler bind any pod to any node, so two of them can put too much on one. How much? Each knows
what it has bound itself, and what the other one has bound as soon as a watch shows it. So when one of them chooses a
node for a pod, these fit together: the pod, all that it has on the node itself, and what the other one has there,
except what the watch has not shown yet. It follows, for every resource of a node:

- what one scheduler alone has bound fits, and so the excess is at most what either of them has there;
- the other one has bound what is too much shortly before: within the time that a scheduler may be behind, from the
  other's binding until its own is written.

GPU memory is bound by ours alone: no card has too much, ever. What is too much on a node the kubelet refuses, and the
owner of that pod makes another.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from itertools import chain, zip_longest
from typing import Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Admin, Json, NotSeen, done
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import GpuSite, gpu_site, is_unschedulable
from e2e.support.node_accounts import Accounts, small_node, small_pod

OURS: Final = names.SCHEDULER_NAME
THEIRS: Final = "default-scheduler"
NODES: Final = tuple(f"n{number:02}" for number in range(16))
PODS: Final = {OURS: 240, THEIRS: 300}
# The API server writes whole seconds. Watch, decision and request of two schedulers on a busy machine.
MOST_BEHIND_S: Final = 5.0
MOST_ROUNDS: Final = 5
SOON_S: Final = 30.0


@pytest.fixture
async def site(
    kube_scheduler: None, scheduler: SchedulerProcess, admin: Admin, namespace: str
) -> AsyncIterator[GpuSite]:
    del kube_scheduler
    await scheduler.ready()
    async with gpu_site(admin, namespace, scheduler) as made:
        await made.add_nodes(*map(small_node, NODES))
        await admin.create(made.pods_path, small_pod("first", THEIRS, 0))
        await made.bound("first")
        await made.delete_pod("first")
        yield made


async def accounts(site: GpuSite) -> Accounts:
    return Accounts(NODES, await site.admin.items(site.pods_path))


async def settled(site: GpuSite) -> Accounts:
    """Once each pod has a node, or was told why not and fits nowhere. Raises NotSeen when nothing changes any more."""
    found = await accounts(site)
    waited, since_s = len(found.waiting), time.monotonic()
    while not (all(map(is_unschedulable, found.waiting)) and not found.could_run()):
        if len(found.waiting) != waited:
            waited, since_s = len(found.waiting), time.monotonic()
        if time.monotonic() - since_s > SOON_S:
            message = f"{len(found.waiting)} wait, and there is room for {found.could_run()}"
            raise NotSeen(message)
        await asyncio.sleep(0.1)
        found = await accounts(site)
    return found


async def refuse(site: GpuSite, pods: list[Json]) -> None:
    """What a kubelet writes of pods that do not fit; their owner makes others."""
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
    for pod in pods:
        name, spec = pod["metadata"]["name"], pod["spec"]
        done(await site.admin.patch(f"{site.pods_path}/{name}/status", {"status": status}))
        again = {key: spec[key] for key in ("schedulerName", "containers")}
        await site.admin.create(site.pods_path, {"metadata": {"name": f"{name}-again"}, "spec": again})


def number_of(found: Accounts, scheduler: str) -> int:
    """How many of its pods have a node."""
    return sum(pod["spec"]["schedulerName"] == scheduler for pod in chain(*found.bound.values()))


def said(found: Accounts) -> str:
    """For whoever reads the output of the test."""
    over = {node: taken["cpu"] for node in NODES if (taken := found.excess(node, PODS))}
    lost = Counter(pod["spec"]["schedulerName"] for node in NODES for pod in found.refused(node))
    return (
        f"{number_of(found, OURS)} pods of ours and {number_of(found, THEIRS)} of kube-scheduler bound, "
        f"{len(found.waiting)} wait; millis of cpu over-committed: {over}, by {dict(lost)}"
    )


async def test_two_schedulers_fill_the_same_nodes(site: GpuSite, capsys: pytest.CaptureFixture[str]) -> None:
    each = ([small_pod(f"{who[:4]}-{number}", who, number) for number in range(most)] for who, most in PODS.items())
    await site.admin.create_all(site.pods_path, [pod for pair in zip_longest(*each) for pod in pair if pod])
    full = await settled(site)

    behind_s = max(full.behind_s(node) for node in NODES)
    with capsys.disabled():
        sys.stdout.write(f"\n  {said(full)}; a scheduler was behind by {behind_s:g} s\n")
    assert {node: over for node in NODES for who in PODS if (over := full.excess(node, [who]))} == {}
    assert full.over_committed_cards() == []
    assert behind_s <= MOST_BEHIND_S
    assert [told for pod in full.waiting if (told := full.untrue(pod))] == []

    for _ in range(MOST_ROUNDS):
        refused = [pod for node in NODES for pod in full.refused(node)]
        if not refused:
            break
        await refuse(site, refused)
        full = await settled(site)
    assert not any(full.excess(node, PODS) for node in NODES)

    again, freed = full, 0
    # The one that is quicker may fill the first of them alone.
    while bound_again(again, NODES[:freed]) != {*PODS} and freed < len(NODES):
        for pod in chain(*(again.bound[node] for node in NODES[freed : freed + 2])):
            await site.delete_pod(pod["metadata"]["name"])
        freed += 2
        again = await settled(site)

    assert len(again.waiting) < len(full.waiting)
    assert bound_again(again, NODES[:freed]) == {*PODS}


def bound_again(found: Accounts, freed: Sequence[str]) -> set[str]:
    """Whose pods are on nodes from which all others were taken."""
    return {pod["spec"]["schedulerName"] for node in freed for pod in found.bound[node]}
