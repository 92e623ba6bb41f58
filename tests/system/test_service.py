"""What the running service does, on a cluster in memory and in virtual time."""

import asyncio
from typing import Any

import pytest

from config import names
from config.inventory import Health, Inventory, encode
from config.scheduler import SchedulerConfiguration
from scheduler.simulation.faults import Break, Effect, Fail, Overtaken, Refuse, Request, Silence, Slow, Throttle, Verb
from scheduler.simulation.world import World
from tests.builders import UNIT_MIB, card, manifest, wire_node
from tests.system.pod_templates import others
from tests.system.process import A_MOMENT_S, Process, in_virtual_time, now_s, scheduling, start, world
from tests.system.wire import Posts, Wire

A_SECOND_S = 1.0


def cluster(**nodes: list[int]) -> World:
    of = world()
    for name, cards in nodes.items():
        of.nodes.add(wire_node(name, cards))
    return of


def comes(of: World, name: str, gpu_mem: int | list[int] = 0, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    of.pods.create(manifest(name, gpu_mem, **options))


def node_of(of: World, name: str) -> str:
    return of.pods.collection.existing("default", name).spec.node_name


def card_of(of: World, name: str) -> str:
    return (of.pods.collection.existing("default", name).metadata.annotations or {})[names.CARDS]


def events(of: World, name: str) -> list[tuple[str, str]]:
    return [(event.record.reason, event.record.note) for event in of.events.about("default", name)]


def condition(of: World, name: str) -> str:
    """`status message` of PodScheduled, "" when there is none."""
    found = of.pods.collection.existing("default", name).status.conditions
    return next((f"{c.status} {c.message}".strip() for c in found if c.type == "PodScheduled"), "")


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
async def test_memory_that_is_freed_wakes_a_pod_within_100_ms_whatever_its_back_off() -> None:
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


def condemn(of: World, indexes: str) -> None:
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
        pytest.param(lambda of: condemn(of, "0"), lambda of: condemn(of, ""), id="ConfigMap"),
        pytest.param(
            lambda of: announce(of, Health.UNHEALTHY), lambda of: announce(of, Health.HEALTHY), id="unhealthy"
        ),
        pytest.param(lambda of: announce(of, Health.SUSPECT), lambda of: announce(of, Health.CORDONED), id="suspect"),
    ],
)
@in_virtual_time
async def test_a_card_that_is_taken_out_gets_no_more_pods_until_it_is_back(out: Any, back: Any) -> None:  # noqa: ANN401
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
async def test_a_node_that_goes_keeps_nobody_out_of_its_zone_any_more() -> None:
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
async def test_the_first_bind_waits_until_a_request_of_a_predecessor_cannot_take_effect_any_more() -> None:
    of = cluster(a=[16])
    comes(of, "p", 3)
    async with scheduling(of, SchedulerConfiguration()) as process:
        await asyncio.sleep(10)

        assert [round(sent_s, 2) for sent_s, _ in process.wire.bindings] == [4.0]


@in_virtual_time
async def test_what_a_predecessor_has_bound_in_that_time_is_known_before_the_first_bind() -> None:
    of = cluster(a=[16])
    comes(of, "mine", 10)
    comes(of, "next", 10)
    process = start(Wire(of, Posts()), SchedulerConfiguration())
    await asyncio.sleep(1)
    # Its watch stalls just when the predecessor's last request takes effect.
    process.wire.break_watches(Break.STALLED)
    annotations = {names.MEM_IDX: "0"}
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
    wire = Wire(of, Posts())
    wire.faults.add(Verb.WATCH, Refuse(403), when=lambda request: request.about == "configmaps")
    process = start(wire)
    await asyncio.sleep(120)
    assert process.service.not_ready() == "waiting for the first list of configmaps"
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
async def test_a_clean_stop_waits_for_the_binds_under_way_and_begins_no_other() -> None:
    of = cluster(a=[16])
    configuration = SchedulerConfiguration.model_validate({"bindTimeout": 0, "maxBindsInFlight": 2})
    async with scheduling(of, configuration, latency_s=1.0) as process:
        await asyncio.sleep(2)
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


