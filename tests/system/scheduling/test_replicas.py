"""Replicas on one cluster: who schedules at first, when another one takes over, and that no card is given twice."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest
from msgspec.structs import replace

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.objects import PodCondition
from scheduler.kube.port import PODS, PodKey, lease_kind
from scheduler.leader.leader_election import LeaderElection, Timing
from scheduler.leader.leadership import Leadership, LeaseLost
from scheduler.testing.cluster.faults import Break, Effect, Fail, Refuse, Silence, Slow, Verb, WatchBreaks
from scheduler.testing.cluster.world import World
from tests.support.builders import wire_node
from tests.support.clocks.virtual_time import now_s
from tests.support.service.looking import A_SECOND_S, arrives, card_of, cluster, comes, events, node_of, warnings
from tests.support.service.process import A_MOMENT_S, AT_ONCE, Process, start
from tests.support.service.volume_controller import zones
from tests.support.service.wire import Posts, Wire
from tests.support.volumes import ZONE, claim, volume, with_claims

LEASE: Final = ("kube-system", "gpushare-scheduler")
TIMING: Final = Timing(lease_duration_s=15, renew_deadline_s=10.0, retry_period_s=2.0)
SHIPPED: Final = SchedulerConfiguration()
FEW_AT_ONCE: Final = SchedulerConfiguration.model_validate({"bindTimeout": 0, "maxBindsInFlight": 4})
AFTER_A_KILL_S: Final = TIMING.lease_duration_s + 2 * TIMING.retry_period_s
HANDED_OVER_S: Final = 2.0


def replica(of: World, name: str, configuration: SchedulerConfiguration = AT_ONCE) -> Process:
    """One of several, with a connection of its own. name: its identity."""
    wire = Wire(of, Posts(of), latency_s=0.002)
    election = LeaderElection(*LEASE, name, TIMING)
    rng = random.Random(name)  # noqa: S311 - repeatable
    loop = asyncio.get_running_loop()
    leadership = Leadership(wire, election, now_s=loop.time, wall=lambda: f"at {loop.time():.6f}", rng=rng)
    return start(wire, configuration, leadership=leadership)


@asynccontextmanager
async def replicas(
    of: World, *names: str, configuration: SchedulerConfiguration = AT_ONCE
) -> AsyncIterator[list[Process]]:
    """Started one after the other; the first one leads, and schedules."""
    started = []
    try:
        for name in names:
            started.append(replica(of, name, configuration))
            await asyncio.sleep(1.0)
        yield started
    finally:
        for one in started:
            await one.kill()


def holder(of: World) -> str:
    found = of.leases.find(*LEASE)
    return "" if found is None else found.spec.holder_identity


async def until_bound(of: World, pod: str, within_s: float) -> float:
    """Seconds until the pod has a node."""
    began_s = now_s()
    async with asyncio.timeout(within_s):
        while not node_of(of, pod):  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.01)
    return now_s() - began_s


async def test_one_schedules_and_the_other_knows_everything_and_does_nothing() -> None:
    of = cluster(a=[16])
    async with replicas(of, "one", "two") as (one, two):
        comes(of, "p", 12)
        comes(of, "waits", 12)
        await asyncio.sleep(60.0)

        assert (node_of(of, "p"), holder(of)) == ("a", "one")
        assert (one.service.leads(), two.service.leads()) == (True, False)
        assert (len(one.wire.bindings), len(two.wire.bindings)) == (1, 0)
        assert two.free == one.free == {"GPU-a-0": 4}
        assert len(events(of, "waits")) == 1
        assert (one.service.not_ready(), two.service.not_ready()) == ("", "")
        assert one.service.not_ready() == ""


async def test_a_clean_end_hands_over_at_once() -> None:
    of = cluster(a=[16, 16])
    async with replicas(of, "one", "two") as (one, two):
        comes(of, "before", 12)
        await asyncio.sleep(A_MOMENT_S)
        ended_s = now_s()
        await one.stop(10.0)
        one.task.result()
        comes(of, "after", 12)

        await until_bound(of, "after", HANDED_OVER_S)

        assert now_s() - ended_s < 0.2  # what the first one has seen is known: nobody asks the API server
        assert {card_of(of, "before"), card_of(of, "after")} == {'{"0":"GPU-a-0"}', '{"1":"GPU-a-1"}'}
        assert (holder(of), two.service.leads()) == ("two", True)


async def test_after_a_kill_the_other_takes_over_in_time() -> None:
    of = cluster(a=[16, 16])
    async with replicas(of, "one", "two") as (one, two):
        comes(of, "before", 12)
        await asyncio.sleep(5.0)
        killed_s = now_s()
        await one.kill()
        comes(of, "after", 12)

        waited_s = await until_bound(of, "after", AFTER_A_KILL_S)

        # The last renewal may have been just before, or up to a retry period.
        assert TIMING.lease_duration_s - TIMING.retry_period_s - 0.5 < waited_s
        assert now_s() - killed_s <= AFTER_A_KILL_S
        assert card_of(of, "after") == '{"1":"GPU-a-1"}'
        assert two.service.leads()


async def test_what_the_first_one_bound_last_is_known_before_the_second_binds() -> None:
    """Its watch of the pods lags: of the binding it learns long after it has the Lease."""
    of = cluster(a=[16])
    async with replicas(of, "one", "two") as (one, two):
        one.wire.faults.add(Verb.BIND, Slow(before_s=1.0))
        comes(of, "first", 12)
        comes(of, "second", 12)
        await asyncio.sleep(0.5)
        two.wire.break_watches(Break.STALLED, PODS)
        await asyncio.sleep(1.0)
        assert (node_of(of, "first"), node_of(of, "second")) == ("a", "")
        await one.kill()
        await asyncio.sleep(AFTER_A_KILL_S + 1)
        assert (holder(of), len(two.wire.bindings)) == ("two", 0)

        two.wire.resume_watches()
        await asyncio.sleep(5.0)

        assert (two.free, node_of(of, "second"), len(two.wire.bindings)) == ({"GPU-a-0": 4}, "", 0)
        assert two.service.leads()


async def test_a_leader_that_cannot_renew_sends_nothing_when_others_may_bind() -> None:
    of = cluster(a=[16] * 8)
    async with replicas(of, "one", "two") as (one, two):
        cut_s = now_s()
        one.wire.faults.add(Verb.WRITE_LEASE, Silence(Effect.NONE))
        for number in range(8):
            comes(of, f"p-{number}", 12)
            await asyncio.sleep(2.0)
        await asyncio.sleep(AFTER_A_KILL_S)

        assert one.task.done()
        with pytest.raises(ExceptionGroup) as ended:
            one.task.result()
        assert ended.group_contains(LeaseLost)
        last_of_one_s = max(sent_s for sent_s, _ in one.wire.bindings)
        first_of_two_s = min(sent_s for sent_s, _ in two.wire.bindings)
        assert last_of_one_s <= cut_s + TIMING.renew_deadline_s
        assert first_of_two_s >= last_of_one_s + SHIPPED.bind_request_timeout_s
        assert [node_of(of, f"p-{number}") for number in range(8)] == ["a"] * 8


async def test_a_bind_request_in_doubt_keeps_the_lease_from_being_given_up() -> None:
    of = cluster(a=[16])
    async with replicas(of, "one", "two") as (one, two):
        one.wire.faults.add(Verb.BIND, Fail(500, Effect.LATER, late_s=4.0))
        await arrives(of, "p", 12)
        await one.stop(10.0)
        comes(of, "q", 12)
        await asyncio.sleep(10.0)
        assert holder(of) == "one"

        await asyncio.sleep(AFTER_A_KILL_S)

        assert holder(of) == "two"
        assert sorted([node_of(of, "p"), node_of(of, "q")]) == ["", "a"]
        assert two.free == {"GPU-a-0": 4}


async def test_pods_that_wait_for_a_slot_at_the_end_do_not_keep_the_lease() -> None:
    of = cluster(a=[16] * 8)
    async with replicas(of, "one", "two", configuration=FEW_AT_ONCE) as (one, two):
        one.wire.faults.add(Verb.BIND, Slow(before_s=0.5))
        for number in range(4):
            comes(of, f"p-{number}", 12)
        await asyncio.sleep(A_MOMENT_S)
        assert (one.service.dispatch.in_flight, one.service.dispatch.being_bound) == (1, 4)
        ended_s = now_s()
        await one.stop(10.0)

        await until_bound(of, "p-3", HANDED_OVER_S)

        assert now_s() - ended_s < 0.5 + 0.2
        assert one.task.done()
        assert two.service.leads()
        assert len({card_of(of, f"p-{number}") for number in range(4)}) == 4


async def test_a_pod_that_was_decided_while_nothing_may_be_sent_is_bound_when_the_lease_is_renewed() -> None:
    of = cluster(a=[16])
    async with replicas(of, "one") as (one,):
        rule = one.wire.faults.add(Verb.WRITE_LEASE, Silence(Effect.NONE, after_s=0.0))
        await asyncio.sleep(TIMING.renew_deadline_s)
        comes(of, "p", 12)
        await asyncio.sleep(20.0)
        assert (one.wire.bindings, node_of(of, "p"), one.free) == ([], "", {"GPU-a-0": 4})

        one.wire.faults.remove(rule)

        await until_bound(of, "p", 10.0)


@pytest.mark.parametrize(
    ("verb", "request_name"), [(Verb.WRITE_LEASE, "renewals of the lease"), (Verb.WATCH, "leases")]
)
async def test_a_replica_that_may_not_use_the_lease_is_not_ready_and_says_why(verb: Verb, request_name: str) -> None:
    of = cluster(a=[16])
    one = replica(of, "one", SHIPPED)
    of_leases = lambda request: verb is Verb.WRITE_LEASE or request.about == "leases"  # noqa: E731
    rule = one.wire.faults.add(verb, Refuse(403, "leases is forbidden"), when=of_leases)
    await asyncio.sleep(SHIPPED.not_ready_after_s + 10.0)
    said = one.service.not_ready()
    assert f"has not served {request_name} for" in said
    assert said.endswith("leases is forbidden")

    one.wire.faults.remove(rule)
    await asyncio.sleep(60.0)
    assert one.service.not_ready() == ""
    comes(of, "p", 12)
    await until_bound(of, "p", 20.0)
    await one.kill()


async def test_a_standby_is_ready_again_after_an_api_server_was_away() -> None:
    of = cluster(a=[16])
    async with replicas(of, "one", "two") as both:
        rules = [one.wire.faults.add(Verb.WRITE_LEASE, Silence(Effect.NONE, after_s=0.0)) for one in both]
        await asyncio.sleep(25.0)  # for longer than the Lease lasts: the standby tries, too
        for one, rule in zip(both, rules, strict=True):
            one.wire.faults.remove(rule)
        await asyncio.sleep(120.0)

        assert [one.service.not_ready() for one in both] == ["", ""]
        assert [one.service.leads() for one in both].count(True) == 1


async def test_a_standby_whose_watch_of_the_lease_is_dead_on_one_side_takes_over_in_time() -> None:
    of = cluster(a=[16, 16])
    async with replicas(of, "one") as (one,):
        two = replica(of, "two")
        dead = WatchBreaks(Break.STALLED, after_events=4)
        two.wire.faults.add(Verb.WATCH, dead, count=1, when=lambda request: request.about == "leases")
        await asyncio.sleep(10.0)
        await one.kill()
        comes(of, "p", 12)

        await until_bound(of, "p", AFTER_A_KILL_S + TIMING.lease_duration_s)
        await two.kill()


async def test_an_end_in_the_middle_of_a_renewal_hands_over_all_the_same() -> None:
    of = cluster(a=[16])
    async with replicas(of, "one", "two") as (one, two):
        one.wire.break_watches(Break.STALLED, lease_kind(*LEASE))
        one.wire.faults.add(Verb.WRITE_LEASE, Slow(before_s=0.3, after_s=0.3), count=1)
        await asyncio.sleep(0.4)  # executed, and not answered yet
        ended_s = now_s()
        await one.stop(10.0)
        comes(of, "p", 12)

        await until_bound(of, "p", HANDED_OVER_S)
        assert now_s() - ended_s < 0.5
        assert two.service.leads()


async def test_what_was_not_sent_is_in_nobodys_way_at_the_end() -> None:
    of = cluster(a=[16])
    async with replicas(of, "one", "two") as (one, two):
        rule = one.wire.faults.add(Verb.WRITE_LEASE, Silence(Effect.NONE, after_s=0.0))
        await asyncio.sleep(TIMING.renew_deadline_s)
        await arrives(of, "p", 12)
        assert (one.service.dispatch.being_bound, one.wire.bindings) == (1, [])
        one.wire.faults.remove(rule)
        await one.stop(10.0)

        await until_bound(of, "p", HANDED_OVER_S)
        assert two.service.leads()


async def test_who_is_not_shown_the_last_change_is_not_ready_and_says_why() -> None:
    of = cluster(a=[16])
    async with replicas(of, "one", "two", configuration=SHIPPED) as (one, two):
        rule = two.wire.faults.add(Verb.LAST_CHANGE, Refuse(403, "pods is forbidden"))
        await one.kill()
        await asyncio.sleep(AFTER_A_KILL_S + 2 * SHIPPED.not_ready_after_s)
        said = two.service.not_ready()
        assert "has not served the pods as they are now for" in said
        assert said.endswith("pods is forbidden")

        two.wire.faults.remove(rule)
        await asyncio.sleep(60.0)
        assert two.service.not_ready() == ""


async def test_mistakes_that_were_there_before_are_told_once_by_the_first_leader() -> None:
    of = cluster(a=[16])
    broken = wire_node("bad", [16])
    of.nodes.add(replace(broken, metadata=replace(broken.metadata, annotations={names.INVENTORY: "{"})))
    async with replicas(of, "one", "two") as (one, two):
        await asyncio.sleep(150.0)  # longer than a standby remembers
        assert [reason for reason, _ in warnings(of, "bad")] == ["BadAnnotation"]
        await one.kill()
        await asyncio.sleep(AFTER_A_KILL_S)
        assert two.service.leads()
        assert len(warnings(of, "bad")) == 1


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


async def test_the_first_one_ever_waits_where_nobody_says_whether_another_is_at_work() -> None:
    of = cluster(a=[16])
    one = replica(of, "one", SHIPPED)
    one.wire.faults.add(Verb.LAST_SCHEDULED, Refuse(403))
    comes(of, "p", 12)

    assert await until_bound(of, "p", 20.0) > TIMING.renew_deadline_s + SHIPPED.bind_timeout_s
    await one.kill()


async def test_what_opens_for_pods_that_wait_is_not_kept_by_who_tries_none() -> None:
    of, controller = zones(a="z1")
    async with replicas(of, "one", "two") as (one, two):
        for number in range(5):
            controller.comes(claim(f"data-{number}"), volume(f"pv-{number}", on=("z1",), key=ZONE))
            controller.bind(f"data-{number}", f"pv-{number}")
            await arrives(of, f"p{number}", 1, **with_claims(f"data-{number}"))
            assert node_of(of, f"p{number}") == "a"
            of.pods.remove("default", f"p{number}")
            await asyncio.sleep(A_SECOND_S)

            assert (one.service.leads(), two.service.leads()) == (True, False)
            assert not one.service.engine.tables.cluster_events
            assert not two.service.engine.tables.cluster_events
