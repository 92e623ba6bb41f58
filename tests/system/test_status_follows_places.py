"""The status of a pod that waits follows the place that is kept for it, see docs/decisions/0034."""

import asyncio

from scheduler.testing.cluster.faults import Refuse, Slow, Verb
from tests.system.looking import A_SECOND_S, cluster, comes, node_of
from tests.system.preempting import is_going, nominated, runs
from tests.system.process import A_MOMENT_S, in_virtual_time, scheduling


@in_virtual_time
async def test_a_pod_whose_binding_is_refused_keeps_nobody_off_the_cards_of_its_node() -> None:
    of = cluster(a=[16, 16])
    async with scheduling(of, latency_s=0.002) as process:
        await runs(of, "low", 16, 1)
        await runs(of, "high", 9, 20)
        for number in range(7):
            policy = Refuse(403, f"denied by policy x, request {number}")
            process.wire.faults.add(Verb.BIND, policy, count=1, when=lambda request: request.about == "default/urgent")
        await runs(of, "urgent", 16, 10)
        await asyncio.sleep(A_SECOND_S)
        assert nominated(of, "urgent") == "a"
        of.pods.remove("default", "low")
        await asyncio.sleep(100)
        assert (node_of(of, "urgent"), nominated(of, "urgent"), len(process.engine.nominations)) == ("", "", 0)

        comes(of, "small", 5, priority=1)
        await asyncio.sleep(A_SECOND_S)

        assert node_of(of, "small") == "a"


@in_virtual_time
async def test_a_place_that_is_kept_again_is_not_lost_when_the_status_is_behind() -> None:
    of = cluster(a=[16])
    async with scheduling(of, latency_s=0.05) as process:
        await runs(of, "low-1", 8, 1)
        await runs(of, "low-2", 8, 2)
        await asyncio.sleep(A_SECOND_S)
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(A_SECOND_S)
        assert (nominated(of, "urgent"), is_going(of, "low-1"), is_going(of, "low-2")) == ("a", True, True)
        process.wire.faults.add(Verb.NOMINATE, Slow(before_s=0.5), count=1)
        of.nodes.patch("a", unschedulable=True)
        await asyncio.sleep(0.2)
        of.nodes.patch("a", unschedulable=False)
        await asyncio.sleep(2 * A_SECOND_S)

        assert nominated(of, "urgent") == "a"
        comes(of, "small", 8, priority=3)
        of.pods.remove("default", "low-1")
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "small") == ""


@in_virtual_time
async def test_the_status_names_no_node_that_is_gone() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "low", 16, 1)
        await runs(of, "urgent", 16, 10)
        assert nominated(of, "urgent") == "a"

        of.nodes.delete("a")
        await asyncio.sleep(A_SECOND_S)

        assert (nominated(of, "urgent"), len(process.engine.nominations)) == ("", 0)


@in_virtual_time
async def test_a_pod_that_is_placed_after_all_is_bound_though_its_status_is_behind() -> None:
    of = cluster(a=[16])
    async with scheduling(of, latency_s=0.05) as process:
        await runs(of, "low", 16, 1)
        await asyncio.sleep(A_SECOND_S)
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(A_SECOND_S)
        process.wire.faults.add(Verb.BIND, Refuse(403, "denied by policy x"), count=1)
        process.wire.faults.add(Verb.NOMINATE, Slow(before_s=3.0), count=1)
        of.pods.remove("default", "low")
        await asyncio.sleep(5 * A_SECOND_S)

        assert (node_of(of, "urgent"), len(process.engine.nominations)) == ("a", 0)
        await asyncio.sleep(A_MOMENT_S)
        assert process.free == {"GPU-a-0": 0}
