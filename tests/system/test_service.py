"""What the running service does, on a cluster in memory and in virtual time."""

import asyncio
from typing import Any

import pytest

from config.protocol import names
from config.protocol.inventory import Health, Inventory, encode
from config.settings.scheduler import SchedulerConfiguration
from scheduler.testing.cluster.faults import Break, Refuse, Verb
from scheduler.testing.cluster.world import World
from tests.support.builders import UNIT_MIB, card, wire_node
from tests.system.looking import A_SECOND_S, card_of, cluster, comes, condition, events, node_of
from tests.system.pod_templates import others
from tests.system.process import A_MOMENT_S, in_virtual_time, scheduling, start, world
from tests.system.wire import Posts, Wire

# Placing


@in_virtual_time
async def test_three_replicas_of_three_units_share_one_card() -> None:
    of = cluster(a=[16, 16], b=[16, 16])
    async with scheduling(of) as process:
        for replica in range(3):
            comes(of, f"binpack-{replica}", 3)
            await asyncio.sleep(A_MOMENT_S)

        assert {card_of(of, f"binpack-{replica}") for replica in range(3)} == {'{"0":"GPU-a-0"}'}
        assert process.free == {"GPU-a-0": 7, "GPU-a-1": 16, "GPU-b-0": 16, "GPU-b-1": 16}
        assert condition(of, "binpack-0") == "True"


@in_virtual_time
async def test_freed_memory_wakes_a_pod_within_100_ms_whatever_its_back_off() -> None:
    of = cluster(a=[16])
    async with scheduling(of, latency_s=0.002):
        comes(of, "first", 12)
        await asyncio.sleep(0.5)
        for n in range(3):
            comes(of, f"later-{n}", 12)
        await asyncio.sleep(30.02)  # several attempts may have failed: the back-off is long by now
        assert [node_of(of, f"later-{n}") for n in range(3)] == ["", "", ""]

        of.pods.remove("default", "first")
        await asyncio.sleep(0.1)

        assert [node_of(of, f"later-{n}") for n in range(3)] == ["a", "", ""]


@in_virtual_time
async def test_a_pod_that_ends_makes_room_only_when_it_is_gone() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        comes(of, "first", 12)
        await asyncio.sleep(A_MOMENT_S)
        of.pods.delete("default", "first", grace_s=30.0)
        comes(of, "second", 12)
        await asyncio.sleep(29)
        assert node_of(of, "second") == ""

        of.pods.finish("default", "first")
        await asyncio.sleep(0.1)

        assert node_of(of, "second") == "a"


def cordon(of: World, text: str | None) -> None:
    of.nodes.patch("a", annotations={names.CORDON: text})


def mark_unhealthy(of: World, indexes: str) -> None:
    where = names.UNHEALTHY_NAMESPACE, f"{names.UNHEALTHY_PREFIX}a"
    if of.config_maps.collection.find(*where) is None:
        of.config_maps.create(*where, {names.UNHEALTHY_KEY: indexes})
    else:
        of.config_maps.update(*where, {names.UNHEALTHY_KEY: indexes})


def announce(of: World, health: Health) -> None:
    cards = (card(0, 16, health=health), card(1, 4))
    of.nodes.patch("a", annotations={names.INVENTORY: encode(Inventory(UNIT_MIB, "", cards))})


@pytest.mark.parametrize(
    ("out", "back"),
    [
        pytest.param(lambda of: cordon(of, "GPU-a-0"), lambda of: cordon(of, None), id="cordon by UUID"),
        pytest.param(lambda of: cordon(of, "0"), lambda of: cordon(of, "1"), id="cordon by index"),
        pytest.param(lambda of: mark_unhealthy(of, "0"), lambda of: mark_unhealthy(of, ""), id="ConfigMap"),
        pytest.param(
            lambda of: announce(of, Health.UNHEALTHY), lambda of: announce(of, Health.HEALTHY), id="unhealthy"
        ),
        pytest.param(lambda of: announce(of, Health.SUSPECT), lambda of: announce(of, Health.CORDONED), id="suspect"),
    ],
)
@in_virtual_time
async def test_a_card_taken_out_of_use_gets_no_more_pods_until_it_is_back(out: Any, back: Any) -> None:  # noqa: ANN401
    of = cluster(a=[16, 4])
    async with scheduling(of) as process:
        comes(of, "before", 6)
        await asyncio.sleep(A_SECOND_S)
        out(of)
        await asyncio.sleep(A_SECOND_S)
        comes(of, "after", 6)
        await asyncio.sleep(A_SECOND_S)
        assert (node_of(of, "after"), process.free["GPU-a-0"]) == ("", 10)

        back(of)
        await asyncio.sleep(A_SECOND_S)

        assert (node_of(of, "after"), card_of(of, "after")) == ("a", '{"0":"GPU-a-0"}')


