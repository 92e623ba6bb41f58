"""Nominations: each pod waits for its own victims; how a place is lost, and what a restart keeps."""

import asyncio
from typing import Any

import pytest

from config.protocol import names
from config.protocol.inventory import Health, Inventory, encode
from scheduler.kube.objects import Taint
from scheduler.kube.port import PodKey
from tests.support.builders import UNIT_MIB, card, wire_node
from tests.support.placing import on_card
from tests.support.service.looking import (
    A_SECOND_S,
    HOSTNAME,
    card_of,
    cluster,
    comes,
    is_going,
    node_of,
    nominated,
    runs,
)
from tests.support.service.process import A_MOMENT_S, scheduling


async def test_each_of_several_preemptors_is_bound_as_soon_as_its_own_card_is_free() -> None:
    of = cluster(a=[16, 16, 16])
    async with scheduling(of):
        for n in range(3):
            await runs(of, f"low-{n}", 16)
        for n in range(3):
            comes(of, f"urgent-{n}", 16, priority=10)
            await asyncio.sleep(A_MOMENT_S)
        await asyncio.sleep(1.0)
        assert [is_going(of, f"low-{n}") for n in range(3)] == [True] * 3
        assert [nominated(of, f"urgent-{n}") for n in range(3)] == ["a"] * 3

        freed: list[str] = []
        for n in (1, 0, 2):
            card = card_of(of, f"low-{n}")
            of.pods.remove("default", f"low-{n}")
            await asyncio.sleep(A_MOMENT_S)

            bound = [f"urgent-{m}" for m in range(3) if node_of(of, f"urgent-{m}")]
            assert [card_of(of, name) for name in bound].count(card) == 1
            freed.append(card)
            assert sorted(card_of(of, name) for name in bound) == sorted(freed)


SICK = Inventory(UNIT_MIB, "", (card(0, 16, health=Health.UNHEALTHY), card(1, 16)))


@pytest.mark.parametrize(
    "worse",
    [
        pytest.param({"unschedulable": True}, id="the node is cordoned"),
        pytest.param({"taints": (Taint("node.kubernetes.io/unreachable", "NoSchedule"),)}, id="the node is lost"),
        pytest.param({"annotations": {names.INVENTORY: encode(SICK)}}, id="the card fails"),
    ],
)
async def test_a_place_that_its_pod_could_not_have_any_more_is_given_up_at_once(worse: dict[str, Any]) -> None:
    of = cluster(a=[16, 16], b=[16])
    async with scheduling(of) as process:
        for name, priority in (("a0", 1), ("a1", 9), ("b0", 2)):
            await runs(of, name, 16, priority, to=name[0])
        await runs(of, "urgent", 16, 10)
        assert (nominated(of, "urgent"), is_going(of, "b0")) == ("a", False)

        of.nodes.patch("a", **worse)
        await asyncio.sleep(A_SECOND_S)

        assert (nominated(of, "urgent"), is_going(of, "b0")) == ("b", True)
        assert len(process.engine.nominations) == 1


async def test_a_pod_whose_node_goes_is_nominated_to_none_and_placed_elsewhere() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "low", 16, 1)
        await runs(of, "urgent", 16, 10)
        assert nominated(of, "urgent") == "a"
        of.nodes.delete("a")
        await asyncio.sleep(A_SECOND_S)
        assert (nominated(of, "urgent"), len(process.engine.nominations)) == ("", 0)

        of.nodes.add(wire_node("b", [16]))
        await asyncio.sleep(A_SECOND_S)

        assert node_of(of, "urgent") == "b"


async def test_a_change_of_its_node_that_leaves_the_place_as_it_is_starts_nothing() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of) as process:
        await runs(of, "low-a", 16, 1)
        await runs(of, "low-b", 16, 2)
        await runs(of, "urgent", 16, 10)
        before = process.engine.searches.begun

        of.nodes.patch("a", labels={"seen": "later"})
        await asyncio.sleep(A_SECOND_S)

        assert (nominated(of, "urgent"), is_going(of, "low-b")) == ("a", False)
        assert process.engine.searches.begun == before


async def test_a_place_that_another_scheduler_keeps_is_not_taken() -> None:
    of = cluster(a=[16])
    of.nodes.patch("a", allocatable={"cpu": "4"})
    comes(of, "theirs", requests={"cpu": "3"}, scheduler="default-scheduler", priority=10)
    theirs = of.pods.collection.existing("default", "theirs").metadata
    of.pods.nominate(PodKey("default", "theirs", theirs.uid), "a")
    async with scheduling(of):
        comes(of, "lower", requests={"cpu": "2"}, priority=5)
        comes(of, "higher", requests={"cpu": "2"}, priority=11)
        await asyncio.sleep(A_MOMENT_S)

        assert [node_of(of, name) for name in ("lower", "higher")] == ["", "a"]


async def test_whoever_takes_the_freed_place_is_not_waited_for() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await runs(of, "low", 16, 1)
        await runs(of, "urgent", 16, 10)
        # Another scheduler does not know whose place it is.
        comes(of, "theirs", 16, scheduler="other", priority=2)
        of.pods.bind("default", "theirs", "a", on_card(0, 16))
        of.pods.remove("default", "low")
        await asyncio.sleep(1.0)

        assert is_going(of, "theirs")


async def test_a_nomination_that_leads_to_nothing_is_taken_away() -> None:
    of = cluster(a=[16])
    comes(of, "high", 16, priority=20)
    async with scheduling(of) as process:
        comes(of, "urgent", 16, priority=10)
        urgent = of.pods.collection.existing("default", "urgent").metadata
        of.pods.nominate(PodKey("default", "urgent", urgent.uid), "a")
        await asyncio.sleep(1.0)

        assert nominated(of, "urgent") == ""
        assert len(process.engine.nominations) == 0


