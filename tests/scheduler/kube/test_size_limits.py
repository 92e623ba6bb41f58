"""The size limit: which pods are over it, and that what a running one holds goes on counting."""

from typing import Any

import pytest

from config.protocol import names, quantity
from scheduler.kube import objects
from scheduler.kube.size_limits import LARGEST, NODE_LIMITS, node_excess
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod, PodReader
from tests.support.builders import wire_node, wire_pod
from tests.support.repository import ROOT

MANY = 10_000
VALUES = [str(number) for number in range(MANY)]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def read(gpu_mem: int | list[int] = 3, **options: Any) -> Pod:  # noqa: ANN401 - as `manifest`
    """A pod of one cpu in each container through a new reader."""
    return PodReader(ResourceNames()).read(wire_pod("p", gpu_mem, **{"requests": {"cpu": "1"}, **options}))


def numbered(count: int, prefix: str = "example.com/n") -> dict[str, str]:
    return {f"{prefix}{number}": "1" for number in range(count)}


def node_affinity(*requirements: dict[str, object]) -> dict[str, object]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [one]} for one in requirements]}}}


def in_values(key: str, *values: str) -> dict[str, object]:
    return {"key": key, "operator": "In", "values": list(values)}


def away(count: int, **selector: object) -> dict[str, object]:
    term = {"topologyKey": "zone", "labelSelector": selector}
    return {"podAntiAffinity": {REQUIRED: [term] * count}}


def spread(**selector: object) -> dict[str, object]:
    return {"topologySpreadConstraints": [{"topologyKey": "zone", **selector}]}


def ports(count: int) -> list[dict[str, object]]:
    of_host = [{"containerPort": number, "hostPort": number} for number in range(1, count + 1)]
    limits = {names.GPU_MEM: "3"}
    return [{"name": "c0", "resources": {"limits": limits, "requests": {"cpu": "1", **limits}}, "ports": of_host}]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"requests": {"cpu": "1", **numbered(MANY)}}, id="names"),
        pytest.param(
            {"requests": {"cpu": "1", **numbered(125)}}, id="127 names and a container, with the bytes of them"
        ),
        pytest.param({"affinity": node_affinity(*[in_values("k", value) for value in VALUES])}, id="terms"),
        pytest.param({"nodeSelector": numbered(129)}, id="selector"),
        pytest.param({"affinity": node_affinity(in_values("k", *VALUES))}, id="values"),
        pytest.param({"affinity": away(128)}, id="pod terms"),
        pytest.param({"affinity": away(1, matchLabels=numbered(MANY))}, id="pod requirements"),
        pytest.param({"affinity": away(1, matchExpressions=[in_values("k", *VALUES)])}, id="pod values"),
        pytest.param({"tolerations": [{"key": str(n)} for n in range(MANY)]}, id="tolerations"),
        pytest.param({"topologySpreadConstraints": [{"topologyKey": "zone"}] * 129}, id="spread"),
        pytest.param(spread(labelSelector={"matchLabels": numbered(MANY)}), id="spread requirements"),
        pytest.param(spread(matchLabelKeys=[*numbered(MANY)]), id="keys of labels that spread requires"),
        pytest.param(spread(labelSelector={"matchExpressions": [in_values("k", *VALUES)]}), id="spread values"),
        pytest.param({"containers": ports(129)}, id="ports"),
        pytest.param(
            {"volumes": [{"name": str(n), "image": {"reference": f"i{n}"}} for n in range(129)]}, id="volumes"
        ),
        pytest.param({"labels": numbered(MANY)}, id="labels"),
        pytest.param({"annotations": numbered(MANY)}, id="annotations"),
        pytest.param({"schedulingGates": [{"name": str(n)} for n in range(MANY)]}, id="gates"),
        pytest.param({"affinity": node_affinity(in_values("k", *["x" * 63] * 1050))}, id="bytes"),
        pytest.param(
            {"nodeSelector": numbered(40), "affinity": away(20), "tolerations": [{"key": str(n)} for n in range(65)]},
            id="all of them together",
        ),
    ],
)
def test_terms_over_the_limit_are_left_out_and_what_the_pod_holds_counts(options: dict[str, Any]) -> None:
    waits, pod = read(**options), read(node="n", **options)
    assert (waits.template.over_limit, waits.template.requests, waits.template.gpu_request) == (True, {}, None)
    assert pod.template.over_limit
    assert (pod.template.gpu_units, pod.template.requests) == (3, {"cpu": 1000})
    left = (pod.template.node_affinity, pod.template.anti_affinity, pod.template.tolerations, pod.template.host_ports)
    more = (pod.template.spread, pod.template.node_selector)
    assert len(str((*left, *more, pod.labels, pod.annotations))) < 1024
    assert len(pod.gates) <= LARGEST


def test_every_container_counts_however_many_there_are() -> None:
    template = read([1] * 1000, node="n").template
    assert template.over_limit
    assert (template.gpu_units, template.requests) == (1000, {"cpu": 1_000_000})


