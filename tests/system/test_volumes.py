"""Pods with claims: they go where their volumes are, or can be had, and are bound once they have them."""

import asyncio

import pytest
from msgspec.structs import replace

from scheduler.kube import storage
from scheduler.kube.port import CAPACITIES, CLAIMS, CSI_DRIVERS, CSI_NODES, STORAGE_CLASSES, VOLUMES
from scheduler.simulation.faults import Break, Fail, Refuse, Slow, Verb
from scheduler.simulation.world import World
from tests.support.builders import wire_node
from tests.support.volumes import ZONE, claim, storage_class, volume, with_claims
from tests.system.looking import A_SECOND_S, cluster, comes, node_of, objections
from tests.system.process import A_MOMENT_S, in_virtual_time, scheduling, start
from tests.system.volume_controller import VolumeController
from tests.system.wire import Posts, Wire

PV_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"


def zones(**nodes: str) -> tuple[World, VolumeController]:
    of = cluster()
    for name, zone in nodes.items():
        of.nodes.add(wire_node(name, [16], labels={ZONE: zone}))
    return of, VolumeController(of)


# Bound claims


@in_virtual_time
async def test_a_pod_with_a_bound_claim_goes_where_its_volume_can_be_used() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(claim("data"), volume("pv", on=("z2",), key=ZONE))
    controller.bind("data", "pv")
    async with scheduling(of):
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "b"


@in_virtual_time
async def test_a_pod_is_told_that_no_node_can_use_its_volume_and_is_placed_when_one_can() -> None:
    of, controller = zones(a="z1")
    controller.comes(claim("data"), volume("pv", on=("z2",), key=ZONE))
    controller.bind("data", "pv")
    async with scheduling(of):
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        assert (node_of(of, "p"), objections(of, "p")) == (
            "",
            f"False 0/1 nodes are available: 1 {PV_CONFLICT}.",
        )

        of.nodes.patch("a", labels={ZONE: "z2"})
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "a"


@in_virtual_time
async def test_a_pod_waits_for_its_claim_to_come_and_to_be_bound() -> None:
    of, controller = zones(a="z1")
    async with scheduling(of):
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        told = [objections(of, "p")]
        controller.comes(claim("data"), volume("pv"))
        await asyncio.sleep(A_SECOND_S)
        told.append(objections(of, "p"))
        controller.bind("data", "pv")
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "a"
        assert told == [
            'False 0/1 nodes are available: persistentvolumeclaim "data" not found.',
            "False 0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
        ]


@in_virtual_time
async def test_the_zone_in_the_labels_of_a_volume_is_obeyed() -> None:
    of, controller = zones(a="z1", b="z2", c="z3")
    controller.comes(claim("data"), volume("pv", labels={ZONE: "z2__z4"}))
    controller.bind("data", "pv")
    async with scheduling(of):
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "b"


# WaitForFirstConsumer, volumes that are there


@in_virtual_time
async def test_a_claim_gets_a_free_volume_of_the_node_and_the_pod_is_bound_when_the_claim_is() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(
        storage_class("local", provisioner="kubernetes.io/no-provisioner"),
        volume("big-a", class_name="local", on=("a",), size="9Gi"),
        volume("small-b", class_name="local", on=("b",), size="512Mi"),
        claim("data", class_name="local"),
    )
    async with scheduling(of):
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        kept = of.storage.of(VOLUMES).existing("", "big-a")
        assert node_of(of, "p") == ""
        assert kept.spec.claim_ref is not None
        assert (kept.spec.claim_ref.name, bool(kept.spec.claim_ref.uid)) == ("data", True)
        assert (kept.metadata.annotations or {})["pv.kubernetes.io/bound-by-controller"] == "yes"

        assert controller.bind_kept() == ["data"]
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "a"


