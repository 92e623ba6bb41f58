"""Pods with claims go where their volumes are, or can be had or made, and are bound once they have them."""

import asyncio

import pytest
from msgspec.structs import replace

from scheduler.kube.port import CAPACITIES, CLAIMS, CSI_DRIVERS, VOLUMES
from scheduler.kube.storage import PersistentVolume
from scheduler.testing.cluster.faults import Break, Fail, Refuse, RequestFault, Silence, Slow, Verb
from tests.support.service.looking import A_SECOND_S, arrives, comes, node_of, objections
from tests.support.service.process import A_MOMENT_S, scheduling, start
from tests.support.service.volume_controller import zones
from tests.support.service.wire import Posts, Wire
from tests.support.volumes import LOCAL, ZONE, claim, storage_class, volume, with_claims

PV_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"


# Bound claims


async def test_a_pod_is_told_that_no_node_can_use_its_volume_and_is_placed_when_one_can() -> None:
    of, controller = zones(a="z1")
    controller.comes(claim("data"), volume("pv", on=("z2",), key=ZONE))
    controller.bind("data", "pv")
    async with scheduling(of):
        await arrives(of, "p", 3, **with_claims("data"))
        assert (node_of(of, "p"), objections(of, "p")) == (
            "",
            f"False 0/1 nodes are available: 1 {PV_CONFLICT}.",
        )

        of.nodes.patch("a", labels={ZONE: "z2"})
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "a"


async def test_a_pod_waits_for_its_claim_to_come_and_to_be_bound() -> None:
    of, controller = zones(a="z1")
    async with scheduling(of):
        await arrives(of, "p", 3, **with_claims("data"))
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


# WaitForFirstConsumer, volumes that are there


async def test_a_claim_gets_a_free_volume_of_the_node_and_the_pod_is_bound_when_the_claim_is() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(
        LOCAL,
        volume("big-a", class_name="local", on=("a",), size="9Gi"),
        volume("small-b", class_name="local", on=("b",), size="512Mi"),
        claim("data", class_name="local"),
    )
    async with scheduling(of):
        await arrives(of, "p", 3, **with_claims("data"))
        kept = of.storage.of(VOLUMES).existing("", "big-a")
        assert node_of(of, "p") == ""
        assert kept.spec.claim_ref is not None
        assert (kept.spec.claim_ref.name, bool(kept.spec.claim_ref.uid)) == ("data", True)
        assert (kept.metadata.annotations or {})["pv.kubernetes.io/bound-by-controller"] == "yes"

        assert controller.bind_kept() == ["data"]
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "a"


async def test_two_pods_never_get_one_volume_and_the_second_is_placed_when_another_comes() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(
        LOCAL,
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


async def test_a_pod_is_placed_when_its_volume_has_come_and_then_room_beside_it() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(
        LOCAL,
        volume("small", class_name="local", on=("b",), size="1Mi"),
        claim("data", class_name="local"),
    )
    async with scheduling(of):
        comes(of, "fills", 16, to="a")
        await asyncio.sleep(A_MOMENT_S)
        await arrives(of, "p", 3, **with_claims("data"))
        controller.comes(volume("pv", class_name="local", on=("a",)))
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "p") == ""

        of.pods.remove("default", "fills")
        await asyncio.sleep(A_SECOND_S)
        assert controller.bind_kept() == ["data"]
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "a"


async def test_a_volume_that_could_not_be_written_is_free_again() -> None:
    of, controller = zones(a="z1")
    controller.comes(LOCAL, volume("pv", class_name="local", on=("a",)), claim("data", class_name="local"))
    async with scheduling(of) as process:
        rule = process.wire.faults.add(Verb.BIND_VOLUME, Refuse(403, "no"))
        await arrives(of, "p", 3, **with_claims("data"))
        assert "binding persistentvolume pv to persistentvolumeclaim default/data: no" in objections(of, "p")

        process.wire.faults.remove(rule)
        await asyncio.sleep(5)
        assert controller.bind_kept() == ["data"]
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "a"


async def test_a_claim_that_was_bound_to_another_volume_takes_its_pod_there() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(LOCAL, volume("on-a", class_name="local", on=("a",)), claim("data", class_name="local"))
    async with scheduling(of):
        await arrives(of, "p", 3, **with_claims("data"))
        controller.comes(volume("on-b", class_name="local", on=("b",)))
        controller.bind("data", "on-b")
        await asyncio.sleep(A_MOMENT_S)
        told = objections(of, "p")
        await asyncio.sleep(5)

        assert "persistentvolumeclaim default/data was bound to persistentvolume on-b, not to on-a" in told
        assert node_of(of, "p") == "b"


async def test_a_free_volume_that_is_changed_may_do_for_a_pod_that_waits() -> None:
    of, controller = zones(a="z1")
    controller.comes(LOCAL)
    controller.comes(claim("data", class_name="local", size="2Gi"), volume("pv", class_name="local", size="1Gi"))
    async with scheduling(of):
        await arrives(of, "p", 1, **with_claims("data"))
        of.storage.update(VOLUMES, "", "pv", _of_two_gib)
        await asyncio.sleep(A_SECOND_S)
        controller.bind_kept()
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "p") == "a"


