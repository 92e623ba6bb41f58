"""The device plugin on a real kubelet, with our scheduler: every container gets the card that was chosen for it."""

import asyncio
import random
import sys
from http import HTTPStatus
from typing import Final

import pytest

from config.protocol import environment, names
from e2e.control_plane import pinned
from e2e.control_plane.admin import Access, Admin, Json, done
from e2e.node.announced import allocatable, card_units
from e2e.node.node_pods import PODS, runs
from e2e.programs import manifests
from e2e.support.shared_node import (
    GIB,
    SharedNode,
    all_settled,
    healths,
    passing,
    pods,
    shared_pod,
    sharing,
    what_is_inside,
)

_STATEFUL_SETS: Final = "/apis/apps/v1/namespaces/default/statefulsets"
_SIDECAR: Final = "Always"
_UNITS: Final = 110
_HUNDREDS: Final = 300
# As many as a kubelet takes by default. Which of them an Allocate is for costs a question for each that waits.
_HUNDREDS_BY_ENVIRONMENT: Final = 100


def mixed(number: int, rng: random.Random) -> Json:
    """A pod as people have them: one or two containers, now and then an init container or a sidecar before them."""
    containers = [sharing(rng.randint(1, 2), name="main")]
    if number % 3 == 0:
        containers.append(sharing(rng.randint(0, 1), name="second"))
    init = []
    if number % 4 == 1:
        init.append(passing(1, name="prepare"))
    if number % 5 == 2:
        init.append(sharing(1, name="helper", restartPolicy=_SIDECAR))
    return shared_pod(f"mixed-{number}", containers, initContainers=init)


def rejected(number: int, node: str) -> Json:
    """A pod that somebody put on the node by hand, where it may not be: the kubelet allocates, and then rejects it."""
    return shared_pod(f"rejected-{number}", [sharing(1)], nodeName=node, nodeSelector={"no": "such"})


