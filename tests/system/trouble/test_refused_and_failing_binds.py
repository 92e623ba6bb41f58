"""Bindings that fail, and namespaces that get no answers: what it costs others, and what it costs themselves."""

import asyncio
import math
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from scheduler.kube.objects import PodObject
from scheduler.kube.port import PODS
from scheduler.testing.cluster.faults import (
    Break,
    Effect,
    Fail,
    Overtaken,
    Refuse,
    Request,
    RequestFault,
    Rule,
    Silence,
    Slow,
    Stranger,
    Throttle,
    Verb,
)
from scheduler.testing.cluster.world import World
from tests.support.builders import wire_node
from tests.support.clocks.virtual_time import now_s
from tests.support.service.looking import A_SECOND_S, cluster, comes, condition, events, node_of, touch
from tests.support.service.process import A_MOMENT_S, Process, scheduling

NOT_FOUND = Refuse(404, 'pods "p" not found')
POLICY = Refuse(403, "denied by policy x")


def of_team_a(request: Request) -> bool:
    return request.about.startswith("team-a/")


def two_teams() -> World:
    of = cluster(**{f"n{n}": [64] * 4 for n in range(4)})
    for name in ("team-a", "team-b"):
        of.namespaces.create(name)
    return of


def bindings(process: Process, namespace: str) -> list[float]:
    return [sent_s for sent_s, binding in process.wire.bindings if binding.pod.namespace == namespace]


# One namespace fails


@pytest.mark.parametrize(
    ("fault", "most_posts"),
    [
        pytest.param(Fail(500), 120, id="its webhook is down"),
        pytest.param(Silence(), 120, id="its webhook hangs"),
        pytest.param(Throttle(86_400.0), 120, id="sent back for a day"),
        pytest.param(Stranger(404), 120, id="something else answers"),
    ],
)
async def test_a_namespace_whose_bindings_fail_costs_the_others_no_time(fault: RequestFault, most_posts: int) -> None:
    of = two_teams()
    async with scheduling(of, latency_s=0.005) as process:
        process.wire.faults.add(Verb.BIND, fault, when=of_team_a)
        for n in range(80):
            comes(of, f"p{n}", 1, namespace="team-a")
        await asyncio.sleep(1.1)  # as long as silence may last before it counts as failure
        for n in range(10):
            comes(of, f"q{n}", 1, namespace="team-b")
            await asyncio.sleep(0.05)
            assert node_of(of, f"q{n}", "team-b"), f"q{n} waits"
            await asyncio.sleep(4)

        assert len(bindings(process, "team-a")) <= most_posts
        assert process.service.dispatch.being_bound <= 64


async def test_pods_that_were_told_of_silence_are_told_what_is_answered_then() -> None:
    of = two_teams()
    async with scheduling(of) as process:
        rule = process.wire.faults.add(Verb.BIND, Silence(), when=of_team_a)
        for number in range(20):
            comes(of, f"p{number}", 1, namespace="team-a")
        await asyncio.sleep(10)
        told = [f"p{number}" for number in range(20) if "failing: no answer" in condition(of, f"p{number}", "team-a")]
        assert told

        process.wire.faults.remove(rule)
        process.wire.faults.add(Verb.BIND, Fail(500), when=of_team_a)
        await asyncio.sleep(30)
        assert [name for name in told if "are currently failing: 500: " not in condition(of, name, "team-a")] == []


async def test_pods_that_let_others_pass_are_bound_as_fast_as_their_answers_come_and_nobody_is_told() -> None:
    of = two_teams()
    async with scheduling(of, latency_s=0.005) as process:
        process.wire.faults.add(Verb.BIND, Slow(before_s=0.3), when=of_team_a)
        for n in range(200):
            comes(of, f"p{n:03d}", 1, namespace="team-a")
        await asyncio.sleep(0.2)
        assert process.service.engine.queue.lengths()["active"] > 100
        await asyncio.sleep(0.31 * 9)  # at once 1, 2, 4, ... 32, then three quarters of the slots

        sent = [binding.pod.name for _, binding in process.wire.bindings]
        assert sent == sorted(sent)
        assert all(pod.spec.node_name for pod in of.pods)
        assert not [pod for pod in of.pods if any(said.reason == "SchedulerError" for said in pod.status.conditions)]


