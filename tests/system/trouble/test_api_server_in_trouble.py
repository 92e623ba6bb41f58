"""The API server throttles, fails, answers too late or is away: what becomes of pods and cards, and what is said."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.kube import objects, port
from scheduler.kube.events import QUIET_S
from scheduler.kube.port import PodKey
from scheduler.testing.cluster.faults import Break, Effect, Fail, Refuse, RequestFault, Silence, Slow, Throttle, Verb
from tests.support.service.looking import cluster, comes, condition, events, node_of, plugin_marks, touch
from tests.support.service.process import A_MOMENT_S, Process, scheduling

AWAY = Silence(after_s=0.0)


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


@pytest.mark.parametrize("away_s", [1.0, 16.0, 120.0])
@pytest.mark.parametrize(
    ("fails", "then"),
    [
        pytest.param(AWAY, [], id="as if nothing had been"),
        pytest.param(AWAY, [Refuse(410)], id="every version has expired"),
        pytest.param(AWAY, [Refuse(403), Refuse(410)], id="it refuses before it has read its own rules"),
        pytest.param(AWAY, [Throttle(1.0)], id="it throttles"),
        pytest.param(Fail(500), [], id="it answered 500, since etcd was away"),
    ],
)
async def test_a_new_pod_is_bound_within_two_seconds_of_the_servers_return(
    away_s: float, fails: RequestFault, then: list[RequestFault]
) -> None:
    """The API server is away for so long, then answers `then` to each watch, one after the other, and serves."""
    of = cluster(a=[16])
    async with scheduling(of) as process:
        rule = process.wire.faults.add(Verb.WATCH, fails)
        process.wire.break_watches(Break.LOST)
        await asyncio.sleep(away_s)
        process.wire.faults.remove(rule)
        for fault in then:
            process.wire.faults.add(Verb.WATCH, fault, count=4)
        comes(of, "p", 3)
        await asyncio.sleep(2.0)

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
async def test_a_pod_says_why_it_waits_soon_after_its_condition_could_not_be_written(fault: Any) -> None:  # noqa: ANN401
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.SET_CONDITION, fault, count=4)
        comes(of, "p", 17)
        await asyncio.sleep(150)

        assert condition(of, "p").startswith("False 0/1 nodes are available: 1 Insufficient GPU memory on one card")


@pytest.mark.parametrize("fault", [Fail(500), Refuse(403)], ids=["500", "403"])
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


async def test_a_condition_that_takes_effect_late_does_not_stay_over_a_newer_one() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.SET_CONDITION, Fail(504, Effect.LATER, 90.0), count=1)
        comes(of, "p", 17)
        await asyncio.sleep(A_MOMENT_S)
        of.nodes.patch("a", unschedulable=True)
        await asyncio.sleep(80)
        newer = condition(of, "p")
        await asyncio.sleep(20)

        assert newer.startswith("False 0/1 nodes are available: 1 node(s) were unschedulable")
        assert condition(of, "p") == newer


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


# What `/readyz` and the log say

UNAUTHORIZED = Refuse(401, "Unauthorized")
NAMES_OF_KINDS = ", ".join(sorted(kind.name for kind in port.KINDS))


async def cut_off(process: Process, fault: RequestFault) -> None:
    """No watch is served from now on."""
    process.wire.faults.add(Verb.WATCH, fault)
    process.wire.break_watches(Break.LOST)


def failing_s(process: Process) -> Mapping[str, float]:
    return {request: round(failing_s) for request, _, failing_s in process.service.contact.ages_s()}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        pytest.param(Silence(after_s=0.0), "the connection was lost", id="away"),
        pytest.param(UNAUTHORIZED, "Unauthorized", id="a dead token"),
        pytest.param(Refuse(403, "pods is forbidden"), "pods is forbidden", id="a right that is gone"),
    ],
)
async def test_a_scheduler_that_is_not_served_is_not_ready_after_a_while_and_says_why(
    fault: RequestFault, reason: str
) -> None:
    async with scheduling(cluster(a=[16])) as process:
        ready = process.service.not_ready
        await cut_off(process, fault)
        await asyncio.sleep(29)
        before = ready()
        await asyncio.sleep(31)
        after, since_s = ready(), failing_s(process)
        process.wire.faults.clear()
        await asyncio.sleep(31)

        assert before == ""
        assert after == f"the API server has not served {NAMES_OF_KINDS} for 60 s: {reason}"
        assert since_s == dict.fromkeys(NAMES_OF_KINDS.split(", "), 60)
        assert (ready(), set(failing_s(process).values())) == ("", {0})


async def test_bindings_that_are_unauthorized_count_while_the_watches_live_on() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        refused = process.wire.faults.add(Verb.BIND, UNAUTHORIZED)
        comes(of, "p", 3)
        await asyncio.sleep(60)
        said = process.service.not_ready()
        process.wire.faults.remove(refused)
        await asyncio.sleep(20)

        assert said == "the API server has not served bindings for 60 s: Unauthorized"
        assert (process.service.not_ready(), node_of(of, "p")) == ("", "a")


async def test_a_dead_token_is_logged_once_and_so_is_its_end() -> None:
    of = cluster(a=[16])
    with capture_logs() as lines:
        async with scheduling(of) as process:
            for verb in Verb:
                process.wire.faults.add(verb, UNAUTHORIZED)
            process.wire.break_watches(Break.ENDED)
            for n in range(20):
                comes(of, f"p{n}", 1)
            await asyncio.sleep(600)
            process.wire.faults.clear()
            await asyncio.sleep(60)

    assert [line["event"] for line in lines if _is_about_the_connection(line)] == ["api.unauthorized", "api.reachable"]


def _is_about_the_connection(line: Mapping[str, Any]) -> bool:
    return "nauthorized" in str(line) or str(line["event"]).startswith(("api.", "watch."))
