"""No Event or condition of one namespace, or about a node, names a pod or namespace of another tenant.

docs/develop/decisions/0101.
"""

import asyncio
from collections.abc import Iterator
from typing import Any

import msgspec

from config.protocol import names
from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube.port import STORAGE_CLASSES
from scheduler.testing.cluster.faults import Refuse, Verb
from scheduler.testing.cluster.world import World
from tests.support.service.looking import A_SECOND_S, cluster, comes
from tests.support.service.process import scheduling
from tests.support.service.volume_controller import VolumeController
from tests.support.volumes import claim, storage_class, with_claims

OURS, THEIRS = "tenant-a", "tenant-b"
ON_CARD_0 = {names.ALLOCATION: '{"0":{"0":12}}', names.CARDS: '{"0":"GPU-a-0"}', names.UNIT_MIB: "1024"}
AFTER = SchedulerConfiguration.model_validate({"bindTimeout": 0, "reserveAfter": "1m"})


def appears(of: World, namespace: str, name: str, units: int, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """The name of a pod says whose it is; its uid does not."""
    uid = f"{len(list(of.pods)):036d}"
    comes(of, f"{namespace}-{name}", units, namespace=namespace, uid=uid, **options)


async def placed(of: World, namespace: str, name: str, units: int, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    appears(of, namespace, name, units, **options)
    await asyncio.sleep(A_SECOND_S)
    if of.pods.collection.existing(namespace, f"{namespace}-{name}").spec.node_name:
        of.pods.set_phase(namespace, f"{namespace}-{name}", "Running")


def readable(of: World, namespace: str) -> Iterator[str]:
    """Every text that a tenant with rights on this namespace, and on nodes and their Events, reads."""
    for event in of.events:
        if event.record.namespace in {namespace, "default"}:
            yield f"{event.record.reason}: {event.record.note} ({event.record.name})"
    for pod in of.pods:
        if pod.metadata.namespace == namespace:
            yield msgspec.json.encode(pod).decode()
    for node in of.nodes:
        yield msgspec.json.encode(node).decode()


def words_of(of: World, namespace: str) -> str:
    return "\n".join(readable(of, namespace))


def assert_nothing_of_the_other(of: World) -> None:
    assert OURS not in words_of(of, THEIRS)
    assert THEIRS not in words_of(of, OURS)


async def test_the_owner_of_a_victim_reads_the_uid_of_the_preemptor() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        await placed(of, THEIRS, "low", 16, priority=1)
        await placed(of, OURS, "urgent", 16, priority=10)
        note = f"Preempted by pod {1:036d} of another namespace on node a, which needs 16 units of card 0"
        assert f"Preempted: {note}" in words_of(of, THEIRS)
        assert_nothing_of_the_other(of)


async def test_the_owner_of_a_cancelled_binding_reads_the_uid_of_the_preemptor() -> None:
    of = cluster(a=[16])
    of.storage.create(STORAGE_CLASSES, storage_class("slow"))
    async with scheduling(of):
        wanted = claim(f"{THEIRS}-low", class_name="slow")
        wanted["metadata"]["namespace"] = THEIRS
        VolumeController(of).comes(wanted)
        appears(of, THEIRS, "low", 16, **with_claims(f"{THEIRS}-low"))
        await asyncio.sleep(A_SECOND_S)
        await placed(of, OURS, "urgent", 16, priority=10)
        await asyncio.sleep(A_SECOND_S)
        assert f"was rejected: preempted by pod {1:036d} of another namespace" in words_of(of, THEIRS)
        assert_nothing_of_the_other(of)


async def test_the_owner_of_a_preemptor_does_not_read_who_could_not_be_removed() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await placed(of, THEIRS, "low", 16, priority=1)
        refused = Refuse(403, f'pods "{THEIRS}-low" is forbidden in the namespace "{THEIRS}"')
        process.wire.faults.add(Verb.DELETE_POD, refused)
        await placed(of, OURS, "urgent", 16, priority=10)
        await asyncio.sleep(A_SECOND_S)
        told = (
            "FailedPreemption: pods of lower priority on node a could not be preempted: "
            f"pod {0:036d} of another namespace: HTTP status 403 from the API server"
        )
        assert told in words_of(of, OURS)
        assert_nothing_of_the_other(of)


async def test_a_pod_that_is_kept_off_a_reserved_place_reads_the_uid_of_the_pod_that_has_it() -> None:
    of = cluster(a=[16])
    async with scheduling(of, AFTER):
        await placed(of, THEIRS, "stays", 8)
        appears(of, THEIRS, "whole", 16)
        await asyncio.sleep(62)
        appears(of, THEIRS, "something", 64, priority=-100)
        await asyncio.sleep(A_SECOND_S)
        appears(of, OURS, "small", 4)
        appears(of, THEIRS, "small", 4)
        await asyncio.sleep(A_SECOND_S)
        place = "card 0 of node a is reserved for pod"
        assert f"{place} {1:036d} of another namespace, which has waited 1m." in words_of(of, OURS)
        assert f"{place} {THEIRS}/{THEIRS}-whole, which has waited 1m." in words_of(of, THEIRS)
        assert_nothing_of_the_other(of)


async def test_the_event_of_an_overcommitted_card_names_no_pods() -> None:
    of = cluster(a=[16])
    async with scheduling(of):
        for namespace in (OURS, THEIRS):
            appears(of, namespace, "past-the-scheduler", 12, scheduler="other")
            of.pods.bind(namespace, f"{namespace}-past-the-scheduler", "a", ON_CARD_0)
        await asyncio.sleep(700)
        assert "GPUOverbooked: card GPU-a-0 has 16 units, and 24 are booked" in words_of(of, OURS)
        assert_nothing_of_the_other(of)
