"""Objects that are not as they should be, or larger than what is read: each costs itself only, and somebody is told."""

import asyncio
from collections.abc import Callable, MutableMapping
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from config.protocol import names
from config.protocol.inventory import Inventory, encode
from scheduler.kube import objects
from scheduler.testing.cluster.world import World
from tests.support.builders import UNIT_MIB, card, wire_node
from tests.support.service.looking import arrives, cluster, comes, condition, node_of, objections, warnings
from tests.support.service.process import scheduling, world

UNREADABLE = "node(s) had an unreadable inventory"
OTHER_UNIT = "node(s) announced GPU memory in another unit"


def problems(logs: list[MutableMapping[str, Any]]) -> list[tuple[str, str]]:
    return [(line["kind"], line["name"]) for line in logs if line["event"] == "object.bad"]


def wrong_inventory(text: str) -> Callable[[objects.Node], objects.Node]:
    def change(node: objects.Node) -> objects.Node:
        return replace(node, metadata=replace(node.metadata, annotations={names.INVENTORY: text}))

    return change


def amounts(**wrong: str) -> Callable[[objects.Node], objects.Node]:
    def change(node: objects.Node) -> objects.Node:
        named = {names.GPU_MEM if name == "gpu_mem" else name: text for name, text in wrong.items()}
        allocatable = {**(node.status.allocatable or {}), **named}
        return replace(node, status=objects.NodeStatus(allocatable, allocatable))

    return change


def legacy_totals(gpu_mem: str, gpu_count: str) -> Callable[[objects.Node], objects.Node]:
    def change(node: objects.Node) -> objects.Node:
        totals: objects.Quantities = {"cpu": "64", "pods": "110", names.GPU_MEM: gpu_mem, names.GPU_COUNT: gpu_count}
        return replace(node, metadata=replace(node.metadata, annotations={}), status=objects.NodeStatus(totals, totals))

    return change


def inventory(*cards: str) -> str:
    return f'{{"version":1,"unitMiB":1024,"cards":[{",".join(cards)}]}}'


def a_card(index: int = 0, uuid: str = "GPU-x", units: str = "16", more: str = "") -> str:
    return f'{{"index":{index},"uuid":"{uuid}","units":{units}{more}}}'


# Nodes


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        pytest.param(wrong_inventory("{"), UNREADABLE, id="broken JSON"),
        pytest.param(wrong_inventory("[" * 100_000), UNREADABLE, id="nested deeper than any stack"),
        pytest.param(wrong_inventory("x" * 2**20), UNREADABLE, id="1 MiB"),
        pytest.param(wrong_inventory(inventory(a_card(units="1e400"))), UNREADABLE, id="units beyond all numbers"),
        pytest.param(wrong_inventory(inventory(a_card(0), a_card(1))), UNREADABLE, id="a UUID twice"),
        pytest.param(wrong_inventory(inventory(a_card(0), a_card(0, "GPU-y"))), UNREADABLE, id="an index twice"),
        pytest.param(
            wrong_inventory(encode(Inventory(1, "", (card(0, 16000),)))), OTHER_UNIT, id="another memory unit"
        ),
        pytest.param(legacy_totals("16", "300"), UNREADABLE, id="totals of more cards than there are"),
        pytest.param(legacy_totals("9223372036854775807", "1"), UNREADABLE, id="absurd totals"),
        pytest.param(amounts(gpu_mem="much"), "", id="gpu-mem that is no quantity"),
        pytest.param(amounts(cpu="lots"), "", id="cpu that is no quantity"),
        pytest.param(amounts(memory="1e9999999999"), "", id="memory beyond all quantities"),
    ],
)
async def test_a_node_that_cannot_be_read_is_left_out_with_an_event(wrong: Any, reason: str) -> None:  # noqa: ANN401
    of = world()
    of.nodes.add(wrong(wire_node("bad", [16])))
    of.nodes.add(wire_node("good", [16]))
    with capture_logs() as logs:
        async with scheduling(of) as process:
            comes(of, "there", 3, to="bad")
            comes(of, "anywhere", 3)
            await asyncio.sleep(1)

            assert (node_of(of, "there"), node_of(of, "anywhere")) == ("", "good")
            assert reason in condition(of, "there")
            assert problems(logs) == [("Node", "bad")]
            assert process.sample("bad_objects_total", kind="Node") == 1
            assert [found for found, _ in warnings(of, "bad")] == ["BadAnnotation"]

            of.nodes.update("bad", lambda old: replace(wire_node("bad", [16]), metadata=_mended(old)))
            await asyncio.sleep(1)

            assert node_of(of, "there") == "bad"


