"""A first start, in a cluster without a Lease: who schedules at once, and who waits for another scheduler."""

import asyncio
from collections.abc import Callable

import pytest

from scheduler.kube.objects import PodCondition
from scheduler.kube.port import PodKey
from scheduler.testing.cluster.faults import Refuse, Verb
from scheduler.testing.cluster.world import World
from tests.system.looking import cluster, comes
from tests.system.process import in_virtual_time
from tests.system.test_two_replicas import SHIPPED, TIMING, replica, until_bound


@in_virtual_time
async def test_the_first_one_ever_schedules_at_once() -> None:
    of = cluster(a=[16])
    comes(of, "p", 12)
    one, two = replica(of, "one", SHIPPED), replica(of, "two", SHIPPED)

    assert await until_bound(of, "p", 20.0) < 0.1

    assert [one.service.leads(), two.service.leads()].count(True) == 1
    for each in (one, two):
        await each.kill()


def another_has_bound(of: World) -> None:
    comes(of, "other", 1)
    of.pods.bind("default", "other", "a")


def another_has_told(of: World) -> None:
    comes(of, "other", 99)
    key = PodKey("default", "other", "uid-default-other")
    of.pods.set_condition(key, PodCondition("PodScheduled", "False", "Unschedulable", "m"))


@pytest.mark.parametrize("at_work", [another_has_bound, another_has_told])
@pytest.mark.parametrize(("ago_s", "waits"), [(50.0, True), (70.0, False)])
@in_virtual_time
async def test_the_first_one_ever_waits_for_a_scheduler_of_its_name_that_elected_nobody(
    at_work: Callable[[World], None],
    ago_s: float,
    waits: bool,  # noqa: FBT001 - a parameter
) -> None:
    of = cluster(a=[16])
    at_work(of)
    await asyncio.sleep(ago_s)
    comes(of, "p", 12)

    one = replica(of, "one", SHIPPED)

    within_s = TIMING.renew_deadline_s + SHIPPED.bind_timeout_s if waits else 0.0
    assert 0 <= await until_bound(of, "p", 20.0) - within_s < 1
    await one.kill()


@in_virtual_time
async def test_the_first_one_ever_waits_where_nobody_says_whether_another_is_at_work() -> None:
    of = cluster(a=[16])
    one = replica(of, "one", SHIPPED)
    one.wire.faults.add(Verb.LAST_SCHEDULED, Refuse(403))
    comes(of, "p", 12)

    assert await until_bound(of, "p", 20.0) > TIMING.renew_deadline_s + SHIPPED.bind_timeout_s
    await one.kill()