@in_virtual_time
async def test_two_pods_never_get_one_volume_and_the_second_is_placed_when_another_comes() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(
        storage_class("local", provisioner="kubernetes.io/no-provisioner"),
        volume("pv-a", class_name="local", on=("a",)),
        claim("one", class_name="local"),
        claim("two", class_name="local"),
    )
    async with scheduling(of):
        comes(of, "p1", 3, **with_claims("one"))
        comes(of, "p2", 3, **with_claims("two"))
        await asyncio.sleep(A_SECOND_S)
        assert controller.bind_kept() == ["one"]
        await asyncio.sleep(A_MOMENT_S)
        assert (node_of(of, "p1"), node_of(of, "p2")) == ("a", "")
        told = objections(of, "p2")

        controller.comes(volume("pv-b", class_name="local", on=("b",)))
        await asyncio.sleep(A_MOMENT_S)
        assert controller.bind_kept() == ["two"]
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p2") == "b"
        assert told == "False 0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."


@in_virtual_time
async def test_a_pod_is_placed_when_its_volume_has_come_and_then_room_beside_it() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(
        storage_class("local", provisioner="kubernetes.io/no-provisioner"),
        volume("small", class_name="local", on=("b",), size="1Mi"),
        claim("data", class_name="local"),
    )
    async with scheduling(of):
        comes(of, "fills", 16, to="a")
        await asyncio.sleep(A_MOMENT_S)
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        controller.comes(volume("pv", class_name="local", on=("a",)))
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "p") == ""

        of.pods.remove("default", "fills")
        await asyncio.sleep(A_SECOND_S)
        assert controller.bind_kept() == ["data"]
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "a"


@in_virtual_time
async def test_a_volume_that_could_not_be_written_is_free_again() -> None:
    of, controller = zones(a="z1")
    controller.comes(
        storage_class("local", provisioner="kubernetes.io/no-provisioner"),
        volume("pv", class_name="local", on=("a",)),
        claim("data", class_name="local"),
    )
    async with scheduling(of) as process:
        rule = process.wire.faults.add(Verb.GIVE_VOLUME, Refuse(403, "no"))
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        assert "giving persistentvolume pv to persistentvolumeclaim default/data: no" in objections(of, "p")

        process.wire.faults.remove(rule)
        await asyncio.sleep(5)
        assert controller.bind_kept() == ["data"]
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "a"


@in_virtual_time
async def test_a_claim_that_was_bound_to_another_volume_takes_its_pod_there() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(
        storage_class("local", provisioner="kubernetes.io/no-provisioner"),
        volume("on-a", class_name="local", on=("a",)),
        claim("data", class_name="local"),
    )
    async with scheduling(of):
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        controller.comes(volume("on-b", class_name="local", on=("b",)))
        controller.bind("data", "on-b")
        await asyncio.sleep(A_MOMENT_S)
        told = objections(of, "p")
        await asyncio.sleep(5)

        assert "persistentvolumeclaim default/data was bound to persistentvolume on-b, not to on-a" in told
        assert node_of(of, "p") == "b"


# WaitForFirstConsumer, volumes to be made


@in_virtual_time
async def test_a_volume_is_made_on_the_node_that_was_selected() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(
        storage_class("fast", allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}]),
        claim("data", class_name="fast"),
    )
    async with scheduling(of):
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        assert (controller.selected("data"), node_of(of, "p")) == ("b", "")

        controller.provision()
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "b"


@in_virtual_time
async def test_claims_that_pods_share_are_written_once_and_all_pods_are_bound() -> None:
    of, controller = zones(a="z1", b="z2")
    names = [f"data-{number}" for number in range(8)]
    controller.comes(storage_class("fast"), *(claim(name, class_name="fast") for name in names))
    pods = [f"p-{number}" for number in range(5)]
    async with scheduling(of) as process:
        writes = process.wire.faults.add(Verb.SELECT_NODE, Slow(0.01))
        for number, name in enumerate(pods):
            comes(of, name, 1, **with_claims(*names[number:], *names[:number]))
        await asyncio.sleep(A_SECOND_S)
        assert (writes.hits, [objections(of, name) for name in pods]) == (8, [""] * 5)

        controller.provision()
        await asyncio.sleep(A_MOMENT_S)

        assert len({node_of(of, name) for name in pods} - {""}) == 1
        assert writes.hits == 8