async def test_after_a_restart_the_place_is_kept_on_its_card_and_nowhere_else() -> None:
    of = cluster(a=[16, 16, 16, 16])
    async with scheduling(of):
        await runs(of, "low", 16, 1)
        for number in range(3):
            await runs(of, f"high-{number}", 9, 20)
        await runs(of, "urgent", 16, 10)
        assert is_going(of, "low")

    async with scheduling(of) as process:
        # Of the node's 64 units 43 are held, and 16 kept.
        comes(of, "small", 5, priority=5)
        comes(of, "large", 12, priority=5)
        await asyncio.sleep(A_SECOND_S)
        assert (node_of(of, "small"), node_of(of, "urgent"), nominated(of, "urgent")) == ("a", "", "a")
        assert [kept.lacks_cards for kept in process.engine.nominations.on("a")] == [False]

        of.pods.remove("default", "low")
        await asyncio.sleep(A_SECOND_S)

        assert card_of(of, "urgent") == '{"0":"GPU-a-0"}'
        assert node_of(of, "large") == ""
        assert not any(is_going(of, f"high-{number}") for number in range(3))


@pytest.mark.parametrize(
    ("cordoned", "expected"),
    [pytest.param(False, ("a", []), id="its node serves"), pytest.param(True, ("b", ["b-cheap"]), id="it is cordoned")],
)
async def test_after_a_restart_a_pod_waits_for_its_victim_though_others_have_become_cheaper(
    *, cordoned: bool, expected: tuple[str, list[str]]
) -> None:
    of = cluster(a=[16, 16], b=[16])
    async with scheduling(of):
        for name, priority in (("a-low", 5), ("a-high", 20), ("b-high", 20)):
            await runs(of, name, 16, priority, to=name[0])
        await runs(of, "urgent", 16, 10)
        assert (nominated(of, "urgent"), is_going(of, "a-low")) == ("a", True)
    for node, index in (("a", 1), ("b", 0)):
        of.pods.remove("default", f"{node}-high")
        comes(of, f"{node}-cheap", 16, scheduler="other", priority=1)
        of.pods.bind("default", f"{node}-cheap", node, on_card(index, 16))
    of.nodes.patch("a", unschedulable=cordoned)

    async with scheduling(of) as process:
        await asyncio.sleep(A_SECOND_S)

        node, goes = expected
        assert [name for name in ("a-cheap", "b-cheap") if is_going(of, name)] == goes
        assert [kept.lacks_cards for kept in process.engine.nominations.on(node)] == [False]


@pytest.mark.parametrize("looks_last", ["nobody", "a pod of higher priority"])
async def test_whom_a_kept_place_has_kept_off_another_node_is_asked_when_it_ends(looks_last: str) -> None:
    of = cluster(a=[16], b=[16])
    for node in ("a", "b"):
        of.nodes.patch(node, labels={HOSTNAME: node, "zone": "z"})
    about = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "web"}}}
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [about]}}
    async with scheduling(of):
        await runs(of, "low", 16, 1, to="a")
        await runs(of, "urgent", 16, 10, to="a", labels={"app": "web"})
        comes(of, "lonely", 4, priority=5, affinity=away)
        await asyncio.sleep(A_MOMENT_S)
        assert (nominated(of, "urgent"), node_of(of, "lonely")) == ("a", "")
        if looks_last != "nobody":
            comes(of, "huge", 1000, priority=20)
            await asyncio.sleep(A_MOMENT_S)

        of.pods.delete("default", "urgent", grace_s=0)
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "lonely") == "b"


async def test_a_pod_that_takes_another_place_than_the_kept_one_counts_once_until_it_is_gone() -> None:
    of = cluster(a=[16], b=[16])
    about = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": "web"}}}
    away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [about]}}
    async with scheduling(of):
        await runs(of, "low", 16, 1, to="a")
        await runs(of, "important", 16, 20, to="b")
        comes(of, "urgent", 16, priority=10, labels={"app": "web"})
        comes(of, "lonely", 16, priority=5, affinity=away)
        await asyncio.sleep(A_MOMENT_S)
        assert nominated(of, "urgent") == "a"

        of.pods.delete("default", "important", grace_s=0)
        await asyncio.sleep(A_MOMENT_S)
        assert node_of(of, "urgent") == "b"
        of.pods.delete("default", "urgent", grace_s=0)
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "lonely") == "b"


async def test_a_pod_that_was_tried_before_the_restart_is_decided_before_newcomers_of_its_priority() -> None:
    of = cluster(n1=[15, 15], n3=[15, 15])
    of.disruption_budgets.create("default", "guard", {"app": "db"}, 0)
    async with scheduling(of):
        for name in ("k1", "k2"):
            await runs(of, name, 15, to="n1", labels={"app": "db"})
        for name in ("m1", "m3"):
            await runs(of, name, 15, 500, to="n3")
        await runs(of, "up3", 15, 1000)
        assert (nominated(of, "up3"), [is_going(of, name) for name in ("m1", "m3")]) == ("n3", [True, False])

    # By name, and by uid, it comes before the pod for which the place is kept.
    comes(of, "rival", 15, priority=1000)
    async with scheduling(of):
        await asyncio.sleep(A_SECOND_S)
        going = [name for name in ("k1", "k2", "m1", "m3") if is_going(of, name)]
        assert (nominated(of, "rival"), going) == ("n3", ["m1", "m3"])

        of.pods.remove("default", "m1")
        of.pods.remove("default", "m3")
        await asyncio.sleep(A_MOMENT_S)
        assert [node_of(of, name) for name in ("up3", "rival")] == ["n3", "n3"]