# What users read


@in_virtual_time
async def test_events_go_out_after_the_backlog_is_bound() -> None:
    of = cluster(**{f"n{n}": [16] * 4 for n in range(4)})
    for n in range(100):
        comes(of, f"p{n}", 1)
    configuration = SchedulerConfiguration.model_validate({"bindTimeout": 0, "maxBindsInFlight": 4})
    async with scheduling(of, configuration, latency_s=0.05) as process:
        while any(not pod.spec.node_name for pod in of.pods):
            await asyncio.sleep(0.01)
        took_s = now_s()
        assert len(of.events) <= took_s / 0.1  # one at a time, each after a pause

        await asyncio.sleep(A_SECOND_S)

        assert len(of.events) == 100
        assert process.service.recorder.pending == 0


@in_virtual_time
async def test_a_condition_is_patched_when_its_words_change_and_for_numbers_every_30_s_at_most() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        comes(of, "wide", 14)
        comes(of, "narrow", 15)
        await asyncio.sleep(A_MOMENT_S)
        of.pods.remove("default", "wide")
        await asyncio.sleep(A_SECOND_S)
        for n in range(40):  # every second other numbers
            comes(of, f"s{n}", 1, scheduler="other")
            of.pods.bind("default", f"s{n}", "a", {names.MEM_IDX: "0"})
            comes(of, f"asks-again-{n}", 16)
            await asyncio.sleep(A_SECOND_S)
        wide = [message for _, name, message in process.wire.conditions if name == "asks-again-0"]
        assert len(wide) == len(set(wide))

        comes(of, "waits", 16)
        await asyncio.sleep(A_SECOND_S)
        of.nodes.patch("a", unschedulable=True)
        of.nodes.patch("a", labels={"new": "label"})
        await asyncio.sleep(400)

        said = [message for _, name, message in process.wire.conditions if name == "waits"]
        assert said == [
            "0/1 nodes are available: 1 Insufficient GPU memory on one card: wants 16, most free 0 (of 16).",
            "0/1 nodes are available: 1 node(s) were unschedulable.",
        ]


@in_virtual_time
async def test_a_condition_that_could_not_be_written_is_written_at_the_next_attempt() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.SET_CONDITION, Refuse(403), count=1)
        comes(of, "p", 20)
        await asyncio.sleep(A_SECOND_S)
        assert condition(of, "p") == ""

        await asyncio.sleep(310)

        assert condition(of, "p").startswith("False 0/1 nodes are available: 1 Insufficient GPU memory")


@in_virtual_time
async def test_a_pod_that_another_scheduler_was_quicker_to_bind_is_not_said_to_wait() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Overtaken("b"), count=1)
        comes(of, "p", 3)
        await asyncio.sleep(A_SECOND_S)

        assert (node_of(of, "p"), condition(of, "p")) == ("b", "True")
        assert [reason for reason, _ in events(of, "p")] == []
        assert process.wire.conditions == []


@in_virtual_time
async def test_what_was_said_of_a_pod_does_not_land_on_it_after_it_has_got_its_place() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.SET_CONDITION, Throttle(5.0), count=1)
        comes(of, "first", 10)
        comes(of, "second", 10)
        await asyncio.sleep(A_SECOND_S)
        of.pods.remove("default", "first")
        await asyncio.sleep(20)

        assert (node_of(of, "second"), condition(of, "second")) == ("a", "True")


@in_virtual_time
async def test_a_refused_bind_is_said_once_and_tried_again_after_the_back_off() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Refuse(403, "pods p is forbidden"), count=2)
        comes(of, "p", 3)
        await asyncio.sleep(10)

        assert [round(sent_s) for sent_s, _ in process.wire.bindings] == [0, 1, 3]
        assert events(of, "p") == [
            ("FailedScheduling", "binding to a was refused: pods p is forbidden"),
            ("Scheduled", "Successfully assigned default/p to a"),
        ]


