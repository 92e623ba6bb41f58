"""What starts another search for a pod that waits, and what does not: the running service, on a cluster in memory."""

import asyncio

import pytest
from msgspec.structs import replace

from config.protocol import names
from config.protocol.inventory import Health, Inventory, encode
from scheduler.state.nominations import MOST_NOMINATIONS
from scheduler.testing.cluster.world import World
from tests.support.builders import UNIT_MIB, card, pod, wire_node
from tests.support.placing import on_card
from tests.support.volumes import ZONE, claim, storage_class, volume, with_claims
from tests.system.looking import A_SECOND_S, cluster, comes, condition, node_of
from tests.system.preempting import is_going, nominated
from tests.system.process import A_MOMENT_S, in_virtual_time, scheduling
from tests.system.volume_controller import zones


def comes_bound(of: World, name: str, node: str, gpu_mem: int, priority: int = 0) -> None:
    """A pod that somebody else has put on the first card of the node."""
    comes(of, name, gpu_mem, scheduler="other", priority=priority)
    of.pods.bind("default", name, node, on_card(0, gpu_mem))


@in_virtual_time
async def test_a_node_that_becomes_schedulable_is_searched() -> None:
    of = cluster(a=[16], b=[16])
    comes_bound(of, "high", "a", 16, priority=20)
    comes_bound(of, "low", "b", 16)
    of.nodes.patch("b", unschedulable=True)
    async with scheduling(of):
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(A_MOMENT_S)
        assert not is_going(of, "low")

        of.nodes.patch("b", unschedulable=False)
        await asyncio.sleep(A_SECOND_S)

        assert is_going(of, "low")
        assert nominated(of, "urgent") == "b"


@in_virtual_time
async def test_a_node_that_comes_full_is_searched() -> None:
    of = cluster(a=[16])
    comes_bound(of, "high", "a", 16, priority=20)
    async with scheduling(of):
        comes(of, "urgent", 16, priority=10)
        comes_bound(of, "low", "b", 16)
        await asyncio.sleep(A_SECOND_S)
        of.nodes.add(wire_node("b", [16]))
        await asyncio.sleep(A_SECOND_S)

        assert is_going(of, "low")


@in_virtual_time
async def test_a_card_that_is_healthy_again_is_searched() -> None:
    of = cluster()
    of.nodes.add(wire_node("a", [card(0, 16, health=Health.UNHEALTHY)], gpu_mem=16))
    comes_bound(of, "low", "a", 16)
    async with scheduling(of):
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(A_SECOND_S)
        assert not is_going(of, "low")

        of.nodes.patch("a", annotations={names.INVENTORY: encode(Inventory(UNIT_MIB, "", (card(0, 16),)))})
        await asyncio.sleep(A_SECOND_S)

        assert is_going(of, "low")


@in_virtual_time
async def test_what_a_pod_of_higher_priority_leaves_is_enough_with_what_lower_ones_hold() -> None:
    of = cluster(a=[16])
    comes_bound(of, "high", "a", 8, priority=20)
    comes_bound(of, "low", "a", 8)
    async with scheduling(of):
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(A_SECOND_S)
        assert not is_going(of, "low")

        of.pods.remove("default", "high")
        await asyncio.sleep(A_SECOND_S)

        assert is_going(of, "low")


@in_virtual_time
async def test_a_rule_that_rejects_no_longer_is_enough_for_a_search() -> None:
    of = cluster(a=[16])
    one_zone = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "high"}}}]
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": one_zone}}
    comes(of, "high", scheduler="other", labels={"app": "high"}, priority=20)
    of.pods.bind("default", "high", "a")
    comes_bound(of, "low", "a", 16)
    async with scheduling(of):
        comes(of, "urgent", 16, priority=10, affinity=apart)
        await asyncio.sleep(A_SECOND_S)
        assert not is_going(of, "low")

        of.pods.remove("default", "high")
        await asyncio.sleep(A_SECOND_S)

        assert is_going(of, "low")


@in_virtual_time
async def test_a_pod_that_leaves_another_node_of_the_zone_is_enough_for_a_search() -> None:
    of = cluster(a=[16], b=[16])
    for node in ("a", "b"):
        of.nodes.patch(node, labels={"zone": "z"}, unschedulable=node == "b")
    zone = [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "high"}}}]
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": zone}}
    comes(of, "high", scheduler="other", labels={"app": "high"}, priority=20)
    of.pods.bind("default", "high", "b")
    comes(of, "low", scheduler="other", requests={"cpu": "60"})
    of.pods.bind("default", "low", "a")
    async with scheduling(of):
        # It lacks cpu: that it may not be in the zone either is found out by preemption alone.
        comes(of, "urgent", requests={"cpu": "40"}, priority=10, affinity=apart)
        await asyncio.sleep(A_SECOND_S)
        assert not is_going(of, "low")

        of.pods.remove("default", "high")
        await asyncio.sleep(A_SECOND_S)

        assert is_going(of, "low")


