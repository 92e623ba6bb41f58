"""Metrics that the alert rules and the dashboard query. Pure, except for reading the two files."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import yaml

from scheduler.process.series import Series
from tests.support.documents.metrics_document import DEVICE_PLUGIN, SCHEDULER
from tests.support.repository import ROOT

FILES: Final = ROOT / "deploy" / "chart" / "gpushare-scheduler" / "files"
RUNBOOKS: Final = ROOT / "docs" / "runbooks"
DECLARED: Final = {one.name: one for one in (*SCHEDULER, *DEVICE_PLUGIN)}
# Labels that Prometheus, or the tool that runs it, adds to each series.
TARGET_LABELS: Final = frozenset({"cluster", "job", "instance"})
_NAME: Final = re.compile(r"\b((?:gpushare|scheduler|leader_election|DCGM|cluster_namespace)[\w:]*)(?:\{([^}]*)\})?")
_MATCHER: Final = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)\s*\"")
_GROUPING: Final = re.compile(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)")
_MADE: Final = re.compile(r"label_replace\(.*?, \"(\w+)\", \"\$1\", \"(\w+)\"", re.DOTALL)
_ENDS: Final = ("_bucket", "_sum", "_count")


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert."""

    name: str
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]


def groups() -> list[dict[str, Any]]:
    """Return the groups as written."""
    found: list[dict[str, Any]] = yaml.safe_load((FILES / "alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return found


def alerts() -> list[Rule]:
    """Return all alerts, in order."""
    rules = (rule for group in groups() for rule in group["rules"] if "alert" in rule)
    return [Rule(rule["alert"], rule["expr"], rule["labels"], rule["annotations"]) for rule in rules]


def recorded() -> dict[str, str]:
    """Return the name of each recorded series -> its expression."""
    return {rule["record"]: rule["expr"] for group in groups() for rule in group["rules"] if "record" in rule}


def dashboard() -> dict[str, Any]:
    """Return the dashboard as written."""
    found: dict[str, Any] = json.loads((FILES / "dashboard.json").read_text(encoding="utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    """Return the panels that show something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def questions() -> Iterator[tuple[str, str]]:
    """Yield (rule or panel, expression) of every rule and panel."""
    yield from recorded().items()
    yield from ((rule.name, rule.expr) for rule in alerts())
    for panel in panels():
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])


def series_in(expr: str) -> dict[str, set[str]]:
    """Return the name of each series in an expression -> labels that it selects by."""
    found: dict[str, set[str]] = {}
    for name, matchers in _NAME.findall(re.sub(r"\"[^\"]*\"|#.*$", '""', expr, flags=re.MULTILINE)):
        found.setdefault(name, set()).update(_MATCHER.findall(matchers))
    return found


def metric_of(name: str) -> Series | None:
    """Return the metric that has a series with this name; None if none of ours has."""
    if name in DECLARED:
        return DECLARED[name]
    stem = next((name.removesuffix(end) for end in _ENDS if name.endswith(end)), "")
    metric = DECLARED.get(stem)
    return metric if metric is not None and metric.kind == "histogram" else None


def labels_of(name: str) -> set[str] | None:
    """Return the labels of the series with this name; None if there is no such series."""
    if name in recorded():
        grouping = _GROUPING.search(recorded()[name])
        return set(re.findall(r"\w+", grouping[1])) if grouping else set()
    metric = metric_of(name)
    if metric is None:
        return None
    return {*metric.label_names, *TARGET_LABELS, *({"le"} if name.endswith("_bucket") else ())}


def unknown_in(expr: str) -> list[str]:
    """Return names that are not our series, and labels that these series do not have."""
    wrong, had = [], set()
    for name, selected in series_in(expr).items():
        labels = labels_of(name)
        if labels is None:
            wrong.append(name)
            continue
        had |= labels
        wrong += [f"{name}{{{label}}}" for label in sorted(selected - labels)]
    made = {new for new, old in _MADE.findall(expr) if old in had}
    grouped = {label for grouping in _GROUPING.findall(expr) for label in re.findall(r"\w+", grouping)}
    return wrong + sorted(grouped - had - made)
