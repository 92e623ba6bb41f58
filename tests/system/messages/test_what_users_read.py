"""Events, conditions and metrics of the running service; what a pod was told is corrected when it holds no longer."""

import asyncio

from msgspec.structs import replace
from structlog.testing import capture_logs

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube import objects
from scheduler.testing.cluster.cluster import MemoryCluster
from scheduler.testing.cluster.faults import Refuse, Throttle, Verb
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.asking import cluster_view
from scheduler.tools.explain.answers import Explanation
from tests.support.builders import wire_node
from tests.support.explaining import prose
from tests.support.service.looking import (
    A_SECOND_S,
    NO_VICTIMS,
    arrives,
    cluster,
    comes,
    condition,
    events,
    node_of,
    objections,
    runs,
    touch,
    warnings,
)
from tests.support.service.process import A_MOMENT_S, Process, scheduling


async def test_an_overcommitted_card_has_nothing_free_in_the_message() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        for n in range(3):
            comes(of, f"theirs-{n}", 10, scheduler="other")
            of.pods.bind("default", f"theirs-{n}", "a", {names.MEM_IDX: "0", names.UNIT_MIB: "1024"})
        await arrives(of, "waits", 4)

        assert condition(of, "waits").endswith("wants 4, most free 0 (of 16)." + NO_VICTIMS)


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


async def test_a_refused_bind_is_reported_once_and_retried_after_the_back_off() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Refuse(403, "pods p is forbidden"), count=2)
        comes(of, "p", 3)
        await asyncio.sleep(10)

        assert [round(sent_s) for sent_s, _ in process.wire.bindings] == [0, 1, 3]
        assert events(of, "p") == [
            ("FailedScheduling", "binding to a was rejected: pods p is forbidden"),
            ("Scheduled", "Successfully assigned default/p to a, card 0 (3)"),
        ]


async def test_at_debug_each_attempt_says_what_rejects_each_node_a_few_for_each_reason() -> None:
    of = cluster(**{f"n{n:02}": [16] for n in range(30)}, large=[40])
    of.nodes.patch("large", unschedulable=True)
    with capture_logs() as logs:
        async with scheduling(of):
            await arrives(of, "p", 20)

    (line,) = [line for line in logs if line["event"] == "pod.rejected"]
    assert (line["log_level"], line["pod"], line["attempt"], len(line["nodes"])) == ("debug", "default/p", 1, 11)
    assert line["nodes"]["large"] == ["node(s) were unschedulable"]
    assert line["nodes"]["n00"] == ["Insufficient GPU memory on one card"]


# docs/develop/decisions/0014
CORRECTED_S = 65.0
STARTING = "had a starting kubelet or device plugin"


def starting(reported: str = "2026-11-22T10:00:01Z") -> objects.Node:
    """Its plugin asks the scheduler to wait until the kubelet has reported later than that; reported: when it has."""
    node = wire_node("a", [16], annotations={names.HELD_UNTIL: "2026-11-22T10:01:00Z"})
    return replace(node, status=replace(node.status, conditions=(objects.NodeCondition("Ready", reported),)))


def full(wants: int = 16, free: int = 0) -> str:
    amounts = f"wants {wants}, most free {free} (of 16)"
    return f"False 0/1 nodes are available: 1 Insufficient GPU memory on one card: {amounts}."


async def test_a_pod_whose_node_is_ready_when_others_have_its_room_says_that_there_is_no_room() -> None:
    of = cluster()
    of.nodes.add(starting())
    async with scheduling(of) as process:
        comes(of, "first", 16, priority=1)
        comes(of, "waits", 16)
        await asyncio.sleep(1)
        assert (STARTING in condition(of, "first"), STARTING in condition(of, "waits")) == (True, True)
        of.nodes.update("a", lambda _: wire_node("a", [16]))
        await asyncio.sleep(1)
        before = process.cycle.refused
        assert (node_of(of, "first"), STARTING in condition(of, "waits"), warnings(of, "a")) == ("a", True, [])
        await asyncio.sleep(CORRECTED_S)
        assert objections(of, "waits") == full()
        assert full().endswith(events(of, "waits")[-1][1].partition(" preemption")[0])
        assert process.cycle.refused == before


async def test_a_plugin_that_never_comes_back_holds_its_node_until_the_kubelet_has_reported() -> None:
    """Nothing but the heartbeat is different."""
    of = cluster()
    of.nodes.add(starting())
    async with scheduling(of):
        await arrives(of, "p", 3)
        of.nodes.update("a", lambda _: starting("2026-11-22T10:00:50Z"))
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "p") == ""
        of.nodes.update("a", lambda _: starting("2026-11-22T10:05:01Z"))
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "p") == "a"


