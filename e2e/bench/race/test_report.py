"""Tables and the document that they stand in."""

import dataclasses

import pytest

from e2e.bench.contenders import OURS, YARDSTICK
from e2e.bench.document import with_section
from e2e.bench.race import report
from e2e.bench.race.ledger import Audit
from e2e.bench.race.race import Run
from e2e.bench.race.rows import Goals

CLEAN = Audit(placed=101, unannotated=0, misbooked=0, overcommitted_cards=0, overcommitted_nodes=0)
SAMPLE = Run(
    OURS,
    pods=101,
    seconds=1.0,
    start_s=0.5,
    cpu_s=0.0303,
    servers_cpu_s=0.0707,
    peak_mib=90.0,
    events=101,
    verdict=CLEAN,
    counts=(),
)


def ours(seconds: float) -> Run:
    return dataclasses.replace(SAMPLE, seconds=seconds)


def theirs(seconds: float) -> Run:
    bare = dataclasses.replace(CLEAN, unannotated=101)
    return dataclasses.replace(SAMPLE, scheduler=YARDSTICK, seconds=seconds, cpu_s=0.101, verdict=bare)


def cells(runs: list[Run], label: str, goals: Goals | None = None) -> list[str]:
    (row,) = [line for line in report.table(runs, goals).splitlines() if line.startswith(f"| {label}")]
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize(
    ("goals", "rate", "cpu"),
    [
        (Goals(rate_at_least=2.0, cpu_at_most=0.3), "≥ 2.0: reached", "≤ 0.3: reached"),
        (Goals(rate_at_least=2.1, cpu_at_most=0.2), "≥ 2.1: **missed**", "≤ 0.2: **missed**"),
    ],
    ids=["reached", "missed"],
)
def test_a_goal_is_reached_or_said_to_be_missed(goals: Goals, rate: str, cpu: str) -> None:
    runs = [ours(1.0), theirs(2.0)]
    assert cells(runs, "pods bound", goals)[-1] == rate
    assert cells(runs, "CPU", goals)[-1] == cpu


def test_kube_scheduler_is_not_blamed_for_annotations_that_it_does_not_know() -> None:
    assert report.problems(theirs(1.0)) == []
    assert cells([ours(1.0), theirs(1.0)], "pods without all")[1:3] == ["0", "-"]


@pytest.mark.parametrize(
    ("run", "label"),
    [
        pytest.param(dataclasses.replace(SAMPLE, events=99), "only 99 of 101 pods have", id="events"),
        pytest.param(
            dataclasses.replace(SAMPLE, verdict=dataclasses.replace(CLEAN, overcommitted_cards=2)),
            "2 cards are over-committed",
            id="cards",
        ),
    ],
)
def test_a_run_whose_result_is_wrong_says_so(run: Run, label: str) -> None:
    (problem,) = report.problems(run)
    assert problem.startswith(label)
    assert problem in report.line(run)


def test_a_section_is_added_once_and_then_replaced() -> None:
    first = with_section("# Title\n", "a", "old")
    both = with_section(first, "b", "other")

    assert with_section(both, "a", r"new \1") == both.replace("old", r"new \1")
    assert both.startswith("# Title\n\n<!-- begin a -->\nold\n<!-- end a -->\n\n<!-- begin b -->")
