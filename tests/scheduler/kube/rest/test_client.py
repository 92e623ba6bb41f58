"""Requests of the client as they go over the wire; what they do is in tests/contract."""

import time
from dataclasses import replace

import msgspec
import pytest

from scheduler.kube import objects, port
from scheduler.kube.rest.client import KubeCluster
from tests.support.servers.api_server import ApiServer, manifest, ok, status

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


async def test_a_binding_is_one_request_with_uid_and_annotations(api: ApiServer, cluster: KubeCluster) -> None:
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
    api.script = [status(500, "etcd")]

    with pytest.raises(port.ApiFailed):
        await cluster.bind(BINDING, timeout_s=4.0)
    await cluster.bind(BINDING, timeout_s=4.0)

    assert api.seen[0].body == api.seen[1].body


async def test_a_pod_is_read_as_it_is_now(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [ok(manifest("a"))]

    pod = await cluster.pod("default", "a")

    assert pod is not None
    assert pod.metadata.uid == "uid-a"
    assert (api.seen[0].path, api.seen[0].query) == ("/api/v1/namespaces/default/pods/a", {})


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


async def test_only_an_invalid_uid_is_a_conflict(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [status(422, 'Pod "a" is invalid: status.conditions[0].type: Required')]

    with pytest.raises(port.ApiRejected):
        await cluster.set_pod_condition(POD, UNSCHEDULABLE)


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
    record = replace(EVENT, kind="Node", namespace=namespace, object_name="n", object_uid="uid-n")

    await cluster.create_event(record)

    assert api.seen[0].path == "/apis/events.k8s.io/v1/namespaces/default/events"
    assert api.seen[0].json["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-n"}


async def test_a_repeated_event_is_a_patch_of_its_series(api: ApiServer, cluster: KubeCluster) -> None:
    api.script = [ok(EVENT_OBJECT)]

    await cluster.update_event(EVENT, port.EventSeries(count=3, last_time_s=1_700_000_001.0))

    (seen,) = api.seen
    assert (seen.method, seen.path) == ("PATCH", "/apis/events.k8s.io/v1/namespaces/default/events/a.17")
    assert seen.json == {"series": {"count": 3, "lastObservedTime": "2023-11-14T22:13:21.000000Z"}}
