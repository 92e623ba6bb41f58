"""Claims and volumes in the files of a simulation: pods go where their volumes are, or can be had."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from config.clusterfile.reading import read
from config.settings.mistakes import ConfigurationError
from config.settings.scheduler import SchedulerConfiguration
from scheduler.core.build import build_engine
from scheduler.tools.simulate.report import Report
from tests.scheduler.tools.simulate.described import node, pod, replayed_file
from tests.support.volumes import HOSTNAME, ZONE, bound, claim, storage_class, volume, with_claims

NODES = [node("a", 16, labels={ZONE: "z1"}), node("b", 16, labels={ZONE: "z2"})]
LOCAL = storage_class("local", provisioner="kubernetes.io/no-provisioner")


def report_on(folder: Path, storage: list[dict[str, Any]], *pods: dict[str, Any]) -> Report:
    documents = [{"nodes": NODES, "pods": list(pods)}, *map(with_kind, storage)]
    return report_of(folder, documents)


def report_of(folder: Path, documents: list[dict[str, Any]]) -> Report:
    path = folder / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
    return replayed_file(read(path), build_engine(SchedulerConfiguration()))


def with_kind(manifest: dict[str, Any]) -> dict[str, Any]:
    if "provisioner" in manifest:
        return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **manifest}
    kind = "PersistentVolume" if "capacity" in manifest["spec"] else "PersistentVolumeClaim"
    return {"apiVersion": "v1", "kind": kind, **manifest}


def placed(report: Report) -> dict[str, str]:
    return {one.pod.removeprefix("default/"): one.node for one in report.placed}


def waiting(report: Report) -> dict[str, str]:
    return {one.pod.removeprefix("default/"): one.reason for one in report.waiting}


def test_a_pod_goes_where_the_volume_of_its_claim_is(tmp_path: Path) -> None:
    there = volume("pv", on=("z2",), key=ZONE, claimRef={"namespace": "default", "name": "data"})
    report = report_on(tmp_path, [there, bound(claim("data"), "pv")], pod("p", 4, **with_claims("data")))
    assert placed(report) == {"p": "b"}


def test_two_pods_never_get_one_volume(tmp_path: Path) -> None:
    storage = [LOCAL, volume("pv", class_name="local", on=("b",))]
    storage += [claim(name, class_name="local") for name in ("one", "two")]
    pods = [pod(f"p-{name}", 4, **with_claims(name)) for name in ("one", "two")]
    report = report_on(tmp_path, storage, *pods)
    assert placed(report) == {"p-one": "b"}
    assert waiting(report) == {
        "p-two": "0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind."
    }


def test_pods_that_share_a_claim_go_where_its_volume_was_made(tmp_path: Path) -> None:
    topologies = [{"matchLabelExpressions": [{"key": HOSTNAME, "values": ["a", "b"]}]}]
    storage = [storage_class("fast", allowedTopologies=topologies), claim("data", class_name="fast")]
    report = report_on(tmp_path, storage, *(pod(f"p{n}", 6, at_s=n, **with_claims("data")) for n in range(4)))
    assert list(placed(report)) == ["p0", "p1"]
    assert len(set(placed(report).values())) == 1
    assert "1 node(s) didn't match PersistentVolume's node affinity" in waiting(report)["p2"]


def test_a_stateful_set_has_its_claims(tmp_path: Path) -> None:
    template = {**claim("data", class_name="local"), "metadata": {"name": "data"}}
    spec = pod("p", 4)["pod"]["spec"]
    stateful_set = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": "web"},
        "spec": {"replicas": 3, "template": {"spec": spec}, "volumeClaimTemplates": [template]},
    }
    volumes = [volume(f"pv-{name}", class_name="local", on=(name,)) for name in ("a", "b")]
    documents = [{"nodes": NODES}, *map(with_kind, [LOCAL, *volumes]), stateful_set]
    report = report_of(tmp_path, documents)
    assert sorted(placed(report).values()) == ["a", "b"]
    assert "didn't find available persistent volumes" in waiting(report)["web-2"]
    assert report.ignored == ()


@pytest.mark.parametrize(
    ("storage", "reason"),
    [
        pytest.param([], 'persistentvolumeclaim "data" not found', id="no claim"),
        pytest.param([claim("data")], "pod has unbound immediate PersistentVolumeClaims", id="immediate"),
    ],
)
def test_a_pod_whose_claim_stays_without_a_volume_waits(
    tmp_path: Path, storage: list[dict[str, Any]], reason: str
) -> None:
    report = report_on(tmp_path, storage, pod("p", 4, **with_claims("data")))
    assert waiting(report) == {"p": f"0/2 nodes are available: {reason}."}


def test_mistakes_in_storage_are_all_reported(tmp_path: Path) -> None:
    wrong = with_kind(volume("pv", claimRef="mine"))
    documents = [{"nodes": NODES}, wrong, with_kind(claim("data")), with_kind(claim("data"))]
    with pytest.raises(ConfigurationError) as caught:
        report_of(tmp_path, documents)
    assert "PersistentVolumeClaim default/data" in str(caught.value)
    with pytest.raises(ConfigurationError) as caught:
        report_of(tmp_path, documents[:3])
    assert "PersistentVolume pv" in str(caught.value)
