import asyncio
import random
import time
from pathlib import Path

import msgspec
import pytest

from scheduler.dispatch.binding_cycle import Binder
from scheduler.dispatch.in_flight_limit import InFlightLimit
from scheduler.kube import objects, port
from scheduler.kube.rest.client import KubeCluster
from scheduler.kube.rest.reviews import NEEDED
from tests.support.servers.api_server import BOUND, ApiServer, manifest, ok, status
from tests.support.servers.byte_server import CREATED, ByteServer, connected

POD_OBJECT = {"kind": "Pod"}
EVENT_OBJECT = {"kind": "Event"}
POD = port.PodKey("default", "a", "uid-a")
BINDING = port.Binding(POD, "node-1", {"gpushare/cards": "x", "other": "y"})
UNSCHEDULABLE = objects.PodCondition("PodScheduled", "False", "Unschedulable", "0/3 nodes")
EVENT = port.EventRecord(
    name="a.17",
    kind="Pod",
    namespace="default",
    object_name="a",
    object_uid="uid-a",
    type="Warning",
    reason="FailedScheduling",
    action="Scheduling",
    note="0/3 nodes are available",
    time_s=1_700_000_000.25,
    reporting_controller="gpushare-scheduler",
    reporting_instance="gpushare-scheduler-host",
)


def as_the_port(cluster: KubeCluster) -> port.Cluster:
    return cluster


async def test_the_client_satisfies_the_port(cluster: KubeCluster) -> None:
    assert as_the_port(cluster) is cluster


async def test_a_binding_is_one_request_with_uid_and_annotations(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [ok(BOUND)]

    await cluster.bind(BINDING, timeout_s=3.5)

    (seen,) = api.seen
    assert (seen.method, seen.path) == ("POST", "/api/v1/namespaces/default/pods/a/binding")
    assert seen.query == {"timeout": "4s"}
    assert seen.json == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "namespace": "default", "uid": "uid-a", "annotations": BINDING.annotations},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"},
    }