@in_virtual_time
async def test_pods_that_share_a_claim_are_all_told_when_it_cannot_be_written() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("fast"), claim("data", class_name="fast"))
    async with scheduling(of) as process:
        slow = process.wire.faults.add(Verb.SELECT_NODE, Slow(0.1), count=1)
        comes(of, "p1", 3, **with_claims("data"))
        await asyncio.sleep(0.05)
        refused = process.wire.faults.add(Verb.SELECT_NODE, Refuse(403, "no"), count=1)
        comes(of, "p2", 3, **with_claims("data"))
        await asyncio.sleep(0.1)
        assert (slow.hits, refused.hits) == (1, 0)
        of.storage.annotate_claim("default", "data", {"volume.kubernetes.io/selected-node": None})
        await asyncio.sleep(5)
        controller.provision()
        await asyncio.sleep(A_MOMENT_S)

        assert (node_of(of, "p1"), node_of(of, "p2")) == ("a", "a")


@in_virtual_time
async def test_a_node_on_which_no_volume_can_be_made_is_given_up_at_once() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("fast"), claim("data", class_name="fast"))
    async with scheduling(of):
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        controller.reject("data")
        await asyncio.sleep(A_MOMENT_S)
        told = objections(of, "p")
        await asyncio.sleep(5)
        assert controller.selected("data") == "a"
        controller.provision()
        await asyncio.sleep(A_MOMENT_S)

        assert "no volume can be made for persistentvolumeclaim default/data on node a: the provisioner says so" in told
        assert node_of(of, "p") == "a"


@in_virtual_time
async def test_a_pod_whose_volumes_do_not_come_gives_its_place_back() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("slow"), claim("data", class_name="slow"))
    async with scheduling(of) as process:
        comes(of, "p", 10, **with_claims("data"))
        await asyncio.sleep(599)
        assert process.free == {"GPU-a-0": 6}
        await asyncio.sleep(1.1)

        assert "its volumes were not bound within 600 s" in objections(of, "p")
        assert process.free == {"GPU-a-0": 16}


@in_virtual_time
async def test_a_pod_that_is_deleted_while_its_volume_is_made_frees_its_place_at_once() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("slow"), claim("data", class_name="slow"))
    async with scheduling(of) as process:
        comes(of, "p", 10, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        of.pods.remove("default", "p")
        await asyncio.sleep(A_MOMENT_S)
        assert process.free == {"GPU-a-0": 16}
        await asyncio.sleep(10)

        assert process.service.pods_being_bound == 0


@pytest.mark.parametrize("written", [True, False], ids=["selected-node is written", "it is not"])
@in_virtual_time
async def test_nothing_is_lost_when_the_process_is_killed_before_the_volume_is_made(*, written: bool) -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(storage_class("fast"), claim("data", class_name="fast"))
    first = start(Wire(of, Posts()))
    if not written:
        first.wire.faults.add(Verb.SELECT_NODE, Fail(500))
    await asyncio.sleep(A_MOMENT_S)
    comes(of, "p", 3, **with_claims("data"))
    await asyncio.sleep(A_SECOND_S)
    selected = controller.selected("data")
    await first.kill()
    async with scheduling(of):
        await asyncio.sleep(A_SECOND_S)
        made = controller.provision()
        await asyncio.sleep(A_MOMENT_S)

        assert bool(selected) is written
        assert made == {"data": selected or "a"}
        assert node_of(of, "p") == made["data"]


@in_virtual_time
async def test_a_pod_with_a_claim_that_has_a_node_waits_for_that_node() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(storage_class("fast"), claim("data", class_name="fast"))
    async with scheduling(of):
        comes(of, "fills", 16, to="b")
        await asyncio.sleep(A_SECOND_S)
        of.storage.annotate_claim("default", "data", {"volume.kubernetes.io/selected-node": "b"})
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        told = objections(of, "p")
        of.pods.remove("default", "fills")
        await asyncio.sleep(A_SECOND_S)
        controller.provision()
        await asyncio.sleep(A_MOMENT_S)

        assert "1 node(s) didn't find available persistent volumes to bind" in told
        assert node_of(of, "p") == "b"


@in_virtual_time
async def test_what_a_watch_shows_late_is_waited_for() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("fast"), claim("data", class_name="fast"))
    async with scheduling(of) as process:
        process.wire.break_watches(Break.STALLED, CLAIMS)
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        controller.provision()
        await asyncio.sleep(20)
        assert node_of(of, "p") == ""

        process.wire.resume_watches()
        await asyncio.sleep(A_SECOND_S)

        assert node_of(of, "p") == "a"