async def test_every_pod_of_a_namespace_that_fails_is_told_why_and_so_does_one_line() -> None:
    """Pods whose request has no definite answer are not tried anew for a minute, and wait like the others."""
    of = two_teams()
    with capture_logs() as lines:
        async with scheduling(of, latency_s=0.005) as process:
            process.wire.faults.add(Verb.BIND, Fail(500), when=of_team_a)
            for n in range(80):
                comes(of, f"p{n}", 1, namespace="team-a")
            await asyncio.sleep(10)

    untold = [pod for pod in of.pods if not pod.status.conditions and not of.events.about("team-a", pod.metadata.name)]
    assert [pod.metadata.name for pod in untold] == []
    (told,) = of.events.about("team-a", "p0")
    assert told.record.note.startswith("binding to n0 has had no definite answer yet; retrying: ")
    assert "is delayed: bindings in namespace team-a are currently failing" in condition(of, "p79", "team-a")
    (said,) = [line for line in lines if line["event"] == "bind.held_back"]
    assert said["reason"].startswith("bindings in namespace team-a are currently failing: 500: ")
    assert len([line for line in lines if line["event"] == "bind.retry"]) <= 2


async def test_a_pod_that_is_broken_does_not_keep_its_namespace_waiting() -> None:
    of = cluster(a=[64] * 4)
    async with scheduling(of, latency_s=0.005) as process:
        process.wire.faults.add(Verb.BIND, Fail(500), when=lambda request: request.about == "default/broken")
        comes(of, "broken", 1)
        await asyncio.sleep(40)
        comes(of, "first", 1)
        await asyncio.sleep(5.1)
        assert node_of(of, "first")


async def test_a_server_that_sends_everybody_away_hears_little_from_us() -> None:
    of = two_teams()
    async with scheduling(of, latency_s=0.005) as process:
        process.wire.faults.add(Verb.BIND, Throttle(0.0))
        for n in range(80):
            comes(of, f"p{n}", 1, namespace="team-a" if n % 2 else "team-b")
        await asyncio.sleep(A_SECOND_S)
        soon = len(process.wire.bindings)
        await asyncio.sleep(60)

        assert len(process.wire.bindings) - soon <= 60


async def test_pods_that_wait_for_their_next_attempt_do_not_hold_up_a_clean_stop() -> None:
    of = cluster(a=[64] * 4)
    async with scheduling(of, latency_s=0.005) as process:
        for n in range(10):
            comes(of, f"first-{n}", 1)
        await asyncio.sleep(A_SECOND_S / 2)
        process.wire.faults.add(Verb.BIND, Fail(503))
        for n in range(10):
            comes(of, f"p{n}", 1)
        await asyncio.sleep(30)
        assert process.service.dispatch.being_bound == 10
        began_s, sent = now_s(), len(process.wire.bindings)

        await process.stop(10.0)

        assert now_s() - began_s < 0.1
        assert len(process.wire.bindings) - sent <= 0


# A policy refuses


async def test_pods_that_a_policy_refuses_are_tried_seldom_and_told_of_in_one_line() -> None:
    of = two_teams()
    with capture_logs() as lines:
        async with scheduling(of, latency_s=0.005) as process:
            process.wire.faults.add(Verb.BIND, POLICY, when=of_team_a)
            for n in range(40):
                comes(of, f"p{n}", 1, namespace="team-a")
            await asyncio.sleep(600)

            assert len(process.wire.bindings) <= 40 * 10

    said = [line for line in lines if line["event"] == "bind.forbidden"]
    assert [(line["log_level"], line["namespace"], line["reason"]) for line in said] == [
        ("error", "team-a", POLICY.message)
    ] * len(said)
    assert 1 <= len(said) <= 3
    assert sum(line["number"] for line in said) > 200
    conditions = of.pods.collection.existing("team-a", "p7").status.conditions
    assert conditions[-1].message.endswith("was rejected: denied by policy x")
    assert len(of.events) == 40


