"""Pods and their templates: what makes two pods ask the same, and what does not."""

import weakref
from typing import Any

import msgspec
import pytest

from config.protocol import names
from config.protocol.quantity import QuantityError
from scheduler.kube import objects
from scheduler.kube.port import PodKey
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import HostPort, Pod, PodReader
from tests.support.builders import manifest

RUNNING = {"phase": "Running", "containerStatuses": [{"name": "c0", "resources": {"requests": {"cpu": "7"}}}]}
AS_ASKED = {
    "phase": "Running",
    "containerStatuses": [
        {
            "name": "c0",
            "containerID": "containerd://1f0a",
            "resources": {"requests": {names.GPU_MEM: "2"}, "limits": {names.GPU_MEM: "2"}},
            "allocatedResources": {names.GPU_MEM: "2"},
        }
    ],
}
NODE_AFFINITY: dict[str, object] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}


def wire(document: dict[str, Any]) -> objects.PodObject:
    """As decoded from a watch."""
    return msgspec.json.decode(msgspec.json.encode(document), type=objects.PodObject)


def read(reader: PodReader, name: str = "p", gpu_mem: int = 2, **options: Any) -> Pod:  # noqa: ANN401 - as `manifest`
    """A pod through `reader`; `status` replaces the status, `metadata` is added to it."""
    status, metadata = options.pop("status", {"phase": "Pending"}), options.pop("metadata", {})
    document: dict[str, Any] = manifest(name, gpu_mem, **options)
    return reader.read(wire({**document, "status": status, "metadata": {**document["metadata"], **metadata}}))


@pytest.fixture
def reader() -> PodReader:
    return PodReader(ResourceNames())


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"name": "q", "namespace": "other"}, id="name"),
        pytest.param({"labels": {"statefulset.kubernetes.io/pod-name": "p-1"}}, id="a label that no rule reads"),
        pytest.param({"annotations": {"prometheus.io/scrape": "true"}}, id="an annotation that no rule reads"),
        pytest.param({"priority": 7, "node": "a"}, id="priority and node"),
        pytest.param({"status": {"phase": "Running", "containerStatuses": [{"name": "c0"}]}}, id="status"),
        pytest.param({"status": AS_ASKED}, id="the id of a container, and a size that is the one asked"),
        pytest.param({"status": {**AS_ASKED, "resources": {"requests": {"cpu": "9"}}}}, id="a size of no request"),
        pytest.param({"volumes": [{"name": "kube-api-access-x7x2q", "projected": {}}]}, id="the name of a volume"),
        pytest.param({"schedulingGates": [{"name": "g"}]}, id="gates"),
    ],
)
def test_pods_that_ask_the_same_share_their_template(reader: PodReader, options: dict[str, object]) -> None:
    volumes = [{"name": "kube-api-access-abcde", "projected": {}}]
    first, second = read(reader, volumes=volumes), read(reader, **{"volumes": volumes, **options})  # type: ignore[arg-type]
    assert first.template is second.template


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"gpu_mem": 3}, id="GPU memory"),
        pytest.param({"requests": {"cpu": "1"}}, id="requests"),
        pytest.param({"init_gpu_mem": [1]}, id="init containers"),
        pytest.param({"overhead": {"cpu": "1"}}, id="overhead"),
        pytest.param({"resources": {"requests": {"cpu": "1"}}}, id="pod-level resources"),
        pytest.param({"nodeSelector": {"zone": "a"}}, id="node selector"),
        pytest.param({"affinity": {"nodeAffinity": NODE_AFFINITY}}, id="affinity"),
        pytest.param({"tolerations": [{"operator": "Exists"}]}, id="tolerations"),
        pytest.param({"topologySpreadConstraints": [{"topologyKey": "zone"}]}, id="topology spread"),
        pytest.param({"workloadRef": {"name": "w", "podGroup": "g"}}, id="pod group, as 1.35 writes it"),
        pytest.param({"resourceClaims": [{"name": "r"}]}, id="resource claims"),
        pytest.param({"volumes": [{"name": "v", "nfs": {}}]}, id="the kind of a volume"),
        pytest.param({"labels": {names.GPU_COUNT: "2"}}, id="gpu-count as a label"),
        pytest.param({"labels": {names.PLACEMENT_LABEL: names.PLACEMENT_WHOLE_DEVICE}}, id="whole device"),
        pytest.param({"annotations": {names.GPU_COUNT: "2"}}, id="gpu-count as an annotation"),
        pytest.param({"annotations": {names.EXCLUSIVE: "true"}}, id="exclusive"),
        pytest.param({"annotations": {names.CARD_MODELS: "A"}}, id="models"),
        pytest.param({"annotations": {names.CARD_UUIDS: "A"}}, id="UUIDs"),
        pytest.param({"annotations": {names.CARD_POLICY: "spread"}}, id="card policy"),
        pytest.param({"annotations": {names.NODE_POLICY: "spread"}}, id="node policy"),
        pytest.param({"status": RUNNING}, id="a resize in place"),
        pytest.param(
            {
                "status": {
                    **RUNNING,
                    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
                }
            },
            id="a resize that is infeasible",
        ),
        pytest.param(
            {"containers": [{"name": "c0", "ports": [{"containerPort": 80, "hostPort": 80}]}]}, id="host ports"
        ),
    ],
)
def test_pods_that_ask_otherwise_do_not(reader: PodReader, options: dict[str, object]) -> None:
    assert read(reader).template is not read(reader, **options).template  # type: ignore[arg-type]


