"""What pods with claims cost others: claims for one pod, limits of nodes, questions that are asked of everybody."""

import asyncio

import pytest
from msgspec.structs import replace

from config.settings.scheduler import SchedulerConfiguration
from scheduler.kube import storage
from scheduler.kube.port import CSI_NODES
from scheduler.testing.cluster.world import World
from tests.support.service.looking import A_SECOND_S, arrives, comes, node_of, nominated, objections, runs
from tests.support.service.process import A_MOMENT_S, Process, scheduling
from tests.support.service.volume_controller import zones
from tests.support.volumes import LOCAL, ZONE, claim, storage_class, volume, with_claims

# Restrictions and limits


async def test_a_claim_for_one_pod_goes_to_the_next_pod_when_the_first_is_gone() -> None:
    of, controller = zones(a="z1")
    controller.comes(claim("data", accessModes=["ReadWriteOncePod"]), volume("pv"))
    controller.bind("data", "pv")
    async with scheduling(of):
        comes(of, "first", 3, **with_claims("data"))
        await asyncio.sleep(A_MOMENT_S)
        await arrives(of, "second", 3, **with_claims("data"))
        assert (node_of(of, "first"), node_of(of, "second")) == ("a", "")
        told = objections(of, "second")

        of.pods.remove("default", "first")
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "second") == "a"
        assert told == (
            "False 0/1 nodes are available: 1 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod "
            "access mode already in-use by another pod."
        )


@pytest.mark.parametrize("looks_last", ["nobody", "a pod of higher priority"])
async def test_a_claim_for_one_pod_goes_to_the_next_pod_when_the_first_loses_its_kept_place(looks_last: str) -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(claim("data", accessModes=["ReadWriteOncePod"]), volume("pv"))
    controller.bind("data", "pv")
    async with scheduling(of):
        await runs(of, "low", 16, 1, nodeSelector={ZONE: "z1"})
        await runs(of, "first", 16, 10, nodeSelector={ZONE: "z1"}, **with_claims("data"))
        comes(of, "second", 3, priority=5, **with_claims("data"))
        await asyncio.sleep(A_MOMENT_S)
        assert (nominated(of, "first"), node_of(of, "second")) == ("a", "")
        if looks_last != "nobody":
            comes(of, "huge", 1000, priority=20)
            await asyncio.sleep(A_MOMENT_S)

        of.pods.delete("default", "first", grace_s=0)
        await asyncio.sleep(A_MOMENT_S)

        assert node_of(of, "second") == "b"


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
        await arrives(of, "second", 3, **with_claims("two"))
        assert node_of(of, "first") == "a"
        told = objections(of, "second")

        more = storage.CsiNodeSpec((storage.CsiNodeDriver("d", storage.CsiNodeAllocatable(2)),))
        of.storage.update(CSI_NODES, "", "a", lambda found: replace(found, spec=more))
        await asyncio.sleep(A_MOMENT_S)

        assert told == "False 0/1 nodes are available: 1 node(s) exceed max volume count."
        assert node_of(of, "second") == "a"


def csi_of(number: int) -> dict[str, str]:
    return {"driver": "d", "volumeHandle": f"h{number}"}


# Places that are reserved for who waits long

RESERVES = SchedulerConfiguration.model_validate({"bindTimeout": 0, "reserveAfter": "1m"})


async def starves_with(of: World, process: Process, name: str, claim_name: str) -> dict[str, str]:
    """A pod waits for a whole card with a claim, and a place is looked for; pod -> node of the places reserved."""
    comes(of, name, 16, **with_claims(claim_name))
    await asyncio.sleep(61)
    await arrives(of, "something-happens", 64, priority=-100)
    return {kept.pod.key.name: kept.node for kept in process.engine.nominations.reserved.values()}


async def test_a_place_is_reserved_where_a_volume_can_be_had_and_the_claim_is_bound_when_the_pod_gets_it() -> None:
    of, controller = zones(a="z1", b="z2")
    controller.comes(LOCAL, claim("data", class_name="local"))
    controller.comes(volume("pv", on=("z2",), key=ZONE, class_name="local"))
    async with scheduling(of, RESERVES) as process:
        for name, node in (("a0", "a"), ("b0", "b"), ("b1", "b")):
            comes(of, name, 6, to=node)
            await asyncio.sleep(A_MOMENT_S)
        assert await starves_with(of, process, "whole", "data") == {"whole": "b"}
        comes(of, "small", 4, to="b")
        of.pods.remove("default", "b0")
        await asyncio.sleep(A_SECOND_S)
        assert (node_of(of, "whole"), node_of(of, "small")) == ("", "")

        of.pods.remove("default", "b1")
        await asyncio.sleep(A_SECOND_S)
        controller.bind("data", "pv")
        await asyncio.sleep(A_SECOND_S)
        assert (node_of(of, "whole"), node_of(of, "small")) == ("b", "")


async def test_no_place_is_reserved_while_the_claim_for_one_pod_is_in_use() -> None:
    of, controller = zones(a="z1", b="z1")
    controller.comes(claim("data", accessModes=["ReadWriteOncePod"]), volume("pv"))
    controller.bind("data", "pv")
    async with scheduling(of, RESERVES) as process:
        comes(of, "user", 3, to="a", priority=1, **with_claims("data"))
        comes(of, "b0", 8, to="b")
        await asyncio.sleep(A_MOMENT_S)
        assert await starves_with(of, process, "whole", "data") == {}
        await arrives(of, "small", 4, to="b")
        assert node_of(of, "small") == "b"


# What costs whom


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


async def test_a_volume_that_comes_costs_a_question_whoever_waits_for_one() -> None:
    of, controller = zones(a="z1")
    controller.comes(LOCAL, *(claim(f"data-{number}", class_name="local") for number in range(100)))
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