async def test_a_repeated_binding_is_the_same_bytes(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [status(500, "etcd"), ok(BOUND)]

    with pytest.raises(port.ApiFailed):
        await cluster.bind(BINDING, timeout_s=4.0)
    await cluster.bind(BINDING, timeout_s=4.0)

    assert api.seen[0].body == api.seen[1].body


async def test_a_binding_is_not_repeated_by_the_client(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [status(409, 'pod a is already assigned to node "node-2"')]

    with pytest.raises(port.ApiConflict, match="already assigned"):
        await cluster.bind(BINDING, timeout_s=4.0)

    assert len(api.seen) == 1


async def test_a_binding_whose_connection_dies_is_sent_again_by_the_binder(server: ByteServer, tmp_path: Path) -> None:
    """It may have been executed: only the Binder knows what the answers of two of them mean."""

    async def dies_with_it(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await server.request(reader)

    server.script = [dies_with_it, server.answers(CREATED)]
    cluster = KubeCluster(await connected(tmp_path, server.url), random.Random(1))  # noqa: S311 - a seed, no secret
    now_s = asyncio.get_running_loop().time
    retries: list[tuple[int, str]] = []
    binder = Binder(
        cluster=cluster,
        limit=InFlightLimit(4, now_s, lambda _: 0.01),
        now_s=now_s,
        timeout_s=4.0,
        backoff_s=lambda _: 0.01,
        on_retry=lambda _, status, why: retries.append((status, why)),
        gone=lambda _: False,
    )

    await binder.bind(BINDING)

    await cluster.close()
    assert retries == [(0, "connection failed: the connection ended before the answer")]
    assert server.requests[0] == server.requests[1]
    assert len(server.requests) == 2


async def test_a_pod_is_read_as_it_is_now(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [ok(manifest("a"))]

    pod = await cluster.pod("default", "a")

    assert pod is not None
    assert pod.metadata.uid == "uid-a"
    assert (api.seen[0].path, api.seen[0].query) == ("/api/v1/namespaces/default/pods/a", {})


async def test_a_pod_that_does_not_exist_is_none(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [status(404, 'pods "a" not found')]

    assert await cluster.pod("default", "a") is None


async def test_a_pod_that_cannot_be_decoded_is_a_server_failure(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [ok({"kind": "Pod", "metadata": 7})]

    with pytest.raises(port.ApiFailed, match="cannot be decoded"):
        await cluster.pod("default", "a")


async def test_a_condition_is_a_patch_of_the_status_of_this_very_pod(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [ok(POD_OBJECT)]

    await cluster.set_pod_condition(POD, UNSCHEDULABLE)

    (seen,) = api.seen
    (condition,) = seen.json["status"]["conditions"]
    since = condition.pop("lastTransitionTime")
    assert (seen.method, seen.path) == ("PATCH", "/api/v1/namespaces/default/pods/a/status")
    assert seen.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert seen.json["metadata"] == {"uid": "uid-a"}
    assert condition == msgspec.to_builtins(UNSCHEDULABLE)
    assert abs(time.mktime(time.strptime(since, "%Y-%m-%dT%H:%M:%SZ")) - time.mktime(time.gmtime())) < 60


async def test_a_condition_whose_status_stays_keeps_its_transition_time(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [ok(POD_OBJECT)] * 3

    await cluster.set_pod_condition(POD, UNSCHEDULABLE)
    await cluster.set_pod_condition(POD, msgspec.structs.replace(UNSCHEDULABLE, message="0/4 nodes"), changed=False)
    await cluster.set_pod_condition(POD, objects.PodCondition("PodScheduled", "True"))

    timed = ["lastTransitionTime" in seen.json["status"]["conditions"][0] for seen in api.seen]
    assert timed == [True, False, True]


async def test_a_condition_without_a_reason_clears_the_old_one(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [ok(POD_OBJECT)]

    await cluster.set_pod_condition(POD, objects.PodCondition("PodScheduled", "True"))

    condition = api.seen[0].json["status"]["conditions"][0]
    assert (condition["reason"], condition["message"]) == ("", "")


@pytest.mark.parametrize(
    ("message", "error"),
    [
        pytest.param('Pod "a" is invalid: metadata.uid: Invalid value: "x"', port.ApiConflict, id="another uid"),
        pytest.param('Pod "a" is invalid: status.conditions[0].type: Required', port.ApiRejected, id="a bad condition"),
    ],
)
async def test_the_condition_of_a_pod_with_another_uid_is_a_conflict(
    api: ApiServer, cluster: KubeCluster, message: str, error: type[port.ApiError]
) -> None:
    api.script = [status(422, message)]

    with pytest.raises(port.ApiError) as raised:
        await cluster.set_pod_condition(POD, UNSCHEDULABLE)

    assert type(raised.value) is error


async def test_an_event_is_as_kube_scheduler_writes_it(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [ok(EVENT_OBJECT)]

    await cluster.create_event(EVENT)

    (seen,) = api.seen
    assert (seen.method, seen.path) == ("POST", "/apis/events.k8s.io/v1/namespaces/default/events")
    assert seen.json == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "a.17", "namespace": "default"},
        "eventTime": "2023-11-14T22:13:20.250000Z",
        "reportingController": "gpushare-scheduler",
        "reportingInstance": "gpushare-scheduler-host",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "a", "uid": "uid-a"},
        "note": "0/3 nodes are available",
        "type": "Warning",
    }


@pytest.mark.parametrize("namespace", ["", "default"])
async def test_the_events_of_a_node_live_in_the_namespace_default(
    api: ApiServer, cluster: KubeCluster, namespace: str
) -> None:
    api.script = [ok(EVENT_OBJECT)]
    record = port.EventRecord(
        name="n.1",
        kind="Node",
        namespace=namespace,
        object_name="n",
        object_uid="uid-n",
        type="Warning",
        reason="r",
        action="a",
        note="note",
        time_s=1.0,
        reporting_controller="controller",
        reporting_instance="instance",
    )

    await cluster.create_event(record)

    assert api.seen[0].path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert api.seen[0].json["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-n"}


@pytest.mark.parametrize(
    ("note", "cut"),
    [
        pytest.param("x" * 1024, "x" * 1024, id="as long as it may be"),
        pytest.param("x" * 2000, "x" * 1021 + "…", id="too long"),
        pytest.param("x" + "é" * 512, "x" + "é" * 510 + "…", id="too long in bytes"),
    ],
)
async def test_a_note_is_cut_to_1024_bytes(api: ApiServer, cluster: KubeCluster, note: str, cut: str) -> None:
    api.script = [ok(EVENT_OBJECT)]
    long = port.EventRecord(
        name="a.1",
        kind="Pod",
        namespace="default",
        object_name="a",
        object_uid="u",
        type="Warning",
        reason="r",
        action="a",
        note=note,
        time_s=1.0,
        reporting_controller="controller",
        reporting_instance="instance",
    )

    await cluster.create_event(long)

    assert api.seen[0].json["note"] == cut


async def test_a_repeated_event_is_a_patch_of_its_series(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [ok(EVENT_OBJECT)]

    await cluster.update_event(EVENT, port.EventSeries(count=3, last_time_s=1_700_000_001.0))

    (seen,) = api.seen
    assert (seen.method, seen.path) == ("PATCH", "/apis/events.k8s.io/v1/namespaces/default/events/a.17")
    assert seen.json == {"series": {"count": 3, "lastObservedTime": "2023-11-14T22:13:21.000000Z"}}


async def test_an_event_that_has_expired_is_not_found(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [status(404, "not found")]

    with pytest.raises(port.ApiNotFound):
        await cluster.update_event(EVENT, port.EventSeries(2, 1.0))


async def test_the_rights_that_are_missing_are_named(api: ApiServer, cluster: KubeCluster) -> None:
    answers = [ok({"kind": "SelfSubjectAccessReview", "status": {"allowed": True}})] * len(NEEDED)
    answers[-1] = ok({"kind": "SelfSubjectAccessReview", "status": {"allowed": False}})
    answers[0] = ok({"kind": "SelfSubjectAccessReview", "status": {"allowed": False, "reason": "no role"}})
    api.script = answers

    missing = await cluster.missing_rights()

    asked = [seen.json["spec"]["resourceAttributes"] for seen in api.seen]
    assert len(missing) == 2
    assert {"verb": "create", "resource": "pods", "subresource": "binding"} in asked
    assert {"verb": "list", "resource": "configmaps", "namespace": "kube-system"} in asked
    assert {"verb": "patch", "resource": "events", "group": "events.k8s.io"} in asked


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("list pods", id="plain"),
        pytest.param("list configmaps in namespace kube-system", id="one namespace"),
        pytest.param("create pods/binding", id="subresource"),
        pytest.param("create events.events.k8s.io", id="group"),
    ],
)
def test_a_right_reads_like_a_sentence(words: str) -> None:
    assert words in {str(right) for right in NEEDED}


async def test_a_review_that_is_refused_is_an_error(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [status(403, "may not ask")] * len(NEEDED)

    with pytest.raises(port.ApiForbidden, match="may not ask"):
        await cluster.missing_rights()
