"""The alerts of the chart, as its values change them; `test_promtool` has Prometheus' own tool read them."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from e2e.control_plane import binaries
from e2e.deploy.chart.helm import Helm
from e2e.deploy.chart.variants import CHANGED_ALERTS, VARIANTS
from tests.support.documents.alerting import alerts, groups


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


def test_prometheus_reads_the_rules_as_the_values_have_changed_them(helm: Helm, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(spec(helm, {"prometheusRule": CHANGED_ALERTS})), encoding="utf-8")
    promtool = binaries.ensure(["promtool"])["promtool"]
    answer = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, check=False)

    assert answer.returncode == 0, answer.stdout + answer.stderr