async def test_no_nodes_is_said_no_longer_when_a_node_has_come_that_does_not_help() -> None:
    of = cluster()
    async with scheduling(of):
        await arrives(of, "waits", 16)
        assert condition(of, "waits") == "False no nodes available to schedule pods"
        of.nodes.add(wire_node("a", [8]))
        await asyncio.sleep(CORRECTED_S)
        assert "most free 8 (of 8)" in condition(of, "waits")


async def test_what_still_holds_is_neither_written_again_nor_are_its_numbers() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        comes(of, "first", 4)
        comes(of, "waits", 16)
        await asyncio.sleep(1)
        written = list(process.wire.conditions)
        comes(of, "second", 4)
        await asyncio.sleep(CORRECTED_S * 4)
        assert process.wire.conditions == written
        assert condition(of, "waits") == full(free=12) + NO_VICTIMS


GIB = 2**30
OF_PODS = ("gpushare_scheduler_namespace_", "gpushare_scheduler_waiting_pods", "gpushare_scheduler_longest_wait")


def shown(process: Process) -> dict[str, float]:
    lines = b"".join(process.metrics.scrape()).decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line.startswith(OF_PODS))}


async def test_a_pod_is_waited_for_or_requested_or_neither() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        comes(of, "first", 10, namespace="team")
        comes(of, "large", 20, namespace="other")
        await asyncio.sleep(A_MOMENT_S)
        requested = 'gpushare_scheduler_namespace_memory_requested_bytes{namespace="team"}'
        limit = 'gpushare_scheduler_namespace_memory_limit_bytes{namespace="team"}'
        waiting = 'gpushare_scheduler_waiting_pods{plugin="GpuShare"}'
        longest = 'gpushare_scheduler_longest_wait_seconds{plugin="GpuShare"}'
        found = shown(process)
        assert (found[requested], found[limit], found[waiting]) == (10 * GIB, 10 * GIB, 1)
        assert found.keys() == {requested, limit, waiting, longest}
        await asyncio.sleep(60.0)
        assert 60.0 <= shown(process)[longest] <= 62.0
        of.pods.remove("other", "large")
        of.pods.remove("team", "first")
        await asyncio.sleep(A_MOMENT_S)
        assert shown(process) == {}


async def explained(of: World, name: str) -> Explanation:
    return await (await cluster_view(MemoryCluster(of), SchedulerConfiguration())).explained("default", name)


async def test_while_a_place_is_kept_explain_says_the_same() -> None:
    of = cluster(old=[22], n1=[15])
    async with scheduling(of):
        await runs(of, "fo1", 6, nodeName="old")
        await runs(of, "fb1", 10)
        await runs(of, "f1", 15)
        await runs(of, "train", 15, 10)
        going = [pod.metadata.name for pod in of.pods if pod.metadata.deletion_timestamp]
        touch(of, "train", 1)
        await asyncio.sleep(A_SECOND_S)

        answer = await explained(of, "train")
        assert condition(of, "train") == f"False {answer.message}"
        assert answer.preemption is None
        assert answer.nominated is not None
        assert [one.pod for one in answer.nominated.terminating] == [f"default/{name}" for name in going]
        kept = next(node for node in answer.nearest if node.name == answer.nominated.node)
        assert kept.leaving == tuple(f"default/{name}" for name in going)
        assert "Preemption is under way" in prose(answer)

        for name in going:
            of.pods.remove("default", name)
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "train") == answer.nominated.node


async def test_after_a_restart_explain_says_the_same_too() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of):
        await runs(of, "low-0", 8, 1)
        await runs(of, "low-1", 8, 1)
        await runs(of, "low-2", 16, 2)
        await runs(of, "urgent", 16, 10)
    going = [pod.metadata.name for pod in of.pods if pod.metadata.deletion_timestamp]
    async with scheduling(of):
        await asyncio.sleep(A_SECOND_S)
        touch(of, "urgent", 1)
        await asyncio.sleep(A_SECOND_S)
        answer = await explained(of, "urgent")
        assert [pod.metadata.name for pod in of.pods if pod.metadata.deletion_timestamp] == going
        assert condition(of, "urgent") == f"False {answer.message}"
        assert (answer.preemption, answer.nominated is None) == (None, False)
