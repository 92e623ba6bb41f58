"""Plain Kubernetes manifests in a cluster file, and the pods that controllers would make of them."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

from config.clusterfile.reading import ClusterFile, left_out, node_manifests, pod_manifests, read
from config.clusterfile.workloads import Manifest
from config.settings.plainyaml import parse

TEMPLATE = "{metadata: {labels: {app: x}}, spec: {schedulerName: s, containers: [{name: c}]}}"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "manifests.yaml"


def described(file: Path, text: str) -> ClusterFile:
    file.write_text(dedent(text), encoding="utf-8")
    return read(file)


def pods(file: Path, text: str) -> list[Manifest]:
    return [pod.manifest for pod in pod_manifests(described(file, text))]


def at(manifest: object, *path: str | int) -> object:
    for part in path:
        manifest = manifest[part]  # type: ignore[index]  # a KeyError tells of what is missing
    return manifest


def names(manifests: list[Manifest]) -> list[str]:
    return [str(at(manifest, "metadata", "name")) for manifest in manifests]


def test_a_node_comes_through_unchanged(file: Path) -> None:
    text = """
        apiVersion: v1
        kind: Node
        metadata:
          name: n
          creationTimestamp: 2026-01-31T00:00:00Z
          labels: {kubernetes.io/hostname: other, beta.kubernetes.io/os: linux}
          annotations: {gpushare/x: y}
        spec: {podCIDR: 10.0.0.0/24}
        status:
          capacity: {aliyun.com/gpu-mem: "32", aliyun.com/gpu-count: "2", cpu: "8"}
          allocatable: {aliyun.com/gpu-mem: "31", aliyun.com/gpu-count: "2", cpu: 7500m}
          conditions: [{type: Ready, status: "False"}]
    """
    assert node_manifests(described(file, text), 1024) == parse(dedent(text))


def test_a_pod_comes_through_unchanged(file: Path) -> None:
    text = """
        apiVersion: v1
        kind: Pod
        metadata: {name: p, namespace: ns, uid: u, annotations: {a: b}, ownerReferences: []}
        spec: {nodeName: n, volumes: [{name: v, emptyDir: {}}], containers: [{name: c, ports: [{containerPort: 80}]}]}
        status: {phase: Running}
    """

    assert pods(file, text) == parse(dedent(text))


def test_a_deployment_makes_the_pods_of_a_replica_set(file: Path) -> None:
    made = pods(
        file, f"kind: Deployment\nmetadata: {{name: web, namespace: ns}}\nspec: {{replicas: 3, template: {TEMPLATE}}}"
    )
    owner = at(made[0], "metadata", "ownerReferences", 0)

    assert len(set(names(made))) == 3
    assert all(re.fullmatch(r"web-[b-z2-9]{10}-[b-z2-9]{5}", name) for name in names(made))
    assert at(owner, "kind") == "ReplicaSet"
    assert at(owner, "controller") is True
    assert names(made)[0].startswith(str(at(owner, "name")))
    assert str(at(made[0], "metadata", "labels", "pod-template-hash")) in names(made)[0]
    assert at(made[0], "metadata", "labels", "app") == "x"
    assert at(made[0], "metadata", "namespace") == "ns"
    assert at(made[0], "spec") == {"schedulerName": "s", "containers": [{"name": "c"}]}


def test_the_pods_of_a_large_replica_set_have_different_names(file: Path) -> None:
    made = pods(file, f"kind: ReplicaSet\nmetadata: {{name: web}}\nspec: {{replicas: 5000, template: {TEMPLATE}}}")

    assert len(set(names(made))) == 5000


def test_pods_of_one_owner_share_its_uid_and_others_have_another(file: Path) -> None:
    one = f"kind: ReplicaSet\nmetadata: {{name: a}}\nspec: {{replicas: 2, template: {TEMPLATE}}}\n---\n"
    made = pods(file, one + one.replace("name: a", "name: b"))
    uids = [at(pod, "metadata", "ownerReferences", 0, "uid") for pod in made]

    assert uids[0] == uids[1] != uids[2] == uids[3]


def test_a_stateful_set_numbers_its_pods(file: Path) -> None:
    text = f"""
        apiVersion: apps/v1
        kind: StatefulSet
        metadata: {{name: binpack, uid: the-uid}}
        spec: {{replicas: 3, ordinals: {{start: 4}}, serviceName: svc, template: {TEMPLATE}}}
    """
    made = pods(file, text)

    assert names(made) == ["binpack-4", "binpack-5", "binpack-6"]
    assert at(made[1], "metadata", "labels", "apps.kubernetes.io/pod-index") == "5"
    assert at(made[1], "metadata", "labels", "statefulset.kubernetes.io/pod-name") == "binpack-5"
    assert at(made[1], "metadata", "ownerReferences", 0, "uid") == "the-uid"
    assert at(made[1], "metadata", "ownerReferences", 0, "kind") == "StatefulSet"
    assert (at(made[1], "spec", "hostname"), at(made[1], "spec", "subdomain")) == ("binpack-5", "svc")


def test_a_stateful_sets_pods_mount_their_claims(file: Path) -> None:
    text = f"""
        kind: StatefulSet
        metadata: {{name: db}}
        spec: {{template: {TEMPLATE}, volumeClaimTemplates: [{{metadata: {{name: data}}, spec: {{}}}}]}}
    """
    (pod,) = pods(file, text)

    assert at(pod, "spec", "volumes") == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-db-0"}}]


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ("", 1),
        ("parallelism: 3,", 3),
        ("completions: 2,", 1),
        ("parallelism: 3, completions: 2,", 2),
        ("parallelism: 3, completions: 5,", 3),
        ("parallelism: 3, suspend: true,", 0),
        ("parallelism: 0,", 0),
    ],
)
def test_a_job_has_as_many_pods_as_run_at_once(file: Path, spec: str, count: int) -> None:
    made = pods(file, f"kind: Job\nmetadata: {{name: j}}\nspec: {{{spec} template: {TEMPLATE}}}")

    assert len(set(names(made))) == count
    assert all(at(pod, "metadata", "labels", "batch.kubernetes.io/job-name") == "j" for pod in made)


def test_an_indexed_job_tells_each_pod_its_index(file: Path) -> None:
    spec = f"{{completionMode: Indexed, parallelism: 2, completions: 2, template: {TEMPLATE}}}"
    made = pods(file, f"kind: Job\nmetadata: {{name: j}}\nspec: {spec}")
    key = "batch.kubernetes.io/job-completion-index"

    assert [re.sub("-[b-z2-9]{5}$", "", name) for name in names(made)] == ["j-0", "j-1"]
    assert [at(pod, "metadata", "annotations", key) for pod in made] == ["0", "1"]
    assert [at(pod, "metadata", "labels", key) for pod in made] == ["0", "1"]
    assert [at(pod, "spec", "hostname") for pod in made] == ["j-0", "j-1"]


def test_lists_are_their_items(file: Path) -> None:
    text = """
        kind: List
        items:
        - {kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}
        - {kind: List, items: [{kind: Node, metadata: {name: n}}]}
        ---
        kind: PodList
        items: [{metadata: {name: b}, spec: {containers: [{name: c}]}}]
    """

    assert names(pods(file, text)) == ["a", "b"]
    assert len(node_manifests(described(file, text), 1024)) == 1


def test_a_workload_whose_pods_are_in_the_dump_makes_no_more(file: Path) -> None:
    owner = "ownerReferences: [{kind: %s, name: %s, uid: u, controller: true}]"
    text = f"""
        kind: List
        items:
        - {{kind: Deployment, metadata: {{name: d}}, spec: {{replicas: 2, template: {TEMPLATE}}}}}
        - {{kind: ReplicaSet, metadata: {{name: r, {owner % ("Deployment", "d")}}}, spec: {{template: {TEMPLATE}}}}}
        - {{kind: Pod, metadata: {{name: p, {owner % ("ReplicaSet", "r")}}}, spec: {{containers: [{{name: c}}]}}}}
        - {{kind: ReplicaSet, metadata: {{name: r, namespace: other}}, spec: {{template: {TEMPLATE}}}}}
    """

    assert [name[:2] for name in names(pods(file, text))] == ["p", "r-"]


@pytest.mark.parametrize(("condition", "there"), [("Complete", 0), ("Failed", 0), ("Suspended", 1)])
def test_a_job_that_has_finished_makes_no_pods(file: Path, condition: str, there: int) -> None:
    conditions = f"[{{type: {condition}, status: 'True'}}]"

    made = pods(
        file,
        f"kind: Job\nmetadata: {{name: j}}\nspec: {{template: {TEMPLATE}}}\nstatus: {{conditions: {conditions}}}",
    )

    assert len(made) == there


def test_whatever_else_a_dump_holds_is_left_out_with_one_line(file: Path) -> None:
    text = f"""
        kind: List
        apiVersion: v1
        items:
        - {{apiVersion: apps/v1, kind: DaemonSet, metadata: {{name: d, namespace: a}}, spec: {{template: {TEMPLATE}}}}}
        - {{apiVersion: batch/v1, kind: CronJob, metadata: {{name: c}}, spec: {{}}}}
        - {{apiVersion: v1, kind: ReplicationController, metadata: {{name: r}}, spec: {{replicas: 2}}}}
        - {{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {{name: j}}, spec: {{tasks: []}}}}
        - {{apiVersion: longhorn.io/v1beta2, kind: Node, metadata: {{name: n, namespace: longhorn-system}}}}
        - {{apiVersion: v1, kind: Pod, metadata: {{name: p}}, spec: {{containers: [{{name: c}}]}}}}
    """

    found = described(file, text)

    assert [names(pods(file, text)), len(found.nodes)] == [["p"], 0]
    assert left_out(found.ignored[:3]) == (
        "Left out: DaemonSet a/d, CronJob c, ReplicationController r "
        "(not simulated; their pods count only if the files list them)."
    )
    assert left_out(found.ignored).startswith(
        "Left out: 1 CronJob, 1 DaemonSet, 1 Job.batch.volcano.sh, 1 Node.longhorn.io, 1 ReplicationController ("
    )
    assert left_out([]) == ""


def test_the_short_form_and_manifests_go_together(file: Path) -> None:
    text = f"""
        nodes: [{{name: n}}]
        ---
        kind: Job
        metadata: {{name: j}}
        spec: {{template: {TEMPLATE}}}
    """

    assert len(node_manifests(described(file, text), 1024)) == len(pods(file, text)) == 1
