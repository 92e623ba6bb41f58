"""Booked share of a cluster as pods come: its course, the figures of compared runs, and their plot."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.tools.simulate.comparison import Figure, Outcome, compared, outcome_of
from scheduler.tools.simulate.course import Course, first_unplaced, shares_by_arrived
from scheduler.tools.simulate.plot import NoPlot, check_plot, plot, quartiles
from scheduler.tools.simulate.report import FINISHED, PlacedPod, Report


def course(units: int, *came: tuple[int, int, bool]) -> Course:
    """came: (units asked, units booked after it, placed)."""
    made = Course(units)
    for second, (asked, used, placed) in enumerate(came):
        made.note(float(second), asked, used, placed=placed)
    return made


def test_shares_are_means_over_the_pods_at_each_whole_percent_arrived() -> None:
    # 0.2 % and 0.4 % arrived are 0; 1.4 % is 1; 2.4 % and, of a pod that asks no cards, again 2.4 % are 2.
    found = shares_by_arrived(
        course(1000, (2, 2, True), (2, 4, True), (10, 4, False), (10, 14, True), (0, 14, True), (20, 34, True))
    )
    assert found == pytest.approx((0.3, 0.4, 1.4, None, 3.4))


def test_the_shares_end_however_much_comes() -> None:
    found = shares_by_arrived(course(100, (50, 50, True), (950, 100, True), (1, 100, False), (100_000, 100, False)))
    assert (len(found), found[50], found[1_000]) == (1_001, 50.0, 100.0)


def test_each_share_is_rounded_to_two_places_before_the_mean() -> None:
    # 33.333… and 33.34, of which the mean would be 33.3366….
    assert shares_by_arrived(course(60_000, (20_000, 20_000, True), (4, 20_004, True)))[33] == pytest.approx(33.335)


def test_the_first_pod_without_a_place_counts_itself_among_what_has_arrived() -> None:
    assert first_unplaced(course(200, (50, 50, True), (30, 50, False), (90, 50, False))) == 40.0
    assert first_unplaced(course(200, (50, 50, True))) is None


def test_nothing_has_no_shares() -> None:
    assert shares_by_arrived(Course()) == ()
    assert shares_by_arrived(course(0, (5, 0, False))) == ()
    assert first_unplaced(course(0, (5, 0, False))) is None


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


def test_a_run_that_rejects_nothing_counts_with_all_that_came() -> None:
    (only,) = compared([outcome("a", "1", 90.0, first=None), outcome("a", "2", 90.0, first=100.0)])
    assert only.first == Figure(115.0, 100.0)


def test_where_a_run_ends_before_100_percent_there_is_no_such_share() -> None:
    (only,) = compared([outcome("a", "1", 90.0), outcome("a", "2", None)])
    assert only.at_100 is None


def test_where_no_pod_leaves_the_average_over_time_says_nothing() -> None:
    (stay,) = compared([outcome("a", "1", 90.0, ended=0)])
    (leave,) = compared([outcome("a", "1", 90.0, ended=0), outcome("a", "2", 90.0)])
    assert stay.average is None
    assert leave.average == Figure(50.0, 50.0)


def test_the_curve_is_the_median_of_what_is_not_booked_between_the_quartiles() -> None:
    runs = [(0.0, 10.0), (0.0, 20.0, 5.0), (0.0, 40.0), (0.0, None), (0.0, 30.0)]
    assert quartiles(runs) == ([0, 1, 2], [100.0, 67.5, 95.0], [100.0, 75.0, 95.0], [100.0, 82.5, 95.0])


@pytest.mark.parametrize(("name", "begins"), [("curve.png", b"\x89PNG"), ("curve.svg", b"<?xml")])
def test_a_plot_is_drawn_the_same_every_time(tmp_path: Path, name: str, begins: bytes) -> None:
    curves = {"one": (0.0, 1.0, 2.0), "two": (0.0, 1.0, 1.0)}
    outcomes = [replace(outcome(name, "1", None), shares=shares) for name, shares in curves.items()]
    for again in ("a", "b"):
        (tmp_path / again).mkdir()
        check_plot(tmp_path / again / name)
        plot(outcomes, tmp_path / again / name, "a title")
    assert (tmp_path / "a" / name).read_bytes().startswith(begins)
    assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        pytest.param("away/curve.png", "there is no folder {folder}/away", id="no folder"),
        pytest.param("text/curve.png", "there is no folder {folder}/text", id="below a file"),
        pytest.param(f"{'long' * 99}.png", "cannot be written: File name too long", id="a name that is too long"),
        pytest.param("folder.png", "expected a file, found a folder", id="a folder"),
    ],
)
def test_a_place_that_holds_no_plot_is_said_before_anything_is_simulated(
    tmp_path: Path, file: str, message: str
) -> None:
    (tmp_path / "text").touch()
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(
        NoPlot, match=re.escape(f"{tmp_path / file}") + ":? " + re.escape(message.format(folder=tmp_path))
    ):
        check_plot(tmp_path / file)


def test_where_matplotlib_is_not_installed_that_is_said_before_anything_is_simulated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(NoPlot, match=r"--plot needs matplotlib: pip install 'gpushare-scheduler\[plot\]'"):
        check_plot(Path("curve.png"))
