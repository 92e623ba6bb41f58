"""Pods of lower priority go for one that fits nowhere: the running service, on a cluster in memory."""

import asyncio
from collections.abc import Sequence
from typing import Any

from structlog.testing import capture_logs

from config.protocol import names
from scheduler.kube.objects import PodCondition
from scheduler.testing.cluster.faults import Refuse, Slow, Throttle, Verb
from tests.support.placing import on_card
from tests.support.service.looking import (
    A_SECOND_S,
    arrives,
    card_of,
    cluster,
    comes,
    condition,
    events,
    is_going,
    node_of,
    nominated,
    runs,
)
from tests.support.service.process import A_MOMENT_S, scheduling


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
            ("Scheduled", "Successfully assigned default/low-0 to a, card 0 (8)"),
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


async def test_what_a_budget_allows_comes_back_when_its_pod_stays() -> None:
    of = cluster(a=[16], b=[16])
    of.disruption_budgets.create("default", "guard", {"app": "db"}, 1)
    async with scheduling(of) as process:
        await runs(of, "guarded", 16, 1, labels={"app": "db"})
        await runs(of, "free", 16, 5)
        process.wire.faults.add(Verb.DELETE_POD, Throttle(1.0), count=1)
        await runs(of, "urgent", 16, 10)
        of.pods.delete("default", "urgent")
        await asyncio.sleep(2)
        assert not is_going(of, "guarded")
        await runs(of, "next", 16, 10)

        assert [is_going(of, name) for name in ("guarded", "free")] == [True, False]


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


def lines(logs: Sequence[Any], event: str) -> list[dict[str, Any]]:
    return [line for line in logs if line["event"] == event]


async def test_the_log_names_those_that_this_preemption_removes() -> None:
    of = cluster(a=[16, 16, 16])
    with capture_logs() as logs:
        async with scheduling(of):
            for name, priority in (("a0", 3), ("a1", 3), ("b0", 1), ("b1", 4), ("c0", 2), ("c1", 4)):
                await runs(of, name, 8, priority)
            for number in range(2):
                await runs(of, f"urgent-{number}", 16, 10)
            assert [name for name in ("a0", "a1", "b0", "b1", "c0", "c1") if is_going(of, name)] == [
                *("a0", "a1", "b0", "b1")
            ]

    found = [(line["pod"], sorted(line["victims"]), line["number"]) for line in lines(logs, "pod.preempts")]
    assert found == [
        ("default/urgent-0", ["default/a0", "default/a1"], 2),
        ("default/urgent-1", ["default/b0", "default/b1"], 2),
    ]


async def test_the_log_counts_as_violations_those_of_budgets_only() -> None:
    of = cluster(a=[16])
    with capture_logs() as logs:
        async with scheduling(of) as process:
            await runs(of, "low", 16, 1)
            refused = process.wire.faults.add(Verb.DELETE_POD, Refuse(403, "a webhook says no"), count=1)
            await runs(of, "urgent", 16, 10)
            await asyncio.sleep(20)
            assert (refused.hits, is_going(of, "low")) == (1, True)

            of.pods.remove("default", "low")
            of.disruption_budgets.create("default", "guard", {"app": "db"}, 0)
            await asyncio.sleep(A_SECOND_S)
            of.pods.remove("default", "urgent")
            await runs(of, "guarded", 16, 1, labels={"app": "db"})
            await runs(of, "next", 16, 10)

    assert [line["violations"] for line in lines(logs, "pod.preempts")] == [0, 0, 1]


async def test_the_log_says_of_a_pod_that_waits_what_its_owner_reads() -> None:
    of = cluster(a=[16])
    with capture_logs() as logs:
        async with scheduling(of):
            await runs(of, "high", 16, 20)
            await runs(of, "urgent", 12, 10)
            await asyncio.sleep(A_SECOND_S)

    (line,) = lines(logs, "pod.unschedulable")
    assert (line["pod"], line["attempt"], f"False {line['reason']}") == ("default/urgent", 1, condition(of, "urgent"))
    assert "preemption: 0/1 nodes are available" in line["reason"]


async def test_what_a_longer_search_finds_out_is_logged_when_it_is_known() -> None:
    of = cluster(**{f"n{number:02}": [16] for number in range(60)})
    for number in range(60):
        comes(of, f"high-{number}", 16, scheduler="other", priority=20)
        of.pods.bind("default", f"high-{number}", f"n{number:02}", on_card(0, 16))
        comes(of, f"low-{number}", scheduler="other")
        of.pods.bind("default", f"low-{number}", f"n{number:02}")
    ports = [{"containerPort": 8080, "hostPort": 8080}]
    served = [{"name": "c", "ports": ports, "resources": {"limits": {names.GPU_MEM: "12"}}}]
    with capture_logs() as logs:
        async with scheduling(of):
            # Of amounts alone it would know at once.
            await runs(of, "urgent", 12, 10, containers=served)
            await asyncio.sleep(A_SECOND_S)

    first, last = lines(logs, "pod.unschedulable")
    assert (first.get("attempt"), last.get("attempt")) == (1, None)
    assert f"False {last['reason']}" == condition(of, "urgent")
    assert last["reason"].startswith(first["reason"])
    assert "preemption: 0/60 nodes are available" in last["reason"]


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

        await arrives(of, "small", 5, priority=1)

        assert node_of(of, "small") == "a"


async def test_a_place_that_is_kept_again_is_not_lost_when_the_status_is_behind() -> None:
    of = cluster(a=[16])
    async with scheduling(of, latency_s=0.05) as process:
        await runs(of, "low-1", 8, 1)
        await runs(of, "low-2", 8, 2)
        await asyncio.sleep(A_SECOND_S)
        await arrives(of, "urgent", 16, priority=10)
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


async def test_a_pod_that_is_placed_after_all_is_bound_though_its_status_is_behind() -> None:
    of = cluster(a=[16])
    async with scheduling(of, latency_s=0.05) as process:
        await runs(of, "low", 16, 1)
        await asyncio.sleep(A_SECOND_S)
        await arrives(of, "urgent", 16, priority=10)
        process.wire.faults.add(Verb.BIND, Refuse(403, "denied by policy x"), count=1)
        process.wire.faults.add(Verb.NOMINATE, Slow(before_s=3.0), count=1)
        of.pods.remove("default", "low")
        await asyncio.sleep(5 * A_SECOND_S)

        assert (node_of(of, "urgent"), len(process.engine.nominations)) == ("a", 0)
        await asyncio.sleep(A_MOMENT_S)
        assert process.free == {"GPU-a-0": 0}
