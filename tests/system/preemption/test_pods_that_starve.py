"""A pod that waits for long has a place reserved: smaller ones no longer take what it needs."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from config.protocol import names
from config.protocol.inventory import Health, Inventory, encode
from config.settings.scheduler import SchedulerConfiguration
from scheduler.testing.cluster.world import World
from tests.support.builders import UNIT_MIB, card, wire_node
from tests.support.clocks.virtual_time import now_s
from tests.support.service.looking import (
    A_SECOND_S,
    arrives,
    cluster,
    comes,
    condition,
    is_going,
    node_of,
    nominated,
    runs,
)
from tests.support.service.process import Process, scheduling

# Each of the small pods of the stream runs for so long, and one comes so often: more than there is room for.
RUNS_S = 120.0
EVERY_S = 15.0
AFTER_S = 60.0
HELD_S = 12 * AFTER_S
CONFIGURED = SchedulerConfiguration.model_validate({"bindTimeout": 0, "reserveAfter": f"{AFTER_S:g}s"})


async def small_pods_come_and_go(of: World) -> None:
    ends_s: dict[str, float] = {}
    for number in count():
        if number % EVERY_S == 0:
            comes(of, f"small-{number}", 4)
        for pod in list(of.pods):
            name = pod.metadata.name
            if pod.spec.node_name and name.startswith("small") and now_s() >= ends_s.setdefault(name, now_s() + RUNS_S):
                of.pods.remove("default", name)
        await asyncio.sleep(1.0)


async def full(of: World, *names: str, gpu_mem: int = 8, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """Pods run, each on the node that its name begins with."""
    for name in names:
        await runs(of, name, gpu_mem, to=name[0], **options)
        assert node_of(of, name) == name[0]


async def starves(of: World, name: str, gpu_mem: int | list[int] = 16, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    comes(of, name, gpu_mem, **options)
    await asyncio.sleep(AFTER_S + A_SECOND_S)
    # A look comes with the next thing that happens.
    await something_happens(of)


async def something_happens(of: World) -> None:
    await arrives(of, f"other-{now_s():g}", 64, priority=-100)


def reserved(process: Process) -> dict[str, str]:
    return {kept.pod.key.name: kept.node for kept in process.engine.nominations.reserved.values()}


async def test_the_wait_of_a_whole_card_in_a_stream_of_small_pods_is_bounded_by_default() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        stream = asyncio.create_task(small_pods_come_and_go(of))
        await asyncio.sleep(200)
        comes(of, "whole", 16)
        await asyncio.sleep(300 + RUNS_S + EVERY_S)
        stream.cancel()

        assert node_of(of, "whole") == "a"


async def test_who_starves_and_who_is_kept_away_are_told_and_the_status_names_the_node() -> None:
    of = cluster(a=[16])
    async with scheduling(of, CONFIGURED) as process:
        await full(of, "a0", "a1")
        await starves(of, "whole")
        of.pods.remove("default", "a0")
        await asyncio.sleep(A_SECOND_S)
        comes(of, "small", 4)
        comes(of, "too-large", 17)
        await asyncio.sleep(A_SECOND_S)

        assert (reserved(process), nominated(of, "whole")) == ({"whole": "a"}, "a")
        assert " card 0 of node a is reserved for this pod, which has waited 1m." in condition(of, "whole")
        assert " card 0 of node a is reserved for pod default/whole, which has waited 1m." in condition(of, "small")
        assert "is kept" not in condition(of, "too-large")
        assert not node_of(of, "small")
        assert not is_going(of, "a1")
        assert process.sample("reservations_total", result="kept") == 1

        of.pods.remove("default", "a1")
        await asyncio.sleep(A_SECOND_S)
        assert (node_of(of, "whole"), node_of(of, "small")) == ("a", "")


async def test_a_place_that_opens_elsewhere_is_taken_at_once_and_the_reserved_one_is_open_again() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of, CONFIGURED) as process:
        await full(of, "a0", "b0", "b1")
        await full(of, "a1", gpu_mem=4)
        await starves(of, "whole")
        assert reserved(process) == {"whole": "a"}, "where less has to be freed"
        await arrives(of, "small", 4)
        assert not node_of(of, "small")

        of.nodes.add(wire_node("c", [16]))
        await asyncio.sleep(A_SECOND_S)

        assert (node_of(of, "whole"), node_of(of, "small"), reserved(process)) == ("c", "a", {})


def fails(of: World) -> None:
    failed = Inventory(UNIT_MIB, "", (card(0, 16, health=Health.UNHEALTHY),))
    of.nodes.patch("a", annotations={names.INVENTORY: encode(failed)})


def asks_for_card_b(of: World) -> None:
    written = {names.CARD_UUIDS: "GPU-b-0"}
    of.pods.update("default", "whole", lambda pod: replace(pod, metadata=replace(pod.metadata, annotations=written)))


@pytest.mark.parametrize(
    "happens",
    [
        pytest.param(lambda of: of.nodes.patch("a", unschedulable=True), id="the node is cordoned"),
        pytest.param(lambda of: of.nodes.delete("a"), id="the node goes"),
        pytest.param(fails, id="the card fails"),
        pytest.param(asks_for_card_b, id="the pod asks for another card"),
    ],
)
async def test_when_the_place_is_lost_another_one_is_reserved(happens: Callable[[World], object]) -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of, CONFIGURED) as process:
        await full(of, "a0", "b0", gpu_mem=12)
        await starves(of, "whole")
        assert reserved(process) == {"whole": "a"}

        happens(of)
        await asyncio.sleep(A_SECOND_S)
        await something_happens(of)
        await something_happens(of)

        assert (reserved(process), nominated(of, "whole")) == ({"whole": "b"}, "b")


async def test_of_each_priority_the_pod_that_has_waited_longest_has_a_place() -> None:
    of = cluster(a=[16], b=[16], c=[16])
    async with scheduling(of, CONFIGURED) as process:
        await full(of, "a0", "b0", "c0", gpu_mem=12, priority=1)
        for number, namespace in enumerate(("default", "other", "default")):
            comes(of, f"p{number}", 16 - number, priority=1, namespace=namespace)
            await asyncio.sleep(A_SECOND_S)
        await starves(of, "low", 15, priority=0)
        assert reserved(process) == {"p0": "a"}

        of.pods.remove("default", "a0")
        await asyncio.sleep(A_SECOND_S)
        await something_happens(of)
        assert (node_of(of, "p0"), reserved(process)) == ("a", {"p1": "b"})


async def test_a_place_that_comes_to_nothing_is_given_up_and_its_pod_rests_as_long() -> None:
    of = cluster(a=[16])
    async with scheduling(of, CONFIGURED) as process:
        await full(of, "a0", "a1")
        await starves(of, "whole")
        began_s = now_s()
        of.pods.remove("default", "a0")
        comes(of, "small", 4)
        kept_s = 0.0
        while now_s() - began_s < HELD_S + 600:
            await asyncio.sleep(10)
            kept_s += 10 * bool(reserved(process))
            await something_happens(of)
            if node_of(of, "small"):
                break
        assert HELD_S - 20 <= now_s() - began_s <= HELD_S + 20
        assert (nominated(of, "whole"), reserved(process)) == ("", {})
        await asyncio.sleep(HELD_S - 60)
        await something_happens(of)
        assert not reserved(process)
        await asyncio.sleep(120)
        await something_happens(of)
        assert reserved(process) == {"whole": "a"}


async def test_several_cards_of_one_node_and_pods_without_gpu_memory_have_places_too() -> None:
    of = cluster(a=[16, 16, 16])
    of.nodes.patch("a", allocatable={"cpu": "4"})
    async with scheduling(of, CONFIGURED) as process:
        for number in range(3):
            await runs(of, f"a{number}", 8, requests={"cpu": "1"})
        await runs(of, "cpu", 0, requests={"cpu": "1"})
        never = {"preemptionPolicy": "Never"}
        comes(of, "cards", 24, priority=2, labels={"aliyun.com/gpu-count": "2"}, **never)
        await starves(of, "cpus", 0, requests={"cpu": "3"}, priority=1, **never)

        assert reserved(process) == {"cards": "a", "cpus": "a"}
        assert " cards 1 and 2 of node a are reserved for this pod" in condition(of, "cards")
        assert " room on node a is reserved for this pod, which has waited 1m." in condition(of, "cpus")


async def test_a_restart_does_not_begin_the_wait_again() -> None:
    of = cluster(a=[16])
    async with scheduling(of, CONFIGURED):
        await full(of, "a0", "a1")
        comes(of, "whole", 16)
        await asyncio.sleep(AFTER_S - 10)
    async with scheduling(of, CONFIGURED) as process:
        await asyncio.sleep(15)
        await something_happens(of)
        assert reserved(process) == {"whole": "a"}
    async with scheduling(of, CONFIGURED) as process:
        await something_happens(of)
        await something_happens(of)
        assert (reserved(process), nominated(of, "whole")) == ({"whole": "a"}, "a")


async def test_nobody_goes_for_it_though_lower_ones_are_there() -> None:
    of = cluster(a=[16])
    async with scheduling(of, CONFIGURED) as process:
        await full(of, "a0", "a1")
        await starves(of, "polite", priority=5, preemptionPolicy="Never")

        assert reserved(process) == {"polite": "a"}
        assert [is_going(of, name) for name in ("a0", "a1")] == [False, False]


async def test_the_rules_have_a_say_in_where_the_place_is() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of, CONFIGURED) as process:
        await full(of, "a0", gpu_mem=2, priority=9, labels={"app": "web"})
        await full(of, "a1", "b0", "b1")
        term = {"labelSelector": {"matchLabels": {"app": "web"}}, "topologyKey": "kubernetes.io/hostname"}
        away = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        await starves(of, "alone", 14, affinity=away)

        assert reserved(process) == {"alone": "b"}


async def test_a_preemptor_takes_the_node_and_another_place_is_reserved() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of, CONFIGURED) as process:
        await full(of, "a0", gpu_mem=8)
        await full(of, "b0", gpu_mem=10, priority=1)
        await starves(of, "whole", 16, priority=1, preemptionPolicy="Never")
        assert (reserved(process), nominated(of, "whole")) == ({"whole": "a"}, "a")

        await runs(of, "urgent", 16, priority=10)
        assert is_going(of, "a0")
        await something_happens(of)
        await something_happens(of)

        assert (nominated(of, "urgent"), reserved(process)) == ("a", {"whole": "b"})
        assert nominated(of, "whole") == "b"
