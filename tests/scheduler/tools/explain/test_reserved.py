"""What `explain` says of a place that is reserved for a pod that has waited long."""

import asyncio
from dataclasses import replace

import pytest

from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.objects import PodCondition
from scheduler.kube.port import PodKey
from scheduler.testing.cluster.world import World
from scheduler.tools.explain.answers import ReservedPlace, as_json
from scheduler.tools.explain.reading import HIDDEN
from tests.support.clocks.virtual_time import run
from tests.support.explaining import asked, preempts, prose, there, waits, world
from tests.support.service.looking import cluster, comes, node_of
from tests.support.service.process import scheduling

AFTER = SchedulerConfiguration.model_validate({"bindTimeout": 0, "reserveAfter": "1m"})


def starved() -> World:
    """`whole` waits for the card on which `stays` is; `small`, and `small` of namespace b, would fit beside that."""

    async def scenario() -> World:
        of = cluster(a=[16])
        async with scheduling(of, AFTER):
            comes(of, "stays", 8)
            await asyncio.sleep(1)
            comes(of, "whole", 16)
            await asyncio.sleep(62)
            comes(of, "something-happens", 64, priority=-100)
            await asyncio.sleep(1)
            comes(of, "small", 4)
            comes(of, "small", 4, namespace="b")
            await asyncio.sleep(15)
            assert (node_of(of, "whole"), node_of(of, "small")) == ("", "")
        return of

    return run(scenario())


def test_the_pod_and_who_is_kept_off_are_told_for_whom_a_place_is_reserved_and_why() -> None:
    of = starved()
    place = ReservedPlace(place="card 0 of node a", pod="default/whole", waited="1m")
    whole, small = (asyncio.run(asked(of).explained("default", name, "")) for name in ("whole", "small"))
    assert (whole.reserved, small.reserved) == (place, place)
    assert (
        "A place is reserved for it, since it had waited 1m (reserveAfter) as the first of its priority: card 0 of "
        "node a. Smaller pods no longer take that; nobody is removed for it."
    ) in prose(whole)
    assert (
        "It is kept off card 0 of node a, which is reserved for pod default/whole since that had waited 1m "
        "(reserveAfter)."
    ) in prose(small)


def test_a_pod_of_another_namespace_reads_no_name_and_who_may_see_both_is_told_it() -> None:
    of = starved()
    small = of.pods.collection.existing("b", "small")
    said = [one.message for one in small.status.conditions if one.type == "PodScheduled"]
    said += [event.record.note for event in of.events.about("b", "small")]
    told = "card 0 of node a is kept for pod uid-default-whole of another namespace, which has waited 1m."
    assert all(told in text and "default/" not in text for text in said)
    answer = asyncio.run(asked(of).explained("b", "small", ""))
    assert answer.reserved == ReservedPlace(place="card 0 of node a", pod="default/whole", waited="1m")
    assert "which is reserved for pod default/whole since" in prose(answer)


@pytest.mark.parametrize("whom", ["pod uid-default-whole of another namespace", "pod default/whole"])
def test_a_viewer_who_may_not_see_the_pod_is_not_told_its_name(whom: str) -> None:
    of = world(a=[16])
    there(of, "stays", 8, "a", 0)
    preempts(of, "whole", 16, "a")
    waits(of, "small", 4, namespace="b")
    said = f"0/1 nodes are available: 1 Insufficient memory. card 0 of node a is kept for {whom}, which has waited 1m."
    of.pods.set_condition(
        PodKey("b", "small", "uid-b-small"), PodCondition("PodScheduled", "False", "Unschedulable", said)
    )
    read = asked(of)
    read.reading = replace(read.reading, sees=lambda namespace: namespace == "b")
    answer = asyncio.run(read.explained("b", "small", ""))
    assert answer.reserved == ReservedPlace(place="card 0 of node a", pod=HIDDEN, waited="1m")
    assert "which is reserved for a pod of another namespace since" in prose(answer)
    assert "whole" not in as_json(answer)


def test_a_pod_that_waits_for_something_else_reads_nothing_of_it() -> None:
    async def scenario() -> World:
        of = cluster(a=[16])
        async with scheduling(of, AFTER):
            comes(of, "too-large", 17)
            await asyncio.sleep(5)
        return of

    answer = asyncio.run(asked(run(scenario())).explained("default", "too-large", ""))
    assert answer.reserved is None
    assert "reserveAfter" not in prose(answer)
