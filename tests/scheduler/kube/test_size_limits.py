"""Size limits: what of a large pod is left out, in which words, and that what it holds goes on counting."""

from typing import Any

import pytest

from config.protocol import names, quantity
from scheduler.kube import objects
from scheduler.kube.size_limits import NODE_LIMITS, POD_LIMITS, node_excess
from scheduler.pods.gpu_request import ResourceNames
from scheduler.pods.pod import Pod, PodReader
from tests.support.builders import wire_node, wire_pod
from tests.support.repository import ROOT

MANY = 10_000
VALUES = [str(number) for number in range(MANY)]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


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
    ("options", "told"),
    [
        pytest.param(
            {"requests": {"cpu": "1", **numbered(MANY)}}, f"{MANY + 2} resource names (at most 32)", id="names"
        ),
        pytest.param(
            {"affinity": node_affinity(*[in_values("k", value) for value in VALUES])},
            f"{MANY} node affinity terms (at most 64)",
            id="terms",
        ),
        pytest.param({"nodeSelector": numbered(129)}, "129 node selector requirements (at most 128)", id="selector"),
        pytest.param({"nodeSelector": numbered(17)}, "17 keys in node selectors (at most 16)", id="keys"),
        pytest.param(
            {"affinity": node_affinity(in_values("k", *VALUES))},
            f"{MANY} node selector values (at most 2048)",
            id="values",
        ),
        pytest.param({"affinity": away(65)}, "65 pod affinity terms (at most 64)", id="pod terms"),
        pytest.param(
            {"affinity": away(1, matchLabels=numbered(MANY))},
            f"{MANY} pod affinity requirements (at most 128)",
            id="pod requirements",
        ),
        pytest.param(
            {"affinity": away(1, matchExpressions=[in_values("k", *VALUES)])},
            f"{MANY} pod affinity values (at most 1024)",
            id="pod values",
        ),
        pytest.param(
            {"tolerations": [{"key": str(n)} for n in range(MANY)]},
            f"{MANY} tolerations (at most 64)",
            id="tolerations",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{"topologyKey": "zone"}] * 9},
            "9 topology spread constraints (at most 8)",
            id="spread",
        ),
        pytest.param(
            spread(labelSelector={"matchLabels": numbered(MANY)}),
            f"{MANY} topology spread requirements (at most 32)",
            id="spread requirements",
        ),
        pytest.param(
            spread(matchLabelKeys=[*numbered(MANY)]),
            f"{MANY} topology spread requirements (at most 32)",
            id="keys of labels that spread requires",
        ),
        pytest.param(
            spread(labelSelector={"matchExpressions": [in_values("k", *VALUES)]}),
            f"{MANY} topology spread values (at most 256)",
            id="spread values",
        ),
        pytest.param({"containers": ports(MANY)}, f"{MANY} host ports (at most 128)", id="ports"),
        pytest.param(
            {"volumes": [{"name": str(n), "image": {"reference": f"i{n}"}} for n in range(65)]},
            "65 image volumes (at most 64)",
            id="image volumes",
        ),
        pytest.param({"labels": numbered(MANY)}, f"{MANY} labels (at most 128)", id="labels"),
        pytest.param({"annotations": numbered(MANY)}, f"{MANY} annotations (at most 64)", id="annotations"),
        pytest.param(
            {"annotations": {names.CARD_AFFINITY: "a" * 2000}},
            f"2000 characters of {names.CARD_AFFINITY} (at most 1024)",
            id="a selector",
        ),
        pytest.param(
            {"schedulingGates": [{"name": str(n)} for n in range(MANY)]},
            f"{MANY} scheduling gates (at most 64)",
            id="gates",
        ),
    ],
)
def test_what_is_over_a_limit_is_left_out_and_what_the_pod_holds_counts(options: dict[str, Any], told: str) -> None:
    pod = read(node="n", **options)
    assert pod.template.over_limit == (told,)
    assert (pod.template.gpu_units, pod.template.requests) == (3, {"cpu": 1000})
    left = (pod.template.node_affinity, pod.template.anti_affinity, pod.template.tolerations, pod.template.host_ports)
    more = (pod.template.spread, pod.template.node_selector)
    assert len(str((*left, *more, pod.labels, pod.annotations, pod.gates))) < 1024


def test_every_container_counts_however_many_there_are() -> None:
    template = read([1] * 1000, node="n").template
    assert template.over_limit == ("1000 containers (at most 256)",)
    assert (template.gpu_units, template.requests) == (1000, {"cpu": 1_000_000})


def test_a_pod_that_is_large_in_all_its_parts_is_over_the_limit_of_bytes() -> None:
    long = ["x" * 63] * 1500
    affinity = {
        "nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [in_values("k", *long)]}}]}
    }
    template = read(node="n", affinity=affinity, tolerations=[{"operator": "Exists"}]).template
    (told,) = template.over_limit
    assert told.endswith(" bytes of requests, selectors and terms (at most 65536)")
    assert (template.gpu_units, template.requests, template.tolerations) == (3, {"cpu": 1000}, ())


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
    assert [told.partition(" containers")[0] for told in template.over_limit] in (["1000"], ["1001"])
    assert (template.requests, template.gpu_units, template.gpu_request) == ({}, 0, None)


def test_a_pod_that_gets_a_node_counts_even_if_it_was_over_a_limit_while_it_waited() -> None:
    reader = PodReader(ResourceNames())
    waits, runs, too = (
        reader.read(wire_pod("p", [1] * 1000, node=node, requests={"cpu": "1"})).template for node in ("", "n", "n")
    )
    assert waits.over_limit == runs.over_limit
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
        pytest.param({"requests": {"cpu": "1", **numbered(30)}}, id="32 resource names"),
        pytest.param({"affinity": node_affinity(*[in_values("k", str(n)) for n in range(64)])}, id="64 terms"),
        pytest.param({"labels": numbered(128), "annotations": numbered(64)}, id="128 labels and 64 annotations"),
        pytest.param({"containers": ports(128)}, id="128 host ports"),
    ],
)
def test_what_is_within_its_limit_is_read(options: dict[str, Any]) -> None:
    assert read(**options).template.over_limit == ()


def test_long_annotations_are_kept_where_they_are_ours() -> None:
    text = "x" * 2000
    annotations = {names.ALLOCATION: text, "kubectl.kubernetes.io/last-applied": text}
    pod = read(annotations={**annotations, "example.com/tier": "gold"})
    assert pod.template.over_limit == ()
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
    of_pods = [(limit.what, limit.most) for limit in POD_LIMITS]
    of_nodes = [(what, most) for what, most, _ in NODE_LIMITS]
    assert not [what for what, most in (*of_pods, *of_nodes) if f"| {what} | {most} |" not in text]
