"""A node whose kubelet or device plugin is starting takes its pods a moment later, and is nobody's fault."""

import asyncio

from msgspec.structs import replace

from config.protocol import names
from scheduler.kube import objects
from tests.support.builders import wire_node
from tests.system.looking import comes, condition, node_of, warnings
from tests.system.process import in_virtual_time, scheduling, world

STARTING = "1 node(s) whose kubelet or device plugin is starting"


def held(reported: str, until: str | None = "2026-11-22T10:01:00Z") -> objects.Node:
    """A node that was written to by its kubelet at `reported`."""
    plain = wire_node("a", [16])
    annotations = {**(plain.metadata.annotations or {}), **({names.HELD_UNTIL: until} if until else {})}
    conditions = (objects.NodeCondition("Ready", reported),)
    metadata, status = replace(plain.metadata, annotations=annotations), replace(plain.status, conditions=conditions)
    return replace(plain, metadata=metadata, status=status)


@in_virtual_time
async def test_a_pod_waits_until_the_plugin_is_registered_again() -> None:
    of = world()
    of.nodes.add(held("2026-11-22T10:00:01Z"))
    async with scheduling(of):
        comes(of, "p", 3)
        await asyncio.sleep(1)
        assert (node_of(of, "p"), STARTING in condition(of, "p")) == ("", True)
        of.nodes.update("a", lambda _: held("2026-11-22T10:00:01Z", until=None))
        await asyncio.sleep(1)
        assert (node_of(of, "p"), warnings(of, "a")) == ("a", [])


@in_virtual_time
async def test_a_plugin_that_never_comes_back_holds_its_node_until_the_kubelet_has_reported() -> None:
    """Nothing but the heartbeat is different."""
    of = world()
    of.nodes.add(held("2026-11-22T10:00:01Z"))
    async with scheduling(of):
        comes(of, "p", 3)
        await asyncio.sleep(1)
        of.nodes.update("a", lambda _: held("2026-11-22T10:00:50Z"))
        await asyncio.sleep(1)
        assert node_of(of, "p") == ""
        of.nodes.update("a", lambda _: held("2026-11-22T10:05:01Z"))
        await asyncio.sleep(1)
        assert node_of(of, "p") == "a"


@in_virtual_time
async def test_a_node_that_has_devices_and_no_inventory_yet_gets_no_warning() -> None:
    """The device plugin has registered with the kubelet; what it writes on the node is on its way."""
    of = world()
    amounts: objects.Quantities = {"cpu": "64", "pods": "110", names.GPU_MEM: "16"}
    first = replace(wire_node("a", [16]).metadata, annotations={})
    of.nodes.add(objects.Node(first, status=objects.NodeStatus(amounts, amounts)))
    async with scheduling(of):
        comes(of, "p", 3)
        await asyncio.sleep(1)
        assert (node_of(of, "p"), warnings(of, "a")) == ("", [])
        of.nodes.update("a", lambda _: wire_node("a", [16]))
        await asyncio.sleep(1)
        assert (node_of(of, "p"), warnings(of, "a")) == ("a", [])
