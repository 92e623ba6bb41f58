"""Pods of lower priority go for one that fits nowhere: the running service, on a cluster in memory."""

import asyncio

from scheduler.kube.objects import PodCondition
from scheduler.testing.cluster.faults import Slow, Verb
from tests.system.looking import card_of, cluster, comes, condition, events, node_of
from tests.system.preempting import is_going, nominated, runs
from tests.system.process import A_MOMENT_S, in_virtual_time, scheduling


@in_virtual_time
async def test_victims_on_one_card_go_and_their_card_is_taken() -> None:
    of = cluster(a=[16, 16])
    async with scheduling(of) as process:
        for name, priority in (("low-0", 1), ("low-1", 2), ("low-2", 3), ("low-3", 4)):
            await runs(of, name, 8, priority)
        assert [card_of(of, f"low-{n}") for n in (0, 1)] == ['{"0":"GPU-a-0"}'] * 2

        await runs(of, "urgent", 16, 10)

        assert [is_going(of, f"low-{n}") for n in range(4)] == [True, True, False, False]
        assert (node_of(of, "urgent"), nominated(of, "urgent")) == ("", "a")
        assert events(of, "low-0") == [
            ("Scheduled", "Successfully assigned default/low-0 to a, card 0 (8)"),
            ("Preempted", "Preempted by pod default/urgent on node a, which needs 16 units of card 0"),
        ]
        low = of.pods.collection.existing("default", "low-1").status.conditions
        message = "gpushare-scheduler: preempting to accommodate a higher priority pod"
        assert PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", message) in low

        of.pods.remove("default", "low-0")
        await asyncio.sleep(1.0)
        assert node_of(of, "urgent") == ""
        of.pods.remove("default", "low-1")
        await asyncio.sleep(A_MOMENT_S)

        assert (node_of(of, "urgent"), card_of(of, "urgent")) == ("a", '{"0":"GPU-a-0"}')
        assert nominated(of, "urgent") == ""
        assert len(process.engine.nominations) == 0

        comes(of, "next", 4)
        await asyncio.sleep(A_MOMENT_S)
        assert node_of(of, "next") == ""
        of.pods.remove("default", "urgent")
        await asyncio.sleep(A_MOMENT_S)
        assert node_of(of, "next") == "a"
        assert process.free == {"GPU-a-0": 12, "GPU-a-1": 0}


@in_virtual_time
async def test_the_place_is_kept_from_pods_of_equal_and_lower_priority() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await runs(of, "low", 16, 1)
        await runs(of, "urgent", 12, 10)
        comes(of, "equal", 8, priority=10)
        comes(of, "lower", 8, priority=5)
        comes(of, "small", 4, priority=5)
        await asyncio.sleep(A_MOMENT_S)

        of.pods.remove("default", "low")
        await asyncio.sleep(A_MOMENT_S)

        assert [node_of(of, name) for name in ("urgent", "equal", "lower", "small")] == ["a", "", "", "a"]


@in_virtual_time
async def test_who_goes_already_for_one_goes_for_the_next_too_rather_than_others() -> None:
    of = cluster(a=[16, 16, 16])
    async with scheduling(of):
        for name, priority in (("a0", 3), ("a1", 3), ("b0", 1), ("b1", 4), ("c0", 2), ("c1", 4)):
            await runs(of, name, 8, priority)
        await runs(of, "urgent-0", 16, 10)
        await runs(of, "urgent-1", 16, 10)

        # Until a0 and a1 have gone, the node lacks the memory of both.
        assert [name for name in ("a0", "a1", "b0", "b1", "c0", "c1") if is_going(of, name)] == ["a0", "a1", "b0", "b1"]


@in_virtual_time
async def test_the_place_is_anybodys_when_the_preemptor_is_gone() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await runs(of, "low", 16, 1)
        await runs(of, "urgent", 16, 10)
        comes(of, "other", 16, priority=5)
        await asyncio.sleep(A_MOMENT_S)
        of.pods.remove("default", "low")
        of.pods.delete("default", "urgent")
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "other") == "a"


