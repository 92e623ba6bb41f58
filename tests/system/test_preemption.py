"""Pods of lower priority go for one that fits nowhere: the running service, on a cluster in memory."""

import asyncio
from typing import Any

from config.protocol import names
from config.protocol.inventory import Health, Inventory, encode
from scheduler.kube.objects import PodCondition, Taint
from scheduler.kube.port import PodKey
from scheduler.simulation.faults import Fail, Refuse, Request, Silence, Slow, Verb
from scheduler.simulation.world import World
from tests.support.builders import UNIT_MIB, card, wire_node
from tests.support.placing import on_card
from tests.system.looking import A_SECOND_S, card_of, cluster, comes, condition, events, node_of
from tests.system.process import A_MOMENT_S, in_virtual_time, scheduling


async def runs(of: World, name: str, gpu_mem: int, priority: int = 0, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """A pod comes, and its kubelet starts it."""
    comes(of, name, gpu_mem, priority=priority, **options)
    await asyncio.sleep(A_MOMENT_S)
    if node_of(of, name):
        of.pods.set_phase("default", name, "Running")


def is_going(of: World, name: str) -> bool:
    found = of.pods.find("default", name)
    return found is not None and bool(found.metadata.deletion_timestamp)


def nominated(of: World, name: str) -> str:
    return of.pods.collection.existing("default", name).status.nominated_node_name


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
            ("Scheduled", "Successfully assigned default/low-0 to a"),
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
        process.wire.faults.add(Verb.SET_CONDITION, late, count=1, when=lambda request: "guarded" in request.about)
        await runs(of, "urgent", 16, 10)
        of.pods.delete("default", "urgent")
        await asyncio.sleep(2)
        assert not is_going(of, "guarded")
        await runs(of, "next", 16, 10)

        assert [is_going(of, name) for name in ("guarded", "free")] == [True, False]


@in_virtual_time
async def test_victims_that_cannot_be_removed_cost_a_back_off_and_a_word() -> None:
    of = cluster(a=[16])
    async with scheduling(of, latency_s=0.002) as process:
        await runs(of, "low", 16, 1)
        rule = process.wire.faults.add(Verb.DELETE_POD, Refuse(403, "pods is forbidden"))
        await runs(of, "urgent", 16, 10)
        await asyncio.sleep(5)
        assert not is_going(of, "low")
        assert rule.hits <= 5
        note = "pods of lower priority on node a could not be removed: pods is forbidden"
        assert ("FailedPreemption", note) in events(of, "urgent")

        process.wire.faults.clear()
        await asyncio.sleep(20)
        assert is_going(of, "low")


@in_virtual_time
async def test_a_victim_whose_deletion_is_refused_costs_others_once() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "innocent", 12, 2)
        await runs(of, "locked", 4, 1)
        refuse = Refuse(403, "a webhook says no")
        process.wire.faults.add(Verb.DELETE_POD, refuse, when=lambda request: request.about == "default/locked")
        await runs(of, "urgent", 16, 10)
        assert is_going(of, "innocent")
        of.pods.remove("default", "innocent")
        comes(of, "innocent", 12, priority=2, uid="anew")
        await asyncio.sleep(20)
        assert node_of(of, "innocent") == "a"
        await asyncio.sleep(400)
        assert not is_going(of, "innocent")

        # Another choice is dearer, and possible.
        of.nodes.add(wire_node("b", [16]))
        comes(of, "dear", 16, to="b", priority=5)
        await asyncio.sleep(400)
        assert is_going(of, "dear")


@in_virtual_time
async def test_a_request_without_an_answer_is_sent_again() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "low", 16, 1)
        for verb in (Verb.DELETE_POD, Verb.NOMINATE, Verb.SET_CONDITION):
            process.wire.faults.add(verb, Fail(503), count=2)
        await runs(of, "urgent", 16, 10)
        await asyncio.sleep(5)

        assert is_going(of, "low")
        assert nominated(of, "urgent") == "a"


@in_virtual_time
async def test_victims_of_a_namespace_without_answers_do_not_delay_others() -> None:
    crowd = 24
    of = cluster(**{f"n{number}": [16] for number in range(crowd + 1)})
    async with scheduling(of) as process:
        for number in range(crowd):
            comes(of, f"low-{number}", 16, to=f"n{number}", priority=1, namespace="other")
        await runs(of, "low", 16, 1)
        await asyncio.sleep(1)
        for verb in (Verb.SET_CONDITION, Verb.DELETE_POD):
            hangs = Silence(after_s=10)
            process.wire.faults.add(verb, hangs, when=lambda request: request.about.startswith("other/"))
        for number in range(crowd):
            comes(of, f"urgent-{number}", 16, to=f"n{number}", priority=5, namespace="other")
        await asyncio.sleep(15)
        comes(of, "urgent", 16, priority=10, to=node_of(of, "low"))
        await asyncio.sleep(1)

        assert is_going(of, "low")


