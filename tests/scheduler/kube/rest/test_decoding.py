"""Objects of the API as they are decoded, and those that are not what they should be."""

import json
import tracemalloc
from typing import Any

import pytest

from scheduler.kube import objects, port
from scheduler.kube.rest import decoding
from scheduler.kube.rest.decoding import Decoder
from tests.support.servers.api_server import bookmark, line, manifest

PODS = Decoder(port.PODS)


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        pytest.param("ADDED", port.Changed, id="added"),
        pytest.param("MODIFIED", port.Changed, id="modified"),
        pytest.param("DELETED", port.Deleted, id="deleted"),
    ],
)
def test_an_object_becomes_an_event(kind: str, event: type[object]) -> None:
    watched = PODS.watched(line(kind, manifest("a")))

    assert isinstance(watched, event)
    assert isinstance(watched, port.Changed | port.Deleted)
    assert watched.object.metadata.name == "a"


def test_a_bookmark_has_only_a_version() -> None:
    assert PODS.watched(bookmark("12")) == port.Bookmark("12")


def test_the_bookmark_that_closes_a_streamed_list_ends_the_list() -> None:
    assert PODS.watched(bookmark("12", ends_list=True)) == port.ListEnds("12")


@pytest.mark.parametrize(
    ("code", "error"),
    [
        pytest.param(410, port.WatchExpired, id="expired"),
        pytest.param(500, port.ApiFailed, id="failed"),
        pytest.param(429, port.ApiThrottled, id="throttled"),
    ],
)
def test_an_error_event_is_raised_with_the_servers_message(code: int, error: type[port.ApiError]) -> None:
    told = {"kind": "Status", "metadata": {}, "message": "too old", "code": code, "details": {"retryAfterSeconds": 3}}

    with pytest.raises(error, match=r"^too old$") as raised:
        PODS.watched(line("ERROR", told))

    assert raised.value.status == code


def test_a_throttling_event_says_how_long_to_wait() -> None:
    told = {"message": "slow down", "code": 429, "details": {"retryAfterSeconds": 3}}

    with pytest.raises(port.ApiThrottled) as raised:
        PODS.watched(line("ERROR", told))

    assert raised.value.retry_after_s == 3.0


@pytest.mark.parametrize(
    ("seconds", "waits_s"),
    [
        pytest.param(int("9" * 309), port.LONGEST_RETRY_AFTER_S, id="more than a float can hold"),
        pytest.param(-int("9" * 309), 0.0, id="less than one"),
    ],
)
def test_a_time_to_wait_that_is_none_is_bounded(seconds: int, waits_s: float) -> None:
    told = {"message": "slow down", "code": 429, "details": {"retryAfterSeconds": seconds}}

    with pytest.raises(port.ApiThrottled) as raised:
        PODS.watched(line("ERROR", told))

    assert raised.value.retry_after_s == waits_s


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param(line("ADDED", manifest("a") | {"spec": 5}), "default/a", id="wrong type"),
        pytest.param(line("MODIFIED", {"metadata": {"name": "n", "labels": 3}}), "n", id="bad labels, no namespace"),
        pytest.param(line("ADDED", {"metadata": {"name": ["a"]}}), "", id="a name that is none"),
        pytest.param(line("ADDED", {}), "", id="nothing"),
        pytest.param(line("INVENTED", manifest("a")), "default/a", id="an event type of the future"),
        pytest.param(b'{"type": "ADDED", "object": {"metadata"', "", id="not JSON"),
        pytest.param(b'{"type": "ADDED", "object": {"metadata": {"name": "\xff"}}}', "", id="not UTF-8"),
        pytest.param(b'{"type": "ADDED", "object": {"x": ' + b"[" * 100_000, "", id="nesting without end"),
        pytest.param(line("BOOKMARK", {"metadata": {}}), "", id="a bookmark of nothing"),
        pytest.param(line("ADDED", manifest("a") | {"spec": {"priority": 2**31}}), "default/a", id="beyond an int32"),
        pytest.param(line("ADDED", manifest("a") | {"spec": {"priority": -(2**70)}}), "default/a", id="beyond all"),
        pytest.param(
            line("ADDED", manifest("a") | {"spec": {"overhead": {"cpu": 2**64}}}),
            "default/a",
            id="an amount beyond all",
        ),
        pytest.param(b"<html>", "", id="something else"),
    ],
)
def test_a_bad_object_becomes_a_name_and_a_reason(text: bytes, name: str) -> None:
    watched = PODS.watched(text)

    assert isinstance(watched, port.Undecodable)
    assert watched.name == name
    assert watched.error


