"""Pods with claims: they go where their volumes are, or can be had, and are bound once they have them."""

import asyncio

from msgspec.structs import replace

from scheduler.kube.port import VOLUMES
from scheduler.kube.storage import PersistentVolume
from scheduler.testing.cluster.faults import Refuse, Verb
from tests.support.volumes import ZONE, claim, storage_class, volume, with_claims
from tests.system.looking import A_SECOND_S, comes, node_of, objections
from tests.system.process import A_MOMENT_S, in_virtual_time, scheduling
from tests.system.volume_controller import zones

PV_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"


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
        rule = process.wire.faults.add(Verb.BIND_VOLUME, Refuse(403, "no"))
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


@in_virtual_time
async def test_a_free_volume_that_is_changed_may_do_for_a_pod_that_waits() -> None:
    of, controller = zones(a="z1")
    controller.comes(storage_class("local", provisioner="kubernetes.io/no-provisioner"))
    controller.comes(claim("data", class_name="local", size="2Gi"), volume("pv", class_name="local", size="1Gi"))
    async with scheduling(of):
        comes(of, "p", 1, **with_claims("data"))
        await asyncio.sleep(A_SECOND_S)
        of.storage.update(VOLUMES, "", "pv", _of_two_gib)
        await asyncio.sleep(A_SECOND_S)
        controller.bind_kept()
        await asyncio.sleep(A_SECOND_S)
        assert node_of(of, "p") == "a"


def _of_two_gib(found: PersistentVolume) -> PersistentVolume:
    return replace(found, spec=replace(found.spec, capacity={"storage": "2Gi"}))
