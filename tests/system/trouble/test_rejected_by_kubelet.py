"""Pods that a kubelet rejects at admission: others are made at once, and these go elsewhere for a while."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from scheduler.kube.port import FAILED_PODS
from scheduler.testing.cluster.faults import Break, Refuse, Verb
from scheduler.testing.cluster.world import World
from tests.support.builders import manifest
from tests.support.service.looking import cluster, comes, condition, is_going, node_of, touch, warnings
from tests.support.service.process import A_MOMENT_S, scheduling

SAID = "Pod was rejected: Node didn't have enough resource: cpu, requested: 1000, used: 800, capacity: 1000"
REJECTED = "node(s) had rejected such a pod (OutOfcpu)"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}


def rejects(of: World, name: str, *, reason: str = "OutOfcpu", message: str = SAID) -> str:
    """What a kubelet does with the pod. Its node."""
    of.pods.finish("default", name, "Failed", reason=reason, message=message)
    return node_of(of, name)


def replica(
    of: World, name: str, owner: str = "web", units: int = 3, *, namespace: str = "default", priority: int = 0
) -> None:
    made: Any = manifest(name, units, namespace=namespace, priority=priority)
    made["metadata"]["ownerReferences"] = [{**OWNER, "uid": owner}]
    of.pods.create(made)


async def test_the_next_pod_of_its_owner_goes_elsewhere() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of):
        replica(of, "web-1")
        await asyncio.sleep(A_MOMENT_S)
        first = rejects(of, "web-1")
        replica(of, "web-2")
        await asyncio.sleep(A_MOMENT_S)
        assert {first, node_of(of, "web-2")} == {"a", "b"}
        note = (
            f"node {first} rejected it (OutOfcpu): Node didn't have enough resource: cpu, requested: 1000, used: 800, "
            "capacity: 1000; similar pods avoid the node for 10 s"
        )
        assert warnings(of, "web-1") == [("RejectedByKubelet", note)]


async def test_where_there_is_no_other_node_it_waits_and_says_why_and_goes_when_the_time_is_over() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        for number, waits_s in enumerate([10, 20, 40, 80, 160, 300, 300]):
            replica(of, f"web-{number}")
            await asyncio.sleep(A_MOMENT_S)
            assert rejects(of, f"web-{number}") == "a"
            await asyncio.sleep(0)
            replica(of, f"web-{number + 1}")
            await asyncio.sleep(waits_s - 1.0)
            assert f"0/1 nodes are available: 1 {REJECTED}." in condition(of, f"web-{number + 1}")
            await asyncio.sleep(1.1)
            assert node_of(of, f"web-{number + 1}") == "a"
            of.pods.remove("default", f"web-{number + 1}")
        text = b"".join(process.metrics.scrape()).decode()
        assert 'gpushare_scheduler_kubelet_rejections_total{reason="OutOfcpu"} 7' in text


async def test_who_has_run_there_all_along_says_nothing_new() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        replica(of, "web-1")
        await asyncio.sleep(A_MOMENT_S)
        of.pods.set_phase("default", "web-1", "Running")
        replica(of, "web-2")
        await asyncio.sleep(A_MOMENT_S)
        rejects(of, "web-2")
        await asyncio.sleep(A_MOMENT_S)
        touch(of, "web-1", 1)
        replica(of, "web-3")
        await asyncio.sleep(9.0)
        assert not node_of(of, "web-3")
        await asyncio.sleep(1.1)
        assert node_of(of, "web-3") == "a"


async def test_nobody_goes_for_a_pod_that_a_kubelet_has_just_rejected() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of):
        comes(of, "low", 16, to="b", priority=1)
        await asyncio.sleep(A_MOMENT_S)
        replica(of, "urgent-1", units=16, priority=10)
        await asyncio.sleep(A_MOMENT_S)
        assert rejects(of, "urgent-1") == "a"
        await asyncio.sleep(A_MOMENT_S)
        replica(of, "urgent-2", units=16, priority=10)
        await asyncio.sleep(9.0)
        assert "preemption: not eligible due to a kubelet that has just rejected such a pod." in condition(
            of, "urgent-2"
        )
        assert (node_of(of, "urgent-2"), is_going(of, "low")) == ("", False)
        comes(of, "blocks", 16, to="a", priority=10)
        await asyncio.sleep(5.0)
        assert is_going(of, "low")


async def test_a_place_that_is_kept_where_a_sibling_is_rejected_is_given_up_at_once() -> None:
    of = cluster(a=[16, 16])
    async with scheduling(of) as process:
        replica(of, "web-1", units=16, priority=10)
        comes(of, "low", 16, priority=1)
        await asyncio.sleep(A_MOMENT_S)
        replica(of, "web-2", units=16, priority=10)
        await asyncio.sleep(A_MOMENT_S)
        uid = "uid-default-web-2"
        assert (process.engine.nominations.of(uid) is None, is_going(of, "low")) == (False, True)
        rejects(of, "web-1")
        await asyncio.sleep(A_MOMENT_S)
        assert process.engine.nominations.of(uid) is None
        of.pods.remove("default", "low")
        await asyncio.sleep(12.0)
        assert node_of(of, "web-2") == "a"


async def test_what_a_relist_shows_is_old_however_often_it_changes() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        replica(of, "web-1")
        await asyncio.sleep(A_MOMENT_S)
        process.wire.break_watches(Break.STALLED, FAILED_PODS)
        rejects(of, "web-1")
        await asyncio.sleep(A_MOMENT_S)
        of.compact_history()
        process.wire.resume_watches()
        process.wire.break_watches(Break.EXPIRED, FAILED_PODS)
        await asyncio.sleep(120.0)
        touch(of, "web-1", 1)
        await asyncio.sleep(A_MOMENT_S)
        assert not process.engine.tables.rejections.counted


async def test_one_that_runs_there_ends_it() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        for name in ("web-1", "web-2"):
            replica(of, name)
        await asyncio.sleep(A_MOMENT_S)
        rejects(of, "web-1")
        await asyncio.sleep(A_MOMENT_S)
        replica(of, "web-3")
        await asyncio.sleep(A_MOMENT_S)
        assert not node_of(of, "web-3")

        await asyncio.sleep(2.0)  # no back-off is left
        of.pods.set_phase("default", "web-2", "Running")
        await asyncio.sleep(A_MOMENT_S)
        assert node_of(of, "web-3") == "a"

        rejects(of, "web-3")
        replica(of, "web-4")
        await asyncio.sleep(9.0)
        assert not node_of(of, "web-4")
        await asyncio.sleep(1.2)  # the first time again
        assert node_of(of, "web-4") == "a"


@pytest.mark.parametrize(
    ("name", "owner", "units", "namespace"),
    [
        pytest.param("other", "other", 3, "default", id="another owner"),
        pytest.param("other", "web", 4, "default", id="another template"),
        pytest.param("other", "web", 3, "theirs", id="the same owner's uid in another namespace"),
    ],
)
async def test_other_pods_still_go_there(name: str, owner: str, units: int, namespace: str) -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        replica(of, "web-1")
        await asyncio.sleep(A_MOMENT_S)
        rejects(of, "web-1")
        await asyncio.sleep(A_MOMENT_S)
        replica(of, name, owner, units, namespace=namespace)
        replica(of, "web-2")
        await asyncio.sleep(A_MOMENT_S)
        there = of.pods.find(namespace, name)
        assert there is not None
        assert (there.spec.node_name, node_of(of, "web-2")) == ("a", "")


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        pytest.param("", "", id="its containers failed"),
        pytest.param("Evicted", "The node was low on resource: memory.", id="evicted"),
        pytest.param("DeadlineExceeded", "Pod was active on the node longer than that", id="deadline"),
    ],
)
async def test_pods_that_fail_otherwise_say_nothing_of_the_node(reason: str, message: str) -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        replica(of, "web-1")
        await asyncio.sleep(A_MOMENT_S)
        rejects(of, "web-1", reason=reason, message=message)
        replica(of, "web-2")
        await asyncio.sleep(A_MOMENT_S)
        assert node_of(of, "web-2") == "a"


async def test_a_rejection_counts_once_and_none_from_before_the_start_does() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        replica(of, "web-1")
        await asyncio.sleep(A_MOMENT_S)
        rejects(of, "web-1")
    async with scheduling(of) as process:
        of.pods.update("default", "web-1", lambda pod: pod)
        replica(of, "web-2")
        await asyncio.sleep(A_MOMENT_S)
        assert node_of(of, "web-2") == "a"
        rejects(of, "web-2")
        await asyncio.sleep(A_MOMENT_S)
        rejects(of, "web-2", message=f"{SAID}!")
        await asyncio.sleep(A_MOMENT_S)
        assert process.engine.tables.rejections.counted == {"OutOfcpu": 1}


async def test_however_much_a_kubelet_says_of_it_is_cut() -> None:
    of = cluster(a=[16])
    with capture_logs() as logs:
        async with scheduling(of):
            replica(of, "web-1")
            await asyncio.sleep(A_MOMENT_S)
            rejects(of, "web-1", reason="r" * 10_000, message=SAID + "m" * 1_000_000)
            replica(of, "web-2")
            await asyncio.sleep(A_MOMENT_S)
            assert len(condition(of, "web-2")) < 300
    (told,) = [line["problem"] for line in logs if line["event"] == "pod.rejected_by_kubelet"]
    assert len(told) < 700


async def test_a_server_that_shows_no_failed_pods_costs_nothing_else() -> None:
    of = cluster(a=[16])
    with capture_logs() as logs:
        async with scheduling(of) as process:
            refuse = Refuse(400, "field label not supported: spec.schedulerName")
            process.wire.faults.add(Verb.WATCH, refuse, when=lambda request: request.about == "failed pods")
            process.wire.break_watches(Break.EXPIRED)
            await asyncio.sleep(200.0)
            comes(of, "p", 3)
            await asyncio.sleep(A_MOMENT_S)
            assert (process.service.not_ready(), node_of(of, "p")) == ("", "a")
    assert [line["kind"] for line in logs if line["event"] == "watch.failed"] == ["failed pods"]


async def test_a_bare_pod_that_is_made_again_waits_too() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        comes(of, "p", 3)
        await asyncio.sleep(A_MOMENT_S)
        rejects(of, "p")
        await asyncio.sleep(A_MOMENT_S)
        of.pods.remove("default", "p")
        comes(of, "p", 3, uid="another")
        comes(of, "q", 3)
        await asyncio.sleep(A_MOMENT_S)
        assert REJECTED in condition(of, "p")
        assert node_of(of, "q") == "a"
