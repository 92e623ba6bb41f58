"""`what-if` gives a pod the priority that the API server would: that of its PriorityClass."""

import asyncio
from pathlib import Path

import pytest

from scheduler.testing.cluster.world import World
from scheduler.tools.cli.manifests import SYSTEM_CLASSES, Manifest, given, manifest
from scheduler.tools.explain.answers import Preempting, WhatIfAnswer
from tests.support.builders import wire_pod
from tests.support.explaining import asked, there, world

POD = """
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
    file.write_text(POD.replace("SPEC", spec), encoding="utf-8")
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
    ("refused", "told"),
    [
        pytest.param(
            (),
            "There is no PriorityClass high, so the API server refuses the pod: its priority is taken as 0.",
            id="none",
        ),
        pytest.param(
            ("priorityclasses",), "Its PriorityClass high cannot be read: its priority is taken as 0.", id="no right"
        ),
    ],
)
def test_a_priority_that_is_not_known_is_told_in_one_line(tmp_path: Path, refused: tuple[str, ...], told: str) -> None:
    answer = what_if(full(), tmp_path, "priorityClassName: high", *refused)
    assert answer.words == (told, "It requests 16 GiB on one card.")
    assert removed(answer) is None


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        pytest.param((), "There is no PriorityClass high, so the API server refuses the pod", id="none"),
        pytest.param(("priorityclasses",), "Its PriorityClass high cannot be read", id="no right"),
    ],
)
def test_the_priority_that_is_used_is_told_where_the_pod_brings_it_along(
    tmp_path: Path, refused: tuple[str, ...], told: str
) -> None:
    answer = what_if(full(), tmp_path, "priorityClassName: high\n  priority: 1000", *refused)
    assert answer.words[0] == f"{told}: its priority is taken as 1000, as its spec.priority says."
    assert removed(answer) == REMOVES


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


def test_without_the_right_nothing_is_said_of_a_pod_that_names_no_class(tmp_path: Path) -> None:
    answer = what_if(full(), tmp_path, "", "priorityclasses")
    assert answer.words == ("It requests 16 GiB on one card.",)
