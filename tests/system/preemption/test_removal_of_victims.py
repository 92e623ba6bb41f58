"""Victims are removed, and what may go wrong with that."""

import asyncio
from typing import Any

import pytest

from scheduler.core.scheduling_cycle import Placement
from scheduler.dispatch.volume_binder import VolumeBinder
from scheduler.kube.port import STORAGE_CLASSES
from scheduler.testing.cluster.faults import Fail, Refuse, Silence, Slow, Throttle, Verb
from scheduler.testing.cluster.world import World
from tests.support.builders import wire_node
from tests.support.clocks.virtual_time import now_s
from tests.support.placing import on_card
from tests.support.service.looking import (
    A_SECOND_S,
    arrives,
    card_of,
    cluster,
    comes,
    condition,
    events,
    is_going,
    node_of,
    nominated,
    runs,
)
from tests.support.service.process import A_MOMENT_S, scheduling, start
from tests.support.service.volume_controller import VolumeController
from tests.support.service.wire import Posts, Wire
from tests.support.volumes import claim, storage_class, with_claims


async def test_victims_that_cannot_be_removed_cost_a_back_off_and_a_word() -> None:
    of = cluster(a=[16])
    async with scheduling(of, latency_s=0.002) as process:
        await runs(of, "low", 16, 1)
        rule = process.wire.faults.add(Verb.DELETE_POD, Refuse(403, "pods is forbidden"))
        await runs(of, "urgent", 16, 10)
        await asyncio.sleep(5)
        assert not is_going(of, "low")
        assert rule.hits <= 5
        assert [one.type for one in of.pods.collection.existing("default", "low").status.conditions] == ["PodScheduled"]
        assert "not eligible due to a pod of lower priority that could not be deleted." in condition(of, "urgent")
        note = "pods of lower priority on node a could not be preempted: pods is forbidden"
        assert ("FailedPreemption", note) in events(of, "urgent")

        process.wire.faults.clear()
        await asyncio.sleep(20)
        assert is_going(of, "low")


async def test_a_pod_whose_victims_cannot_be_removed_is_scheduled_as_soon_as_it_fits() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "low", 16, 1)
        process.wire.faults.add(Verb.DELETE_POD, Refuse(403, "pods is forbidden"))
        await runs(of, "urgent", 16, 10)
        await asyncio.sleep(600)
        of.nodes.add(wire_node("b", [16]))
        await asyncio.sleep(A_SECOND_S)

        assert node_of(of, "urgent") == "b"


async def test_a_pod_whose_victims_cannot_be_removed_keeps_nobody_of_its_class_from_preempting() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "locked", 16, 1)
        process.wire.faults.add(Verb.DELETE_POD, Refuse(403), when=lambda request: request.about == "default/locked")
        await runs(of, "urgent", 16, 10)
        await runs(of, "alike", 16, 10)
        await asyncio.sleep(600)
        comes(of, "low", 16, node="b", priority=1, annotations=on_card(0, 16))
        of.nodes.add(wire_node("b", [16]))
        await asyncio.sleep(300)

        assert is_going(of, "low")


async def test_a_pod_whose_preemption_fails_has_its_reservation_again() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "low", 16, 1)
        process.wire.faults.add(Verb.DELETE_POD, Refuse(403))
        await runs(of, "urgent", 16, 10)
        for _ in range(2):
            await asyncio.sleep(1000)
            comes(of, "other", 64, priority=-100)
            await asyncio.sleep(A_SECOND_S)
            of.pods.remove("default", "other")
            assert process.engine.nominations.reserved[10].node == nominated(of, "urgent") == "a"


async def test_a_victim_whose_deletion_is_refused_costs_others_once() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "innocent", 12, 2)
        await runs(of, "locked", 4, 1)
        refuse = Refuse(403, "a webhook says no")
        process.wire.faults.add(Verb.DELETE_POD, refuse, when=lambda request: request.about == "default/locked")
        await runs(of, "urgent", 16, 10)
        assert is_going(of, "innocent")
        of.pods.remove("default", "innocent")
        comes(of, "innocent", 12, priority=2, uid="anew")
        await asyncio.sleep(20)
        assert node_of(of, "innocent") == "a"
        await asyncio.sleep(400)
        assert not is_going(of, "innocent")

        # Another choice is dearer, and possible.
        comes(of, "dear", 16, node="b", priority=5, annotations=on_card(0, 16))
        of.nodes.add(wire_node("b", [16]))
        await asyncio.sleep(400)
        assert is_going(of, "dear")


async def test_a_request_without_an_answer_is_sent_again() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "low", 16, 1)
        for verb in (Verb.DELETE_POD, Verb.NOMINATE, Verb.SET_CONDITION):
            process.wire.faults.add(verb, Fail(503), count=2)
        await runs(of, "urgent", 16, 10)
        await asyncio.sleep(5)

        assert is_going(of, "low")
        assert nominated(of, "urgent") == "a"


async def test_a_request_that_has_to_wait_does_not_delay_the_end() -> None:
    of = cluster(a=[16])
    process = start(Wire(of, Posts(of)))
    await runs(of, "low", 16, 1)
    process.wire.faults.add(Verb.DELETE_POD, Throttle(retry_after_s=30.0))
    await runs(of, "urgent", 16, 10)
    stopped_s = now_s()
    process.service.stop()
    await asyncio.wait({process.task}, timeout=60.0)
    assert now_s() - stopped_s < 0.1


