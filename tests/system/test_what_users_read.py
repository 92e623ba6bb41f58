"""Events and conditions that the running service writes."""

import asyncio
from itertools import pairwise

from structlog.testing import capture_logs

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.testing.cluster.faults import Overtaken, Refuse, Throttle, Verb
from tests.system.looking import A_SECOND_S, NO_VICTIMS, NOT_HELPFUL, cluster, comes, condition, events, node_of, touch
from tests.system.process import in_virtual_time, scheduling


@in_virtual_time
async def test_events_go_out_after_the_backlog_is_bound() -> None:
    of = cluster(**{f"n{n}": [16] * 4 for n in range(4)})
    for n in range(100):
        comes(of, f"p{n}", 1)
    configuration = SchedulerConfiguration.model_validate({"bindTimeout": 0, "maxBindsInFlight": 4})
    async with scheduling(of, configuration, latency_s=0.037) as process:
        while not all(pod.spec.node_name for pod in of.pods):  # noqa: ASYNC110 - virtual time: nothing waits
            await asyncio.sleep(0.01)
        assert len(of.events) < 50

        await asyncio.sleep(A_SECOND_S)

        assert len(of.events) == 100
        assert process.service.recorder.pending == 0


@in_virtual_time
async def test_a_condition_is_patched_when_its_message_changes() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        comes(of, "first", 10)
        comes(of, "waits", 8)
        await asyncio.sleep(A_SECOND_S)
        for n in range(5):  # news, but not for the pod
            of.nodes.patch("a", labels={"news": str(n)})
            await asyncio.sleep(310)
        of.nodes.patch("a", unschedulable=True)
        await asyncio.sleep(310)

        waits = "0/1 nodes are available: 1 Insufficient GPU memory on one card: wants 8, most free 6 (of 16)."
        kept = " card 0 of node a is kept for this pod, which has waited 5m."
        assert [message for _, name, message in process.wire.conditions if name == "waits"] == [
            waits + NO_VICTIMS,
            waits + kept + NO_VICTIMS,
            "0/1 nodes are available: 1 node(s) were unschedulable." + NOT_HELPFUL,
        ]


@in_virtual_time
async def test_a_condition_whose_numbers_alone_change_is_patched_every_5_minutes_at_most() -> None:
    of = cluster(a=[100])
    nothing_kept = SchedulerConfiguration.model_validate({"bindTimeout": 0, "reserveAfter": 0})
    async with scheduling(of, nothing_kept) as process:
        comes(of, "first", 10)
        comes(of, "waits", 99)
        for n in range(62):  # every ten seconds other numbers, and something that makes the scheduler try again
            comes(of, f"other-{n}", 1)
            touch(of, "waits", n)
            await asyncio.sleep(10)

        written_s = [when_s for when_s, name, _ in process.wire.conditions if name == "waits"]
        assert len(written_s) == 3
        assert all(later - earlier > 299.9 for earlier, later in pairwise(written_s))


@in_virtual_time
async def test_an_overcommitted_card_has_nothing_free_in_the_message() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        for n in range(3):
            comes(of, f"theirs-{n}", 10, scheduler="other")
            of.pods.bind("default", f"theirs-{n}", "a", {names.MEM_IDX: "0", names.UNIT_MIB: "1024"})
        comes(of, "waits", 4)
        await asyncio.sleep(A_SECOND_S)

        assert condition(of, "waits").endswith("wants 4, most free 0 (of 16)." + NO_VICTIMS)


@in_virtual_time
async def test_a_condition_that_could_not_be_written_is_written_at_the_next_attempt() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.SET_CONDITION, Refuse(403), count=1)
        comes(of, "p", 20)
        await asyncio.sleep(A_SECOND_S)
        assert condition(of, "p") == ""

        await asyncio.sleep(310)

        assert condition(of, "p").startswith("False 0/1 nodes are available: 1 Insufficient GPU memory")


@in_virtual_time
async def test_a_pod_that_another_scheduler_bound_first_is_not_reported_as_waiting() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Overtaken("b"), count=1)
        comes(of, "p", 3)
        await asyncio.sleep(A_SECOND_S)

        assert (node_of(of, "p"), condition(of, "p")) == ("b", "True")
        assert [reason for reason, _ in events(of, "p")] == []
        assert process.wire.conditions == []


@in_virtual_time
async def test_a_late_condition_is_not_written_to_a_pod_that_is_bound() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.SET_CONDITION, Throttle(5.0), count=1)
        comes(of, "first", 10)
        comes(of, "second", 10)
        await asyncio.sleep(A_SECOND_S)
        of.pods.remove("default", "first")
        await asyncio.sleep(20)

        assert (node_of(of, "second"), condition(of, "second")) == ("a", "True")


@in_virtual_time
async def test_a_refused_bind_is_reported_once_and_retried_after_the_back_off() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Refuse(403, "pods p is forbidden"), count=2)
        comes(of, "p", 3)
        await asyncio.sleep(10)

        assert [round(sent_s) for sent_s, _ in process.wire.bindings] == [0, 1, 3]
        assert events(of, "p") == [
            ("FailedScheduling", "binding to a was refused: pods p is forbidden"),
            ("Scheduled", "Successfully assigned default/p to a, card 0 (3)"),
        ]


@in_virtual_time
async def test_at_debug_each_attempt_says_what_rejects_each_node_a_few_for_each_reason() -> None:
    of = cluster(**{f"n{n:02}": [16] for n in range(30)}, large=[40])
    of.nodes.patch("large", unschedulable=True)
    with capture_logs() as logs:
        async with scheduling(of):
            comes(of, "p", 20)
            await asyncio.sleep(A_SECOND_S)

    (line,) = [line for line in logs if line["event"] == "pod.rejected"]
    assert (line["log_level"], line["pod"], line["attempt"], len(line["nodes"])) == ("debug", "default/p", 1, 11)
    assert line["nodes"]["large"] == ["node(s) were unschedulable"]
    assert line["nodes"]["n00"] == ["Insufficient GPU memory on one card"]