@in_virtual_time
async def test_a_pod_that_leaves_a_node_which_a_new_volume_allows_is_enough_for_a_search() -> None:
    of, controller = zones(a="z1", b="z2")
    static = storage_class("local", provisioner="kubernetes.io/no-provisioner")
    controller.comes(static, claim("data", class_name="local"))
    controller.comes(volume("pv-a", class_name="local", on=("z1",), key=ZONE))
    comes_bound(of, "high-a", "a", 16, priority=20)
    comes_bound(of, "high", "b", 8, priority=20)
    comes_bound(of, "low", "b", 8, priority=1)
    async with scheduling(of):
        comes(of, "urgent", 16, priority=10, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        controller.comes(volume("pv-b", class_name="local", on=("z2",), key=ZONE))
        await asyncio.sleep(A_SECOND_S)
        assert not is_going(of, "low")

        of.pods.remove("default", "high")
        await asyncio.sleep(A_SECOND_S)

        assert (is_going(of, "low"), nominated(of, "urgent")) == (True, "b")


@in_virtual_time
async def test_what_cannot_help_starts_no_search() -> None:
    of = cluster(a=[16], b=[16], c=[16])
    of.disruption_budgets.create("default", "guard", {"app": "db"}, 0)
    for node, high in (("a", 8), ("b", 8), ("c", 16)):
        comes_bound(of, f"high-{node}", node, high, priority=20)
    comes_bound(of, "low-a", "a", 8)
    comes_bound(of, "low-b", "b", 4)
    async with scheduling(of) as process:
        comes(of, "urgent", 12, priority=10)
        await asyncio.sleep(A_SECOND_S)
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


@in_virtual_time
async def test_a_place_that_opens_is_searched_for_the_best_pod_only() -> None:
    of = cluster(a=[16], b=[16])
    comes_bound(of, "high-a", "a", 16, priority=20)
    comes_bound(of, "high-b", "b", 4, priority=20)
    comes_bound(of, "low-b", "b", 12)
    async with scheduling(of) as process:
        for template in range(8):
            for number in range(25):
                # More of the node's cpu than there is: the cards would do.
                comes(of, f"p-{template}-{number}", 12, priority=10, requests={"cpu": f"{65 + template}"})
        await asyncio.sleep(A_SECOND_S)
        before = process.cycle.searches

        of.nodes.patch("b", allocatable={"cpu": "80"})
        await asyncio.sleep(A_SECOND_S)

        assert is_going(of, "low-b")
        # One pod has the place; for the other classes too little is left, which is seen without a search.
        assert process.cycle.searches - before == 1


@in_virtual_time
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
@in_virtual_time
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


@in_virtual_time
async def test_what_too_many_kept_places_have_delayed_is_looked_for_later() -> None:
    of = cluster(a=[16])
    comes_bound(of, "low", "a", 16)
    of.nodes.add(wire_node("elsewhere"))
    async with scheduling(of) as process:
        for number in range(MOST_NOMINATIONS):
            process.engine.pod_of_others(replace(pod(f"theirs-{number}", priority=10), nominated_node="elsewhere"))
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(A_SECOND_S)
        told = f"while {MOST_NOMINATIONS} other pods are nominated to nodes and not bound yet."
        assert condition(of, "urgent").endswith(told)

        process.engine.pod_gone("uid-default-theirs-0")
        comes(of, "other", 99)
        await asyncio.sleep(A_SECOND_S)

        assert is_going(of, "low")


@in_virtual_time
async def test_a_namespace_that_has_all_the_places_gives_one_up_for_another_of_the_same_priority() -> None:
    of = cluster(a=[16], b=[16])
    comes_bound(of, "low-a", "a", 16)
    comes_bound(of, "low-b", "b", 16)
    of.nodes.add(wire_node("elsewhere"))
    async with scheduling(of) as process:
        for number in range(MOST_NOMINATIONS):
            theirs = replace(pod(f"theirs-{number}", namespace="theirs", priority=10), nominated_node="elsewhere")
            process.engine.pod_of_others(theirs)
        comes(of, "urgent", 16, namespace="theirs", priority=10)
        for name in ("first", "second"):
            comes(of, name, 16, priority=10)
        await asyncio.sleep(A_SECOND_S)

        assert [is_going(of, name) for name in ("low-a", "low-b")] == [True, True]
        kept = process.engine.nominations
        assert [bool(kept.of(f"uid-{pod}")) for pod in ("theirs-urgent", "default-first", "default-second")] == [
            False,
            True,
            True,
        ]
        assert len(kept) == MOST_NOMINATIONS


@in_virtual_time
async def test_places_that_are_kept_for_pods_of_low_priority_delay_no_better_one() -> None:
    of = cluster(a=[16])
    comes_bound(of, "low", "a", 16)
    of.nodes.add(wire_node("elsewhere"))
    async with scheduling(of) as process:
        for number in range(MOST_NOMINATIONS):
            process.engine.pod_of_others(replace(pod(f"theirs-{number}", priority=5), nominated_node="elsewhere"))
        comes(of, "equal", 16, priority=5)
        await asyncio.sleep(A_SECOND_S)
        assert not is_going(of, "low")

        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(A_SECOND_S)

        assert is_going(of, "low")
        assert len(process.engine.nominations) == MOST_NOMINATIONS
        of.pods.remove("default", "low")
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "urgent") == "a"


@in_virtual_time
async def test_places_on_a_node_that_does_not_exist_delay_nobody() -> None:
    of = cluster(a=[16])
    comes_bound(of, "low", "a", 16)
    async with scheduling(of) as process:
        for number in range(MOST_NOMINATIONS):
            process.engine.pod_of_others(replace(pod(f"theirs-{number}", priority=99), nominated_node="nowhere"))
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(A_SECOND_S)

        assert is_going(of, "low")
        assert len(process.engine.nominations) == MOST_NOMINATIONS
