"""Preemption on a real kube-apiserver, by the scheduler's process. There is no kubelet: the test ends the victims."""

from collections.abc import AsyncIterator

import pytest

from e2e.control_plane import pinned
from e2e.control_plane.admin import Admin, Json
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.gpu_site import GpuSite, cards_of, condition, gpu_site

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
# ClearingNominatedNodeNameAfterBinding, on by default from 1.35.
CLEARED_BY_THE_SERVER = int(pinned.kubernetes_version().split(".")[1]) >= 35
BUDGETS = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"


@pytest.fixture
async def site(scheduler: SchedulerProcess, admin: Admin, namespace: str) -> AsyncIterator[GpuSite]:
    await scheduler.ready()
    await admin.create(CLASSES, {"metadata": {"name": "urgent"}, "value": 1000})
    async with gpu_site(admin, namespace, scheduler) as made:
        yield made
    await admin.delete(f"{CLASSES}/urgent")


def is_nominated(pod: Json) -> bool:
    return bool(pod["status"].get("nominatedNodeName"))


def is_going(pod: Json) -> bool:
    return "deletionTimestamp" in pod["metadata"]


async def test_victims_on_one_card_go_and_the_card_is_taken(site: GpuSite) -> None:
    await site.nodes(a=[16, 16])
    for name, units in (("low-0", 8), ("low-1", 8), ("low-2", 16)):
        await site.pod(name, units)
        await site.bound(name)

    await site.pod("urgent", 16, priorityClassName="urgent")

    assert (await site.seen("urgent", is_nominated))["status"]["nominatedNodeName"] == "a"
    # The condition is written once the deletion is accepted.
    victim = await site.seen("low-2", lambda pod: is_going(pod) and bool(condition(pod, "DisruptionTarget")))
    target = condition(victim, "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
    event = await site.event("low-2", "Preempted")
    assert event["note"].endswith("/urgent on node a, which needs 16 units of card 1")
    assert not any([is_going(await site.read(name)) for name in ("low-0", "low-1")])

    await site.delete_pod("low-2")
    bound = await site.bound("urgent")
    assert list(cards_of(bound)) == ["1"]
    assert is_nominated(bound) is not CLEARED_BY_THE_SERVER


async def test_a_pod_that_a_real_budget_protects_stays(site: GpuSite) -> None:
    await site.nodes(a=[16, 16])
    budget = {"metadata": {"name": "guard"}, "spec": {"selector": {"matchLabels": {"x": "y"}}, "minAvailable": 1}}
    await site.admin.create(BUDGETS.format(site.namespace), budget)
    for name in ("guarded", "free"):
        pod = await site.pod(name, 16)
        if name == "guarded":
            await site.admin.patch(f"{site.pods_path}/{name}", {"metadata": {"labels": {"x": "y"}}})
        await site.bound(pod["metadata"]["name"])

    await site.pod("urgent", 16, priorityClassName="urgent")

    await site.seen("free", is_going)
    assert not is_going(await site.read("guarded"))