def test_a_resize_in_place_of_the_pod_as_a_whole_asks_otherwise(reader: PodReader) -> None:
    whole = {"requests": {"cpu": "1"}}
    templates = [
        read(reader, resources=whole, status={"resources": {"requests": {"cpu": cpu}}}).template
        for cpu in ("1", "2", "3")
    ]
    assert [template.requests["cpu"] for template in templates] == [1000, 2000, 3000]
    assert read(reader, resources=whole).template is templates[0]


def test_gpu_memory_is_kept_apart_from_the_other_requests(reader: PodReader) -> None:
    template = read(reader, gpu_mem=3, requests={"cpu": "2", "x.com/dev": "1"}).template
    assert template.requests == {"cpu": 2000, "x.com/dev": 1}
    assert template.gpu_units == 3


def test_units_count_also_where_the_ask_cannot_be_read(reader: PodReader) -> None:
    template = read(reader, gpu_mem=3, labels={names.GPU_COUNT: "2"}).template
    assert (template.gpu_request, template.gpu_units) == (None, 3)
    assert "is not divisible" in template.gpu_request_error


def test_resources_go_by_their_configured_names() -> None:
    container = {"name": "c", "resources": {"limits": {"x.com/mem": "3", names.GPU_MEM: "5"}}}
    template = read(PodReader(ResourceNames(gpu_mem="x.com/mem")), containers=[container]).template
    assert template.gpu_units == 3
    assert template.requests == {names.GPU_MEM: 5}


def test_an_amount_that_is_none_is_an_error_of_that_pod_only(reader: PodReader) -> None:
    with pytest.raises(QuantityError):
        read(reader, requests={"cpu": "much"})
    assert read(reader, requests={"cpu": "1"}).template.requests == {"cpu": 1000}


def test_host_ports_of_containers_and_sidecars(reader: PodReader) -> None:
    def container(name: str, port: int, **more: object) -> dict[str, object]:
        return {"name": name, "ports": [{"containerPort": 1, "hostPort": port, **more}], "restartPolicy": ""}

    init = [container("i", 3), {**container("s", 4), "restartPolicy": "Always"}]
    containers = [container("c", 1, hostIP="10.0.0.1", protocol="UDP"), container("d", 2), container("e", 0)]
    template = read(reader, containers=containers, initContainers=init).template
    assert template.host_ports == {HostPort("10.0.0.1", "UDP", 1), HostPort("", "TCP", 2), HostPort("", "TCP", 4)}


def test_who_the_pod_is(reader: PodReader) -> None:
    owners = [{"uid": "u1", "kind": "A"}, {"uid": "u2", "kind": "ReplicaSet", "controller": True}]
    metadata = {"ownerReferences": owners, "creationTimestamp": "2026-01-01T00:00:00Z"}
    written = {"labels": {"app": "x"}, "annotations": {"b": "c"}}
    pod = read(reader, "p", 2, namespace="team", node="a", priority=5, metadata=metadata, **written)
    assert pod.key == PodKey("team", "p", "uid-team-p")
    assert (pod.node_name, pod.priority, pod.owner_uid, pod.created) == ("a", 5, "u2", "2026-01-01T00:00:00Z")
    assert (pod.labels, pod.annotations, pod.scheduler_name) == ({"app": "x"}, {"b": "c"}, names.SCHEDULER_NAME)


def test_the_gates_that_are_left(reader: PodReader) -> None:
    assert read(reader, schedulingGates=[{"name": "a"}, {"name": "b"}]).gates == ("a", "b")


@pytest.mark.parametrize(
    ("phase", "finished"),
    [("Pending", False), ("Running", False), ("Unknown", False), ("", False), ("Succeeded", True), ("Failed", True)],
)
def test_a_pod_is_finished_when_it_succeeded_or_failed(reader: PodReader, phase: str, finished: bool) -> None:  # noqa: FBT001 - a case of the table
    assert read(reader, status={"phase": phase}).finished is finished


def test_the_condition_that_schedulers_write_is_kept(reader: PodReader) -> None:
    conditions = [{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "False", "message": "no"}]
    assert read(reader, status={"conditions": conditions}).condition == objects.PodCondition(
        "PodScheduled", "False", message="no"
    )


def test_a_pod_that_is_being_deleted_is_terminating(reader: PodReader) -> None:
    assert not read(reader).terminating
    assert read(reader, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}).terminating


def test_a_template_is_kept_while_a_pod_has_it_and_forgotten_when_none_has(reader: PodReader) -> None:
    known, gone = read(reader, gpu_mem=1), weakref.ref(read(reader, gpu_mem=2).template)
    assert gone() is not None

    for gpu_mem in range(3, 1500):
        read(reader, gpu_mem=gpu_mem)

    assert gone() is None
    assert read(reader, gpu_mem=1).template is known.template
