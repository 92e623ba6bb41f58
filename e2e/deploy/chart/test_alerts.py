"""Prometheus' own tool on the alert rules, also as values of the chart change them, and on what both programs show."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from e2e.control_plane import binaries
from e2e.deploy.chart.helm import Helm
from e2e.deploy.chart.variants import CHANGED_ALERTS, VARIANTS
from e2e.programs.scheduler_process import SchedulerProcess
from e2e.support.shared_node import SharedNode
from tests.support.documents.alerting import FILES, alerts, groups, panels
from tests.support.repository import ROOT

RULES: Final = FILES / "alerts.yaml"
SCENARIOS: Final = Path(__file__).with_name("alerts_test.yaml")
# What Grafana puts in.
DURATIONS: Final = {"$__rate_interval": "5m", "$__range": "6h"}
# A label of dcgm-exporter's, whose names we keep.
NOT_OURS: Final = "label names should be written in 'snake_case' not 'camelCase'"


@pytest.fixture(scope="session")
def promtool() -> Path:
    return binaries.ensure(["promtool"])["promtool"]


def run(promtool: Path, *arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *arguments], input=text, capture_output=True, text=True, check=False)


def complaints(promtool: Path, text: str) -> list[str]:
    """What the linter says of the text of a scrape."""
    answer = run(promtool, "check", "metrics", text=text)
    return [line for line in (answer.stdout + answer.stderr).splitlines() if line.strip()]


def test_the_rules_are_what_prometheus_reads(promtool: Path) -> None:
    answer = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", RULES)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_each_alert_fires_when_it_should_and_at_no_other_time(promtool: Path) -> None:
    answer = run(promtool, "test", "rules", SCENARIOS)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_an_alert_that_does_not_fire_is_found(promtool: Path, tmp_path: Path) -> None:
    text = SCENARIOS.read_text(encoding="utf-8").replace("../../../deploy", str(ROOT / "deploy"))
    wrong = text.replace('alertname="GpushareOverbooked"', 'alertname="GpushareNoLeader"')
    (tmp_path / "wrong.yaml").write_text(wrong, encoding="utf-8")
    assert wrong != text
    assert run(promtool, "test", "rules", tmp_path / "wrong.yaml").returncode != 0


def test_what_the_dashboard_asks_is_what_prometheus_reads(promtool: Path, tmp_path: Path) -> None:
    asked = [target["expr"] for panel in panels() for target in panel["targets"]]
    for variable, value in DURATIONS.items():
        asked = [expr.replace(variable, value) for expr in asked]
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(asked)]
    file = tmp_path / "dashboard.yaml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    answer = run(promtool, "check", "rules", file)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert f"{len(asked)} rules found" in answer.stdout


def test_the_linter_finds_what_is_wrong(promtool: Path) -> None:
    text = "# TYPE wrong_total gauge\nwrong_total 1\n"
    assert any("wrong_total" in line for line in complaints(promtool, text))


async def test_what_the_scheduler_shows_passes_the_linter(promtool: Path, scheduler: SchedulerProcess) -> None:
    await scheduler.ready()
    text = await scheduler.page("/metrics")
    assert "gpushare_scheduler_leads 1.0" in text
    assert complaints(promtool, text) == []


async def test_what_both_programs_show_of_a_node_passes_the_linter(promtool: Path, shared: SharedNode) -> None:
    of_scheduler = await shared.scheduler.page("/metrics")
    assert 'gpushare_scheduler_node_memory_bytes{node="n1"}' in of_scheduler
    assert complaints(promtool, of_scheduler) == []
    of_plugin = await shared.plugin.page("/metrics")
    assert 'health="healthy"' in of_plugin
    assert [line for line in complaints(promtool, of_plugin) if not line.endswith(NOT_OURS)] == []


def spec(helm: Helm, values: Mapping[str, Any]) -> dict[str, Any]:
    (found,) = (each for each in helm.objects(values) if each["kind"] == "PrometheusRule")
    rendered: dict[str, Any] = found["spec"]
    return rendered


def rules(rendered: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {rule.get("alert") or rule["record"]: rule for group in rendered["groups"] for rule in group["rules"]}


def test_without_values_the_rules_are_those_of_the_file(helm: Helm) -> None:
    assert spec(helm, VARIANTS["alerts"])["groups"] == groups()


def test_a_rule_is_what_the_values_say_and_otherwise_as_in_the_file(helm: Helm) -> None:
    before, now = rules(spec(helm, VARIANTS["alerts"])), rules(spec(helm, {"prometheusRule": CHANGED_ALERTS}))
    waits, stale = now["GpusharePodsWaitLong"], now["GpushareWatchStale"]

    assert (waits["for"], waits["labels"]) == ("1h", {"severity": "info", "team": "ml"})
    assert " > 14400000 # threshold: waitSeconds" in waits["expr"]
    assert stale["expr"].count(" > 90.5 # threshold: failingSeconds") == 2
    assert stale["expr"].count(" > 600 # threshold: silentSeconds") == 2
    assert stale["labels"] == {"severity": "warning", "team": "gpu"}
    recorded = {name for name, rule in before.items() if "record" in rule}
    assert before.keys() - now.keys() == {"GpushareLoopHeld", *recorded}
    same = [name for name in now if name not in CHANGED_ALERTS["alerts"]]
    assert all(now[name]["expr"] == before[name]["expr"] for name in same)


def test_a_link_to_a_runbook_is_absolute_or_not_there(helm: Helm) -> None:
    without, linked = spec(helm, VARIANTS["alerts"]), spec(helm, {"prometheusRule": CHANGED_ALERTS})

    assert not any("runbook_url" in rule.get("annotations", {}) for rule in rules(without).values())
    assert {name: rule["annotations"]["runbook_url"] for name, rule in rules(linked).items()} == {
        alert.name: f"https://runbooks.example/gpushare/{alert.name}.md"
        for alert in alerts()
        if alert.name != "GpushareLoopHeld"
    }


def test_prometheus_reads_the_rules_as_the_values_have_changed_them(helm: Helm, promtool: Path, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(spec(helm, {"prometheusRule": CHANGED_ALERTS})), encoding="utf-8")
    answer = run(promtool, "check", "rules", file)
    assert answer.returncode == 0, answer.stdout + answer.stderr
