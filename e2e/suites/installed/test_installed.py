"""The scheduler and the device plugin as they are installed, on whatever cluster: one of ours, kind's, somebody's.

They need a node whose GPU memory is announced and of which at least 3 units of one card are free. `E2E_IMAGE` names an
image with a shell that the nodes have or can pull; by default that of `make cluster` and `make kind`.
"""

import json
import os
from http import HTTPStatus
from typing import Any, Final

import pytest

from config.protocol import names
from e2e.control_plane.admin import Admin, Json, seen
from e2e.node import images

pytestmark = [pytest.mark.any_cluster, pytest.mark.installed]

IMAGE: Final = os.environ.get("E2E_IMAGE") or images.BUSYBOX
WITHIN_S: Final = 90.0
UNITS: Final = 3
TOO_MANY: Final = 999


def gpu_pod(name: str, units: int, **spec: Any) -> Json:  # noqa: ANN401 - fields of a pod
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-c", "exec sleep 1000000"],
        "resources": {"limits": {names.GPU_MEM: str(units)}},
    }
    # Nodes of ours have no network for pods.
    own = {"schedulerName": names.SCHEDULER_NAME, "hostNetwork": True, "terminationGracePeriodSeconds": 0}
    return {"metadata": {"name": name}, "spec": own | {"containers": [container]} | spec}


@pytest.fixture
async def gpu_nodes(admin: Admin) -> list[Json]:
    found = [node for node in await admin.items("/api/v1/nodes") if names.INVENTORY in node["metadata"]["annotations"]]
    assert found, "no node announces GPU memory: install the scheduler and the device plugin first, see README.md"
    return found


async def pod_seen(admin: Admin, namespace: str, name: str, wanted: Any) -> Json:  # noqa: ANN401 - as seen
    path = f"/api/v1/namespaces/{namespace}/pods"
    return await seen(admin, path, wanted, {"fieldSelector": f"metadata.name={name}"}, within_s=WITHIN_S)


def waits(found: Json) -> bool:
    conditions = found["status"].get("conditions", [])
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)


async def test_a_pod_gets_a_card_of_its_node_and_runs(admin: Admin, namespace: str, gpu_nodes: list[Json]) -> None:
    await admin.create(f"/api/v1/namespaces/{namespace}/pods", gpu_pod("one", UNITS))

    found = await pod_seen(admin, namespace, "one", lambda pod: pod["status"].get("phase") == "Running")

    (node,) = (node for node in gpu_nodes if node["metadata"]["name"] == found["spec"]["nodeName"])
    cards = {card["uuid"] for card in json.loads(node["metadata"]["annotations"][names.INVENTORY])["cards"]}
    (chosen,) = json.loads(found["metadata"]["annotations"][names.CARDS]).values()
    assert chosen in cards
    assert found["metadata"]["annotations"][names.MEM_POD] == str(UNITS)


async def test_a_pod_that_no_card_can_hold_waits_and_says_how_much_is_free(
    admin: Admin, namespace: str, gpu_nodes: list[Json]
) -> None:
    assert gpu_nodes
    await admin.create(f"/api/v1/namespaces/{namespace}/pods", gpu_pod("too-big", TOO_MANY))

    found = await pod_seen(admin, namespace, "too-big", waits)

    (condition,) = (one for one in found["status"]["conditions"] if one["type"] == "PodScheduled")
    assert f"wants {TOO_MANY}, most free " in condition["message"]


async def test_a_pod_without_gpu_memory_is_left_to_its_own_scheduler(admin: Admin, namespace: str) -> None:
    plain = gpu_pod("plain", UNITS, schedulerName="nobody")
    del plain["spec"]["containers"][0]["resources"]
    await admin.create(f"/api/v1/namespaces/{namespace}/pods", plain)
    await admin.create(f"/api/v1/namespaces/{namespace}/pods", gpu_pod("too-big", TOO_MANY))

    # The scheduler has seen the first pod when it has decided on the second.
    await pod_seen(admin, namespace, "too-big", waits)

    found = (await admin.get(f"/api/v1/namespaces/{namespace}/pods/plain")).body
    assert "nodeName" not in found["spec"]
    assert not found["metadata"].get("annotations")


async def test_a_forged_allocation_is_refused(admin: Admin, namespace: str) -> None:
    forged = gpu_pod("forged", UNITS)
    forged["metadata"]["annotations"] = {names.CARDS: '{"0":"GPU-somebody-elses"}'}

    answer = await admin.post(f"/api/v1/namespaces/{namespace}/pods", forged)

    assert answer.status == HTTPStatus.FORBIDDEN, answer
    assert "gpushare" in answer.body["message"]
