"""What starts another search for a pod that waits, and what does not: the running service, on a cluster in memory."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from config.protocol import names
from config.protocol.inventory import Health, Inventory, encode
from scheduler.plugins.preemption.default_preemption import TOO_MANY
from scheduler.state.nominations import MOST_OF_A_NAMESPACE
from scheduler.testing.cluster.world import World
from tests.support.builders import UNIT_MIB, card, pod, wire_node
from tests.support.placing import on_card
from tests.support.service.looking import (
    A_SECOND_S,
    HOSTNAME,
    arrives,
    cluster,
    comes,
    condition,
    is_going,
    node_of,
    nominated,
)
from tests.support.service.process import A_MOMENT_S, scheduling
from tests.support.service.volume_controller import zones
from tests.support.volumes import LOCAL, ZONE, claim, volume, with_claims


def comes_bound(of: World, name: str, node: str, gpu_mem: int, priority: int = 0) -> None:
    """A pod that somebody else has put on the first card of the node."""
    comes(of, name, gpu_mem, scheduler="other", priority=priority)
    of.pods.bind("default", name, node, on_card(0, gpu_mem))


async def searched(of: World, opens: Callable[[], object], gpu_mem: int = 16, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """The pod named low stays until something opens; then it is removed for a pod of priority 10."""
    async with scheduling(of):
        await arrives(of, "urgent", gpu_mem, priority=10, **options)
        assert not is_going(of, "low")

        opens()
        await asyncio.sleep(A_SECOND_S)

        assert is_going(of, "low")


async def test_a_node_that_becomes_schedulable_is_searched() -> None:
    of = cluster(a=[16], b=[16])
    comes_bound(of, "high", "a", 16, priority=20)
    comes_bound(of, "low", "b", 16)
    of.nodes.patch("b", unschedulable=True)
    await searched(of, lambda: of.nodes.patch("b", unschedulable=False))
    assert nominated(of, "urgent") == "b"


async def test_a_node_that_comes_full_is_searched() -> None:
    of = cluster(a=[16])
    comes_bound(of, "high", "a", 16, priority=20)
    comes_bound(of, "low", "b", 16)
    await searched(of, lambda: of.nodes.add(wire_node("b", [16])))


async def test_a_card_that_is_healthy_again_is_searched() -> None:
    of = cluster()
    of.nodes.add(wire_node("a", [card(0, 16, health=Health.UNHEALTHY)], gpu_mem=16))
    comes_bound(of, "low", "a", 16)
    healthy = {names.INVENTORY: encode(Inventory(UNIT_MIB, "", (card(0, 16),)))}
    await searched(of, lambda: of.nodes.patch("a", annotations=healthy))


async def test_what_a_pod_of_higher_priority_leaves_is_enough_with_what_lower_ones_hold() -> None:
    of = cluster(a=[16])
    comes_bound(of, "high", "a", 8, priority=20)
    comes_bound(of, "low", "a", 8)
    await searched(of, lambda: of.pods.remove("default", "high"))


def apart_from_high(topology: str) -> dict[str, Any]:
    about = {"topologyKey": topology, "labelSelector": {"matchLabels": {"app": "high"}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [about]}}


async def test_a_rule_that_rejects_no_longer_is_enough_for_a_search() -> None:
    of = cluster(a=[16])
    comes(of, "high", scheduler="other", labels={"app": "high"}, priority=20)
    of.pods.bind("default", "high", "a")
    comes_bound(of, "low", "a", 16)
    await searched(of, lambda: of.pods.remove("default", "high"), affinity=apart_from_high(HOSTNAME))


async def test_a_pod_that_leaves_another_node_of_the_zone_is_enough_for_a_search() -> None:
    of = cluster(a=[16], b=[16])
    for node in ("a", "b"):
        of.nodes.patch(node, labels={"zone": "z"}, unschedulable=node == "b")
    comes(of, "high", scheduler="other", labels={"app": "high"}, priority=20)
    of.pods.bind("default", "high", "b")
    comes(of, "low", scheduler="other", requests={"cpu": "60"})
    of.pods.bind("default", "low", "a")
    # It lacks cpu: that it may not be in the zone either is found out by preemption alone.
    lacks = {"requests": {"cpu": "40"}, "affinity": apart_from_high("zone")}
    await searched(of, lambda: of.pods.remove("default", "high"), 0, **lacks)


async def test_a_pod_that_leaves_a_node_which_a_new_volume_allows_is_enough_for_a_search() -> None:
    of, controller = zones(a="z1", b="z2")
    static = LOCAL
    controller.comes(static, claim("data", class_name="local"))
    controller.comes(volume("pv-a", class_name="local", on=("z1",), key=ZONE))
    comes_bound(of, "high-a", "a", 16, priority=20)
    comes_bound(of, "high", "b", 8, priority=20)
    comes_bound(of, "low", "b", 8, priority=1)
    async with scheduling(of):
        await arrives(of, "urgent", 16, priority=10, **with_claims("data"))
        controller.comes(volume("pv-b", class_name="local", on=("z2",), key=ZONE))
        await asyncio.sleep(A_SECOND_S)
        assert not is_going(of, "low")

        of.pods.remove("default", "high")
        await asyncio.sleep(A_SECOND_S)

        assert (is_going(of, "low"), nominated(of, "urgent")) == (True, "b")


async def test_a_volume_that_comes_is_enough_for_a_search() -> None:
    of, controller = zones(a="z1")
    controller.comes(LOCAL)
    controller.comes(claim("data", class_name="local"))
    comes_bound(of, "low", "a", 16)
    await searched(of, lambda: controller.comes(volume("pv", class_name="local")), **with_claims("data"))


async def test_what_cannot_help_starts_no_search() -> None:
    of = cluster(a=[16], b=[16], c=[16])
    of.disruption_budgets.create("default", "guard", {"app": "db"}, 0)
    for node, high in (("a", 8), ("b", 8), ("c", 16)):
        comes_bound(of, f"high-{node}", node, high, priority=20)
    comes_bound(of, "low-a", "a", 8)
    comes_bound(of, "low-b", "b", 4)
    async with scheduling(of) as process:
        await arrives(of, "urgent", 12, priority=10)
        searched = process.cycle.searches

        # Pods of lower priority come and go: they have been in nobody's way.
        of.pods.remove("default", "low-a")
        comes_bound(of, "new-b", "b", 4)
        # What the budgets allow decides who goes, not whether that helps.
        of.disruption_budgets.allow("default", "guard", 1)
        of.disruption_budgets.delete("default", "guard")
        # Nobody could go there, and too little is left.
        of.nodes.patch("c", labels={"zone": "z"})
        await asyncio.sleep(A_SECOND_S)

        assert process.cycle.searches == searched
        assert not is_going(of, "low-b")


async def test_a_pod_whose_place_is_free_is_not_kept_waiting_by_another_of_its_class() -> None:
    of = cluster(a=[16], b=[16, 16])
    for name, node in (("low-a", "a"), ("low-b", "b")):
        comes_bound(of, name, node, 16)
    comes(of, "low-c", 16, scheduler="other")
    of.pods.bind("default", "low-c", "b", on_card(1, 16))
    async with scheduling(of):
        for name in ("first", "second", "third"):
            comes(of, name, 16, priority=10)
            await asyncio.sleep(A_MOMENT_S)
        assert [nominated(of, name) for name in ("first", "second", "third")] == ["a", "b", "b"]

        # The kubelet counts all that is on the node: second has to wait for both to be gone, and first for neither.
        of.pods.remove("default", "low-b")
        await asyncio.sleep(A_SECOND_S)
        of.pods.remove("default", "low-c")
        await asyncio.sleep(A_SECOND_S)

        assert [node_of(of, name) for name in ("first", "second", "third")] == ["", "b", "b"]


@pytest.mark.parametrize("opens", ["another pod leaves", "the card has more"])
async def test_a_pod_that_fits_before_its_victim_is_gone_is_not_kept_waiting_by_another_of_its_class(
    opens: str,
) -> None:
    of = cluster(a=[16], b=[16])
    for node in ("a", "b"):
        comes_bound(of, f"low-{node}", node, 7)
        comes_bound(of, f"high-{node}", node, 7, priority=20)
    async with scheduling(of):
        for name in ("first", "second"):
            comes(of, name, 7, priority=10)
            await asyncio.sleep(A_MOMENT_S)
        assert [nominated(of, name) for name in ("first", "second")] == ["a", "b"]

        # There is room for one pod now, and for the first only where the second does not come.
        if opens == "the card has more":
            larger = encode(Inventory(UNIT_MIB, "", (card(0, 23, node="b"),)))
            of.nodes.patch("b", annotations={names.INVENTORY: larger}, allocatable={names.GPU_MEM: "23"})
        else:
            of.pods.remove("default", "high-b")
        await asyncio.sleep(A_SECOND_S)

        assert [node_of(of, name) for name in ("first", "second")] == ["", "b"]


async def test_what_too_many_kept_places_have_delayed_is_looked_for_later() -> None:
    of = cluster(a=[16])
    comes_bound(of, "low", "a", 16)
    of.nodes.add(wire_node("elsewhere"))
    async with scheduling(of) as process:
        for number in range(MOST_OF_A_NAMESPACE):
            process.engine.pod_of_others(replace(pod(f"theirs-{number}", priority=10), nominated_node="elsewhere"))
        await arrives(of, "urgent", 16, priority=10)
        assert condition(of, "urgent").endswith(TOO_MANY)

        process.engine.pod_gone("uid-default-theirs-0")
        await arrives(of, "other", 99)

        assert is_going(of, "low")