def containers(count: int) -> list[dict[str, object]]:
    """No two ask the same."""
    asked = [{"cpu": f"{1000 + n}u", "memory": f"{1000 + n}.5", names.GPU_MEM: str(n % 3)} for n in range(count)]
    return [
        {"name": f"c{n}", "resources": {"requests": requests, "limits": requests}} for n, requests in enumerate(asked)
    ]


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_of_a_pod_that_waits_and_is_over_a_limit_no_amount_is_read(kind: str) -> None:
    wire = wire_pod("p", 1, **{kind: containers(1_000)})
    before = quantity.whole.cache_info(), quantity.milli.cache_info()
    template = PodReader(ResourceNames()).read(wire).template
    assert (quantity.whole.cache_info(), quantity.milli.cache_info()) == before
    assert (template.over_limit, template.requests, template.gpu_units) == (True, {}, 0)


def test_a_pod_that_gets_a_node_counts_even_if_it_was_over_a_limit_while_it_waited() -> None:
    reader = PodReader(ResourceNames())
    waits, runs, too = (
        reader.read(wire_pod("p", [1] * 1000, node=node, requests={"cpu": "1"})).template for node in ("", "n", "n")
    )
    assert waits.over_limit
    assert runs.over_limit
    assert (waits.gpu_units, runs.gpu_units, runs.requests) == (0, 1000, {"cpu": 1_000_000})
    assert runs is too


def test_each_amount_of_a_large_pod_on_a_node_is_read_once() -> None:
    wire = wire_pod("p", node="n", containers=containers(1_000))
    before = quantity.milli.cache_info()
    PodReader(ResourceNames()).read(wire)
    after = quantity.milli.cache_info()
    assert (after.hits + after.misses) - (before.hits + before.misses) == 1_000


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"requests": {"cpu": "1", **numbered(100)}}, id="100 resource names"),
        pytest.param({"affinity": node_affinity(*[in_values("k", str(n)) for n in range(55)])}, id="55 terms"),
        pytest.param({"affinity": node_affinity(in_values("k", *VALUES[:2000]))}, id="2,000 hosts"),
        pytest.param({"labels": numbered(64), "annotations": numbered(64)}, id="64 labels and 64 annotations"),
        pytest.param({"containers": ports(110)}, id="110 host ports"),
    ],
)
def test_terms_within_the_limit_are_read(options: dict[str, Any]) -> None:
    assert not read(**options).template.over_limit


def test_long_annotations_are_kept_where_they_are_ours() -> None:
    text = "x" * 2000
    annotations = {names.ALLOCATION: text, "kubectl.kubernetes.io/last-applied": text}
    pod = read(annotations={**annotations, "example.com/tier": "gold"})
    assert not pod.template.over_limit
    assert pod.annotations.keys() == {names.ALLOCATION, "example.com/tier"}


def test_long_annotations_that_say_what_is_asked_are_read_and_not_kept() -> None:
    uuids = ",".join(f"GPU-{number:036d}" for number in range(256))
    good, bad = read(annotations={names.CARD_UUIDS: uuids}), read(annotations={names.CARD_UUIDS: f"{uuids},one-more"})
    assert good.template.gpu_request is not None
    assert len(good.template.gpu_request.uuids.wanted) == 256
    assert bad.template.gpu_request_error == f"{names.CARD_UUIDS}: has 257 entries; expected at most 256"
    assert (good.annotations, bad.annotations) == ({}, {})


def test_two_pods_that_are_over_a_limit_in_the_same_way_share_their_template() -> None:
    reader = PodReader(ResourceNames())
    pods = [reader.read(wire_pod(name, 3, requests=numbered(MANY))) for name in "ab"]
    assert pods[0].template is pods[1].template


@pytest.mark.parametrize(
    ("node", "told"),
    [
        pytest.param(wire_node("a", more=numbered(200)), ("204 resources (at most 128)",), id="resources"),
        pytest.param(wire_node("a", labels=numbered(2000)), ("2001 labels (at most 1024)",), id="labels"),
        pytest.param(
            wire_node("a", taints=tuple(objects.Taint(str(n), "NoSchedule") for n in range(65))),
            ("65 taints (at most 64)",),
            id="taints",
        ),
        pytest.param(wire_node("a", [16], labels=numbered(300), more=numbered(24)), (), id="a large real one"),
    ],
)
def test_size_limits_of_nodes(node: objects.Node, told: tuple[str, ...]) -> None:
    assert node_excess(node) == told


def test_the_document_has_every_limit() -> None:
    text = (ROOT / "docs/develop/decisions/0010-limit-how-much-of-an-object-is-read.md").read_text()
    assert f"larger than {LARGEST}" in text
    assert not [what for what, most, _ in NODE_LIMITS if f"| {what} | {most} |" not in text]
