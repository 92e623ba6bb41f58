"""What becomes of pods and cards while the API server throttles, fails or answers too late."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from scheduler.kube import objects
from scheduler.kube.events import QUIET_S
from scheduler.kube.port import KINDS, PodKey
from scheduler.testing.cluster.faults import Break, Effect, Fail, Refuse, RequestFault, Silence, Slow, Throttle, Verb
from tests.system.looking import cluster, comes, condition, events, node_of, plugin_marks, touch
from tests.system.process import A_MOMENT_S, Process, in_virtual_time, scheduling

AWAY = Silence(after_s=0.0)


@in_virtual_time
async def test_a_throttling_server_is_retried_when_it_says_and_not_before() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        for verb in (Verb.BIND, Verb.CREATE_EVENT):
            process.wire.faults.add(verb, Throttle(2.0), count=3)
        comes(of, "p", 3)
        await asyncio.sleep(20)

        sent = process.wire.bindings
        assert [binding for _, binding in sent] == [sent[0][1]] * 4
        assert all(later - earlier > 1.999 for (earlier, _), (later, _) in pairwise(sent))
        assert (node_of(of, "p"), [reason for reason, _ in events(of, "p")]) == ("a", ["Scheduled"])


@in_virtual_time
async def test_a_server_that_throttles_for_long_keeps_no_card_twice_and_loses_no_pod() -> None:
    of = cluster(a=[16, 16])
    async with scheduling(of) as process:
        rules = [process.wire.faults.add(verb, Throttle(1.0), probability=0.9) for verb in Verb if verb != Verb.WATCH]
        for n in range(10):
            comes(of, f"p{n}", 4)
        await asyncio.sleep(60)
        for rule in rules:
            process.wire.faults.remove(rule)
        await asyncio.sleep(30)

        assert sorted(process.free.values()) == [0, 0]
        assert sum(bool(pod.spec.node_name) for pod in of.pods) == 8


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Silence(Effect.AT_ONCE), id="time-out that took effect"),
        pytest.param(Silence(Effect.LATER, late_s=20.0), id="time-out that takes effect later"),
        pytest.param(Fail(504, Effect.LATER, 30.0), id="504 that takes effect later"),
        pytest.param(Fail(500, Effect.AT_ONCE), id="500 that took effect"),
        pytest.param(Slow(2.0, 4.0), id="executed in time, answered too late"),
        pytest.param(Silence(), id="time-out without effect"),
    ],
)
@in_virtual_time
async def test_a_bind_without_an_answer_keeps_its_cards_until_there_is_one(fault: Any) -> None:  # noqa: ANN401
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, fault, count=1)
        comes(of, "first", 10)
        await asyncio.sleep(A_MOMENT_S)
        comes(of, "second", 10)
        await asyncio.sleep(150)

        assert (node_of(of, "first"), node_of(of, "second")) == ("a", "")
        assert len({str(binding) for _, binding in process.wire.bindings}) == 1
        assert process.free == {"GPU-a-0": 6}


@in_virtual_time
async def test_our_binding_is_recognised_after_a_device_plugin_has_marked_the_pod() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Slow(1.0, 9.0), count=1)  # takes effect, and the answer is lost
        comes(of, "first", 10)
        comes(of, "second", 10)
        await asyncio.sleep(0.5)
        process.wire.break_watches(Break.STALLED)
        await asyncio.sleep(1)
        plugin_marks(of, "first")
        await asyncio.sleep(20)

        assert (node_of(of, "first"), node_of(of, "second")) == ("a", "")
        assert [reason for reason, _ in events(of, "first")] == ["Scheduled"]


async def comes_back(process: Process, away_s: float, *then: RequestFault, fails: RequestFault = AWAY) -> None:
    """The API server is away for so long, then answers `then` to each watch, one after the other, and serves."""
    rule = process.wire.faults.add(Verb.WATCH, fails)
    process.wire.break_watches(Break.LOST)
    await asyncio.sleep(away_s)
    process.wire.faults.remove(rule)
    for fault in then:
        process.wire.faults.add(Verb.WATCH, fault, count=4)


@pytest.mark.parametrize("away_s", [1.0, 16.0, 120.0])
@pytest.mark.parametrize(
    "then",
    [
        pytest.param([], id="as if nothing had been"),
        pytest.param([Refuse(410)], id="every version has expired"),
        pytest.param([Refuse(403), Refuse(410)], id="it refuses before it has read its own rules"),
        pytest.param([Throttle(1.0)], id="it throttles"),
    ],
)
@in_virtual_time
async def test_a_new_pod_is_bound_within_two_seconds_of_the_servers_return(
    away_s: float, then: list[RequestFault]
) -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await comes_back(process, away_s, *then)
        comes(of, "p", 3)
        await asyncio.sleep(2.0)

        assert node_of(of, "p") == "a"


@in_virtual_time
async def test_a_new_pod_is_bound_soon_after_etcd_is_back_behind_a_server_that_answered_500() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await comes_back(process, 120.0, fails=Fail(500))
        comes(of, "p", 3)
        await asyncio.sleep(2.0)

        assert node_of(of, "p") == "a"


@in_virtual_time
async def test_lists_are_spread_out_while_the_server_is_overloaded() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.WATCH, Refuse(410), count=len(KINDS))
        overloaded = process.wire.faults.add(Verb.WATCH, Throttle(0.0), when=lambda request: request.about == "pods")
        process.wire.break_watches(Break.LOST)
        await asyncio.sleep(600.0)

        assert overloaded.hits < 50


@in_virtual_time
async def test_versions_that_expire_again_and_again_cost_few_lists_and_no_pod() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        expired = process.wire.faults.add(Verb.WATCH, Refuse(410), when=lambda request: request.about == "pods")
        process.wire.break_watches(Break.EXPIRED)
        await asyncio.sleep(600.0)
        process.wire.faults.remove(expired)
        comes(of, "p", 3)
        await asyncio.sleep(31.0)

        assert 20 <= expired.hits < 50
        assert node_of(of, "p") == "a"


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Silence(), id="no answer"),
        pytest.param(Silence(Effect.AT_ONCE), id="answer lost"),
        pytest.param(Fail(500), id="500"),
        pytest.param(Throttle(1.0), id="429"),
        pytest.param(Refuse(403), id="403, of an API server that has just started"),
    ],
)
@in_virtual_time
async def test_a_pod_says_why_it_waits_soon_after_its_condition_could_not_be_written(fault: Any) -> None:  # noqa: ANN401
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.SET_CONDITION, fault, count=4)
        comes(of, "p", 17)
        await asyncio.sleep(150)

        assert condition(of, "p").startswith("False 0/1 nodes are available: 1 Insufficient GPU memory on one card")


@pytest.mark.parametrize("fault", [Fail(500), Refuse(403)], ids=["500", "403"])
@in_virtual_time
async def test_a_condition_that_is_never_written_costs_few_more_requests_than_there_are_attempts(
    fault: RequestFault,
) -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        failing = process.wire.faults.add(Verb.SET_CONDITION, fault)
        comes(of, "p", 17)
        await asyncio.sleep(60)
        alone = failing.hits
        for number in range(40):
            touch(of, "p", number)
            await asyncio.sleep(15)

        assert alone <= 7
        assert failing.hits - alone <= 40 + 5


@in_virtual_time
async def test_a_condition_that_takes_effect_late_does_not_stay_over_a_newer_one() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.SET_CONDITION, Fail(504, Effect.LATER, 60.0), count=1)
        comes(of, "p", 17)
        await asyncio.sleep(A_MOMENT_S)
        of.nodes.patch("a", unschedulable=True)
        await asyncio.sleep(50)
        newer = condition(of, "p")
        await asyncio.sleep(20)

        assert newer.startswith("False 0/1 nodes are available: 1 node(s) were unschedulable")
        assert condition(of, "p") == newer


@in_virtual_time
async def test_who_writes_another_condition_again_and_again_is_answered_ever_more_seldom() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        writes = process.wire.faults.add(Verb.SET_CONDITION, Slow(0.0, 0.0))
        comes(of, "p", 17)
        await asyncio.sleep(A_MOMENT_S)
        ours, pod = condition(of, "p"), of.pods.collection.existing("default", "p").metadata
        for number in range(300):
            theirs = objects.PodCondition("PodScheduled", "False", "Unschedulable", f"theirs, {number}")
            of.pods.set_condition(PodKey("default", "p", pod.uid), theirs)
            await asyncio.sleep(2)
        assert 5 <= writes.hits <= 15

        await asyncio.sleep(QUIET_S)
        assert condition(of, "p") == ours