# An API server in trouble


@in_virtual_time
async def test_a_throttling_server_is_asked_again_when_it_says_and_not_before() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        for verb in (Verb.BIND, Verb.CREATE_EVENT):
            process.wire.faults.add(verb, Throttle(2.0), count=3)
        comes(of, "p", 3)
        await asyncio.sleep(20)

        sent = process.wire.bindings
        assert [binding for _, binding in sent] == [sent[0][1]] * 4
        assert all(later - earlier >= 2.0 for (earlier, _), (later, _) in zip(sent, sent[1:], strict=False))
        assert (node_of(of, "p"), [reason for reason, _ in events(of, "p")]) == ("a", ["Scheduled"])


@in_virtual_time
async def test_a_server_that_throttles_for_long_keeps_no_card_twice_and_loses_no_pod() -> None:
    of = cluster(a=[16, 16])
    async with scheduling(of) as process:
        rules = [process.wire.faults.add(verb, Throttle(1.0), probability=0.9) for verb in Verb if verb != Verb.WATCH]
        for n in range(10):
            comes(of, f"p{n}", 4)
        await asyncio.sleep(60)
        for rule in rules:
            process.wire.faults.remove(rule)
        await asyncio.sleep(30)

        assert sorted(process.free.values()) == [0, 0]
        assert sum(bool(pod.spec.node_name) for pod in of.pods) == 8


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Silence(Effect.AT_ONCE), id="time-out that took effect"),
        pytest.param(Silence(Effect.LATER, late_s=20.0), id="time-out that takes effect later"),
        pytest.param(Fail(504, Effect.LATER, 30.0), id="504 that takes effect later"),
        pytest.param(Fail(500, Effect.AT_ONCE), id="500 that took effect"),
        pytest.param(Slow(2.0, 4.0), id="executed in time, answered too late"),
        pytest.param(Silence(), id="time-out without effect"),
    ],
)
@in_virtual_time
async def test_a_bind_without_an_answer_keeps_its_cards_until_there_is_one(fault: Any) -> None:  # noqa: ANN401
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, fault, count=1)
        comes(of, "first", 10)
        await asyncio.sleep(A_MOMENT_S)
        comes(of, "second", 10)
        await asyncio.sleep(150)

        assert (node_of(of, "first"), node_of(of, "second")) == ("a", "")
        assert len({str(binding) for _, binding in process.wire.bindings}) == 1
        assert process.free == {"GPU-a-0": 6}


def _marks_the_pod(of: World) -> None:
    """As the original device plugin does at Allocate (PROTOCOL, table B)."""
    from msgspec.structs import replace

    def marked(pod: Any) -> Any:  # noqa: ANN401 - one field changes
        written = {**pod.metadata.annotations, names.MEM_ASSIGNED: "true", names.MEM_ASSUME_TIME: "5"}
        return replace(pod, metadata=replace(pod.metadata, annotations=written))

    of.pods.update("default", "first", marked)


@in_virtual_time
async def test_our_binding_is_recognised_after_a_device_plugin_has_marked_the_pod() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Silence(Effect.AT_ONCE, after_s=1.0), count=1)
        process.wire.break_watches(Break.STALLED)
        comes_unseen = manifest("first", 10)
        process.wire.resume_watches()
        of.pods.create(comes_unseen)
        await asyncio.sleep(0.5)
        assert node_of(of, "first") == "a"
        process.wire.break_watches(Break.STALLED)
        _marks_the_pod(of)
        await asyncio.sleep(5)

        assert process.free == {"GPU-a-0": 6}
        assert condition(of, "first") == "True"
        assert [reason for reason, _ in events(of, "first")] == ["Scheduled"]


def _is_about(process: Process, request: Request) -> bool:
    return request.about == "pods" and process is not None
