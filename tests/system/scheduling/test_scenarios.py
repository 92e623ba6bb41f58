"""Whole clusters as data: each file of `scenarios` describes nodes and pods and says where every pod ends up.

A scenario is a cluster file (docs/cluster-file.md) and one more document: `expect`, pod -> `node`, `cards` (index:
units) and where it matters `at_s`; or `waits`: the message. `configuration`: what the scheduler is configured with.
"""

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from config.settings.scheduler import SchedulerConfiguration
from scheduler.tools.simulate.report import Report
from scheduler.tools.simulate.simulate import Run, simulated

SCENARIOS: Final = sorted((Path(__file__).parent / "scenarios").glob("*.yaml"))


def documents(scenario: Path) -> tuple[list[Any], dict[str, Any]]:
    """The cluster's documents, and the one that says what is expected."""
    every = list(yaml.safe_load_all(scenario.read_text(encoding="utf-8")))
    return [document for document in every if "expect" not in document], next(d for d in every if "expect" in d)


def outcome(report: Report, expected: dict[str, Any]) -> dict[str, Any]:
    """Every pod of the report in the form of `expect`; with the time where `expected` has one."""
    found: dict[str, Any] = {waits.pod.removeprefix("default/"): {"waits": waits.reason} for waits in report.waiting}
    for placed in report.placed:
        name = placed.pod.removeprefix("default/")
        found[name] = {"node": placed.node, "cards": {share.index: share.units for share in placed.cards}}
        if "at_s" in expected.get(name, {}):
            found[name]["at_s"] = placed.bound_s
    return found


@pytest.mark.parametrize("scenario", [pytest.param(path, id=path.stem) for path in SCENARIOS])
def test_every_pod_ends_up_where_the_scenario_says(scenario: Path, tmp_path: Path) -> None:
    described, says = documents(scenario)
    cluster = tmp_path / scenario.name
    cluster.write_text(yaml.safe_dump_all(described), encoding="utf-8")
    configuration = SchedulerConfiguration.model_validate(says.get("configuration", {}))
    report, _, _ = simulated(Run(files=(cluster,)), configuration)
    assert outcome(report, says["expect"]) == says["expect"]


def test_there_are_scenarios() -> None:
    assert len(SCENARIOS) >= 20
