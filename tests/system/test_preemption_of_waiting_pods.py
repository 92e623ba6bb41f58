"""Victims that have a place and are not bound yet: kube-scheduler cancels their binding, and deletes nobody."""

import asyncio
from typing import Any

import pytest

from scheduler.core.scheduling_cycle import Placement
from scheduler.dispatch.volume_binder import VolumeBinder
from scheduler.kube.port import STORAGE_CLASSES
from scheduler.testing.cluster.faults import Silence, Verb
from scheduler.testing.cluster.world import World
from tests.support.volumes import claim, storage_class, with_claims
from tests.system.looking import A_SECOND_S, card_of, cluster, comes, events, node_of
from tests.system.process import A_MOMENT_S, in_virtual_time, scheduling
from tests.system.volume_controller import VolumeController


def waits_for_a_volume(of: World, name: str, gpu_mem: int, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """Nobody makes the volume."""
    VolumeController(of).comes(claim(name, class_name="slow"))
    comes(of, name, gpu_mem, **options, **with_claims(name))


def slow_class(of: World) -> None:
    of.storage.create(STORAGE_CLASSES, storage_class("slow"))


@in_virtual_time
async def test_a_victim_that_waits_for_its_volume_is_not_deleted_and_tried_again() -> None:
    of = cluster(a=[16])
    slow_class(of)
    async with scheduling(of) as process:
        waits_for_a_volume(of, "low", 16)
        await asyncio.sleep(A_SECOND_S)
        assert process.free == {"GPU-a-0": 0}

        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(A_SECOND_S)

        assert (node_of(of, "urgent"), card_of(of, "urgent")) == ("a", '{"0":"GPU-a-0"}')
        low = of.pods.collection.existing("default", "low")
        assert (low.metadata.deletion_timestamp, low.spec.node_name) == ("", "")
        assert [c.type for c in low.status.conditions] == ["PodScheduled"]
        assert ("Preempted", "Preempted by pod default/urgent on node a, which needs 16 units of card 0") in events(
            of, "low"
        )

        of.pods.remove("default", "urgent")
        await asyncio.sleep(20 * A_SECOND_S)
        assert process.free == {"GPU-a-0": 0}
        assert node_of(of, "low") == ""


@in_virtual_time
async def test_a_victim_whose_binding_is_on_the_wire_is_deleted() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Silence(), count=1)
        comes(of, "low", 16)
        await asyncio.sleep(A_MOMENT_S)
        assert process.service.binds_in_flight == 1

        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(A_SECOND_S)

        assert of.pods.find("default", "low") is None


@in_virtual_time
async def test_the_owner_of_a_pod_reads_that_it_waits_for_its_volume_and_which_card_it_keeps() -> None:
    of = cluster(a=[16])
    slow_class(of)
    async with scheduling(of):
        waits_for_a_volume(of, "low", 16)
        await asyncio.sleep(9 * A_SECOND_S)
        assert events(of, "low") == []

        await asyncio.sleep(2 * A_SECOND_S)

        note = (
            "has a place on node a, card 0, which it keeps while it waits for the volumes of its claims, "
            "for up to 600 s: default/low"
        )
        assert events(of, "low") == [("WaitingForVolumes", note)]


@in_virtual_time
async def test_a_victim_that_two_pods_take_the_place_of_is_cancelled_once() -> None:
    of = cluster(a=[16])
    slow_class(of)
    async with scheduling(of) as process:
        waits_for_a_volume(of, "low", 16)
        await asyncio.sleep(A_SECOND_S)
        cancel = process.service._binding.cancel  # noqa: SLF001 - as two preemptions in one turn of the loop

        uid = of.pods.collection.existing("default", "low").metadata.uid
        assert cancel(uid, "first")
        await asyncio.sleep(0)
        assert cancel(uid, "second")
        assert cancel(uid, "third")
        await asyncio.sleep(A_MOMENT_S)

        assert not cancel(uid, "late")
        assert process.free == {"GPU-a-0": 16}


@in_virtual_time
async def test_a_victim_whose_wait_ends_in_the_very_moment_is_not_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    of, may_go_on = cluster(a=[16]), asyncio.Event()
    slow_class(of)

    async def waits(_binder: VolumeBinder, _placement: Placement) -> None:
        await may_go_on.wait()

    monkeypatch.setattr(VolumeBinder, "bind", waits)
    async with scheduling(of) as process:
        waits_for_a_volume(of, "low", 16)
        await asyncio.sleep(A_SECOND_S)

        may_go_on.set()
        assert process.service._binding.cancel(  # noqa: SLF001 - as a preemption in the same turn of the loop
            of.pods.collection.existing("default", "low").metadata.uid, "preempted"
        )
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "low") == ""
        assert process.free == {"GPU-a-0": 16}