@in_virtual_time
async def test_nobody_goes_where_that_does_not_help() -> None:
    of = cluster(a=[16, 16])
    async with scheduling(of):
        for name, priority in (("low-0", 1), ("high-0", 20), ("low-1", 1), ("high-1", 20)):
            await runs(of, name, 8, priority)
        assert [card_of(of, name)[2] for name in ("low-0", "high-0", "low-1", "high-1")] == ["0", "0", "1", "1"]

        await runs(of, "urgent", 12, 10)

        assert not any(is_going(of, name) for name in ("low-0", "low-1"))
        assert condition(of, "urgent") == (
            "False 0/1 nodes are available: 1 Insufficient GPU memory on one card: wants 12, most free 0 (of 16). "
            "preemption: 0/1 nodes are available: 1 Insufficient GPU memory on one card."
        )


@in_virtual_time
async def test_a_pod_that_never_preempts_waits() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await runs(of, "low", 16, 1)
        await runs(of, "polite", 16, 10, preemptionPolicy="Never")

        assert not is_going(of, "low")
        assert condition(of, "polite").endswith("preemption: not eligible due to preemptionPolicy=Never.")


@in_virtual_time
async def test_nobody_else_goes_while_victims_are_going() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of):
        await runs(of, "low-a", 16, 1)
        await runs(of, "low-b", 16, 1)
        await runs(of, "urgent", 16, 10)
        going = [name for name in ("low-a", "low-b") if is_going(of, name)]
        assert len(going) == 1
        # What can help others wakes nobody here, but a change of its own makes it be tried again.
        of.nodes.patch("a", annotations={"x": "y"})
        await asyncio.sleep(400)

        assert [name for name in ("low-a", "low-b") if is_going(of, name)] == going


@in_virtual_time
async def test_a_pod_that_a_budget_protects_goes_last() -> None:
    of = cluster(a=[16], b=[16])
    of.disruption_budgets.create("default", "guard", {"app": "db"}, 0)
    async with scheduling(of):
        await runs(of, "guarded", 16, 1, labels={"app": "db"})
        await runs(of, "free", 16, 5)
        await runs(of, "urgent", 16, 10)

        assert [is_going(of, name) for name in ("guarded", "free")] == [False, True]


@in_virtual_time
async def test_one_disruption_that_a_budget_allows_is_not_spent_twice() -> None:
    of = cluster(**{name: [16] for name in "abcd"})
    of.disruption_budgets.create("default", "guard", {"app": "db"}, 1)
    async with scheduling(of):
        for number in range(2):
            await runs(of, f"db-{number}", 16, 1, labels={"app": "db"})
            await runs(of, f"free-{number}", 16, 5)
        for number in range(2):
            comes(of, f"urgent-{number}", 16, priority=10)
        await asyncio.sleep(1.0)

        assert [is_going(of, f"db-{number}") for number in range(2)].count(True) == 1
        assert [is_going(of, f"free-{number}") for number in range(2)].count(True) == 1


@in_virtual_time
async def test_what_a_budget_allows_comes_back_when_its_pod_stays() -> None:
    of = cluster(a=[16], b=[16])
    of.disruption_budgets.create("default", "guard", {"app": "db"}, 1)
    async with scheduling(of) as process:
        await runs(of, "guarded", 16, 1, labels={"app": "db"})
        await runs(of, "free", 16, 5)
        late = Slow(before_s=1.0)
        process.wire.faults.add(Verb.NOMINATE, late, count=1)
        await runs(of, "urgent", 16, 10)
        of.pods.delete("default", "urgent")
        await asyncio.sleep(2)
        assert not is_going(of, "guarded")
        await runs(of, "next", 16, 10)

        assert [is_going(of, name) for name in ("guarded", "free")] == [True, False]


@in_virtual_time
async def test_searches_and_victims_are_counted() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        for number in range(3):
            await runs(of, f"low-{number}", 5, 1)
        await runs(of, "huge", 17, 10)
        await runs(of, "urgent", 12, 10)

        counted = process.metrics.registry.get_sample_value
        assert counted("scheduler_preemption_attempts_total") == 2
        assert counted("scheduler_preemption_victims_count") == 1
        assert counted("scheduler_preemption_victims_sum") == 3