@in_virtual_time
async def test_a_pod_waits_for_its_storage_class() -> None:
    of, controller = zones(a="z1")
    controller.comes(claim("data", class_name="fast"))
    async with scheduling(of):
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        told = objections(of, "p")
        of.storage.create(STORAGE_CLASSES, storage_class("fast"))
        await asyncio.sleep(A_SECOND_S)

        assert told == "False 0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims."
        assert controller.selected("data") == "a"


@in_virtual_time
async def test_a_pod_waits_for_room_for_its_volume() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("fast"), claim("data", class_name="fast", size="5Gi"))
    of.storage.create(CSI_DRIVERS, {"metadata": {"name": "example.com/p"}, "spec": {"storageCapacity": True}})
    room = {
        "metadata": {"name": "room", "namespace": "kube-system"},
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": {ZONE: "z1"}},
        "capacity": "4Gi",
    }
    of.storage.create(CAPACITIES, room)
    async with scheduling(of):
        comes(of, "p", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        told = objections(of, "p")
        of.storage.update(CAPACITIES, "kube-system", "room", lambda found: replace(found, capacity="5Gi"))
        await asyncio.sleep(A_SECOND_S)

        assert told == "False 0/1 nodes are available: 1 node(s) did not have enough free storage."
        assert controller.selected("data") == "a"


# Ephemeral volumes


@in_virtual_time
async def test_an_ephemeral_volume_is_waited_for_from_the_claim_on() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("fast"))
    async with scheduling(of):
        comes(of, "p", 3, volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}])
        await asyncio.sleep(A_SECOND_S)
        told = objections(of, "p")
        made = claim("p-scratch", class_name="fast")
        uid = of.pods.collection.existing("default", "p").metadata.uid
        made["metadata"]["ownerReferences"] = [{"uid": uid, "kind": "Pod", "name": "p", "controller": True}]
        controller.comes(made)
        await asyncio.sleep(A_SECOND_S)
        assert controller.provision() == {"p-scratch": "a"}
        await asyncio.sleep(A_MOMENT_S)

        assert told == (
            "False 0/1 nodes are available: waiting for ephemeral volume controller to create the "
            'persistentvolumeclaim "p-scratch".'
        )
        assert node_of(of, "p") == "a"


# Restrictions and limits


@in_virtual_time
async def test_a_claim_for_one_pod_goes_to_the_next_pod_when_the_first_is_gone() -> None:
    of, controller = zones(a="z1")
    controller.comes(claim("data", accessModes=["ReadWriteOncePod"]), volume("pv"))
    controller.bind("data", "pv")
    async with scheduling(of):
        comes(of, "first", 3, **with_claims("data"))
        await asyncio.sleep(A_MOMENT_S)
        comes(of, "second", 3, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        assert (node_of(of, "first"), node_of(of, "second")) == ("a", "")
        told = objections(of, "second")

        of.pods.remove("default", "first")
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "second") == "a"
        assert told == (
            "False 0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod "
            "access mode already in-use by another pod."
        )


