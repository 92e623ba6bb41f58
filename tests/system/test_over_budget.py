"""Objects that are larger than what is read of them: nobody pays for them, and what they hold is nobody else's."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from config.protocol import names
from scheduler.kube import objects
from scheduler.testing.cluster.world import World
from tests.support.builders import UNIT_MIB, wire_node
from tests.system.looking import cluster, comes, condition, node_of, warnings
from tests.system.process import Process, in_virtual_time, scheduling

ALLOCATION = {
    names.ALLOCATION: '{"0":{"1":12}}',
    names.CARDS: '{"1":"GPU-a-1"}',
    names.UNIT_MIB: str(UNIT_MIB),
}


def numbered(count: int) -> dict[str, str]:
    return {f"example.com/n{number}": "1" for number in range(count)}


def bad_objects(process: Process, kind: str) -> float:
    return process.metrics.registry.get_sample_value("gpushare_scheduler_bad_objects_total", {"kind": kind}) or 0.0


def theirs(of: World, annotations: dict[str, str], **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """A pod of 12 units that somebody else has put on node a."""
    comes(of, "theirs", 12, scheduler="other", **options)
    of.pods.bind("default", "theirs", "a", annotations)


def running(pod: objects.PodObject) -> objects.PodObject:
    """As its kubelet shows it: every life of a container has an id of its own."""
    statuses = tuple(
        objects.ContainerStatus(
            container.name,
            f"containerd://{pod.metadata.uid}-{container.name}",
            container.resources,
            None if container.resources is None else container.resources.requests,
        )
        for container in pod.spec.containers
    )
    return replace(pod, status=replace(pod.status, phase="Running", container_statuses=statuses))


LARGE = [
    pytest.param({"requests": {"cpu": "1", **numbered(2000)}}, "2002 resource names (at most 32)", id="resource names"),
    pytest.param(
        {"tolerations": [{"key": str(n)} for n in range(500)]}, "502 tolerations (at most 64)", id="tolerations"
    ),
    pytest.param({"labels": numbered(500)}, "500 labels (at most 128)", id="labels"),
]


@pytest.mark.parametrize(("large", "told"), LARGE)
@in_virtual_time
async def test_a_large_pod_that_runs_frees_no_memory_that_it_uses(large: dict[str, Any], told: str) -> None:
    of = cluster(a=[16, 16])
    theirs(of, ALLOCATION, **large)
    with capture_logs() as logs:
        async with scheduling(of) as process:
            comes(of, "ours", 12)
            comes(of, "second", 12)
            await asyncio.sleep(1)

            assert process.free == {"GPU-a-0": 4, "GPU-a-1": 4}
            assert sorted(node_of(of, name) for name in ("ours", "second")) == ["", "a"]
            assert process.engine.tables.resources.allocatable.shape[0] < 16
            assert bad_objects(process, "Pod") == 1
            (reason, note), *others = warnings(of, "theirs")
            assert (reason, told in note, others) == ("OverBudget", True, [])
            assert len([line for line in logs if line["event"] == "object.bad"]) == 1


@in_virtual_time
async def test_a_large_pod_without_an_allocation_counts_on_every_card() -> None:
    of = cluster(a=[16, 16])
    theirs(of, {}, requests=numbered(2000))
    async with scheduling(of) as process:
        assert process.free == {"GPU-a-0": 4, "GPU-a-1": 4}
        of.pods.remove("default", "theirs")
        await asyncio.sleep(1)
        assert process.free == {"GPU-a-0": 16, "GPU-a-1": 16}


@pytest.mark.parametrize(("large", "told"), LARGE)
@in_virtual_time
async def test_a_large_pod_that_waits_is_told_why_and_the_others_are_bound(large: dict[str, Any], told: str) -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        comes(of, "large", 1, **large)
        comes(of, "good", 1)
        await asyncio.sleep(1)

        assert (node_of(of, "large"), node_of(of, "good")) == ("", "a")
        assert f"pod has more than this scheduler reads: {told}" in condition(of, "large")
        assert [reason for reason, _ in warnings(of, "large")] == ["FailedScheduling"]
        assert bad_objects(process, "Pod") == 1


@in_virtual_time
async def test_a_pod_that_becomes_small_again_is_bound() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        comes(of, "p", 1, labels=numbered(500))
        await asyncio.sleep(1)
        assert node_of(of, "p") == ""
        of.pods.update("default", "p", lambda pod: replace(pod, metadata=replace(pod.metadata, labels={})))
        await asyncio.sleep(1)
        assert node_of(of, "p") == "a"


@in_virtual_time
async def test_a_large_node_takes_no_pod_until_it_is_small_again_and_keeps_those_that_it_has() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        comes(of, "before", 3)
        await asyncio.sleep(1)
        of.nodes.update("a", lambda old: replace(old, status=wire_node("a", [16], more=numbered(500)).status))
        comes(of, "meanwhile", 3)
        await asyncio.sleep(1)
        assert node_of(of, "meanwhile") == ""
        assert bad_objects(process, "Node") == 1
        assert [reason for reason, _ in warnings(of, "a")] == ["OverBudget"]

        of.nodes.update("a", lambda old: replace(old, status=wire_node("a", [16]).status))
        await asyncio.sleep(1)

        assert node_of(of, "meanwhile") == "a"
        assert process.free == {"GPU-a-0": 10}


@in_virtual_time
async def test_a_device_that_a_node_offers_later_is_counted_with_the_pods_that_have_it_already() -> None:
    of = cluster(a=[16])
    comes(of, "theirs", 1, scheduler="other", requests={"example.com/device": "1"})
    of.pods.bind("default", "theirs", "a", {})
    async with scheduling(of):
        of.nodes.update(
            "a", lambda old: replace(old, status=wire_node("a", [16], more={"example.com/device": "2"}).status)
        )
        for name in ("first", "second"):
            comes(of, name, 1, requests={"example.com/device": "1"})
        await asyncio.sleep(1)

        assert sorted(node_of(of, name) for name in ("first", "second")) == ["", "a"]


@in_virtual_time
async def test_pods_of_one_template_are_one_class_while_they_run() -> None:
    of = cluster(a=[80] * 8)
    async with scheduling(of) as process:
        for number in range(20):
            comes(of, f"p{number}", 1)
        await asyncio.sleep(1)
        for number in range(20):
            of.pods.update("default", f"p{number}", running)
        await asyncio.sleep(1)

        records = list(process.engine.tables.records())
        assert len(records) == 20
        assert len({record.pod.template for record in records}) == 1


@in_virtual_time
async def test_what_our_binding_adds_takes_no_pod_over_a_budget() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        comes(of, "p", 4, annotations=numbered(64))
        await asyncio.sleep(1)

        assert node_of(of, "p") == "a"
        assert warnings(of, "p") == []
        assert bad_objects(process, "Pod") == 0