async def test_victims_of_a_namespace_without_answers_do_not_delay_others() -> None:
    crowd = 24
    of = cluster(**{f"n{number}": [16] for number in range(crowd + 1)})
    async with scheduling(of) as process:
        for number in range(crowd):
            comes(of, f"low-{number}", 16, to=f"n{number}", priority=1, namespace="other")
        await runs(of, "low", 16, 1)
        await asyncio.sleep(1)
        for verb in (Verb.SET_CONDITION, Verb.DELETE_POD):
            hangs = Silence(after_s=10)
            process.wire.faults.add(verb, hangs, when=lambda request: request.about.startswith("other/"))
        for number in range(crowd):
            comes(of, f"urgent-{number}", 16, to=f"n{number}", priority=5, namespace="other")
        await asyncio.sleep(15)
        await arrives(of, "urgent", 16, priority=10, to=node_of(of, "low"))

        assert is_going(of, "low")


@pytest.mark.parametrize("status", [404, 409])
@pytest.mark.parametrize("verb", [Verb.SET_CONDITION, Verb.DELETE_POD], ids=lambda verb: verb.value)
async def test_only_the_watch_says_that_a_victim_is_gone(verb: Verb, status: int) -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        await runs(of, "low", 16, 1)
        of_low = lambda request: request.about == "default/low"  # noqa: E731
        rule = process.wire.faults.add(verb, Refuse(status), count=1, when=of_low)
        await runs(of, "urgent", 16, 10)
        await asyncio.sleep(5)

        assert (rule.hits, is_going(of, "low")) == (1, True)


async def test_victims_that_are_left_stay_when_the_preemptor_goes() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        for number in range(4):
            await runs(of, f"low-{number}", 4, 1 + number)
        process.wire.faults.add(Verb.DELETE_POD, Slow(before_s=1.0))
        comes(of, "urgent", 16, priority=10)
        await asyncio.sleep(1.5)
        assert [is_going(of, f"low-{number}") for number in range(4)] == [False, False, False, True]
        of.pods.delete("default", "urgent")
        await asyncio.sleep(30)

        assert [is_going(of, f"low-{number}") for number in range(4)] == [False, False, True, True]


async def test_a_late_answer_about_the_place_before_does_not_cost_the_next_one() -> None:
    of = cluster(a=[16], b=[16])
    async with scheduling(of) as process:
        await runs(of, "low-a", 16, 1)
        await runs(of, "low-b", 16, 2)
        await runs(of, "middle", 16, 5)
        late = Slow(before_s=3.0)
        process.wire.faults.add(Verb.NOMINATE, late, count=1, when=lambda request: request.about == "default/middle")
        await runs(of, "urgent", 16, 10)
        assert (nominated(of, "urgent"), len(process.engine.nominations)) == ("a", 2)
        await asyncio.sleep(5)

        assert (nominated(of, "middle"), is_going(of, "low-b"), len(process.engine.nominations)) == ("b", True, 2)


def waits_for_a_volume(of: World, name: str, gpu_mem: int, **options: Any) -> None:  # noqa: ANN401 - as `manifest`
    """A pod comes with a claim whose volume is never made."""
    VolumeController(of).comes(claim(name, class_name="slow"))
    comes(of, name, gpu_mem, **options, **with_claims(name))


def slow_class(of: World) -> None:
    of.storage.create(STORAGE_CLASSES, storage_class("slow"))


async def test_a_victim_that_waits_for_its_volume_is_not_deleted_and_tried_again() -> None:
    of = cluster(a=[16])
    slow_class(of)
    async with scheduling(of) as process:
        waits_for_a_volume(of, "low", 16)
        await asyncio.sleep(A_SECOND_S)
        assert process.free == {"GPU-a-0": 0}

        await arrives(of, "urgent", 16, priority=10)

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


async def test_a_victim_whose_binding_is_on_the_wire_is_deleted() -> None:
    of = cluster(a=[16])
    async with scheduling(of) as process:
        process.wire.faults.add(Verb.BIND, Silence(), count=1)
        comes(of, "low", 16)
        await asyncio.sleep(A_MOMENT_S)
        assert process.service.dispatch.in_flight == 1

        await arrives(of, "urgent", 16, priority=10)

        assert of.pods.find("default", "low") is None


async def test_the_owner_of_a_pod_reads_that_it_waits_for_its_volume_and_which_card_it_keeps() -> None:
    of = cluster(a=[16])
    slow_class(of)
    async with scheduling(of):
        waits_for_a_volume(of, "low", 16)
        await asyncio.sleep(9 * A_SECOND_S)
        assert events(of, "low") == []

        await asyncio.sleep(2 * A_SECOND_S)

        note = "assigned to node a, card 0; waiting up to 600 s for the volumes of its claims: default/low"
        assert events(of, "low") == [("WaitingForVolumes", note)]


async def test_a_victim_that_two_pods_take_the_place_of_is_cancelled_once() -> None:
    of = cluster(a=[16])
    slow_class(of)
    async with scheduling(of) as process:
        waits_for_a_volume(of, "low", 16)
        await asyncio.sleep(A_SECOND_S)
        cancel = process.service.dispatch.binding.cancel  # as two preemptions in one turn of the loop

        uid = of.pods.collection.existing("default", "low").metadata.uid
        assert cancel(uid, "first")
        await asyncio.sleep(0)
        assert cancel(uid, "second")
        assert cancel(uid, "third")
        await asyncio.sleep(A_MOMENT_S)

        assert not cancel(uid, "late")
        assert process.free == {"GPU-a-0": 16}


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
        assert process.service.dispatch.binding.cancel(  # as a preemption in the same turn of the loop
            of.pods.collection.existing("default", "low").metadata.uid, "preempted"
        )
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "low") == ""
        assert process.free == {"GPU-a-0": 16}