def _of_two_gib(found: PersistentVolume) -> PersistentVolume:
    return replace(found, spec=replace(found.spec, capacity={"storage": "2Gi"}))


# Volumes that are made once their pod has a node


async def test_a_volume_is_made_on_the_node_that_was_selected() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(
        storage_class("fast", allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": ["z2"]}]}]),
        claim("data", class_name="fast"),
    )
    async with scheduling(of):
        await arrives(of, "p", 3, **with_claims("data"))
        assert (controller.selected("data"), node_of(of, "p")) == ("b", "")

        controller.provision()
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "p") == "b"


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


async def test_a_node_on_which_no_volume_can_be_made_is_given_up_at_once() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("fast"), claim("data", class_name="fast"))
    async with scheduling(of):
        await arrives(of, "p", 3, **with_claims("data"))
        controller.reject("data")
        await asyncio.sleep(A_MOMENT_S)
        told = objections(of, "p")
        await asyncio.sleep(5)
        assert controller.selected("data") == "a"
        controller.provision()
        await asyncio.sleep(A_MOMENT_S)

        assert "the provisioner cannot create a volume for persistentvolumeclaim default/data on node a" in told
        assert node_of(of, "p") == "a"


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


async def test_a_pod_that_is_deleted_while_its_volume_is_made_frees_its_place_at_once() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("slow"), claim("data", class_name="slow"))
    async with scheduling(of) as process:
        await arrives(of, "p", 10, **with_claims("data"))
        of.pods.remove("default", "p")
        await asyncio.sleep(A_MOMENT_S)
        assert process.free == {"GPU-a-0": 16}
        await asyncio.sleep(10)

        assert process.service.dispatch.being_bound == 0


@pytest.mark.parametrize("written", [True, False], ids=["selected-node is written", "it is not"])
async def test_nothing_is_lost_when_the_process_is_killed_before_the_volume_is_made(*, written: bool) -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(storage_class("fast"), claim("data", class_name="fast"))
    first = start(Wire(of, Posts(of)))
    if not written:
        first.wire.faults.add(Verb.SELECT_NODE, Fail(500))
    await asyncio.sleep(A_MOMENT_S)
    await arrives(of, "p", 3, **with_claims("data"))
    selected = controller.selected("data")
    await first.kill()
    async with scheduling(of):
        await asyncio.sleep(A_SECOND_S)
        made = controller.provision()
        await asyncio.sleep(A_MOMENT_S)

        assert bool(selected) is written
        assert made == {"data": selected or "a"}
        assert node_of(of, "p") == made["data"]


async def test_a_pod_with_a_claim_that_has_a_node_waits_for_that_node() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(storage_class("fast"), claim("data", class_name="fast"))
    async with scheduling(of):
        await arrives(of, "fills", 16, to="b")
        of.storage.annotate_claim("default", "data", {"volume.kubernetes.io/selected-node": "b"})
        await arrives(of, "p", 3, **with_claims("data"))
        told = objections(of, "p")
        of.pods.remove("default", "fills")
        await asyncio.sleep(A_SECOND_S)
        controller.provision()
        await asyncio.sleep(A_MOMENT_S)

        assert "1 node(s) didn't find available persistent volumes to bind" in told
        assert node_of(of, "p") == "b"


async def test_what_a_watch_shows_late_is_waited_for() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("fast"), claim("data", class_name="fast"))
    async with scheduling(of) as process:
        process.wire.break_watches(Break.STALLED, CLAIMS)
        await arrives(of, "p", 3, **with_claims("data"))
        controller.provision()
        await asyncio.sleep(20)
        assert node_of(of, "p") == ""

        process.wire.resume_watches()
        await asyncio.sleep(A_SECOND_S)

        assert node_of(of, "p") == "a"


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
        await arrives(of, "p", 3, **with_claims("data"))
        told = objections(of, "p")
        of.storage.update(CAPACITIES, "kube-system", "room", lambda found: replace(found, capacity="5Gi"))
        await asyncio.sleep(A_SECOND_S)

        assert told == "False 0/1 nodes are available: 1 node(s) did not have enough free storage."
        assert controller.selected("data") == "a"


# Ephemeral volumes


async def test_an_ephemeral_volume_is_waited_for_from_the_claim_on() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("fast"))
    async with scheduling(of):
        await arrives(of, "p", 3, volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}])
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


@pytest.mark.parametrize("fault", [Silence(), Fail(500)], ids=str)
async def test_a_namespace_whose_claims_cannot_be_written_holds_few_places(fault: RequestFault) -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("fast"), *(claim(f"data-{number}", class_name="fast") for number in range(40)))
    async with scheduling(of) as process:
        rule = process.wire.faults.add(Verb.SELECT_NODE, fault)
        for number in range(40):
            comes(of, f"p-{number}", **with_claims(f"data-{number}"))
            await asyncio.sleep(0.1)
        await asyncio.sleep(20)  # two requests have timed out, one after the other
        assert process.service.dispatch.being_bound <= 12
        await asyncio.sleep(600)
        assert process.service.dispatch.being_bound <= 8

        process.wire.faults.remove(rule)
        await asyncio.sleep(320)
        controller.provision()
        await asyncio.sleep(A_SECOND_S)
        assert all(node_of(of, f"p-{number}") for number in range(40))
