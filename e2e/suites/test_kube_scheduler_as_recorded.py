"""What was recorded of kube-scheduler is what its real process says: a sample of scenarios on a real API server.

The scenarios are set up as users and nodes would, nothing is pinned, and each probe is a pod that the released
kube-scheduler attempts on its own.
"""

import re
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import Final

import pytest

from e2e.control_plane.admin import Admin, Json, done, seen
from e2e.control_plane.cluster import ControlPlane
from e2e.suites.gpu_site import NODES, condition, is_bound
from tests.differential import wire
from tests.differential.manifests import Scenario, pod
from tests.differential.table import scenarios
from tests.differential.wire import Answer, Recorded

GROUPS: Final = (
    *("taints", "unschedulable", "node_affinity", "node_fields", "several_resources", "existing_anti_affinity"),
    *("required_affinity", "required_anti_affinity", "affinity_label_keys", "spread_hard", "spread_policies"),
    *("spread_domains", "spread_label_keys", "plain"),
)
# Two per group, among those that a user can set up: without pods that are finished or leave.
SAMPLE: Final = 2
NAMESPACES: Final = {"other": {"team": "a"}, "third": {"team": "b"}}
SCHEDULER: Final = {
    "percentageOfNodesToScore": 100,
    "parallelism": 1,
    "clientConnection": {"qps": 5000, "burst": 5000},
}
# No pod can ask so much: what kube-scheduler says of it names how many nodes it knows.
COUNTS_NODES: Final = pod("counts-nodes", requests={"cpu": "1000000"})
AT_ONCE: Final = {"gracePeriodSeconds": 0}
SOON_S: Final = 20.0


@pytest.fixture(scope="module")
def site() -> Iterator[ControlPlane]:
    with ControlPlane(scheduler=SCHEDULER) as started:
        yield started


@pytest.fixture
async def user(site: ControlPlane) -> AsyncIterator[Admin]:
    async with Admin(site.access()) as client:
        yield client


@pytest.mark.parametrize("group", GROUPS)
async def test_the_real_process_says_what_was_recorded(user: Admin, group: str) -> None:
    for name, labels in NAMESPACES.items():
        await user.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    for asked, recorded in sample(group):
        nodes = await set_up(user, asked)
        try:
            told = [
                await attempt(user, probe, kept.answer)
                for probe, kept in zip(asked.probes, recorded.probes, strict=True)
                if is_definite(kept.answer)
            ]
            assert told
        finally:
            await clear(user, nodes)


def sample(group: str) -> list[tuple[Scenario, Recorded]]:
    pairs = zip(scenarios(group), wire.read(group)[1], strict=True)
    return [(asked, kept) for asked, kept in pairs if all(map(can_be_made, asked.objects))][:SAMPLE]


def can_be_made(manifest: Json) -> bool:
    return manifest["kind"] != "Pod" or not ({"deletionTimestamp"} & manifest["metadata"].keys())


def is_definite(answer: Answer) -> bool:
    """Not an attempt that ends with an error: the pod's condition has other words for that."""
    return not answer.message.startswith("running ")


async def set_up(user: Admin, asked: Scenario) -> list[str]:
    """Make the objects; returns the nodes' names when kube-scheduler knows them."""
    nodes = [each["metadata"]["name"] for each in asked.objects if each["kind"] == "Node"]
    for each in asked.objects:
        if each["kind"] == "Node":
            await user.create(NODES, each)
    for each in asked.objects:
        if each["kind"] == "Pod":
            await user.create(pods_of(each), each)
    await user.create(pods_of(COUNTS_NODES), COUNTS_NODES)
    await waited_for(user, COUNTS_NODES, re.compile(rf"0/{len(nodes)} nodes are available: "))
    done(await user.delete(f"{pods_of(COUNTS_NODES)}/counts-nodes", AT_ONCE))
    return nodes


async def attempt(user: Admin, probe: Json, answer: Answer) -> str:
    """Create the probe, and wait until kube-scheduler has said what was recorded. Raises NotSeen."""
    path = pods_of(probe)
    created = await user.post(path, probe)
    if answer.invalid:
        assert created.status == HTTPStatus.UNPROCESSABLE_ENTITY
        assert answer.invalid.endswith(created.body["message"])
        return answer.invalid
    done(created)
    try:
        if answer.feasible:
            found = await waited_for(user, probe, None)
            assert found["spec"]["nodeName"] in answer.feasible
            return str(found["spec"]["nodeName"])
        await waited_for(user, probe, re.compile(re.escape(answer.message)))
        return answer.message
    finally:
        await user.delete(f"{path}/{probe['metadata']['name']}", AT_ONCE)


async def waited_for(user: Admin, manifest: Json, message: re.Pattern[str] | None) -> Json:
    """The pod, once its condition begins so; None: once it has a node."""

    def as_wanted(found: Json) -> bool:
        if message is None:
            return is_bound(found)
        return message.match(condition(found).get("message", "")) is not None

    query = {"fieldSelector": f"metadata.name={manifest['metadata']['name']}"}
    return await seen(user, pods_of(manifest), as_wanted, query, within_s=SOON_S)


async def clear(user: Admin, nodes: list[str]) -> None:
    for namespace in ("default", *NAMESPACES):
        await user.delete(f"/api/v1/namespaces/{namespace}/pods", AT_ONCE)
    for name in nodes:
        await user.delete(f"{NODES}/{name}")


def pods_of(manifest: Json) -> str:
    return f"/api/v1/namespaces/{manifest['metadata']['namespace']}/pods"


def test_the_sample_is_of_some_size() -> None:
    pairs = [pair for group in GROUPS for pair in sample(group)]
    assert len(pairs) == SAMPLE * len(GROUPS)
    assert sum(len(kept.probes) for _, kept in pairs) >= 150