def _mended(old: objects.Node) -> objects.ObjectMeta:
    return replace(old.metadata, annotations=wire_node("bad", [16]).metadata.annotations)


async def test_a_node_that_loses_its_inventory_counts_as_equal_cards() -> None:
    of = cluster(a=[16, 16])
    async with scheduling(of):
        for n in range(2):
            comes(of, f"before-{n}", 12)
        await asyncio.sleep(1)
        of.nodes.patch("a", annotations={names.INVENTORY: None})
        comes(of, "after", 12)
        comes(of, "small", 4)
        await asyncio.sleep(1)

        assert (node_of(of, "after"), node_of(of, "small")) == ("", "a")


@pytest.mark.parametrize(
    ("gpus", "told"),
    [
        pytest.param("0,x", 1, id="one entry is no index"),
        pytest.param("-1, ,0", 1, id="negative"),
        pytest.param("0,99999999999999999999", 1, id="absurd"),
        pytest.param("0" + "," * 2**20, 0, id="1 MiB of nothing"),
    ],
)
async def test_every_readable_entry_of_a_list_of_unhealthy_cards_counts(gpus: str, told: int) -> None:
    of = cluster(a=[16, 8])
    of.config_maps.create(names.UNHEALTHY_NAMESPACE, f"{names.UNHEALTHY_PREFIX}a", {names.UNHEALTHY_KEY: gpus})
    async with scheduling(of) as process:
        comes(of, "large", 12)
        comes(of, "small", 6)
        await asyncio.sleep(1)

        assert (node_of(of, "large"), process.free) == ("", {"GPU-a-0": 16, "GPU-a-1": 2})
        assert process.sample("bad_objects_total", kind="ConfigMap") == told


async def test_taints_of_an_unknown_effect_keep_no_pod_out() -> None:
    of = world()
    of.nodes.add(wire_node("a", [16], taints=(objects.Taint("k", "NoBreakfast"),)))
    async with scheduling(of):
        await arrives(of, "p", 3)

        assert node_of(of, "p") == "a"


async def test_a_pod_that_somebody_placed_and_nobody_can_read_waits_no_more() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await arrives(of, "p", 20)
        assert objections(of, "p")
        unreadable = objects.ResourceRequirements(limits={names.GPU_MEM: "1gi"})
        container = objects.Container("c", resources=unreadable)
        of.pods.update("default", "p", lambda pod: replace(pod, spec=objects.PodSpec((container,), node_name="a")))
        await asyncio.sleep(1)

        assert process.engine.queue.lengths()["unschedulable"] == 0
        assert process.sample("bad_objects_total", kind="Pod") == 1


async def test_an_object_that_cannot_be_decoded_costs_only_itself() -> None:
    of = world()
    for name in ("a", "b"):
        of.nodes.add(wire_node(name, [16]))
    with capture_logs() as logs:
        async with scheduling(of) as process:
            process.wire.garbled |= {"a", "garbled"}
            of.nodes.patch("a", labels={"any": "change"})
            comes(of, "garbled", 3)
            comes(of, "p", 3)
            await asyncio.sleep(1)
            assert (node_of(of, "garbled"), node_of(of, "p")) == ("", "b")
            assert sorted(problems(logs)) == [("Node", "a"), ("Pod", "default/garbled")]
            assert (
                process.sample("bad_objects_total", kind="Node"),
                process.sample("bad_objects_total", kind="Pod"),
            ) == (1, 1)

            process.wire.garbled.clear()
            of.nodes.patch("a", labels={"any": "other"})
            of.pods.update("default", "garbled", lambda pod: replace(pod, spec=replace(pod.spec, priority=1)))
            await asyncio.sleep(1)

            assert node_of(of, "garbled") == "b"
            assert set(process.engine.tables.row_of) == {"a", "b"}