@in_virtual_time
async def test_only_the_watch_says_that_a_victim_is_gone() -> None:
    def of_low(request: Request) -> bool:
        return request.about == "default/low"

    for verb in (Verb.SET_CONDITION, Verb.DELETE_POD):
        for status in (404, 409):
            of = cluster(a=[16])
            async with scheduling(of) as process:
                await runs(of, "low", 16, 1)
                rule = process.wire.faults.add(verb, Refuse(status), count=1, when=of_low)
                await runs(of, "urgent", 16, 10)
                await asyncio.sleep(5)

                assert (rule.hits, is_going(of, "low")) == (1, True)


@in_virtual_time
async def test_victims_that_are_left_stay_when_the_preemptor_goes() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        for number in range(4):
            await runs(of, f"low-{number}", 4, 1 + number)
        slow = Slow(before_s=1.0)
        process.wire.faults.add(Verb.SET_CONDITION, slow, when=lambda request: "low" in request.about)
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(1.5)
        assert [is_going(of, f"low-{number}") for number in range(4)] == [False, False, False, True]
        of.pods.delete("default", "urgent")
        await asyncio.sleep(30)

        assert [is_going(of, f"low-{number}") for number in range(4)] == [False, False, False, True]


@in_virtual_time
async def test_a_late_answer_about_the_place_before_does_not_cost_the_next_one() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of) as process:
        await runs(of, "low-a", 16, 1)
        await runs(of, "low-b", 16, 2)
        await runs(of, "middle", 16, 5)
        late = Slow(before_s=3.0)
        process.wire.faults.add(Verb.NOMINATE, late, count=1, when=lambda request: request.about == "default/middle")
        await runs(of, "urgent", 16, 10)
        assert (nominated(of, "urgent"), len(process.engine.nominations)) == ("a", 2)
        await asyncio.sleep(5)

        assert (nominated(of, "middle"), is_going(of, "low-b"), len(process.engine.nominations)) == ("b", True, 2)


@in_virtual_time
async def test_victims_on_a_node_that_is_lost_are_not_waited_for() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of):
        await runs(of, "low-a", 16, 1)
        await runs(of, "low-b", 16, 2)
        await runs(of, "urgent", 16, 10)
        assert nominated(of, "urgent") == "a"
        of.nodes.patch("a", taints=(Taint(key="node.kubernetes.io/unreachable", effect="NoSchedule"),))
        await asyncio.sleep(A_SECOND_S)

        assert (nominated(of, "urgent"), is_going(of, "low-b")) == ("b", True)


@in_virtual_time
async def test_a_place_on_a_node_that_is_cordoned_or_on_a_card_that_fails_is_given_up_at_once() -> None:
    sick = Inventory(UNIT_MIB, "", (card(0, 16, health=Health.UNHEALTHY), card(1, 16)))
    for worse in ({"unschedulable": True}, {"annotations": {names.INVENTORY: encode(sick)}}):
        of = cluster(a=[16, 16], b=[16])
        async with scheduling(of) as process:
            for name, priority in (("a0", 1), ("a1", 9), ("b0", 2)):
                await runs(of, name, 16, priority, to=name[0])
            await runs(of, "urgent", 16, 10)
            assert (nominated(of, "urgent"), is_going(of, "b0")) == ("a", False)

            of.nodes.patch("a", **worse)
            await asyncio.sleep(A_SECOND_S)

            assert (nominated(of, "urgent"), is_going(of, "b0")) == ("b", True)
            assert len(process.engine.nominations) == 1


@in_virtual_time
async def test_a_change_of_its_node_that_leaves_the_place_as_it_is_starts_nothing() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of) as process:
        await runs(of, "low-a", 16, 1)
        await runs(of, "low-b", 16, 2)
        await runs(of, "urgent", 16, 10)
        before = process.engine.searches

        of.nodes.patch("a", labels={"seen": "later"})
        await asyncio.sleep(A_SECOND_S)

        assert (nominated(of, "urgent"), is_going(of, "low-b")) == ("a", False)
        assert process.engine.searches == before


@in_virtual_time
async def test_a_place_that_another_scheduler_keeps_is_not_taken() -> None:
    of = cluster(a=[16])
    of.nodes.patch("a", allocatable={"cpu": "4"})
    comes(of, "theirs", requests={"cpu": "3"}, scheduler="default-scheduler", priority=10)
    theirs = of.pods.collection.existing("default", "theirs").metadata
    of.pods.nominate(PodKey("default", "theirs", theirs.uid), "a")
    async with scheduling(of):
        comes(of, "lower", requests={"cpu": "2"}, priority=5)
        comes(of, "higher", requests={"cpu": "2"}, priority=11)
        await asyncio.sleep(A_MOMENT_S)

        assert [node_of(of, name) for name in ("lower", "higher")] == ["", "a"]