async def test_a_pod_that_changes_is_tried_again_soon_after_many_refusals() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        rule = process.wire.faults.add(Verb.BIND, POLICY)
        comes(of, "p", 1)
        await asyncio.sleep(700)
        process.wire.faults.remove(rule)
        touch(of, "p", 1)
        await asyncio.sleep(1.1)
        assert node_of(of, "p") == "a"


async def test_a_missing_right_is_noticed_within_five_minutes_when_it_is_granted() -> None:
    of = cluster(a=[64] * 4)
    async with scheduling(of) as process:
        no_right = 'pods "p" is forbidden: User "u" cannot create resource "pods/binding" in API group ""'
        rule = process.wire.faults.add(Verb.BIND, Refuse(403, no_right))
        for n in range(20):
            comes(of, f"p{n}", 1)
        await asyncio.sleep(600)
        posts = len(process.wire.bindings)
        process.wire.faults.remove(rule)
        await asyncio.sleep(301)

        assert all(pod.spec.node_name for pod in of.pods)
        assert posts <= 20 * 10


# What is said of a pod that is not gone


@pytest.mark.parametrize("late_s", [0.0, 20.0, 50.0])
@pytest.mark.parametrize("then", [NOT_FOUND, POLICY, Stranger(404), Stranger(200)])
async def test_a_card_is_not_freed_while_a_silent_post_may_take_it(then: RequestFault, late_s: float) -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Silence(Effect.LATER, late_s=late_s), count=1)
        process.wire.faults.add(Verb.BIND, then, count=3)
        comes(of, "first", 10)
        await asyncio.sleep(A_MOMENT_S)
        comes(of, "second", 10)
        await asyncio.sleep(150)

        assert (node_of(of, "first"), node_of(of, "second")) == ("a", "")
        assert process.free == {"GPU-a-0": 6}


async def test_a_card_is_not_freed_by_404s_while_the_watch_stalls() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Silence(Effect.LATER, after_s=0.5, late_s=1.0), count=1)
        process.wire.faults.add(Verb.BIND, NOT_FOUND)
        process.wire.faults.add(Verb.READ_POD, NOT_FOUND)
        comes(of, "first", 10)
        await asyncio.sleep(A_MOMENT_S)
        process.wire.break_watches(Break.STALLED)
        await asyncio.sleep(100)

        assert process.free == {"GPU-a-0": 6}
        assert [reason for reason, _ in events(of, "first")] == []


async def test_a_pod_that_is_deleted_while_its_binding_fails_is_let_go_when_the_watch_says_so() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Silence())
        comes(of, "first", 10)
        await asyncio.sleep(30)
        of.pods.remove("default", "first")
        await asyncio.sleep(10)

        assert process.free == {"GPU-a-0": 16}
        assert process.service.dispatch.being_bound == 0


async def test_a_pod_that_somebody_else_has_bound_is_left_alone_although_the_watch_stalls() -> None:
    of = cluster()
    async with scheduling(of) as process:
        comes(of, "p", 16)
        comes(of, "waits", 16)
        await asyncio.sleep(A_SECOND_S)
        told = len(process.wire.conditions)
        process.wire.faults.add(Verb.BIND, Overtaken("nowhere"), when=lambda request: request.about == "default/p")
        process.wire.break_watches(Break.STALLED, PODS)
        of.nodes.add(wire_node("a", [16]))
        await asyncio.sleep(5 * A_SECOND_S)

        assert (node_of(of, "p"), node_of(of, "waits")) == ("nowhere", "a")
        assert [binding.pod.name for _, binding in process.wire.bindings] == ["p", "waits"]
        assert process.wire.conditions[told:] == []