async def test_a_budget_that_cannot_be_decoded_any_more_is_told_and_spares_whom_it_has_spared() -> None:
    of = cluster(a=[16, 16])
    of.disruption_budgets.create("default", "spared", {"app": "guarded"}, allowed=0)
    with capture_logs() as logs:
        async with scheduling(of) as process:
            comes(of, "guarded", 16, labels={"app": "guarded"})
            comes(of, "other", 16, priority=1)
            await asyncio.sleep(1)
            process.wire.garbled.add("spared")
            of.disruption_budgets.allow("default", "spared", 1)
            await asyncio.sleep(1)
            process.wire.garbled.clear()
            await arrives(of, "urgent", 16, priority=10)

            assert problems(logs) == [("PodDisruptionBudget", "default/spared")]
            assert process.sample("bad_objects_total", kind="PodDisruptionBudget") == 1
            going = [pod.metadata.name for pod in of.pods if pod.metadata.deletion_timestamp]
            assert going == ["other"]


# Pods that somebody has bound


@pytest.mark.parametrize(
    "written",
    [
        pytest.param({names.ALLOCATION: "{"}, id="broken JSON"),
        pytest.param({names.ALLOCATION: "x" * 2**20}, id="1 MiB"),
        pytest.param({names.ALLOCATION: "[" * 60_000}, id="nested deeper than any stack"),
        pytest.param({names.ALLOCATION: '{"0":{"0":2}}'}, id="less than the pod asks"),
        pytest.param({names.ALLOCATION: '{"0":{"0":3}}', names.CARDS: "[]"}, id="cards of another tool"),
    ],
)
async def test_a_pod_whose_cards_cannot_be_read_counts_on_every_card(written: dict[str, str]) -> None:
    of = cluster(a=[4, 4, 4])
    comes(of, "theirs", 3, scheduler="other")
    of.pods.bind("default", "theirs", "a", written)
    with capture_logs() as logs:
        async with scheduling(of) as process:
            await arrives(of, "ours", 2)

            assert process.free == {"GPU-a-0": 1, "GPU-a-1": 1, "GPU-a-2": 1}
            assert condition(of, "ours").startswith(
                "False 0/1 nodes are available: 1 Insufficient GPU memory on one card"
            )
            assert problems(logs) == [("Pod", "default/theirs")]
            assert process.sample("bad_objects_total", kind="Pod") == 1
            assert [reason for reason, _ in warnings(of, "theirs")] == ["BadAnnotation"]


# Pods that wait for us


async def test_a_pod_with_a_malformed_amount_waits_until_it_is_corrected() -> None:
    of = cluster(a=[16])
    with capture_logs() as logs:
        async with scheduling(of) as process:
            comes(of, "bad", 3, requests={"cpu": "lots"})
            comes(of, "good", 3)
            await asyncio.sleep(1)
            assert (node_of(of, "bad"), node_of(of, "good")) == ("", "a")
            assert problems(logs) == [("Pod", "default/bad")]
            assert process.sample("bad_objects_total", kind="Pod") == 1
            assert [reason for reason, _ in warnings(of, "bad")] == ["BadAnnotation"]

            mended = of.pods.collection.existing("default", "good").spec.containers
            of.pods.update("default", "bad", lambda pod: replace(pod, spec=replace(pod.spec, containers=mended)))
            await asyncio.sleep(1)

            assert node_of(of, "bad") == "a"


