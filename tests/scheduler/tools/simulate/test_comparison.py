from dataclasses import replace

import pytest

from scheduler.tools.simulate.comparison import Figure, Outcome, compared, outcome_of
from scheduler.tools.simulate.course import Course
from scheduler.tools.simulate.report import FINISHED, PlacedPod, Report


def outcome(
    config: str, run: str, at_100: float | None, *, first: float | None = 90.0, unplaced: int = 0, ended: int = 1
) -> Outcome:
    return Outcome(
        config=config,
        run=run,
        pods=10,
        asked=130.0,
        at_100=at_100,
        at_end=95.0,
        first=first,
        unplaced=unplaced,
        ended=ended,
        average=50.0,
        fragmented=2.0,
        shares=(),
        took_s=1.0,
    )


def report(finished: int = 0) -> Report:
    there = PlacedPod(pod="default/p", node="n", cards=(), bound_s=0.0, wait_s=0.0, attempts=1)
    gone = replace(there, ended_s=1.0, ended=FINISHED)
    return Report(
        placed=(there, *([gone] * finished)),
        waiting=(),
        nodes=(),
        cards=(),
        end_s=1.0,
        by_others=0,
        decisions=1,
        problems=(),
        free=300,
        fragmented=125.0,
    )


def test_an_outcome_is_read_off_the_course() -> None:
    course = Course(1000, average=250.0)
    course.note(0.0, 600, 600, placed=True)
    course.note(1.0, 300, 600, placed=False)
    course.note(2.0, 100, 700, placed=True)
    found = outcome_of(report(finished=2), course, config="c", run="r", took_s=2.5)
    assert (found.pods, found.asked, found.at_100, found.at_end) == (3, 100.0, 70.0, 70.0)
    assert found.fragmented == 12.5
    assert (found.first, found.unplaced, found.ended, found.average, found.took_s) == (90.0, 1, 2, 25.0, 2.5)


def test_a_course_without_pods_comes_to_nothing() -> None:
    found = outcome_of(report(), Course(), config="c", run="r", took_s=0.0)
    assert (found.pods, found.asked, found.at_100, found.at_end, found.first, found.average) == (0, 0, None, 0, None, 0)


def test_gains_are_taken_run_by_run_whatever_their_order() -> None:
    one, other = compared(
        [outcome("a", "1", 90.0), outcome("a", "2", 80.0), outcome("b", "2", 84.0), outcome("b", "1", 91.0)]
    )
    assert one.at_100 == Figure(85.0, 80.0)
    assert other.at_100 is not None
    assert (other.at_100.mean, other.at_100.worst, other.at_100.gain) == (87.5, 84.0, 2.5)
    # Of 1.0 and 4.0: far less than of unpaired values.
    assert other.at_100.gain_sd == pytest.approx(2.1213, abs=1e-4)


def test_the_worst_is_the_least_and_of_rejected_pods_the_most() -> None:
    (only,) = compared([outcome("a", "1", 90.0, first=70.0, unplaced=3), outcome("a", "2", 80.0, unplaced=9)])
    assert (only.first.worst, only.unplaced.worst, only.unplaced.mean) == (70.0, 9, 6.0)
    assert only.at_100 == Figure(85.0, 80.0)


def test_the_worst_run_is_the_one_that_leaves_most_fragmented() -> None:
    runs = [replace(outcome("a", str(run), 90.0), fragmented=left) for run, left in ((1, 3.0), (2, 5.0))]
    (only,) = compared(runs)
    assert only.fragmented == Figure(4.0, 5.0)


def test_a_run_that_rejects_nothing_counts_with_all_that_came() -> None:
    (only,) = compared([outcome("a", "1", 90.0, first=None), outcome("a", "2", 90.0, first=100.0)])
    assert only.first == Figure(115.0, 100.0)


def test_where_a_run_ends_before_100_percent_there_is_no_such_share() -> None:
    (only,) = compared([outcome("a", "1", 90.0), outcome("a", "2", None)])
    assert only.at_100 is None


def test_one_run_has_no_deviation() -> None:
    _, other = compared([outcome("a", "1", 90.0), outcome("b", "1", 95.0)])
    assert other.at_100 == Figure(95.0, 95.0, 5.0)


def test_where_no_pod_leaves_the_average_over_time_says_nothing() -> None:
    (stay,) = compared([outcome("a", "1", 90.0, ended=0)])
    (leave,) = compared([outcome("a", "1", 90.0, ended=0), outcome("a", "2", 90.0)])
    assert stay.average is None
    assert leave.average == Figure(50.0, 50.0)
