"""What the running service does, on a cluster in memory and in virtual time."""

import asyncio
from typing import Any

import pytest

from config.protocol import names
from config.protocol.inventory import Health, Inventory, encode
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.port import REPLICA_SETS, SERVICES
from scheduler.state.columns.selectors import equalities
from scheduler.testing.cluster.faults import Break, Refuse, Verb
from scheduler.testing.cluster.world import World
from tests.support.builders import UNIT_MIB, card, manifest, wire_node
from tests.support.service.looking import A_SECOND_S, arrives, card_of, cluster, comes, events, node_of, objections
from tests.support.service.process import A_MOMENT_S, scheduling, start, world
from tests.support.service.wire import Posts, Wire

# Placing


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
async def test_a_card_taken_out_of_use_gets_no_more_pods_until_it_is_back(out: Any, back: Any) -> None:  # noqa: ANN401
    of = cluster(a=[16, 4])
    async with scheduling(of) as process:
        await arrives(of, "before", 6)
        out(of)
        await asyncio.sleep(A_SECOND_S)
        await arrives(of, "after", 6)
        assert (node_of(of, "after"), process.free["GPU-a-0"]) == ("", 10)

        back(of)
        await asyncio.sleep(A_SECOND_S)

        assert (node_of(of, "after"), card_of(of, "after")) == ("a", '{"0":"GPU-a-0"}')


# Starting and stopping


async def test_the_first_bind_waits_out_the_requests_of_a_predecessor() -> None:
    of = cluster(a=[16])
    comes(of, "p", 3)
    async with scheduling(of, SchedulerConfiguration()) as process:
        await asyncio.sleep(10)

        assert [round(sent_s, 2) for sent_s, _ in process.wire.bindings] == [4.0]


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


async def test_nothing_is_decided_before_everything_was_listed() -> None:
    of = cluster(a=[16])
    comes(of, "p", 3)
    wire = Wire(of, Posts(of))
    unauthorized = Refuse(401, "Unauthorized")
    wire.faults.add(Verb.WATCH, unauthorized, when=lambda request: request.about == "configmaps")
    process = start(wire)
    await asyncio.sleep(120)
    why = "the API server has not served configmaps for 120 s: Unauthorized"
    assert process.service.not_ready() == f"waiting for the first list of configmaps; {why}"
    assert node_of(of, "p") == ""

    wire.faults.clear()
    await asyncio.sleep(60)

    assert (process.service.not_ready(), node_of(of, "p")) == ("", "a")
    await process.kill()


async def test_a_clean_stop_waits_for_the_binds_in_flight_and_begins_no_other() -> None:
    of = cluster(a=[16])
    configuration = SchedulerConfiguration.model_validate({"bindTimeout": 0, "maxBindsInFlight": 4})
    async with scheduling(of, configuration, latency_s=1.0) as process:
        await asyncio.sleep(2)
        comes(of, "first", 1)
        await asyncio.sleep(1.2)  # its answer lets two be sent at once
        for n in range(4):
            comes(of, f"p{n}", 1)
        await asyncio.sleep(0.1)
        assert process.service.dispatch.in_flight == 2

        await process.stop(10.0)

        assert [node_of(of, f"p{n}") for n in range(4)] == ["a", "a", "", ""]
        assert process.service.dispatch.in_flight == 0
        assert [reason for reason, _ in events(of, "p0") + events(of, "p1")] == ["Scheduled", "Scheduled"]


async def test_a_clean_stop_writes_the_events_that_were_being_written() -> None:
    of = cluster(a=[16])
    async with scheduling(of, latency_s=1.0) as process:
        await asyncio.sleep(2)
        comes(of, "p", 1)
        await asyncio.sleep(1.2)  # bound, and its event on the way
        assert process.service.dispatch.in_flight == 0
        assert events(of, "p") == []

        await process.stop(10.0)

        assert [reason for reason, _ in events(of, "p")] == ["Scheduled"]


WEB = {"app": "web"}
SKEWED = "node(s) didn't match pod topology spread constraints"


# Spreading over zones


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


async def test_a_pod_that_waits_is_bound_when_the_emptiest_zone_gets_a_pod() -> None:
    of = zones(a="east", b="west")
    async with scheduling(of):
        comes(of, "large", 16, to="b")
        spread(of, "first", "waits")
        await asyncio.sleep(A_SECOND_S)
        assert sorted([node_of(of, "first"), node_of(of, "waits")]) == ["", "a"]
        await arrives(of, "web-on-b", labels=WEB, to="b")
        assert [node_of(of, "first"), node_of(of, "waits")] == ["a", "a"]


def replica(of: World, name: str, uid: str) -> None:
    """A web pod of a ReplicaSet, which says nothing."""
    made: dict[str, Any] = manifest(name, labels=WEB)
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": uid, "controller": True}
    made["metadata"] |= {"ownerReferences": [owner]}
    of.pods.create(made)


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


async def test_a_selector_that_is_too_long_spreads_nobody_and_is_counted() -> None:
    of = zones(a="", b="")
    long = dict.fromkeys(map(str, range(200)), "x")
    meta = {"name": "long", "namespace": "default"}
    of.selecting.create(SERVICES, {"metadata": meta, "spec": {"selector": long}})
    async with scheduling(of) as process:
        await asyncio.sleep(A_SECOND_S)
        assert process.engine.tables.default_selectors.of("default", long, "") == ()
        assert process.sample("bad_objects_total", kind="Service") == 1
        of.selecting.create(SERVICES, {"metadata": {**meta, "name": "short"}, "spec": {"selector": WEB}})
        await asyncio.sleep(A_SECOND_S)
        assert process.engine.tables.default_selectors.of("default", WEB, "") == equalities(WEB)