ALLOCATION = {
    names.ALLOCATION: '{"0":{"1":12}}',
    names.CARDS: '{"1":"GPU-a-1"}',
    names.UNIT_MIB: str(UNIT_MIB),
}


# Objects that are larger than what is read of them


def numbered(count: int) -> dict[str, str]:
    return {f"example.com/n{number}": "1" for number in range(count)}


def theirs(of: World, annotations: dict[str, str], **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """A pod of 12 units that somebody else has put on node a."""
    comes(of, "theirs", 12, scheduler="other", **options)
    of.pods.bind("default", "theirs", "a", annotations)


# Of one limit; every other one is a case of tests/scheduler/kube/test_size_limits.py.
MANY_NAMES: dict[str, Any] = {"requests": {"cpu": "1", **numbered(2000)}}
TOLD = "scheduling terms larger than 128"


async def test_a_large_pod_that_runs_frees_no_memory_that_it_uses() -> None:
    of = cluster(a=[16, 16])
    theirs(of, ALLOCATION, **MANY_NAMES)
    with capture_logs() as logs:
        async with scheduling(of) as process:
            comes(of, "ours", 12)
            comes(of, "second", 12)
            await asyncio.sleep(1)

            assert process.free == {"GPU-a-0": 4, "GPU-a-1": 4}
            assert sorted(node_of(of, name) for name in ("ours", "second")) == ["", "a"]
            assert process.engine.tables.resources.allocatable.shape[0] < 16
            assert process.sample("bad_objects_total", kind="Pod") == 1
            (reason, note), *others = warnings(of, "theirs")
            assert (reason, TOLD in note, others) == ("OverBudget", True, [])
            assert len([line for line in logs if line["event"] == "object.bad"]) == 1


async def test_a_large_pod_without_an_allocation_counts_on_every_card() -> None:
    of = cluster(a=[16, 16])
    theirs(of, {}, requests=numbered(2000))
    async with scheduling(of) as process:
        assert process.free == {"GPU-a-0": 4, "GPU-a-1": 4}
        of.pods.remove("default", "theirs")
        await asyncio.sleep(1)
        assert process.free == {"GPU-a-0": 16, "GPU-a-1": 16}


async def test_a_large_pod_that_waits_is_told_why_and_is_bound_when_it_is_small() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        comes(of, "large", 1, **MANY_NAMES)
        comes(of, "good", 1)
        await asyncio.sleep(1)

        assert (node_of(of, "large"), node_of(of, "good")) == ("", "a")
        assert f"pod exceeds a limit of this scheduler: {TOLD}" in condition(of, "large")
        assert [reason for reason, _ in warnings(of, "large")] == ["FailedScheduling"]
        small = of.pods.collection.existing("default", "good").spec
        of.pods.update("default", "large", lambda pod: replace(pod, spec=replace(small, node_name="")))
        await asyncio.sleep(1)
        assert node_of(of, "large") == "a"
        assert process.sample("bad_objects_total", kind="Pod") == 1


async def test_a_large_node_takes_no_pod_until_it_is_small_again_and_keeps_those_that_it_has() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await arrives(of, "before", 3)
        of.nodes.update("a", lambda old: replace(old, status=wire_node("a", [16], more=numbered(500)).status))
        await arrives(of, "meanwhile", 3)
        assert node_of(of, "meanwhile") == ""
        assert process.sample("bad_objects_total", kind="Node") == 1
        assert [reason for reason, _ in warnings(of, "a")] == ["OverBudget"]

        of.nodes.update("a", lambda old: replace(old, status=wire_node("a", [16]).status))
        await asyncio.sleep(1)

        assert node_of(of, "meanwhile") == "a"
        assert process.free == {"GPU-a-0": 10}


async def test_what_our_binding_adds_takes_no_pod_over_a_budget() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await arrives(of, "p", 4, annotations=numbered(64))

        assert node_of(of, "p") == "a"
        assert warnings(of, "p") == []
        assert process.sample("bad_objects_total", kind="Pod") == 0
