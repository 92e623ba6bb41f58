"""A reason names nothing; what it is about stands behind it: the taint, the label, the claim, the domains."""

from typing import Any

import pytest

from config.protocol import names
from scheduler.kube.objects import Taint
from scheduler.kube.port import CLAIMS, STORAGE_CLASSES, VOLUMES
from scheduler.testing.cluster.world import World
from scheduler.tools.explain.answers import Explanation
from tests.support.builders import manifest, wire_node
from tests.support.explaining import asked, explained, explained_new, lines, prose, there, waits, world
from tests.support.volumes import SELECTED_NODE, ZONE, bound, claim, storage_class, volume, with_claims


def causes(answer: Explanation, node: int = 0) -> dict[str, str]:
    return {one.rule: one.cause for one in answer.nearest[node].rules}


def zones(*domains: str) -> World:
    of = world()
    for name in domains:
        of.nodes.add(wire_node(f"n-{name}", [16], labels={ZONE: name}))
    return of


def spread(key: str = ZONE, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - as in YAML
    selector = {"matchLabels": {"app": "web"}}
    return {
        "labels": {"app": "web"},
        "topologySpreadConstraints": [
            {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, **more}
        ],
    }


def test_the_taints_are_named_that_it_does_not_tolerate() -> None:
    of = world()
    taints = (Taint("team", "NoSchedule", "vision"), Taint("soft", "PreferNoSchedule"), Taint("gpu", "NoExecute"))
    of.nodes.add(wire_node("a", [16], taints=taints))
    answer = explained_new(of, "p", 3, tolerations=[{"key": "gpu", "operator": "Exists"}])
    assert causes(answer) == {"TaintToleration": "team=vision:NoSchedule"}
    assert "TaintToleration: node(s) had untolerated taint(s) (team=vision:NoSchedule)" in prose(answer)


def test_the_pods_of_each_domain_are_counted() -> None:
    of = zones("x", "y")
    of.nodes.add(wire_node("z-cpu", labels={ZONE: "z"}))
    for number, zone in enumerate(("x", "y")):
        there(of, f"web-{number}", 1, f"n-{zone}", 0, labels={"app": "web"})
    answer = explained_new(of, "web-2", 1, **spread())
    assert causes(answer) == {"PodTopologySpread": f"{ZONE}: x has 1, z has 0, maxSkew is 1"}
    assert answer.nearest[0].name == "n-x"


def test_too_few_domains_are_told() -> None:
    of = zones("x")
    there(of, "web-0", 1, "n-x", 0, labels={"app": "web"})
    assert causes(explained_new(of, "web-1", 1, **spread(minDomains=3))) == {
        "PodTopologySpread": f"{ZONE}: x has 1, domains: 1, minDomains is 3, maxSkew is 1"
    }


def test_a_topology_key_that_no_node_has_is_named() -> None:
    of = zones("x")
    assert causes(explained_new(of, "web", 1, **spread("topology.kubernetes.io/zoen"))) == {
        "PodTopologySpread": "no node has the label topology.kubernetes.io/zoen"
    }


def test_a_label_that_a_node_lacks_is_named() -> None:
    of = zones("x")
    of.nodes.add(wire_node("bare", [16]))
    there(of, "web-0", 1, "n-x", 0, labels={"app": "web"})
    there(of, "full", 16, "bare", 0)
    assert {node.name: node.rules[-1].cause for node in explained_new(of, "web-1", 16, **spread()).nearest}["bare"] == (
        f"the node lacks the label {ZONE}"
    )


def test_a_label_that_pod_affinity_needs_is_named() -> None:
    of = zones("x")
    term = {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "web"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    assert causes(explained_new(of, "p", 1, affinity=affinity)) == {"InterPodAffinity": "no node has the label rack"}


def test_a_pod_of_the_same_controller_is_not_said_to_make_room() -> None:
    of = world(a=[16])
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web-uid", "controller": True}
    for name in ("web-0", "web-1"):
        made = manifest(name, 10)
        made["metadata"] = {**made["metadata"], "ownerReferences": [owner]}  # type: ignore[dict-item]
        of.pods.create(made)
    of.pods.bind("default", "web-0", "a", {})
    (node,) = explained(of, "web-1").nearest
    assert (node.leaving, node.remedy) == (
        (),
        "no pod could make room by ending, except pods of its own controller, which replaces them",
    )
    there(of, "db", 6, "a", 0)
    assert explained(of, "web-1").nearest[0].leaving == ()
    assert explained_new(of, "other", 10).nearest[0].leaving == ("default/web-0",)


@pytest.mark.parametrize(
    ("class_name", "told"),
    [
        pytest.param("nosuch", "there is no StorageClass nosuch", id="a class that is not there"),
        pytest.param(
            "", "it names no StorageClass, and no PersistentVolume without a StorageClass is bound to it", id="no class"
        ),
        pytest.param(
            "fast", "its StorageClass fast has neither provisioned nor bound a volume for it", id="binds at once"
        ),
    ],
)
def test_a_claim_without_a_volume_is_named_with_its_class(class_name: str, told: str) -> None:
    of = world(a=[16])
    of.storage.create(STORAGE_CLASSES, storage_class("fast", waits=False))
    of.storage.create(CLAIMS, claim("data", class_name=class_name))
    assert f"Claim default/data is not bound: {told}." in explained_new(of, "p", 3, **with_claims("data")).words


def test_a_claim_that_names_its_volume_is_told_with_it() -> None:
    of = world(a=[16])
    of.storage.create(CLAIMS, claim("data", volumeName="pv-1"))
    waits(of, "p", 3, **with_claims("data"))
    told = "Claim default/data is not bound: it is assigned PersistentVolume pv-1"
    assert f"{told}, which does not exist." in explained(of, "p").words
    of.storage.create(VOLUMES, volume("pv-1"))
    assert f"{told}." in explained(of, "p").words


def test_a_claim_for_which_there_is_no_volume_is_named_with_its_class() -> None:
    of = world(a=[16])
    of.storage.create(STORAGE_CLASSES, storage_class("local", provisioner="kubernetes.io/no-provisioner"))
    of.storage.create(CLAIMS, claim("data", class_name="local"))
    answer = explained_new(of, "p", 3, **with_claims("data"))
    assert causes(answer) == {"VolumeBinding": "claim data of StorageClass local"}
    remedy = "it needs a PersistentVolume that node a can use, for claim data of StorageClass local"
    assert answer.nearest[0].remedy == remedy


def test_a_claim_whose_volume_is_made_on_a_node_that_is_gone_is_named_with_what_to_do() -> None:
    of = world(a=[16])
    of.storage.create(STORAGE_CLASSES, storage_class("fast"))
    of.storage.create(CLAIMS, claim("data", class_name="fast"))
    of.storage.annotate_claim("default", "data", {SELECTED_NODE: "gone"})
    answer = explained_new(of, "p", 3, **with_claims("data"))
    annotate = "kubectl -n default annotate pvc data volume.kubernetes.io/selected-node-"
    assert answer.message.partition(". preemption")[0] == (
        "0/1 nodes are available: 1 node(s) didn't find available persistent volumes to bind: "
        f"claim data is waiting for a volume on node gone, which does not exist; to reselect a node, run: {annotate}"
    )
    cause = "claim data of StorageClass fast, whose volume is being created on node gone"
    assert causes(answer) == {"VolumeBinding": cause}
    of.nodes.add(wire_node("gone", [1]))
    assert "does not exist" not in explained(of, "p").message


def test_a_selected_node_that_is_no_name_is_shown_escaped_and_cut() -> None:
    of = world(a=[16])
    of.storage.create(STORAGE_CLASSES, storage_class("fast"))
    of.storage.create(CLAIMS, claim("data", class_name="fast"))
    of.storage.annotate_claim("default", "data", {SELECTED_NODE: "\x1b[2J" + "n" * 5000})
    answer = explained_new(of, "p", 3, **with_claims("data"))
    assert r"on node '\x1b[2Jnnn" in answer.message
    assert len(answer.message) < 500


def test_a_volume_of_other_nodes_is_named() -> None:
    of = world(a=[16])
    of.storage.create(VOLUMES, volume("pv-1", on=("b",)))
    of.storage.create(CLAIMS, bound(claim("data"), "pv-1"))
    assert causes(explained_new(of, "p", 3, **with_claims("data"))) == {
        "VolumeBinding": "claim data has PersistentVolume pv-1"
    }


def test_a_pod_that_removes_nobody_is_told_why() -> None:
    of = world(a=[16])
    there(of, "low", 16, "a", 0)
    answer = explained_new(of, "p", 16, priority=9, preemptionPolicy="Never")
    assert "It preempts no other pods: its preemptionPolicy is Never." in answer.words
    assert "not eligible due to preemptionPolicy=Never" in answer.message


def test_of_a_pod_that_no_node_can_help_it_is_not_said_that_preemption_does_not_either() -> None:
    of = world(a=[16])
    answer = explained_new(of, "p", 5, labels={names.GPU_COUNT: "2"})
    assert "Preemption is not helpful" in answer.message
    assert "Preemption is not helpful" not in prose(answer)
    assert "requests 5, which is not divisible by" in prose(answer)


def test_a_bound_pod_is_told_what_its_author_misspelt() -> None:
    of = world(a=[16])
    there(of, "p", 3, "a", 0, annotations={"gpushare/exlusive": "true"})
    assert lines(explained(of, "p"), 200)[2].startswith("Annotation gpushare/exlusive is unknown")


def test_all_that_is_named_fits_a_line_or_two() -> None:
    of = world(wire_node("a", [16], taints=tuple(Taint(f"k{n}", "NoSchedule") for n in range(50))))
    assert causes(explained_new(of, "p", 3)) == {
        "TaintToleration": "k0:NoSchedule, k1:NoSchedule, k2:NoSchedule and 47 more"
    }
    assert asked(of).unread == []
