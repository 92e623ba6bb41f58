"""What the log says of pods that fit nowhere, and of those that go for them: the running service, in virtual time."""

import asyncio
from collections.abc import Sequence
from typing import Any

from structlog.testing import capture_logs

from config.protocol import names
from scheduler.testing.cluster.faults import Refuse, Verb
from tests.support.placing import on_card
from tests.system.looking import A_SECOND_S, cluster, comes, condition
from tests.system.preempting import is_going, runs
from tests.system.process import in_virtual_time, scheduling


def lines(logs: Sequence[Any], event: str) -> list[dict[str, Any]]:
    return [line for line in logs if line["event"] == event]


@in_virtual_time
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


@in_virtual_time
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


@in_virtual_time
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


@in_virtual_time
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
