"""No victim is deleted once its preemptor has gone, or is placed elsewhere."""

import asyncio

import pytest

from scheduler.testing.cluster.faults import Fail, RequestFault, Slow, Throttle, Verb
from tests.support.builders import wire_node
from tests.support.service.looking import cluster, comes, is_going, node_of, runs
from tests.support.service.process import scheduling


@pytest.mark.parametrize("fault", [Throttle(10.0), Fail(503)], ids=["throttled", "unavailable"])
async def test_a_victim_stays_when_its_preemptor_goes_during_a_back_off(fault: RequestFault) -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "low", 16, 1)
        rule = process.wire.faults.add(Verb.DELETE_POD, fault, count=1)
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(0.05)
        assert rule.hits
        of.pods.remove("default", "urgent")
        await asyncio.sleep(60)
        assert not is_going(of, "low")


async def test_a_victim_stays_when_its_preemptor_is_placed_elsewhere_meanwhile() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "low", 16, 1)
        rule = process.wire.faults.add(Verb.DELETE_POD, Throttle(10.0), count=1)
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(1)
        assert rule.hits
        of.nodes.add(wire_node("b", [16]))
        await asyncio.sleep(60)
        assert node_of(of, "urgent") == "b"
        assert not is_going(of, "low")


async def test_a_victim_stays_when_its_preemptor_goes_while_it_waits_for_its_turn() -> None:
    of = cluster(**{f"n{number}": [16] for number in range(24)})
    async with scheduling(of) as process:
        for number in range(24):
            await runs(of, f"low-{number}", 16, 1, to=f"n{number}")
        process.wire.faults.add(Verb.DELETE_POD, Slow(before_s=5.0))
        for number in range(24):
            comes(of, f"urgent-{number}", 16, to=f"n{number}", priority=10)
        await asyncio.sleep(2)
        for number in range(24):
            of.pods.remove("default", f"urgent-{number}")
        await asyncio.sleep(120)
        going = sum(is_going(of, f"low-{number}") for number in range(24))
        # Half of the places for evictions.
        assert going <= 8