async def mismatches_of(
    shared: SharedNode,
    on_node: Admin,
    wanted: list[Json],
    refused: list[Json],
    *,
    by_cdi: bool,
    within_s: float = 120.0,
) -> list[str]:
    """What is wrong in any container of the pods, all started at once, with pods that are refused in between."""
    step = max(1, len(wanted) // max(1, len(refused)))
    between = list(wanted)
    for number, one in enumerate(refused):
        between.insert(number * (step + 1), one)
    async with pods(on_node, between) as created:
        found = {pod["metadata"]["name"]: pod for pod in await all_settled(on_node, created, within_s=within_s)}
        failed = {name for name, pod in found.items() if pod["status"]["phase"] == "Failed"}
        assert failed == {one["metadata"]["name"] for one in refused}
        running = [pod for name, pod in found.items() if name not in failed]
        return [wrong for pod in running for wrong in shared.mismatches(pod, by_cdi=by_cdi)]


async def test_the_node_announces_its_cards_and_the_kubelet_counts_their_units(
    shared: SharedNode, on_node: Admin
) -> None:
    found = await shared.node_seen(on_node, lambda node: allocatable(node) == _UNITS)
    assert list(card_units(found).values()) == [15, 15, 80]
    assert (found["status"]["capacity"][names.GPU_COUNT], healths(found)) == ("3", ["healthy"] * 3)


async def test_the_plugin_says_the_versions_of_the_server_and_of_its_kubelet(shared: SharedNode) -> None:
    await shared.plugin.said("kubernetes.version", program="kube-apiserver", version=pinned.kubernetes_version())
    await shared.plugin.said("kubernetes.version", program="kubelet", version=pinned.kubernetes_version())
    assert not shared.plugin.lines("kubernetes.feature_off")


async def test_what_somebody_takes_off_the_node_is_put_back(shared: SharedNode, on_node: Admin) -> None:
    path, annotation = f"/api/v1/nodes/{shared.node.name}", {"metadata": {"annotations": {names.INVENTORY: None}}}
    done(await on_node.patch(path, annotation))
    count = {"status": {"capacity": {names.GPU_COUNT: None}}}
    done(await on_node.patch(f"{path}/status", count))
    await shared.node_seen(
        on_node, lambda node: len(healths(node)) == 3 and node["status"]["capacity"].get(names.GPU_COUNT) == "3"
    )


async def test_forty_pods_with_others_rejected_between_them_get_their_cards(shared: SharedNode, on_node: Admin) -> None:
    rng = random.Random(40)  # noqa: S311 - the same pods every time
    wanted = [mixed(number, rng) for number in range(40)]
    refused = [rejected(number, shared.node.name) for number in range(6)]
    assert await mismatches_of(shared, on_node, wanted, refused, by_cdi=True) == []


async def test_fifteen_pods_get_their_cards_by_environment_alone(shared: SharedNode, on_node: Admin) -> None:
    rng = random.Random(15)  # noqa: S311 - as above
    async with shared.instead(mode="environment") as plugin:
        await plugin.ready()
        assert (await plugin.said("mode"))["mode"] == "environment"
        wanted = [mixed(number, rng) for number in range(15)]
        refused = [rejected(number, shared.node.name) for number in range(3)]
        assert await mismatches_of(shared, on_node, wanted, refused, by_cdi=False) == []


@pytest.mark.nightly
@pytest.mark.parametrize(("mode", "count"), [("cdi", _HUNDREDS), ("environment", _HUNDREDS_BY_ENVIRONMENT)])
async def test_hundreds_of_pods_with_others_rejected_between_them_get_their_cards(
    shared: SharedNode, on_node: Admin, mode: str, count: int
) -> None:
    rng = random.Random(300)  # noqa: S311 - as above
    async with shared.instead([80 * GIB] * 8, mode=mode) as other:
        await other.ready()
        await shared.node_seen(on_node, lambda node: allocatable(node) == 640)
        wanted = [mixed(number, rng) for number in range(count)]
        refused = [rejected(number, shared.node.name) for number in range(count // 10)]
        wrong = await mismatches_of(shared, on_node, wanted, refused, by_cdi=mode == "cdi", within_s=900)
        sys.stdout.write(f"{mode}: {count} pods, {count // 10} rejected, {len(wrong)} mismatches\n")
        assert wrong == []


async def test_three_replicas_of_the_demo_share_one_card(shared: SharedNode, on_node: Admin) -> None:
    template = {"metadata": {"labels": {"app": "binpack-1"}}, "spec": shared_pod("any", [sharing(3)])["spec"]}
    spec = {"serviceName": "binpack-1", "replicas": 3, "selector": {"matchLabels": {"app": "binpack-1"}}}
    await on_node.create(_STATEFUL_SETS, {"metadata": {"name": "binpack-1"}, "spec": {**spec, "template": template}})
    try:
        found = [await runs(on_node, f"binpack-1-{number}") for number in range(3)]
        assert [wrong for pod in found for wrong in shared.mismatches(pod)] == []
        inside = [what_is_inside(shared.node.container(pod)) for pod in found]
        assert len({one[environment.CARD_UUIDS] for one in inside}) == 1
        assert {(one[environment.MEM_CONTAINER], one[names.MEM_DEV]) for one in inside} == {("3", "15")}
    finally:
        await on_node.delete(f"{_STATEFUL_SETS}/binpack-1")
        for number in range(3):
            await on_node.delete(f"{PODS}/binpack-1-{number}", {"gracePeriodSeconds": 0})


async def test_a_pod_gets_several_cards_or_a_whole_one_and_nothing_by_asking_for_all(
    shared: SharedNode, on_node: Admin
) -> None:
    everything = [{"name": environment.VISIBLE_DEVICES, "value": "all"}]
    wanted = [
        shared_pod("several", [sharing(4), sharing(2, name="d")], metadata={"annotations": {names.GPU_COUNT: "2"}}),
        shared_pod("whole", [sharing(1)], metadata={"annotations": {names.EXCLUSIVE: "true"}}),
        shared_pod("greedy", [sharing(1, env=everything)]),
    ]
    async with pods(on_node, wanted) as created:
        found = await all_settled(on_node, created)
        assert [wrong for pod in found for wrong in shared.mismatches(pod)] == []
        several = what_is_inside(shared.node.container(found[0]))
        assert len(several["cards"].split()) == 2
        assert (several[environment.MEM_CONTAINER], several[names.MEM_POD]) == ("2", "4")


async def test_a_pod_that_the_original_extender_bound_gets_its_card(shared: SharedNode, on_node: Admin) -> None:
    """By `_IDX` alone, in a Binding of an account that may write it."""
    access = shared.node.cluster.access()
    bearer = f"Bearer {await manifests.token(on_node)}"
    old = {
        names.MEM_IDX: "1",
        names.MEM_POD: "3",
        names.MEM_DEV: "15",
        names.MEM_ASSIGNED: "false",
        names.MEM_ASSUME_TIME: "1785000000000000000",
    }
    wanted = shared_pod("original", [sharing(3)]) | {}
    wanted["spec"]["schedulerName"] = "nobody"
    async with pods(on_node, [wanted]) as created, Admin(Access(access.url, access.tls, bearer)) as extender:
        target = {"apiVersion": "v1", "kind": "Node", "name": shared.node.name}
        bound = await extender.post(
            f"{PODS}/original/binding", {"metadata": {"name": "original", "annotations": old}, "target": target}
        )
        assert bound.status == HTTPStatus.CREATED
        (found,) = await all_settled(on_node, created)
        uuid = list(card_units(await shared.read(on_node)))[1]
        inside = what_is_inside(shared.node.container(found))
        assert (inside["cards"], inside[names.MEM_IDX], inside[environment.MEM_CONTAINER]) == (uuid, "1", "3")


async def test_a_unit_too_small_for_a_message_is_refused_with_one_that_fits(shared: SharedNode, on_node: Admin) -> None:
    eight = [80 * GIB] * 8
    async with shared.instead(eight, memoryUnitMiB=1) as plugin:
        assert await asyncio.to_thread(plugin.child.process.wait, 30) == 2
        log = plugin.log.read_text()
        assert "655360 devices" in log
        assert "the kubelet accepts 4 MiB; memoryUnitMiB 4 would fit" in log
    async with shared.instead(eight, memoryUnitMiB=128) as plugin:
        await plugin.ready()
        await shared.node_seen(on_node, lambda node: allocatable(node) == 5120)


async def test_ids_in_the_originals_style_do_as_well(shared: SharedNode, on_node: Admin) -> None:
    async with shared.instead(oldStyleIds=True) as plugin:
        await plugin.ready()
        async with pods(on_node, [shared_pod(f"styled-{number}", [sharing(2)]) for number in range(3)]) as created:
            found = await all_settled(on_node, created)
            assert [wrong for pod in found for wrong in shared.mismatches(pod)] == []
