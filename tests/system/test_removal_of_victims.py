"""Victims are removed, and what may go wrong with that."""

import asyncio

from scheduler.kube.objects import Taint
from scheduler.testing.cluster.faults import Fail, Refuse, Request, Silence, Slow, Throttle, Verb
from tests.support.builders import wire_node
from tests.support.placing import on_card
from tests.system.looking import A_SECOND_S, cluster, comes, condition, events, node_of
from tests.system.preempting import is_going, nominated, runs
from tests.system.process import in_virtual_time, now_s, scheduling, start
from tests.system.wire import Posts, Wire


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
        assert [one.type for one in of.pods.collection.existing("default", "low").status.conditions] == ["PodScheduled"]
        assert "not eligible due to a pod of lower priority that could not be deleted." in condition(of, "urgent")
        note = "pods of lower priority on node a could not be removed: pods is forbidden"
        assert ("FailedPreemption", note) in events(of, "urgent")

        process.wire.faults.clear()
        await asyncio.sleep(20)
        assert is_going(of, "low")


@in_virtual_time
async def test_a_pod_whose_victims_cannot_be_removed_is_scheduled_as_soon_as_it_fits() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "low", 16, 1)
        process.wire.faults.add(Verb.DELETE_POD, Refuse(403, "pods is forbidden"))
        await runs(of, "urgent", 16, 10)
        await asyncio.sleep(600)
        of.nodes.add(wire_node("b", [16]))
        await asyncio.sleep(A_SECOND_S)

        assert node_of(of, "urgent") == "b"


@in_virtual_time
async def test_a_pod_whose_victims_cannot_be_removed_keeps_nobody_of_its_class_from_preempting() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "locked", 16, 1)
        process.wire.faults.add(Verb.DELETE_POD, Refuse(403), when=lambda request: request.about == "default/locked")
        await runs(of, "urgent", 16, 10)
        await runs(of, "alike", 16, 10)
        await asyncio.sleep(600)
        comes(of, "low", 16, node="b", priority=1, annotations=on_card(0, 16))
        of.nodes.add(wire_node("b", [16]))
        await asyncio.sleep(300)

        assert is_going(of, "low")


@in_virtual_time
async def test_a_reserved_place_outlasts_a_preemption_that_fails() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "low", 16, 1)
        process.wire.faults.add(Verb.DELETE_POD, Refuse(403))
        await runs(of, "urgent", 16, 10)
        await asyncio.sleep(1000)
        rule = process.wire.faults.add(Verb.NOMINATE, Slow())
        await asyncio.sleep(1000)

        assert process.engine.nominations.reserved[10].node == nominated(of, "urgent") == "a"
        assert rule.hits == 0


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
        comes(of, "dear", 16, node="b", priority=5, annotations=on_card(0, 16))
        of.nodes.add(wire_node("b", [16]))
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
async def test_a_request_that_has_to_wait_does_not_delay_the_end() -> None:
    of = cluster(a=[16])
    process = start(Wire(of, Posts(of)))
    await runs(of, "low", 16, 1)
    process.wire.faults.add(Verb.DELETE_POD, Throttle(retry_after_s=30.0))
    await runs(of, "urgent", 16, 10)
    stopped_s = now_s()
    process.service.stop()
    await asyncio.wait({process.task}, timeout=60.0)
    assert now_s() - stopped_s < 0.1


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
        process.wire.faults.add(Verb.DELETE_POD, Slow(before_s=1.0))
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(1.5)
        assert [is_going(of, f"low-{number}") for number in range(4)] == [False, False, False, True]
        of.pods.delete("default", "urgent")
        await asyncio.sleep(30)

        assert [is_going(of, f"low-{number}") for number in range(4)] == [False, False, True, True]


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
