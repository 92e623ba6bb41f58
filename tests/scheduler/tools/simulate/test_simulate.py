import json
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner, Result

from scheduler.program import cli
from tests.support.repository import ROOT

EXAMPLES: Final = (str(ROOT / "docs/examples/cluster.yaml"), str(ROOT / "docs/examples/workload.yaml"))
NODES: Final = "nodes: [{name: a, cards: [{model: M, memoryMiB: 16384}]}]\n"
PODS: Final = (
    "pods: [{count: 2, pod: {metadata: {name: p}, spec: {schedulerName: gpushare-scheduler, "
    "containers: [{name: c, resources: {limits: {aliyun.com/gpu-mem: 4}}}]}}}]\n"
)


def simulated(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", *arguments])


def wanting(units: int, *, count: int = 1) -> dict[str, object]:
    """An entry of `pods`."""
    container = {"name": "c", "resources": {"limits": {"aliyun.com/gpu-mem": units}}}
    spec = {"schedulerName": "gpushare-scheduler", "containers": [container]}
    return {"count": count, "pod": {"metadata": {"name": f"p{units}"}, "spec": spec}}


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(NODES + PODS, encoding="utf-8")
    return str(file)


def test_the_guide_shows_what_is_printed() -> None:
    guide = (ROOT / "docs/simulate.md").read_text(encoding="utf-8")
    shown = guide.partition("```text\n")[2].partition("```")[0]
    printed = simulated(*EXAMPLES).stdout
    # The last line says how fast this machine is.
    assert shown.splitlines()[:-1] == printed.splitlines()[:-1]


def test_the_guide_shows_the_summary_that_is_printed() -> None:
    guide = (ROOT / "docs/simulate.md").read_text(encoding="utf-8")
    shown = guide.partition("## The summary\n")[2].partition("```text\n")[2].partition("```")[0]
    assert shown.splitlines()[:-1] == simulated(*EXAMPLES, "--summary").stdout.splitlines()[:-1]


def test_a_summary_counts_pods_by_what_they_wait_for(tmp_path: Path) -> None:
    pods = [wanting(4, count=7), *(wanting(units) for units in range(20, 30))]
    file = tmp_path / "many.yaml"
    file.write_text(f"{NODES}pods: {json.dumps(pods)}\n", encoding="utf-8")

    found = simulated(str(file), "--summary").stdout.splitlines()

    assert found[0].split() == ["WAITING", "REASON"]
    assert found[1].split()[:1] == ["3"]
    assert "wants 4, most free 0 (of 16)" in found[1]
    assert found[9].strip() == "and 3 more reasons"
    assert "M" in [line.split()[0] for line in found if line]
    assert any(line.startswith("Pods placed: 4, ended since: 0, waiting: 13.") for line in found)


def test_a_summary_of_nothing_says_so(tmp_path: Path) -> None:
    file = tmp_path / "empty.yaml"
    file.write_text("nodes: [{name: a}]\n", encoding="utf-8")
    found = simulated(str(file), "--summary").stdout
    assert found.startswith("No pod is waiting.\n\nThere are no cards.\n\nPods placed: 0,")


def test_json_holds_the_whole_report(cluster: str) -> None:
    report: dict[str, Any] = json.loads(simulated(cluster, "-o", "json").stdout)
    assert report["placed"][0] == {
        "pod": "default/p-0",
        "node": "a",
        "cards": [{"index": 0, "uuid": report["cards"][0]["uuid"], "units": 4}],
        "bound_s": 0.0,
        "wait_s": 0.0,
        "attempts": 1,
        "ended_s": None,
        "ended": "",
    }
    assert report["nodes"] == [{"node": "a", "units": 16, "used": 8, "peak": 8, "average": 8.0, "pods": 2}]
    assert (report["waiting"], report["decisions"], report["end_s"]) == ([], 2, 0.0)


def test_the_configuration_changes_the_result(cluster: str, tmp_path: Path) -> None:
    configuration = tmp_path / "scheduler.yaml"
    head = "apiVersion: gpushare/v1alpha1\nkind: SchedulerConfiguration\n"
    configuration.write_text(f"{head}profiles: [{{schedulerName: mine}}]\n", encoding="utf-8")
    report = json.loads(simulated(cluster, "--config", str(configuration), "-o", "json").stdout)
    assert [waits["reason"] for waits in report["waiting"]] == [
        "schedulerName is gpushare-scheduler: left to that scheduler"
    ] * 2


def test_manifests_that_are_not_read_are_named(tmp_path: Path) -> None:
    file = tmp_path / "all.yaml"
    file.write_text(f"{NODES}---\n{{apiVersion: v1, kind: Service, metadata: {{name: web}}}}\n", encoding="utf-8")
    assert "Left out: Service web (not simulated;" in simulated(str(file)).stdout


def test_every_mistake_in_every_file_is_a_line_and_the_exit_code_is_2(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("nodes: [{name: a, cards: [{model: M}]}]\npods: [{at_s: -1}]\n", encoding="utf-8")
    result = simulated(str(file), str(tmp_path / "missing.yaml"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        f"{file}: nodes[0].cards[0].memoryMiB: is missing",
        f"{file}: pods[0].pod: is missing",
        f"{file}: pods[0].at_s: expected at least 0, at most 1000000000, found -1",
        f"{tmp_path / 'missing.yaml'}: cannot be read: No such file or directory",
    ]


def test_what_two_files_contradict_names_these_two_and_no_third(tmp_path: Path) -> None:
    good, one, two = (tmp_path / name for name in ("good.yaml", "one.yaml", "two.yaml"))
    good.write_text(NODES.replace("name: a", "name: b"), encoding="utf-8")
    for file in (one, two):
        file.write_text(NODES, encoding="utf-8")
    result = simulated(str(one), str(good), str(two))
    assert result.stderr.splitlines() == [
        f"gpushare-scheduler: {one}, {two}: expected each node once, found more than once: a"
    ]


def test_a_fault_of_nothing_is_named_by_its_own_file_and_its_number_there(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(f"{NODES}faults: [{{node: a, lost: true}}, {{node: a, back: true}}]\n", encoding="utf-8")
    bad.write_text("faults: [{node: a, lost: true}, {node: absent, lost: true}]\n", encoding="utf-8")
    result = simulated(str(good), str(bad))
    assert result.stderr.splitlines() == [f"gpushare-scheduler: {bad}: faults[1].node: node absent does not exist"]


def test_a_pod_that_no_api_server_would_take_is_a_mistake_too(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    spec = "{priority: high, containers: [{name: c}]}"
    file.write_text(f"{NODES}pods: [{{pod: {{metadata: {{name: p}}, spec: {spec}}}}}]\n", encoding="utf-8")
    result = simulated(str(file))
    assert result.exit_code == 2
    assert f"{file}: Pod default/p: spec.priority: expected `int`, got `str`" in result.stderr


def test_a_mistake_in_the_configuration_ends_with_exit_code_2(cluster: str, tmp_path: Path) -> None:
    configuration = tmp_path / "scheduler.yaml"
    configuration.write_text("apiVersion: gpushare/v1alpha1\nkind: SchedulerConfiguration\nunit: 1\n", encoding="utf-8")
    result = simulated(cluster, "--config", str(configuration))
    assert result.exit_code == 2
    assert f"{configuration}: unit: unknown field" in result.stderr
