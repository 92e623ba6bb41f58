"""`what-if` on a cluster in memory: how many copies fit, the file that holds the pod, and its priority."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from scheduler.plugins.fragmentation.measure import measured
from scheduler.plugins.fragmentation.target_workload import TargetWorkload
from scheduler.program import cli
from scheduler.testing.cluster.world import World
from scheduler.tools.cli.manifests import SYSTEM_CLASSES, Manifest, Unanswerable, given, manifest
from scheduler.tools.explain.answers import Preempting, WhatIfAnswer
from tests.support.builders import wire_pod
from tests.support.explaining import asked, lines, there, waits, world


def test_what_if_says_how_many_fit_where_and_what_stops_the_next() -> None:
    of = world(a=[16, 16], b=[8])
    there(of, "p", 3, "a", 0)
    waits(of, "patient", 99)
    answer = asked(of).what_if(wire_pod("serve", 7), 20)
    assert (answer.fit, answer.replicas, answer.waiting) == (4, 20, 1)
    assert sorted((place.node, index) for place in answer.places for index in place.cards) == [
        ("a", 0),
        ("a", 1),
        ("a", 1),
        ("b", 0),
    ]
    assert answer.next is not None
    assert "2 Insufficient GPU memory on one card: wants 7, most free 6 (of 16)" in answer.next.message
    assert all("serve" not in pod for node in answer.next.nearest for pod in node.leaving)
    shown = lines(answer)
    assert shown[0] == "4 of 20 copies of default/serve would fit now; 1 pending pod is not counted."
    assert "a     1 (7)       2" in shown


def test_what_if_leaves_no_copy_in_what_is_usual() -> None:
    of = world(a=[16])
    there(of, "p", 8, "a", 0)
    cluster_view = asked(of)
    tables = cluster_view.reading.engine.tables
    before = measured(tables, tables.fact(TargetWorkload).usual()).total()
    cluster_view.what_if(wire_pod("serve", 3), 2)

    assert measured(tables, tables.fact(TargetWorkload).usual()).total() == before


def test_what_if_knows_a_forgotten_scheduler_name() -> None:
    answer = asked(world(a=[16])).what_if(wire_pod("serve", 7, scheduler=""), 1)
    assert (answer.fit, "add `schedulerName: gpushare-scheduler`" in answer.words[0]) == (1, True)


def test_what_if_an_amount_is_none_is_told_in_words() -> None:
    with pytest.raises(Unanswerable, match="pod serve cannot be read: '1e999999' is not a quantity"):
        asked(world(a=[16])).what_if(wire_pod("serve", 7, requests={"cpu": "1e999999"}), 1)


POD = "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 3}}}]}\n"
DEPLOYMENT = """
kind: Deployment
metadata: {name: web, namespace: ml}
spec:
  replicas: 3
  template:
    metadata: {labels: {app: web}}
    spec: {schedulerName: gpushare-scheduler, containers: [{name: c}]}
"""


def test_the_pod_of_a_manifest_is_found(tmp_path: Path) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(f"kind: Service\nmetadata: {{name: s}}\n---\n{POD}", encoding="utf-8")
    assert manifest(file).pod.metadata.name == "p"
    file.write_text(DEPLOYMENT, encoding="utf-8")
    found = manifest(file).pod
    assert (found.metadata.name, found.metadata.namespace, found.metadata.labels) == ("web", "ml", {"app": "web"})


@pytest.mark.parametrize(
    ("written", "words"),
    [
        pytest.param("a: [", "cannot be read", id="no YAML"),
        pytest.param("kind: Service\n", "holds no pods", id="no pod"),
        pytest.param(f"{POD}---\n{POD}", "holds 2 pods", id="two"),
        pytest.param("kind: Pod\nmetadata: {name: [1]}\n", "is not a pod", id="malformed"),
        pytest.param("kind: CronJob\nmetadata: {}\nspec: {jobTemplate: 5}\n", "holds no pods", id="no job"),
        pytest.param("kind: Job\nmetadata: {}\nspec: {template: {metadata: 5}}\n", "holds no pods", id="no metadata"),
    ],
)
def test_a_file_without_one_pod_is_refused_in_words(tmp_path: Path, written: str, words: str) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text(written, encoding="utf-8")
    ran = CliRunner().invoke(cli, ["what-if", "-f", str(file), "--kubeconfig", str(tmp_path / "none")])
    assert (ran.exit_code, ran.stderr.startswith("gpushare-scheduler: ")) == (1, True)
    assert words in ran.stderr


URGENT = """
kind: Pod
metadata: {name: urgent}
spec:
  schedulerName: gpushare-scheduler
  SPEC
  containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 16}}}]
