"""Pods that are spread over zones: where they go, what those who wait read, and when their place opens."""

import asyncio
from typing import Any

from msgspec.structs import replace

from scheduler.kube.objects import Taint
from scheduler.kube.port import REPLICA_SETS, SERVICES
from scheduler.state.columns.selectors import equalities
from scheduler.testing.cluster.world import World
from tests.support.builders import manifest, wire_node
from tests.system.looking import comes, node_of, objections
from tests.system.process import in_virtual_time, scheduling, world

A_SECOND_S = 1.0
WEB = {"app": "web"}
SKEWED = "node(s) didn't match pod topology spread constraints"


def zones(**nodes: str) -> World:
    """A node of one card per keyword, in that zone; "" is none."""
    of = world()
    for name, zone in nodes.items():
        of.nodes.add(wire_node(name, [16], labels={"zone": zone} if zone else {}))
    return of


def spread(of: World, *names: str, gpu_mem: int = 1, **more: object) -> None:
    """Web pods, spread over zones."""
    constraint: dict[str, Any] = {
        "topologyKey": "zone",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": WEB},
        **more,
    }
    for name in names:
        comes(of, name, gpu_mem, labels=WEB, topologySpreadConstraints=[constraint])


@in_virtual_time
async def test_pods_of_one_template_are_spread_and_the_one_too_many_says_why() -> None:
    of = zones(a="east", b="west", c="")
    async with scheduling(of):
        comes(of, "large", 16, to="b")
        spread(of, "first", "second")
        await asyncio.sleep(A_SECOND_S)
        assert [node_of(of, "first"), node_of(of, "second")] == ["a", ""]
        short = "1 Insufficient GPU memory on one card: wants 1, most free 0 (of 16)"
        why = f"{short}, 1 {SKEWED}, 1 {SKEWED} (missing required label)"
        assert objections(of, "second") == f"False 0/3 nodes are available: {why}."


@in_virtual_time
async def test_a_pod_that_waits_is_bound_when_the_emptiest_zone_gets_a_pod() -> None:
    of = zones(a="east", b="west")
    async with scheduling(of):
        comes(of, "large", 16, to="b")
        spread(of, "first", "waits")
        await asyncio.sleep(A_SECOND_S)
        assert sorted([node_of(of, "first"), node_of(of, "waits")]) == ["", "a"]
        comes(of, "web-on-b", labels=WEB, to="b")
        await asyncio.sleep(A_SECOND_S)
        assert [node_of(of, "first"), node_of(of, "waits")] == ["a", "a"]


@in_virtual_time
async def test_a_pod_that_waits_is_bound_when_the_emptiest_zone_is_gone() -> None:
    of = zones(a="east", b="west")
    async with scheduling(of):
        comes(of, "large", 16, to="b")
        spread(of, "first", "waits")
        await asyncio.sleep(A_SECOND_S)
        of.nodes.delete("b")
        await asyncio.sleep(A_SECOND_S)
        assert [node_of(of, "first"), node_of(of, "waits")] == ["a", "a"]


@in_virtual_time
async def test_a_pod_that_waits_is_bound_when_the_emptiest_zone_counts_no_more() -> None:
    of = zones(a="east", b="west")
    async with scheduling(of):
        comes(of, "large", 16, to="b")
        spread(of, "first", "waits", nodeTaintsPolicy="Honor")
        await asyncio.sleep(A_SECOND_S)
        closed = (Taint("closed", "NoSchedule"),)
        of.nodes.update("b", lambda node: replace(node, spec=replace(node.spec, taints=closed)))
        await asyncio.sleep(A_SECOND_S)
        assert [node_of(of, "first"), node_of(of, "waits")] == ["a", "a"]


@in_virtual_time
async def test_of_equal_zones_the_one_with_fewer_such_pods_is_taken() -> None:
    of = zones(a="east", b="west")
    async with scheduling(of):
        comes(of, "web-on-b", labels=WEB, to="b")
        spread(of, "first", gpu_mem=0, whenUnsatisfiable="ScheduleAnyway")
        await asyncio.sleep(A_SECOND_S)
        comes(of, "web-on-a", labels=WEB, to="a")
        comes(of, "web-on-a-too", labels=WEB, to="a")
        spread(of, "second", gpu_mem=0, whenUnsatisfiable="ScheduleAnyway")
        await asyncio.sleep(A_SECOND_S)
        assert [node_of(of, "first"), node_of(of, "second")] == ["a", "b"]


def replica(of: World, name: str, uid: str) -> None:
    """A web pod of a ReplicaSet, which says nothing."""
    made: dict[str, Any] = manifest(name, labels=WEB)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": True}
    made["metadata"] |= {"ownerReferences": [owner]}
    of.pods.create(made)


@in_virtual_time
async def test_replicas_that_say_nothing_are_rather_on_different_nodes() -> None:
    of = zones(a="", b="", c="")
    meta = {"name": "web", "namespace": "default"}
    made = of.selecting.create(REPLICA_SETS, {"metadata": meta, "spec": {"selector": {"matchLabels": WEB}}})
    async with scheduling(of):
        for busy in "bc":
            comes(of, f"busy-{busy}", requests={"cpu": "10"}, to=busy)
        await asyncio.sleep(A_SECOND_S)
        for name in "pqr":
            replica(of, name, made.metadata.uid)
        await asyncio.sleep(A_SECOND_S)
        assert sorted(node_of(of, name) for name in "pqr") == ["a", "b", "c"]
        of.selecting.delete(REPLICA_SETS, "default", "web")
        await asyncio.sleep(A_SECOND_S)
        for name in "stu":
            replica(of, name, made.metadata.uid)
        await asyncio.sleep(A_SECOND_S)
        assert [node_of(of, name) for name in "stu"] == ["a", "a", "a"]


@in_virtual_time
async def test_a_selector_that_is_too_long_spreads_nobody_and_is_counted() -> None:
    of = zones(a="", b="")
    long = dict.fromkeys(map(str, range(200)), "x")
    meta = {"name": "long", "namespace": "default"}
    of.selecting.create(SERVICES, {"metadata": meta, "spec": {"selector": long}})
    async with scheduling(of) as process:
        await asyncio.sleep(A_SECOND_S)
        assert process.engine.tables.default_selectors.of("default", long, "") == ()
        bad = process.metrics.registry.get_sample_value("gpushare_scheduler_bad_objects_total", {"kind": "Service"})
        assert bad == 1
        of.selecting.create(SERVICES, {"metadata": {**meta, "name": "short"}, "spec": {"selector": WEB}})
        await asyncio.sleep(A_SECOND_S)
        assert process.engine.tables.default_selectors.of("default", WEB, "") == equalities(WEB)
