"""Tables and the document that they stand in."""

import dataclasses

import pytest

from e2e.bench.contenders import OURS, YARDSTICK
from e2e.bench.document import with_section
from e2e.bench.race import report
from e2e.bench.race.ledger import Audit
from e2e.bench.race.race import Run
from e2e.bench.race.rows import Counted, Goals

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


def test_a_row_has_medians_with_minimum_and_maximum_and_their_ratio() -> None:
    row = cells([theirs(1.0), ours(0.5), theirs(2.0), ours(0.25), theirs(4.0), ours(0.2)], "pods bound")
    assert row == ["pods bound per second", "400 (200 - 500)", "50 (25 - 100)", "8.00", ""]


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


@pytest.mark.parametrize(("at_most", "said"), [(0.6, "≤ 0.6: reached"), (0.5, "≤ 0.5: **missed**")])
def test_the_cpu_of_all_processes_is_that_of_the_scheduler_and_its_servers(at_most: float, said: str) -> None:
    goals = Goals(rate_at_least=1.0, all_cpu_at_most=at_most)
    row = cells([ours(1.0), theirs(2.0)], "scheduler, API server and etcd", goals)
    assert row[1:] == ["1.00 (1.00 - 1.00)", "1.70 (1.70 - 1.70)", "0.59", said]


def test_one_scheduler_alone_has_no_ratio_and_reaches_no_goal() -> None:
    assert cells([ours(1.0)], "pods bound", Goals(rate_at_least=1.0, cpu_at_most=1.0))[-2:] == ["", "≥ 1.0"]


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


def test_what_a_row_counts_is_told_for_both_and_wrong_for_whoever_breaks_its_rule() -> None:
    found = [Counted("pods on a bad node", 2, wrong=True), Counted("pods on a good node", 3, wrong=False)]
    broken = dataclasses.replace(theirs(1.0), counts=tuple(found))
    kept = dataclasses.replace(ours(1.0), counts=tuple(each._replace(number=0, wrong=False) for each in found))

    assert report.problems(broken) == ["2 pods on a bad node"]
    assert report.problems(kept) == []
    assert cells([kept, broken], "pods on a bad node")[1:3] == ["0", "2"]
    assert "3 pods on a good node" in report.line(broken)


def test_a_section_is_added_once_and_then_replaced() -> None:
    first = with_section("# Title\n", "a", "old")
    both = with_section(first, "b", "other")

    assert with_section(both, "a", r"new \1") == both.replace("old", r"new \1")
    assert both.startswith("# Title\n\n<!-- begin a -->\nold\n<!-- end a -->\n\n<!-- begin b -->")
