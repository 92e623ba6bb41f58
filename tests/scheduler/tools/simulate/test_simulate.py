"""`simulate` as a command: one report, and runs that are compared."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
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
    expected = ".*\n".join(re.escape(part) for part in shown.rpartition("Simulated time")[0].split("...\n"))
    assert shown.count("...\n") == 2
    assert re.match(expected, printed, re.DOTALL)


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


HEAD: Final = "name,at_s,runs_s,cpu_milli,memory_mib,units_per_card,cards\n"
ARRIVALS: Final = "a,0,,1,1,6,1\nb,1,,1,1,4,1\nc,2,,1,1,6,1\nd,3,,1,1,4,1\ne,4,,1,1,1,1\n"
SPREAD: Final = """apiVersion: gpushare/v1alpha1
kind: SchedulerConfiguration
profiles: [{pluginConfig: [{name: GpuShare, args: {cardPolicy: spread}}]}]
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    nodes = "nodes: [{name: n, cards: [{model: M, memoryMiB: 10240, count: 2}]}]\n"
    (tmp_path / "nodes.yaml").write_text(nodes, encoding="utf-8")
    (tmp_path / "tight.csv").write_text(HEAD + ARRIVALS, encoding="utf-8")
    lines = "a,0,,1,1,4,1\nb,1,,1,1,4,1\nc,2,,1,1,10,1\nd,3,,1,1,2,1\n"
    (tmp_path / "holes.csv").write_text(HEAD + lines, encoding="utf-8")
    (tmp_path / "spread.yaml").write_text(SPREAD, encoding="utf-8")
    return tmp_path


def simulated_runs(files: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["simulate", str(files / "nodes.yaml"), "--processes", "1", *arguments])


def compared(files: Path, *arguments: str) -> dict[str, Any]:
    result = simulated_runs(files, *arguments, "-o", "json")
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_one_file_of_arrivals_gives_the_usual_report(files: Path) -> None:
    result = simulated_runs(files, "--arrivals", str(files / "tight.csv"), "--reject")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["REJECTED", "AT", "REASON"] in rows
    assert [row[1] for row in rows if row[:1] == ["default/e"]] == ["4s"]
    assert "Pods placed: 4, ended since: 0, waiting: 0, rejected: 1. Cards: 2, never used: 0." in result.stdout
    short = simulated_runs(files, "--arrivals", str(files / "tight.csv"), "--reject", "--summary")
    assert "REJECTED  REASON" in short.stdout
    assert "waiting: 0, rejected: 1." in short.stdout


def test_configurations_are_compared_run_by_run(files: Path) -> None:
    found = compared(
        files,
        *("--config", "tight=", "--config", f"wide={files / 'spread.yaml'}"),
        *("--arrivals", str(files / "tight.csv"), "--arrivals", str(files / "holes.csv"), "--reject"),
    )
    tight, wide = found["configs"]
    assert [(run["config"], run["run"]) for run in found["runs"]] == [
        ("tight", "tight.csv"),
        ("tight", "holes.csv"),
        ("wide", "tight.csv"),
        ("wide", "holes.csv"),
    ]
    # tight.csv: 6 and 4, 6 and 4 fill both cards, and so do 6 and 6, 4 and 4 with room for each.
    # holes.csv: both pods of 4 on one card leave the other for the one of 10; on two cards they do not.
    assert [run["at_100"] for run in found["runs"]] == [100.0, 100.0, 100.0, 50.0]
    assert [run["first"] for run in found["runs"]] == [105.0, None, 105.0, 90.0]
    assert tight["at_100"] == {"mean": 100.0, "worst": 100.0, "gain": None, "gain_sd": None}
    assert wide["at_100"] == pytest.approx({"mean": 75.0, "worst": 50.0, "gain": -25.0, "gain_sd": 35.3553}, rel=1e-5)
    assert wide["unplaced"]["worst"] == 1


def test_the_table_has_a_line_for_each_configuration_and_one_for_how_it_differs(files: Path) -> None:
    result = simulated_runs(
        files,
        *("--config", "tight=", "--config", f"wide={files / 'spread.yaml'}"),
        *("--arrivals", str(files / "tight.csv"), "--arrivals", str(files / "holes.csv"), "--reject"),
    )
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0][:5] == ["CONFIG", "RUNS", "AT", "100%", "WORST"]
    assert rows[1][:4] == ["tight", "2", "100.00", "100.00"]
    assert rows[2][:4] == ["wide", "2", "75.00", "50.00"]
    assert rows[5][:4] == ["wide", "-25.00", "±", "35.36"]
    assert (rows[0][-2:], rows[4][-1]) == (["FRAGMENTED", "WORST"], "FRAGMENTED")
    # Of tight.csv nothing is left; of holes.csv 10 of 20 units, of which one pod in four, that of 10, can use none.
    assert rows[2][-2:] == ["6.25", "12.50"]
    assert "4/4: wide, holes.csv: 50.00%" in result.stderr