@in_virtual_time
async def test_whoever_takes_the_freed_place_is_not_waited_for() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await runs(of, "low", 16, 1)
        await runs(of, "urgent", 16, 10)
        # Another scheduler does not know whose place it is.
        comes(of, "theirs", 16, scheduler="other", priority=2)
        of.pods.bind("default", "theirs", "a", on_card(0, 16))
        of.pods.remove("default", "low")
        await asyncio.sleep(1.0)

        assert is_going(of, "theirs")


@in_virtual_time
async def test_a_nomination_that_leads_to_nothing_is_taken_away() -> None:
    of = cluster(a=[16])
    comes(of, "high", 16, priority=20)
    async with scheduling(of) as process:
        comes(of, "urgent", 16, priority=10)
        urgent = of.pods.collection.existing("default", "urgent").metadata
        of.pods.nominate(PodKey("default", "urgent", urgent.uid), "a")
        await asyncio.sleep(1.0)

        assert nominated(of, "urgent") == ""
        assert len(process.engine.nominations) == 0


@in_virtual_time
async def test_a_pod_of_lower_priority_loses_its_place_and_finds_another() -> None:
    of = cluster(a=[16])
    of.nodes.add(wire_node("b", [16]))
    async with scheduling(of):
        await runs(of, "low-a", 16, 1)
        await runs(of, "low-b", 16, 2)
        await runs(of, "middle", 16, 5)
        assert nominated(of, "middle") == "a"
        of.nodes.patch("b", unschedulable=True)
        await runs(of, "urgent", 16, 10)
        assert (nominated(of, "urgent"), nominated(of, "middle")) == ("a", "")
        of.nodes.patch("b", unschedulable=False)
        await asyncio.sleep(310)

        assert nominated(of, "middle") == "b"
        assert is_going(of, "low-b")


@in_virtual_time
async def test_the_place_on_a_node_that_goes_is_looked_for_elsewhere() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await runs(of, "low-a", 16, 1)
        await runs(of, "urgent", 16, 10)
        assert nominated(of, "urgent") == "a"
        of.nodes.add(wire_node("b", [16]))
        comes(of, "high", 16, to="b", priority=5)
        await asyncio.sleep(0.5)
        of.nodes.delete("a")
        await asyncio.sleep(1)

        assert node_of(of, "urgent") == "b"


@in_virtual_time
async def test_after_a_restart_the_place_is_kept_on_its_card_and_nowhere_else() -> None:
    of = cluster(a=[16, 16, 16, 16])
    async with scheduling(of):
        await runs(of, "low", 16, 1)
        for number in range(3):
            await runs(of, f"high-{number}", 9, 20)
        await runs(of, "urgent", 16, 10)
        assert is_going(of, "low")

    async with scheduling(of) as process:
        # Of the node's 64 units 43 are held, and 16 kept.
        comes(of, "small", 5, priority=5)
        comes(of, "large", 12, priority=5)
        await asyncio.sleep(A_SECOND_S)
        assert (node_of(of, "small"), node_of(of, "urgent"), nominated(of, "urgent")) == ("a", "", "a")
        assert [kept.lacks_cards for kept in process.engine.nominations.on("a")] == [False]

        of.pods.remove("default", "low")
        await asyncio.sleep(A_SECOND_S)

        assert card_of(of, "urgent") == '{"0":"GPU-a-0"}'
        assert node_of(of, "large") == ""
        assert not any(is_going(of, f"high-{number}") for number in range(3))


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


@in_virtual_time
async def test_a_pod_is_not_let_in_for_the_sake_of_one_that_may_never_come() -> None:
    of = cluster(a=[16], b=[16])
    for node in ("a", "b"):
        of.nodes.patch(node, labels={"zone": node})
    web = {"labels": {"app": "web"}}
    about = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    near = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [about]}}
    async with scheduling(of):
        await runs(of, "low", 16, 1)
        await runs(of, "high", 16, 20)
        await runs(of, "urgent", 16, 10, **web)
        assert nominated(of, "urgent") == "a"

        comes(of, "follower", affinity=near)
        await asyncio.sleep(A_MOMENT_S)
        assert node_of(of, "follower") == ""
        assert "didn't match pod affinity rules" in condition(of, "follower")

        of.pods.remove("default", "low")
        await asyncio.sleep(A_SECOND_S)
        assert [node_of(of, name) for name in ("urgent", "follower")] == ["a", "a"]