"""
REMOVES = Preempting(node="a", cards={0: 16}, victims=("default/fill",))


def full() -> World:
    of = world(a=[16])
    there(of, "fill", 16, "a", 0)
    return of


def what_if(of: World, folder: Path, spec: str, *refused: str) -> WhatIfAnswer:
    file = folder / "pod.yaml"
    file.write_text(URGENT.replace("SPEC", spec), encoding="utf-8")
    cluster_view = asked(of, *refused)

    async def answer() -> WhatIfAnswer:
        pod, words = await cluster_view.prioritized(manifest(file))
        return cluster_view.what_if(pod, 1, words)

    return asyncio.run(answer())


def removed(answer: WhatIfAnswer) -> Preempting | None:
    assert answer.next is not None
    return answer.next.preemption


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param("priorityClassName: high", REMOVES, id="its class"),
        pytest.param("priority: 1000", REMOVES, id="a number"),
        pytest.param("priorityClassName: polite", None, id="a class that removes nobody"),
        pytest.param("", None, id="no class, and no default"),
    ],
)
def test_the_priority_is_that_of_its_class(tmp_path: Path, spec: str, expected: Preempting | None) -> None:
    of = full()
    of.priority_classes.create("high", 1000)
    of.priority_classes.create("polite", 1000, preemption_policy="Never")
    answer = what_if(of, tmp_path, spec)
    assert (answer.fit, removed(answer)) == (0, expected)
    assert len(answer.words) == 1


def test_a_pod_without_a_class_has_that_of_the_default_one(tmp_path: Path) -> None:
    of = full()
    of.priority_classes.create("usual", 5, global_default=True)
    assert removed(what_if(of, tmp_path, "")) == REMOVES


@pytest.mark.parametrize(
    ("refused", "said"),
    [
        pytest.param((), "There is no PriorityClass high, so the API server rejects the pod", id="none"),
        pytest.param(("priorityclasses",), "Its PriorityClass high cannot be read", id="no right"),
    ],
)
@pytest.mark.parametrize(
    ("number", "taken", "removes"),
    [
        pytest.param("", "0", None, id="no number"),
        pytest.param("\n  priority: 1000", "1000, as its spec.priority says", REMOVES, id="the pod brings one along"),
    ],
)
def test_a_priority_class_that_is_not_known_is_told_in_one_line(
    tmp_path: Path, refused: tuple[str, ...], said: str, number: str, taken: str, *, removes: Preempting | None
) -> None:
    answer = what_if(full(), tmp_path, f"priorityClassName: high{number}", *refused)
    assert answer.words == (f"{said}: its priority is taken as {taken}.", "It requests 16 GiB on one card.")
    assert removed(answer) == removes


def test_the_class_says_more_than_a_priority_that_the_pod_brings_along(tmp_path: Path) -> None:
    of = full()
    of.priority_classes.create("high", -1)
    assert removed(what_if(of, tmp_path, "priorityClassName: high\n  priority: 1000")) is None


@pytest.mark.parametrize("name", ["system-cluster-critical", "system-node-critical"])
@pytest.mark.parametrize("refused", [(), ("priorityclasses",)])
def test_the_classes_of_every_cluster_are_known(tmp_path: Path, name: str, refused: tuple[str, ...]) -> None:
    answer = what_if(full(), tmp_path, f"priorityClassName: {name}", *refused)
    assert answer.words == ("It requests 16 GiB on one card.",)
    assert removed(answer) == REMOVES


def test_the_values_of_those_are_kubernetes_own() -> None:
    values = {name: given(Manifest(wire_pod(), name), (), "{}")[0].spec.priority for name in SYSTEM_CLASSES}
    assert values == {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