@in_virtual_time
async def test_a_pod_waits_until_a_node_attaches_one_more_volume() -> None:
    of, controller = zones(a="z1")
    controller.comes(claim("one"), claim("two"), *(volume(f"pv-{n}", csi=csi_of(n)) for n in (1, 2)))
    controller.bind("one", "pv-1")
    controller.bind("two", "pv-2")
    limits = {"metadata": {"name": "a"}, "spec": {"drivers": [{"name": "d", "allocatable": {"count": 1}}]}}
    of.storage.create(CSI_NODES, limits)
    async with scheduling(of):
        comes(of, "first", 3, **with_claims("one"))
        await asyncio.sleep(A_MOMENT_S)
        comes(of, "second", 3, **with_claims("two"))
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "first") == "a"
        told = objections(of, "second")

        more = storage.CsiNodeSpec((storage.CsiNodeDriver("d", storage.CsiNodeAllocatable(2)),))
        of.storage.update(CSI_NODES, "", "a", lambda found: replace(found, spec=more))
        await asyncio.sleep(A_MOMENT_S)

        assert told == "False 0/1 nodes are available: 1 node(s) exceed max volume count."
        assert node_of(of, "second") == "a"


def csi_of(number: int) -> dict[str, str]:
    return {"driver": "d", "volumeHandle": f"h{number}"}


# What costs whom


@in_virtual_time
async def test_the_claims_of_others_ask_nobody() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("fast"), storage_class("now", waits=False))
    async with scheduling(of) as process:
        for number in range(20):
            comes(of, f"waits-{number}", 3, **with_claims(f"data-{number}"))
        await asyncio.sleep(A_SECOND_S)
        asked = process.cycle.asked
        for number in range(300):
            controller.comes(claim(f"other-{number}", class_name="fast"))
            controller.comes(claim(f"bound-{number}", class_name="now"), volume_for(f"bound-{number}"))
        for number in range(300):
            controller.bind(f"bound-{number}", f"pv-bound-{number}")
        await asyncio.sleep(A_SECOND_S)
        assert process.cycle.asked == asked

        controller.comes(claim("data-7", class_name="fast"))
        await asyncio.sleep(A_SECOND_S)

        assert controller.selected("data-7") == "a"
        assert process.cycle.asked - asked < 5


@in_virtual_time
async def test_pods_whose_claims_come_one_by_one_are_tried_at_their_back_offs() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("fast"))
    names = [f"data-{number}" for number in range(20)]
    async with scheduling(of) as process:
        for number in range(10):
            comes(of, f"waits-{number}", 1, **with_claims(*names))
        await asyncio.sleep(20)
        tried = process.cycle.refused
        for name in names[:-1]:
            controller.comes(claim(name, class_name="fast"))
            await asyncio.sleep(0.2)
        await asyncio.sleep(10)

        assert process.cycle.refused - tried <= 10 * 4
        assert {objections(of, f"waits-{number}") for number in range(10)} == {not_found(names[-1])}

        controller.comes(claim(names[-1], class_name="fast"))
        await asyncio.sleep(A_SECOND_S)
        controller.provision()
        await asyncio.sleep(A_MOMENT_S)

        assert {node_of(of, f"waits-{number}") for number in range(10)} == {"a"}


def not_found(name: str) -> str:
    return f'False 0/1 nodes are available: persistentvolumeclaim "{name}" not found.'


def volume_for(claim_name: str) -> dict[str, object]:
    """Made for a claim, as a provisioner does."""
    return volume(
        f"pv-{claim_name}", class_name="now", claimRef={"namespace": "default", "name": claim_name, "uid": "u"}
    )


@in_virtual_time
async def test_a_volume_that_comes_costs_a_question_whoever_waits_for_one() -> None:
    of, controller = zones(a="z1")
    controller.comes(
        storage_class("local", provisioner="kubernetes.io/no-provisioner"),
        *(claim(f"data-{number}", class_name="local") for number in range(100)),
    )
    async with scheduling(of) as process:
        for number in range(100):
            comes(of, f"waits-{number}", **with_claims(f"data-{number}"))
        await asyncio.sleep(10)
        asked = process.cycle.asked
        for number in range(5):
            controller.comes(volume(f"pv-{number}", class_name="local", on=("a",)))
            await asyncio.sleep(A_SECOND_S)
            controller.bind_kept()
            await asyncio.sleep(A_SECOND_S)

        assert sum(bool(node_of(of, f"waits-{number}")) for number in range(100)) == 5
        # For each volume: whether the class fits, its best pod, whether the next one does.
        assert process.cycle.asked - asked <= 5 * 6
