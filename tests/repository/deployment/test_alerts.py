"""Alert rules, their pages and the dashboard speak of metrics that are there; `e2e/deploy` has promtool read them."""

import json
import re

import pytest
import yaml

from config.protocol.inventory import Card, Health, Inventory, encode
from scheduler.tools.inspect.tables import details
from tests.scheduler.tools.inspect.listed import node, viewed
from tests.support.documents.alerting import (
    RUNBOOKS,
    alerts,
    dashboard,
    labels_of,
    panels,
    questions,
    recorded,
    series_in,
    unknown_in,
)
from tests.support.repository import ROOT

SCENARIOS = ROOT / "e2e/deploy/chart/alerts_test.yaml"
HEADINGS = ["Look first", "What it means", "What users see", "What to do", "What not to do", "Check and undo"]
LONGEST = 400
# They need a plugin for kubectl.
INSTALLED = ("kubectl gpushare", "kubectl inspect")
PAGES = sorted(path.stem for path in RUNBOOKS.glob("*.md") if path.stem != "README")


@pytest.mark.parametrize(
    ("expr", "wrong"),
    [
        pytest.param('gpushare_scheduler_ready{job="x"} == 0', [], id="a metric, by a label of its target"),
        pytest.param("rate(gpushare_scheduler_loop_lag_seconds_bucket[5m])", [], id="a histogram"),
        pytest.param("gpushare_scheduler_nothing > 1", ["gpushare_scheduler_nothing"], id="no metric"),
        pytest.param("gpushare_scheduler_ready_count", ["gpushare_scheduler_ready_count"], id="of a gauge"),
        pytest.param(
            'gpushare_scheduler_waiting_pods{why="x"}', ["gpushare_scheduler_waiting_pods{why}"], id="another label"
        ),
        pytest.param("sum by (reason) (gpushare_scheduler_ready)", ["reason"], id="grouped by what is not there"),
        pytest.param(
            'sum by (node) (label_replace(gpushare_device_plugin_ready, "node", "$1", "Hostname", "(.+)"))',
            [],
            id="a label that the expression makes",
        ),
        pytest.param(
            'sum by (node) (label_replace(gpushare_scheduler_ready, "node", "$1", "Hostname", "(.+)"))',
            ["node"],
            id="one that it makes of nothing",
        ),
    ],
)
def test_an_expression_that_asks_for_what_is_not_there_is_found(expr: str, wrong: list[str]) -> None:
    assert unknown_in(expr) == wrong