def test_a_bad_object_that_is_gone_is_still_gone() -> None:
    gone = PODS.watched(line("DELETED", manifest("a") | {"spec": 5}))

    assert isinstance(gone, port.Deleted)
    assert (gone.object.metadata.name, gone.object.metadata.uid) == ("a", "uid-a")


def test_objects_do_not_keep_the_text_that_they_came_in() -> None:
    padded = manifest("a", managedFields="x" * 1_000_000)
    text = line("ADDED", padded)
    tracemalloc.start()

    kept = [PODS.watched(bytes(bytearray(text))) for _ in range(10)]

    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept) == 10
    assert held < 200_000


def test_volumes_stay_readable() -> None:
    watched = PODS.watched(line("ADDED", manifest("a")))

    assert isinstance(watched, port.Changed)
    assert [sorted(volume) for volume in watched.object.spec.volumes] == [["name", "projected"]]
    assert watched.object.spec.volumes[0]["name"] == "token"


def test_a_pod_without_volumes_is_decoded_as_it_is() -> None:
    pod = PODS.object(b'{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main"}]}}')

    assert pod == objects.PodObject(objects.ObjectMeta("a"), objects.PodSpec((objects.Container("main"),)))


def test_a_node_without_csi_drivers_is_decoded_as_the_kubelet_writes_it() -> None:
    found = Decoder(port.CSI_NODES).object(b'{"metadata": {"name": "a"}, "spec": {"drivers": null}}')

    assert not found.spec.drivers


def owned(levels: int, **more: Any) -> bytes:  # noqa: ANN401 - fields of a pod
    """A pod whose managedFields, written by who may change it, lie in so many others."""
    fields = b'{"f:\\"}a\\\\":' * levels + b"[{}]" + b"}" * levels
    document = json.dumps(manifest("a", managedFields=[{"manager": "x", "fieldsType": "FieldsV1"}], **more))
    return document.replace('"fieldsType": "FieldsV1"', '"fieldsV1": @').encode().replace(b"@", fields)


# 10,000 is what an API server reads, and a list is two levels more.
@pytest.mark.parametrize("levels", [950, 1_000, 2_000, 9_990])
def test_managed_fields_of_any_depth_hide_no_object(levels: int) -> None:
    body = owned(levels)
    for kind, event in (("ADDED", port.Changed), ("MODIFIED", port.Changed), ("DELETED", port.Deleted)):
        watched = PODS.watched(b'{"type":"%s","object":%s}' % (kind.encode(), body))
        assert isinstance(watched, event)
        assert watched.object.metadata.name == "a"
    assert PODS.object(body).metadata.name == "a"
    page = decoding.page(b'{"metadata":{"resourceVersion":"7"},"items":[%s,%s]}' % (line("ADDED", manifest("b")), body))
    assert page.metadata.resource_version == "7"
    listed = PODS.listed((page.items or [])[1])
    assert isinstance(listed, port.Changed)
    assert listed.object.metadata.name == "a"


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (port.PODS, "PodList"),
        (port.FAILED_PODS, "PodList"),
        (port.NODES, "NodeList"),
        (port.NAMESPACES, "NamespaceList"),
        (port.DISRUPTION_BUDGETS, "PodDisruptionBudgetList"),
        (port.CONFIG_MAPS, "ConfigMapList"),
        (port.CLAIMS, "PersistentVolumeClaimList"),
        (port.VOLUMES, "PersistentVolumeList"),
        (port.STORAGE_CLASSES, "StorageClassList"),
        (port.CSI_NODES, "CSINodeList"),
        (port.CSI_DRIVERS, "CSIDriverList"),
        (port.CAPACITIES, "CSIStorageCapacityList"),
        (port.ATTACHMENTS, "VolumeAttachmentList"),
        (port.SERVICES, "ServiceList"),
        (port.REPLICATION_CONTROLLERS, "ReplicationControllerList"),
        (port.REPLICA_SETS, "ReplicaSetList"),
        (port.STATEFUL_SETS, "StatefulSetList"),
        (port.PRIORITY_CLASSES, "PriorityClassList"),
    ],
)
def test_a_list_has_the_api_servers_name_whatever_our_class_is_called(kind: port.Kind[port.T], named: str) -> None:
    assert kind.list_kind == named
