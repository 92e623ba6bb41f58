"""Cluster files: what they describe, and what is said of those that describe nothing."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

from config.clusterfile.reading import ClusterFile, TimedPod, node_manifests, pod_manifests, read
from config.protocol import inventory, names
from config.settings.mistakes import ConfigurationError
from tests.support.repository import ROOT

DOCS = ROOT / "docs"
EXAMPLES = DOCS / "examples"
POD = "{metadata: {name: p}, spec: {schedulerName: s, containers: [{name: c}]}}"


@pytest.fixture
def cluster(tmp_path: Path) -> "Reader":
    return Reader(tmp_path)


class Reader:
    """Writes texts into files and reads those."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, *texts: str) -> ClusterFile:
        paths = [self.directory / f"{number}.yaml" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(dedent(text), encoding="utf-8")
        return read(*paths)

    def nodes(self, text: str, unit_mib: int = 1024) -> list["Seen"]:
        return [Seen(manifest) for manifest in node_manifests(self(text), unit_mib)]

    def mistakes(self, *texts: str) -> list[str]:
        with pytest.raises(ConfigurationError) as caught:
            self(*texts)
        return str(caught.value).replace(f"{self.directory}/", "").splitlines()


class Seen:
    """A manifest, field by field."""

    def __init__(self, manifest: object) -> None:
        self.manifest = manifest

    def at(self, *path: str | int) -> object:
        value = self.manifest
        for part in path:
            value = value[part]  # type: ignore[index]  # a KeyError tells of what is missing
        return value

    @property
    def cards(self) -> tuple[inventory.Card, ...]:
        return inventory.decode(str(self.at("metadata", "annotations", names.INVENTORY))).cards


def pod_names(pods: list[TimedPod]) -> list[object]:
    return [Seen(pod.manifest).at("metadata", "name") for pod in pods]


def test_what_the_guide_shows_is_part_of_the_examples() -> None:
    guide = (DOCS / "cluster-file.md").read_text(encoding="utf-8")
    examples = "".join(path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.yaml")))
    shown = re.findall(r"```yaml\n(?:nodes|pods):\n(.*?)```", guide, re.DOTALL)

    assert len(shown) == 2
    assert all(part in examples for part in shown)


def test_a_group_of_one_has_its_name_and_a_larger_one_numbers(cluster: Reader) -> None:
    nodes = cluster.nodes("nodes: [{name: a}, {name: b, count: 2}, {name: c, count: 0}]")

    assert [node.at("metadata", "name") for node in nodes] == ["a", "b-0", "b-1"]
    assert [node.at("metadata", "labels", "kubernetes.io/hostname") for node in nodes] == ["a", "b-0", "b-1"]


def test_a_node_is_ready_and_offers_the_defaults(cluster: Reader) -> None:
    (node,) = cluster.nodes("nodes: [{name: a}]")

    assert node.at("status", "conditions", 0, "type") == "Ready"
    assert node.at("status", "conditions", 0, "status") == "True"
    assert node.at("status", "allocatable") == node.at("status", "capacity")
    assert set(node.at("status", "allocatable")) == {"cpu", "memory", "ephemeral-storage", "pods"}  # type: ignore[call-overload]
    assert node.at("metadata", "annotations") == {}


def test_a_node_has_what_the_file_says(cluster: Reader) -> None:
    (node,) = cluster.nodes("""
        nodes:
        - name: a
          labels: {zone: x}
          annotations: {gpushare/cordon: "0"}
          taints: [{key: k, effect: NoSchedule}]
          allocatable: {cpu: 500m, example.com/nic: 2}
    """)

    assert node.at("metadata", "labels", "zone") == "x"
    assert node.at("metadata", "annotations") == {"gpushare/cordon": "0"}
    assert node.at("spec", "taints") == [{"key": "k", "effect": "NoSchedule"}]
    assert node.at("status", "allocatable", "cpu") == "500m"
    assert node.at("status", "capacity", "example.com/nic") == "2"


def test_a_node_has_the_inventory_that_the_device_plugin_would_write(cluster: Reader) -> None:
    (node,) = cluster.nodes("""
        nodes:
        - name: a
          cards:
          - {model: big, memoryMiB: 81559, count: 2, numa: 1, links: NV12}
          - {model: small, memoryMiB: 15360, uuid: GPU-mine, links: {"0": PHB}}
    """)
    first, second, third = node.cards

    assert (first.index, first.model, first.units, first.numa, first.links) == (0, "big", 79, 1, {"1": "NV12"})
    assert second.links == {"0": "NV12"}
    assert (third.uuid, third.units, third.numa, third.links) == ("GPU-mine", 15, None, {"0": "PHB"})
    assert node.at("status", "allocatable", names.GPU_MEM) == str(79 + 79 + 15)
    assert node.at("status", "allocatable", names.GPU_COUNT) == "3"


def test_units_are_counted_in_the_given_size(cluster: Reader) -> None:
    (node,) = cluster.nodes("nodes: [{name: a, cards: [{model: m, memoryMiB: 1000}]}]", unit_mib=256)

    assert node.cards[0].units == 3
    assert '"unitMiB":256' in str(node.at("metadata", "annotations", names.INVENTORY))


def test_other_resource_names_may_be_used(cluster: Reader) -> None:
    described = cluster("nodes: [{name: a, cards: [{model: m, memoryMiB: 1024}]}]")
    (node,) = node_manifests(described, 1024, gpu_mem="x.y/mem", gpu_count="x.y/count")

    assert Seen(node).at("status", "allocatable", "x.y/mem") == "1"
    assert Seen(node).at("status", "allocatable", "x.y/count") == "1"


def test_allocatable_in_the_file_wins_over_the_cards(cluster: Reader) -> None:
    text = "nodes: [{name: a, allocatable: {aliyun.com/gpu-mem: 0}, cards: [{model: m, memoryMiB: 2048}]}]"
    (node,) = cluster.nodes(text)

    assert node.at("status", "allocatable", names.GPU_MEM) == "0"
    assert node.cards[0].units == 2


def test_uuids_differ_and_are_always_the_same(cluster: Reader) -> None:
    text = "nodes: [{name: a, count: 20, cards: [{model: m, memoryMiB: 1024, count: 8}]}]"
    uuids = [card.uuid for node in cluster.nodes(text) for card in node.cards]

    assert len(set(uuids)) == 160
    assert uuids == [card.uuid for node in cluster.nodes(text) for card in node.cards]
    assert all(re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", uuid) for uuid in uuids)


def test_fields_are_laid_over_a_node_manifest(cluster: Reader) -> None:
    first, second = cluster.nodes("""
        nodes:
        - count: 2
          labels: {b: new}
          taints: [{key: t2, effect: NoSchedule}]
          cards: [{model: m, memoryMiB: 1024}]
          node:
            metadata: {name: n, uid: u, labels: {a: kept, b: old, kubernetes.io/hostname: n}}
            spec: {unschedulable: true, taints: [{key: t1, effect: NoExecute}]}
            status:
              allocatable: {cpu: "3"}
              addresses: [{type: InternalIP, address: 10.0.0.1}]
    """)

    assert first.at("metadata", "labels") == {"kubernetes.io/hostname": "n-0", "a": "kept", "b": "new"}
    assert second.at("metadata", "name") == "n-1"
    assert "uid" not in first.at("metadata")  # type: ignore[operator]  # a mapping
    assert first.at("spec", "unschedulable") is True
    assert [taint["key"] for taint in first.at("spec", "taints")] == ["t1", "t2"]  # type: ignore[attr-defined]
    assert first.at("status", "allocatable") == {"cpu": "3", names.GPU_MEM: "1", names.GPU_COUNT: "1"}
    assert first.at("status", "addresses") == [{"type": "InternalIP", "address": "10.0.0.1"}]


def test_pods_come_by_time_and_then_in_the_order_of_the_files(cluster: Reader) -> None:
    pods = pod_manifests(
        cluster(
            "pods: [{at_s: 2, pod: {metadata: {name: late}, spec: {containers: [{name: c}]}}}]",
            "pods: [{count: 2, atS: 1.5, runs_s: 3, pod: {metadata: {name: two}, spec: {containers: [{name: c}]}}}]",
            f"pods: [{{pod: {POD}}}]",
        )
    )

    assert pod_names(pods) == ["p", "two-0", "two-1", "late"]
    assert [(pod.at_s, pod.runs_s) for pod in pods] == [(0, None), (1.5, 3), (1.5, 3), (2, None)]


def test_a_pod_is_the_manifest_with_its_name_and_namespace(cluster: Reader) -> None:
    (pod,) = pod_manifests(cluster(f"pods: [{{pod: {POD}}}]"))

    assert pod.manifest == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"schedulerName": "s", "containers": [{"name": "c"}]},
    }


def test_a_fault_happens_to_a_card_or_to_a_node(cluster: Reader) -> None:
    faults = cluster("""
        nodes: [{name: n, cards: [{model: m, memoryMiB: 1024, uuid: GPU-x}]}]
        faults:
        - {at_s: 1, node: n, card: 0, xid: 79}
        - {at_s: 2, node: n, card: GPU-x, lost: true}
        - {at_s: 3, node: n, lost: true}
        - {at_s: 4, node: n, back: true}
    """).faults

    assert [(f.at_s, f.card, f.xid, f.lost, f.back) for f in faults] == [
        (1, 0, 79, False, False),
        (2, "GPU-x", None, True, False),
        (3, None, None, True, False),
        (4, None, None, False, True),
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param("nods: []", "nods: unknown field; did you mean nodes?", id="an unknown field"),
        pytest.param("nodes: [{}]", "nodes[0]: name is missing", id="a node without a name"),
        pytest.param(
            "pods: [{atS: 1.1e+9, pod: {}}]", "pods[0].atS: expected less than or equal to 1000000000", id="far away"
        ),
        pytest.param(
            "pods: [{runsS: 1.0e+12, pod: {}}]", "pods[0].runsS: expected less than or equal to 1000000000", id="long"
        ),
        pytest.param("nodes: [{name: a, count: -1}]", "nodes[0].count: expected at least 0", id="negative count"),
        pytest.param("nodes: [{name: a, labels: {x: 2}}]", "nodes[0].labels.x: expected a valid string", id="a number"),
        pytest.param(
            "nodes: [{name: a, allocatable: {cpu: 2x}}]", "nodes[0].allocatable.cpu: '2x' is not a quantity", id="2x"
        ),
        pytest.param(
            "nodes: [{name: a, taints: [{key: k, effect: NoShedule}]}]", "did you mean NoSchedule?", id="an effect"
        ),
        pytest.param(
            "nodes: [{name: a, cards: [{model: m, memoryMib: 1}]}]", "did you mean memoryMiB?", id="a near miss"
        ),
        pytest.param(
            "nodes: [{name: a, cards: [{memoryMiB: 1, model: m, count: 300}]}]",
            "at least 1, at most 256",
            id="many cards",
        ),
        pytest.param(
            "nodes: [{name: a, cards: [{memoryMiB: 1, model: m, count: 200}, {memoryMiB: 1, model: n, count: 200}]}]",
            "at most 256 cards on a node",
            id="many cards of two kinds",
        ),
        pytest.param(
            "nodes: [{name: a, cards: [{memoryMiB: 1, model: m, uuid: 'u, v'}]}]",
            "nodes[0].cards[0].uuid: 'u, v' cannot be the UUID of a card",
            id="a UUID that no card can have",
        ),
        pytest.param(
            "nodes: [{name: a, cards: [{memoryMiB: 1, model: m, uuid: u, count: 2}]}]",
            "nodes[0].cards[0]: uuid names one card, but count is 2",
            id="one UUID for two cards",
        ),
        pytest.param(
            "nodes: [{name: a, count: 2, cards: [{memoryMiB: 1, model: m, uuid: u}]}]",
            "nodes[0]: uuid names one card, but this entry describes 2 nodes",
            id="one UUID for the cards of two nodes",
        ),
        pytest.param(
            "nodes: [{count: 2, node: {metadata: {name: n, annotations: {gpushare/inventory: x}}}}]",
            "cannot share one gpushare/inventory",
            id="one inventory for two nodes",
        ),
        pytest.param("nodes: [{name: a}, {name: a}]", "expected each node once, found more than once: a", id="twice"),
        pytest.param(
            "nodes: [{name: a, cards: [{memoryMiB: 1, model: m, uuid: u}, {memoryMiB: 1, model: m, uuid: u}]}]",
            "expected each card once, found more than once: u",
            id="a UUID twice",
        ),
        pytest.param(f"pods: [{{pod: {POD}}}, {{pod: {POD}}}]", "each pod once", id="a pod twice"),
        pytest.param("pods: [{}]", "pods[0].pod: is missing", id="no pod"),
        pytest.param("pods: [{pod: {spec: {}}}]", "pods[0].pod.metadata: is missing", id="no metadata"),
        pytest.param("pods: [{pod: {spec: {}}}]", "pods[0].pod.spec.containers: is missing", id="no containers"),
        pytest.param(
            "pods: [{at_s: -1, pod: {metadata: {name: p}, spec: {containers: [{}]}}}]", "pods[0].at_s", id="before"
        ),
        pytest.param(
            "pods: [{pod: {metadata: {name: p, labels: {aliyun.com/gpu-count: 4}}, spec: {containers: [{name: c}]}}}]",
            "pods[0].pod.metadata.labels.aliyun.com/gpu-count: expected a valid string, found 4; write it in quotes",
            id="a label that is a number",
        ),
        pytest.param(
            "faults: [{node: n, lost: true}]", "faults[0].node: node n does not exist", id="a fault of nothing"
        ),
        pytest.param(
            "nodes: [{name: n, cards: [{model: m, memoryMiB: 1}]}]\nfaults: [{node: n, card: 1, back: true}]",
            "faults[0].card: node n has no card 1",
            id="a fault of no card",
        ),
        pytest.param(
            "faults: [{node: n, card: 0, lost: true, xid: 1}]",
            "faults[0]: expected exactly one of xid",
            id="two at once",
        ),
        pytest.param("faults: [{node: n, xid: 79}]", "faults[0]: xid needs a card", id="an xid of a node"),
        pytest.param("- a", "expected a mapping, found list", id="a list"),
        pytest.param("apiVersion: v1", "kind: is missing", id="a manifest without a kind"),
        pytest.param("kind: 5", "kind: expected one of Node, Pod, Deployment", id="a kind that is a number"),
        pytest.param(
            "kind: Deployment\nmetadata: {name: d}", "Deployment d: spec: is missing", id="an empty Deployment"
        ),
        pytest.param(
            "kind: Pod\nmetadata: {name: p}\nspec: {containers: []}", "Pod p: spec.containers", id="empty Pod"
        ),
        pytest.param("a: [", "0.yaml: line", id="no YAML"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_path(cluster: Reader, text: str, complaint: str) -> None:
    found = cluster.mistakes(text)

    assert any(complaint in mistake for mistake in found), found
    assert all(mistake.startswith("0.yaml") for mistake in found)


def test_every_mistake_of_every_file_is_named_at_once(cluster: Reader) -> None:
    found = cluster.mistakes("nodes: [{name: a, cout: 2}]", "a: [", "kind: Pod", "faults: [{node: zz, back: true}]")

    assert [mistake.split(":")[0] for mistake in found] == [*("0.yaml", "1.yaml", "2.yaml", "2.yaml", "3.yaml")]


def test_copies_of_a_pod_do_not_share_its_uid(cluster: Reader) -> None:
    pod = "{metadata: {name: p, uid: u}, spec: {containers: [{name: c}]}}"
    copies = pod_manifests(cluster(f"pods: [{{count: 2, pod: {pod}}}]"))

    assert [copy.manifest["metadata"] for copy in copies] == [
        {"name": "p-0", "namespace": "default"},
        {"name": "p-1", "namespace": "default"},
    ]


@pytest.mark.parametrize("field", ["at_s", "runs_s", "count"])
def test_a_field_of_a_pods_entry_is_a_mistake_in_a_manifest(cluster: Reader, field: str) -> None:
    bare = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c}}]}}\n{field}: 5\n"
    words = f"is not a field of a manifest: write `pods: [{{{field}: 5, pod: …}}]`, with the manifest under pod"
    assert cluster.mistakes(bare) == [f"0.yaml: Pod p: {field}: {words}"]