@pytest.mark.parametrize("fault", [Fail(500), Throttle(0.0), Silence(Effect.AT_ONCE, after_s=0.0)], ids=str)
async def test_a_few_bindings_that_fail_do_not_slow_down_their_namespace(fault: RequestFault) -> None:
    of = cluster(a=[16] * 8, b=[16] * 8, c=[16] * 8)
    async with scheduling(of, latency_s=0.005) as process:
        process.wire.faults.add(Verb.BIND, fault, probability=0.05)
        for number in range(150):
            comes(of, f"p-{number}", 2)
        await asyncio.sleep(5.0)

        assert [name for name in (f"p-{number}" for number in range(150)) if not node_of(of, name)] == []
        # Who was held back meanwhile is bound before anybody reads that it waits.
        assert len(process.wire.conditions) < 15


# Many namespaces hang at once

NODES = {f"n{number}": [64] * 4 for number in range(4)}
OF_WORDS = (Verb.CREATE_EVENT, Verb.UPDATE_EVENT, Verb.SET_CONDITION)


def many_hang(
    of: World, process: Process, number: int, fault: RequestFault, *verbs: Verb, units: int = 1
) -> list[Rule]:
    """Make `number` namespaces that get no answers, and 150 pods in them, of all namespaces in turn."""

    def hangs(request: Request) -> bool:
        return request.about.startswith("hangs-")

    rules = [process.wire.faults.add(verb, fault, when=hangs) for verb in verbs]
    for name in range(number):
        of.namespaces.create(f"hangs-{name}")
    for pod in range(math.ceil(150 / number)):
        for name in range(number):
            comes(of, f"p{pod}", units, namespace=f"hangs-{name}")
    return rules


async def waits_s(of: World, name: str, units: int, done: Callable[[PodObject], object]) -> float:
    """Seconds from its creation until a pod of the namespace that answers is as wanted."""
    comes(of, name, units, namespace="answers")
    began_s = now_s()
    async with asyncio.timeout(200.0):
        while not done(of.pods.collection.existing("answers", name)):  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.005)
    return now_s() - began_s


@pytest.mark.parametrize(
    ("number", "fault"),
    [
        pytest.param(1, Slow(before_s=0.3), id="one answers slowly"),
        *(
            pytest.param(number, fault, id=f"{number} {how}", marks=[pytest.mark.nightly] if number in {5, 10} else [])
            for number in (1, 3, 5, 10, 50)
            for how, fault in (("late", Slow(before_s=10.0)), ("never", Silence(after_s=30.0)))
        ),
    ],
)
async def test_pods_of_a_namespace_that_answers_do_not_wait(number: int, fault: RequestFault) -> None:
    of = cluster(**NODES)
    async with scheduling(of, latency_s=0.005) as process:
        many_hang(of, process, number, fault, Verb.BIND)
        came = []
        for pod in range(100):
            came.append(asyncio.create_task(waits_s(of, f"q{pod}", 1, lambda found: found.spec.node_name)))
            await asyncio.sleep(0.05)

        assert max(await asyncio.gather(*came)) <= 0.2


@pytest.mark.parametrize(
    ("number", "fault"),
    [pytest.param(50, Slow(before_s=10.0), id="many answer late"), pytest.param(1, Fail(500), id="one answers 500")],
)
async def test_pods_of_namespaces_that_answer_again_are_bound_within_a_minute(number: int, fault: RequestFault) -> None:
    of = cluster(**NODES)
    async with scheduling(of, latency_s=0.005) as process:
        (rule,) = many_hang(of, process, number, fault, Verb.BIND)
        await asyncio.sleep(100)
        process.wire.faults.remove(rule)
        await asyncio.sleep(66)

        assert all(pod.spec.node_name for pod in of.pods)


@pytest.mark.parametrize(
    "fault", [Silence(after_s=30.0), Throttle(30.0)], ids=["never answered", "throttled for half a minute"]
)
@pytest.mark.parametrize("number", [1, 3, 12])
async def test_pods_of_others_are_told_soon_why_they_wait(number: int, fault: RequestFault) -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        many_hang(of, process, number, fault, *OF_WORDS, units=17)
        await asyncio.sleep(5)
        took_s = []
        for pod in range(20):
            took_s.append(await waits_s(of, f"q{pod}", 17, lambda found: found.status.conditions))
            await asyncio.sleep(3)

        assert max(took_s) <= 2.0
