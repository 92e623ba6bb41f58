"""What a waiting pod was told is corrected when it holds no longer, although nothing helps the pod."""

import asyncio

from msgspec.structs import replace

from config.protocol import names
from scheduler.kube import objects
from tests.support.builders import wire_node
from tests.system.looking import NO_VICTIMS, cluster, comes, condition, events, node_of, objections
from tests.system.process import A_MOMENT_S, in_virtual_time, scheduling, world

# docs/decisions/0014
CORRECTED_S = 30.0
STARTING = "whose kubelet or device plugin is starting"


def starting() -> objects.Node:
    """Its plugin asks the scheduler to wait until the kubelet has reported later than that."""
    node = wire_node("a", [16], annotations={names.HELD_UNTIL: "2026-11-22T10:01:00Z"})
    ready = (objects.NodeCondition("Ready", "2026-11-22T10:00:01Z"),)
    return replace(node, status=replace(node.status, conditions=ready))


def full(wants: int = 16, free: int = 0) -> str:
    amounts = f"wants {wants}, most free {free} (of 16)"
    return f"False 0/1 nodes are available: 1 Insufficient GPU memory on one card: {amounts}."


@in_virtual_time
async def test_a_pod_whose_node_is_ready_when_others_have_its_room_says_that_there_is_no_room() -> None:
    of = world()
    of.nodes.add(starting())
    async with scheduling(of) as process:
        comes(of, "first", 16, priority=1)
        comes(of, "waits", 16)
        await asyncio.sleep(1)
        assert (STARTING in condition(of, "first"), STARTING in condition(of, "waits")) == (True, True)
        of.nodes.update("a", lambda _: wire_node("a", [16]))
        await asyncio.sleep(1)
        before = process.cycle.refused
        assert (node_of(of, "first"), STARTING in condition(of, "waits")) == ("a", True)
        await asyncio.sleep(CORRECTED_S)
        assert objections(of, "waits") == full()
        assert [note.partition(" preemption")[0] for _, note in events(of, "waits")][-1] == full().removeprefix(
            "False "
        )
        assert process.cycle.refused == before


@in_virtual_time
async def test_no_nodes_is_said_no_longer_when_a_node_has_come_that_does_not_help() -> None:
    of = world()
    async with scheduling(of):
        comes(of, "waits", 16)
        await asyncio.sleep(1)
        assert condition(of, "waits") == "False no nodes available to schedule pods"
        of.nodes.add(wire_node("a", [8]))
        await asyncio.sleep(CORRECTED_S)
        assert "most free 8 (of 8)" in condition(of, "waits")


@in_virtual_time
async def test_what_still_holds_is_neither_written_again_nor_are_its_numbers() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        comes(of, "first", 4)
        comes(of, "waits", 16)
        await asyncio.sleep(1)
        written = list(process.wire.conditions)
        comes(of, "second", 4)
        await asyncio.sleep(CORRECTED_S * 5)
        assert process.wire.conditions == written
        assert condition(of, "waits") == full(free=12) + NO_VICTIMS


@in_virtual_time
async def test_what_was_corrected_is_no_attempt_and_costs_no_back_off() -> None:
    of = world()
    async with scheduling(of) as process:
        comes(of, "waits", 16)
        await asyncio.sleep(1)
        of.nodes.add(wire_node("a", [8]))
        await asyncio.sleep(CORRECTED_S)
        refused = process.cycle.refused
        of.nodes.add(wire_node("b", [16]))
        await asyncio.sleep(A_MOMENT_S)
        assert (node_of(of, "waits"), process.cycle.refused) == ("b", refused)