@in_virtual_time
async def test_a_deleted_node_no_longer_keeps_pods_out_of_its_zone() -> None:
    of = world()
    for name in ("a", "b"):
        of.nodes.add(wire_node(name, [16], labels={"zone": "z"}))
    owner = of.pods.create(others("away from web in the zone", "owner", "uid-owner"))
    of.pods.bind("default", owner.metadata.name, "a")
    async with scheduling(of):
        comes(of, "web", 2, labels={"app": "web"})
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "web") == ""

        of.nodes.delete("a")
        await asyncio.sleep(0.1)

        assert node_of(of, "web") == "b"


# Starting and stopping


@in_virtual_time
async def test_the_first_bind_waits_out_the_requests_of_a_predecessor() -> None:
    of = cluster(a=[16])
    comes(of, "p", 3)
    async with scheduling(of, SchedulerConfiguration()) as process:
        await asyncio.sleep(10)

        assert [round(sent_s, 2) for sent_s, _ in process.wire.bindings] == [4.0]


@in_virtual_time
async def test_what_a_predecessor_bound_meanwhile_is_known_before_the_first_bind() -> None:
    of = cluster(a=[16])
    comes(of, "mine", 10)
    comes(of, "next", 10)
    process = start(Wire(of, Posts(of)), SchedulerConfiguration())
    await asyncio.sleep(1)
    # Its watch stalls just when the predecessor's last request takes effect.
    process.wire.break_watches(Break.STALLED)
    annotations = {names.MEM_IDX: "0", names.UNIT_MIB: "1024"}
    of.pods.bind("default", "mine", "a", annotations)
    await asyncio.sleep(60)
    process.wire.resume_watches()
    await asyncio.sleep(60)

    assert (node_of(of, "mine"), node_of(of, "next")) == ("a", "")
    await process.kill()


@in_virtual_time
async def test_nothing_is_decided_before_everything_was_listed() -> None:
    of = cluster(a=[16])
    comes(of, "p", 3)
    wire = Wire(of, Posts(of))
    wire.faults.add(Verb.WATCH, Refuse(403), when=lambda request: request.about == "configmaps")
    process = start(wire)
    await asyncio.sleep(120)
    assert process.service.not_ready().startswith("waiting for the first list of configmaps; ")
    assert node_of(of, "p") == ""

    wire.faults.clear()
    await asyncio.sleep(60)

    assert (process.service.not_ready(), node_of(of, "p")) == ("", "a")
    await process.kill()


@in_virtual_time
async def test_a_restart_knows_which_cards_are_taken() -> None:
    of = cluster(a=[16, 16])
    async with scheduling(of):
        comes(of, "first", 10)
        await asyncio.sleep(A_SECOND_S)
    async with scheduling(of) as again:
        comes(of, "second", 10)
        await asyncio.sleep(A_SECOND_S)

        assert again.free == {"GPU-a-0": 6, "GPU-a-1": 6}


@in_virtual_time
async def test_a_clean_stop_waits_for_the_binds_in_flight_and_begins_no_other() -> None:
    of = cluster(a=[16])
    configuration = SchedulerConfiguration.model_validate({"bindTimeout": 0, "maxBindsInFlight": 2})
    async with scheduling(of, configuration, latency_s=1.0) as process:
        await asyncio.sleep(2)
        comes(of, "first", 1)
        await asyncio.sleep(1.2)  # its answer lets two be sent at once
        for n in range(4):
            comes(of, f"p{n}", 1)
        await asyncio.sleep(0.1)
        assert process.service.binds_in_flight == 2

        await process.stop(10.0)

        assert [node_of(of, f"p{n}") for n in range(4)] == ["a", "a", "", ""]
        assert process.service.binds_in_flight == 0
        assert [reason for reason, _ in events(of, "p0") + events(of, "p1")] == ["Scheduled", "Scheduled"]


@in_virtual_time
async def test_a_clean_stop_writes_the_events_that_were_being_written() -> None:
    of = cluster(a=[16])
    async with scheduling(of, latency_s=1.0) as process:
        await asyncio.sleep(2)
        comes(of, "p", 1)
        await asyncio.sleep(1.2)  # bound, and its event on the way
        assert process.service.binds_in_flight == 0
        assert events(of, "p") == []

        await process.stop(10.0)

        assert [reason for reason, _ in events(of, "p")] == ["Scheduled"]