@pytest.mark.parametrize(("who", "expr"), list(questions()))
def test_rules_and_panels_ask_for_metrics_and_labels_that_are_there(who: str, expr: str) -> None:
    assert series_in(expr), who
    assert unknown_in(expr) == []


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    assert sorted(alert.name for alert in alerts()) == PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_to_do(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    assert text.splitlines()[0] == f"# {name}"
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert all(part.strip() for part in re.split(r"^#+ .+$", text, flags=re.MULTILINE)[1:][1:])


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_short_and_begins_with_commands_that_need_nothing_installed(name: str) -> None:
    text = (RUNBOOKS / f"{name}.md").read_text(encoding="utf-8")
    first, *_ = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(text.split()) <= LONGEST
    assert first.startswith("kubectl ")
    assert [command for command in INSTALLED if command in first] == []
    assert re.search(r"(?<![\w$-])POD(?![\w:])", text) is None


def test_the_list_of_pages_has_each_alert_with_its_severity() -> None:
    listed = re.findall(
        r"^\| \[(\w+)\]\((\w+)\.md\) \| (\w+) \|", (RUNBOOKS / "README.md").read_text("utf-8"), re.MULTILINE
    )
    assert listed == [(alert.name, alert.name, alert.labels["severity"]) for alert in alerts()]


def test_an_alert_says_how_bad_it_is_what_to_do_first_and_where_to_read_on() -> None:
    for alert in alerts():
        assert alert.labels.keys() == {"severity"}
        assert alert.labels["severity"] in {"critical", "warning"}
        # The chart adds an absolute runbook_url where it knows one.
        assert alert.annotations.keys() == {"summary", "description"}
        assert re.search(r"\bfirst\b", alert.annotations["description"], re.IGNORECASE), alert.name


def test_the_values_of_the_chart_change_each_alert_and_each_threshold_that_an_expression_names() -> None:
    schema = json.loads((ROOT / "deploy/chart/gpushare-scheduler/values.schema.json").read_text(encoding="utf-8"))
    known = schema["properties"]["prometheusRule"]["properties"]["alerts"]["properties"]
    thresholds = {name: set(of["properties"].get("thresholds", {}).get("properties", {})) for name, of in known.items()}
    in_expressions = {
        alert.name: set(re.findall(r"[0-9.]+ # threshold: (\w+)$", alert.expr, re.MULTILINE)) for alert in alerts()
    }

    assert thresholds == in_expressions
    assert sum("#" in alert.expr for alert in alerts()) == sum(bool(names) for names in in_expressions.values())


def test_alert_and_page_of_an_unhealthy_card_name_the_command_that_shows_why() -> None:
    (alert,) = (one for one in alerts() if one.name == "GpushareCardUnhealthy")
    page = (RUNBOOKS / f"{alert.name}.md").read_text(encoding="utf-8")
    assert "kubectl inspect gpushare -d {{ $labels.Hostname }}" in alert.annotations["description"]
    assert "\nkubectl inspect gpushare -d NODE\n" in page
    announced = Card(index=0, uuid="GPU-0", model="M", memory_mib=0, units=9, health=Health.UNHEALTHY, reason="xid-79")
    shown = viewed([node("n", "0", "1", inventory=encode(Inventory(1024, "", (announced,))))], [])
    assert "n     0     0/9              unhealthy (xid-79)  GPU-0\n" in details(shown, named=True)


def test_what_an_alert_names_is_a_label_of_its_series() -> None:
    for alert in alerts():
        named = set(re.findall(r"\$labels\.(\w+)", " ".join(alert.annotations.values())))
        had = set().union(*(labels_of(name) or set() for name in series_in(alert.expr)))
        assert named <= had, alert.name


def test_every_alert_fires_in_some_scenario_and_is_silent_in_another() -> None:
    """The scenarios of promtool: each says which alerts fire at its end, and that no other does."""
    tests = yaml.safe_load(SCENARIOS.read_text(encoding="utf-8"))["tests"]
    fire = [
        set(re.findall(r'alertname="(\w+)"', sample["labels"] or ""))
        for test in tests
        for one in test.get("promql_expr_test", [])
        if "ALERTS" in one["expr"]
        for sample in one["exp_samples"] or [{"labels": ""}]
    ]
    names = {alert.name for alert in alerts()}
    assert set().union(*fire) == names
    assert set() in fire, "one in which nothing fires"


def test_each_panel_asks_the_data_source_that_is_chosen_and_stands_in_its_own_place() -> None:
    board = dashboard()
    chosen = {"type": "prometheus", "uid": "${datasource}"}
    assert [one["name"] for one in board["templating"]["list"]] == ["datasource", "cluster", "node", "namespace"]
    assert all(target["datasource"] == chosen for panel in panels() for target in panel["targets"])
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    taken = [
        (x, y)
        for panel in board["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(taken)) == len(taken)
    assert max(x for x, _ in taken) < 24


def test_the_rows_are_cluster_nodes_cards_namespaces_and_both_programs() -> None:
    rows = [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"]
    assert rows == ["Cluster", "Nodes", "Cards", "Namespaces", "Scheduler", "Device plugins"]


@pytest.mark.parametrize(
    ("panel", "metric"),
    [
        ("Used, by card", "gpushare_device_plugin_card_memory_used_bytes"),
        ("Utilization, by card", "DCGM_FI_DEV_GPU_UTIL"),
        ("Temperature, by card", "DCGM_FI_DEV_GPU_TEMP"),
        ("Power, by card", "DCGM_FI_DEV_POWER_USAGE"),
    ],
)
def test_each_card_of_the_chosen_nodes_has_a_line(panel: str, metric: str) -> None:
    (found,) = (each for each in panels() if each["title"] == panel)
    (target,) = found["targets"]
    assert f'by (cluster, Hostname, gpu) ({metric}{{cluster=~"$cluster", Hostname=~"$node"}})' in target["expr"]
    assert target["legendFormat"] == "{{Hostname}} card {{gpu}}"


def test_charge_back_is_recorded_once_a_minute_as_its_hours_assume() -> None:
    text = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in recorded())
