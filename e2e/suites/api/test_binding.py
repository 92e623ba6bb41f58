"""What the API server does with a Binding: the facts that one-request binding rests on."""

from collections.abc import Callable
from http import HTTPStatus

import msgspec
import pytest

from e2e.control_plane.admin import Admin, ApiResponse, Json

pytestmark = pytest.mark.any_cluster

# Of no meaning to anybody: where the policies of `deploy` are in force, an administrator may not write the scheduler's.
CARDS = {"example.com/cards": '{"0":"GPU-a"}', "example.com/allocation": '{"0":{"0":3}}'}


@pytest.fixture
async def pod(admin: Admin, namespace: str) -> Json:
    """A pod that no scheduler takes."""
    spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "none", "imagePullPolicy": "Never"}]}
    return await admin.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "p"}, "spec": spec})


def path_of(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def binding(pod: Json, node: str = "node-a", uid: str | None = None) -> Json:
    metadata = {"name": pod["metadata"]["name"], "uid": uid or pod["metadata"]["uid"], "annotations": CARDS}
    return {"metadata": metadata, "target": {"kind": "Node", "name": node}}


async def bind(admin: Admin, pod: Json, body: Json | None = None) -> ApiResponse:
    return await admin.post(f"{path_of(pod)}/binding", body or binding(pod))


async def first_change(admin: Admin, pod: Json) -> Json:
    """The pod as the first watch event after its creation shows it."""
    pods, version = path_of(pod).rpartition("/")[0], pod["metadata"]["resourceVersion"]
    event = await anext(admin.watch(pods, {"resourceVersion": version}))
    changed: Json = msgspec.json.decode(event)["object"]
    return changed


async def test_the_first_event_with_a_node_name_carries_the_annotations(admin: Admin, pod: Json) -> None:
    status, _ = await bind(admin, pod)

    seen = await first_change(admin, pod)

    assert status == HTTPStatus.CREATED
    assert seen["spec"]["nodeName"] == "node-a"
    assert CARDS.items() <= seen["metadata"]["annotations"].items()


async def test_a_binding_overwrites_the_keys_it_sends_and_keeps_the_others(admin: Admin, pod: Json) -> None:
    await admin.patch(path_of(pod), {"metadata": {"annotations": {"example.com/cards": "old", "mine": "kept"}}})

    await bind(admin, pod)

    assert (await admin.get(path_of(pod))).body["metadata"]["annotations"] == CARDS | {"mine": "kept"}


async def test_a_binding_sets_the_condition_pod_scheduled(admin: Admin, pod: Json) -> None:
    await bind(admin, pod)

    conditions = (await admin.get(path_of(pod))).body["status"]["conditions"]
    assert [c["status"] for c in conditions if c["type"] == "PodScheduled"] == ["True"]


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        pytest.param(lambda pod: binding(pod, uid="0" * 8), 409, "UID in precondition", id="another pod's uid"),
        pytest.param(lambda pod: binding(pod) | {"metadata": {"name": "q"}}, 400, "name", id="another pod's name"),
        pytest.param(lambda pod: binding(pod, node=""), 500, "target.name: Required value", id="no node"),
    ],
)
async def test_a_binding_that_does_not_match_is_refused_and_changes_nothing(
    admin: Admin, pod: Json, change: Callable[[Json], Json], status: int, message: str
) -> None:
    answer = await bind(admin, pod, change(pod))

    assert answer.status == status
    assert message in answer.body["message"]
    assert (await admin.get(path_of(pod))).body["metadata"]["resourceVersion"] == pod["metadata"]["resourceVersion"]


@pytest.mark.parametrize("node", [pytest.param("node-a", id="same node"), pytest.param("node-b", id="other node")])
async def test_a_pod_that_is_bound_is_not_bound_again(admin: Admin, pod: Json, node: str) -> None:
    await bind(admin, pod)

    status, body = await bind(admin, pod, binding(pod, node))

    assert status == HTTPStatus.CONFLICT
    assert 'pod p is already assigned to node "node-a"' in body["message"]


async def test_a_pod_that_is_gone_is_not_found(admin: Admin, pod: Json) -> None:
    await admin.delete(path_of(pod), {"gracePeriodSeconds": 0})

    assert (await bind(admin, pod)).status == HTTPStatus.NOT_FOUND


async def test_a_pod_that_is_being_deleted_is_not_bound(admin: Admin, pod: Json) -> None:
    await admin.patch(path_of(pod), {"metadata": {"finalizers": ["example.com/stay"]}})
    await admin.delete(path_of(pod))

    status, body = await bind(admin, pod)

    await admin.patch(path_of(pod), {"metadata": {"finalizers": None}})
    assert status == HTTPStatus.CONFLICT
    assert "pod p is being deleted, cannot be assigned to a host" in body["message"]


async def test_a_pod_with_a_scheduling_gate_is_not_bound(admin: Admin, namespace: str) -> None:
    spec = {"schedulingGates": [{"name": "example.com/wait"}], "containers": [{"name": "c", "image": "none"}]}
    gated = await admin.create(f"/api/v1/namespaces/{namespace}/pods", {"metadata": {"name": "p"}, "spec": spec})

    status, body = await bind(admin, gated)

    assert status == HTTPStatus.CONFLICT
    assert "non-empty .spec.schedulingGates" in body["message"]
