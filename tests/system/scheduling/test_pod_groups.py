"""PodGroups of Kubernetes, of scheduler-plugins and of Volcano, through the real service."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from scheduler.kube.port import Kind
from scheduler.kube.scheduling import OPTIONAL, POD_GROUPS, PodGroupObject
from scheduler.testing.cluster.world import World
from tests.support.builders import wire_node
from tests.support.service.looking import A_SECOND_S, arrives, comes, condition, node_of
from tests.support.service.process import EPOCH_S, scheduling

GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}
CASES = [
    pytest.param("scheduling.k8s.io", {"schedulingGroup": {"podGroupName": "train"}}, GANG, id="native"),
    pytest.param(
        "scheduling.x-k8s.io", {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}, {"minMember": 3}, id="plugins"
    ),
    pytest.param(
        "scheduling.volcano.sh",
        {"annotations": {"scheduling.k8s.io/group-name": "train"}},
        {"minMember": 3},
        id="Volcano",
    ),
]


def serving(*kinds: Kind[PodGroupObject], cards: int = 3) -> World:
    loop = asyncio.get_running_loop()
    of = World(lambda: EPOCH_S + loop.time(), serves=kinds)
    of.nodes.add(wire_node("a", [16] * cards))
    return of


def group(of: World, kind: Kind[PodGroupObject], spec: Mapping[str, Any]) -> None:
    of.optional.create(kind, {"metadata": {"name": "train", "namespace": "default"}, "spec": spec})


def placed(of: World, *names: str) -> list[bool]:
    return [bool(node_of(of, name)) for name in names]


@pytest.mark.parametrize(("api_group", "mark", "spec"), CASES)
async def test_pods_start_together_as_their_pod_group_says(
    api_group: str, mark: dict[str, Any], spec: dict[str, Any]
) -> None:
    for kind in POD_GROUPS[api_group]:
        of = serving(kind)
        async with scheduling(of):
            for name in ("p0", "p1"):
                await arrives(of, name, 16, **mark)
            await asyncio.sleep(6 * A_SECOND_S)
            told = f"waiting for PodGroup train of {api_group}: it does not exist, or cannot be read."
            assert condition(of, "p0") == f"False 0/1 nodes are available: {told}"
            group(of, kind, spec)
            await asyncio.sleep(6 * A_SECOND_S)
            assert condition(of, "p0").endswith(f"PodGroup train of {api_group}. 2 of at least 3 exist.")
            await arrives(of, "p2", 16, **mark)
            assert placed(of, "p0", "p1", "p2") == [True] * 3


async def test_a_lower_minimum_lets_the_gang_start() -> None:
    (kind,) = POD_GROUPS["scheduling.x-k8s.io"]
    of = serving(kind, cards=2)
    mark: dict[str, Any] = {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}
    group(of, kind, {"minMember": 3})
    async with scheduling(of):
        for number in range(3):
            comes(of, f"p{number}", 16, **mark)
        await asyncio.sleep(A_SECOND_S)
        assert placed(of, "p0", "p1", "p2") == [False] * 3
        of.optional.delete(kind, "default", "train")
        await asyncio.sleep(6 * A_SECOND_S)
        assert "it does not exist" in condition(of, "p0")
        group(of, kind, {"minMember": 2})
        await asyncio.sleep(15 * A_SECOND_S)
        assert sum(placed(of, "p0", "p1", "p2")) == 2


async def test_pods_of_a_native_group_without_a_gang_start_one_by_one() -> None:
    kind = POD_GROUPS["scheduling.k8s.io"][0]
    of = serving(kind, cards=1)
    group(of, kind, {"schedulingPolicy": {"basic": {}}})
    async with scheduling(of):
        for name in ("p0", "p1"):
            await arrives(of, name, 16, schedulingGroup={"podGroupName": "train"})
        assert placed(of, "p0", "p1") == [True, False]


async def test_a_group_larger_than_the_limit_is_told() -> None:
    (kind,) = POD_GROUPS["scheduling.x-k8s.io"]
    of = serving(kind)
    group(of, kind, {"minMember": 600})
    async with scheduling(of):
        await arrives(of, "p0", 16, labels={"scheduling.x-k8s.io/pod-group": "train"})
        await asyncio.sleep(6 * A_SECOND_S)
        told = "needs 600 pods at once; at most 512 are supported."
        assert condition(of, "p0").endswith(f"PodGroup train of scheduling.x-k8s.io {told}")


async def test_a_server_that_knows_no_pod_groups_is_asked_seldom_and_schedules_pods() -> None:
    of = serving()
    async with scheduling(of) as process:
        await arrives(of, "p0", 16)
        await asyncio.sleep(300 * A_SECOND_S)
        assert placed(of, "p0") == [True]
        assert process.service.not_ready() == ""
        asked = [process.wire.connections[kind.name] for kind in OPTIONAL]
        assert max(asked) <= 12