def test_shuffled_orders_are_runs_the_same_every_time_and_in_processes(files: Path) -> None:
    arguments = ("--arrivals", str(files / "tight.csv"), "--shuffle", "1-2,7")
    once, again = compared(files, *arguments), compared(files, *arguments, "--processes", "2")
    assert [run["run"] for run in once["runs"]] == [f"tight.csv shuffled {seed}" for seed in (1, 2, 7)]
    for run in (*once["runs"], *again["runs"]):
        del run["took_s"]
    assert once["runs"] == again["runs"]


def test_who_is_ended_leaves_no_process_behind(files: Path) -> None:
    lines = "".join(f"p{number},{number},1,1,1,1,1\n" for number in range(200_000))
    (files / "long.csv").write_text(HEAD + lines, encoding="utf-8")
    arguments = ("--arrivals", str(files / "long.csv"), "--shuffle", "1,2", "--processes", "2")
    command = (sys.executable, "-m", "scheduler.main", "simulate", str(files / "nodes.yaml"), *arguments)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as parent:
        # The workers, and what tracks resources.
        started = _within(60.0, lambda: found if len(found := _children(parent.pid)) >= 3 else None)
        parent.terminate()
    assert started
    assert _within(30.0, lambda: not any(map(_runs, started)))


def _children(pid: int) -> list[int]:
    """Of all its threads: which one starts a process differs."""
    lists = (listed.read_text(encoding="ascii") for listed in Path(f"/proc/{pid}/task").glob("*/children"))
    return [int(child) for children in lists for child in children.split()]


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _within(seconds: float, look: Callable[[], Any]) -> Any:  # noqa: ANN401 - what it finds
    """What `look` finds; what it last found when the time is over."""
    until = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < until:
        time.sleep(0.05)
    return found


def test_one_run_that_is_not_rejected_waits(files: Path) -> None:
    result = simulated_runs(files, "--arrivals", str(files / "tight.csv"), "--shuffle", "1,2")
    assert "FIRST WAITS" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shuffle", "1-3"), "--shuffle needs --arrivals"),
        (("--arrivals", "tight.csv", "--shuffle", "1-x"), "expected numbers such as 1-10 or 1,2,5"),
        (("--config", "=spread.yaml"), "--config =spread.yaml: expected FILE or NAME=FILE"),
        (("--config", "a=", "--config", "a="), "found more than once: a"),
        (("--plot", "curve.pdf"), "curve.pdf: expected a file whose name ends in .png or .svg"),
        (("--plot", "away/curve.png"), "away/curve.png: there is no folder away"),
        (("--arrivals", "tight.csv", "--shuffle", "3-1"), "--shuffle 3-1: expected numbers such as 1-10 or 1,2,5"),
        (("--arrivals", "away.csv"), "away.csv: cannot be read: No such file or directory"),
    ],
)
def test_a_misuse_is_one_line_and_the_exit_code_is_2(
    files: Path, arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    result = simulated_runs(files, *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_plot_that_cannot_be_written_costs_no_answer(files: Path) -> None:
    (files / "curve.png").symlink_to("/dev/full")
    result = simulated_runs(files, "--arrivals", str(files / "tight.csv"), "--plot", str(files / "curve.png"))
    assert result.exit_code == 1
    assert result.stdout.split()[:2] == ["CONFIG", "RUNS"]
    assert f"gpushare-scheduler: {files}/curve.png cannot be written: No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


def test_mistakes_in_all_files_of_arrivals_are_told_together(files: Path) -> None:
    for name in ("one.csv", "two.csv"):
        (files / name).write_text(f"{HEAD}p,x,,1,1,1,1\n", encoding="utf-8")
    result = simulated_runs(files, "--arrivals", str(files / "one.csv"), "--arrivals", str(files / "two.csv"))
    assert result.exit_code == 2
    assert [line.rpartition("/")[2][:7] for line in result.stderr.splitlines()] == ["one.csv", "two.csv"]


def test_a_mistake_that_a_run_finds_ends_the_program_too(files: Path) -> None:
    (files / "nodes.yaml").write_text("nodes: [{nam: n}]\n", encoding="utf-8")
    for processes in ("1", "2"):
        result = simulated_runs(
            files, "--arrivals", str(files / "tight.csv"), "--shuffle", "1,2", "--processes", processes
        )
        assert result.exit_code == 2
        assert "nodes[0].nam: unknown field" in result.stderr
