"""What grows is found when it is planted: a check that cannot fail shows nothing."""

from dataclasses import replace
from typing import Final

import pytest

from e2e.soak.judged import Limits, growth, left_over, quantiles, slower, wrong
from e2e.soak.measured import Sample

RUN_S: Final = 900.0
LIMITS: Final = Limits(growth=0.05)
FLAT: Final = Sample(0.0, 100.0, 30, 12, 25, 3, 1.0, 4)


def samples(**per_s: float) -> list[Sample]:
    """One each 10 s. per_s: by how much something grows in a second."""
    return [
        replace(FLAT, at_s=at_s, **{what: getattr(FLAT, what) + each * at_s for what, each in per_s.items()})
        for at_s in map(float, range(0, int(RUN_S), 10))
    ]


def test_what_stays_as_it_is_is_well() -> None:
    assert wrong("one", samples(), RUN_S, LIMITS) == []


@pytest.mark.parametrize(
    ("per_s", "says"),
    [
        ({"resident_mib": 0.02}, "one: 104.9 MiB resident, 116.9 in the end"),
        ({"tasks": 0.01}, "one: 32.45 tasks, 38.45 in the end"),
        ({"connections": 0.01}, "one: 14.45 connections, 20.45 in the end"),
        ({"descriptors": 0.01}, "one: 27.45 descriptors, 33.45 in the end"),
        ({"threads": 0.01}, "one: 5.45 threads, 11.45 in the end"),
    ],
)
def test_what_grows_is_told(per_s: dict[str, float], says: str) -> None:
    assert wrong("one", samples(**per_s), RUN_S, LIMITS) == [says]


def test_what_fills_up_in_the_first_two_windows_is_no_growth() -> None:
    filling = [replace(one, resident_mib=min(200.0, 100.0 + one.at_s)) for one in samples()]

    assert wrong("one", filling, RUN_S, LIMITS) == []
    assert growth(filling, RUN_S) == 0.0


def test_connections_of_a_burst_are_no_growth_while_they_may_be_kept_and_are_told_when_they_stay() -> None:
    burst = [replace(one, connections=20, descriptors=33) if one.at_s >= 400 else one for one in samples()]
    within_half_a_minute = [replace(one, at_s=one.at_s / 30) for one in burst]

    assert wrong("one", within_half_a_minute, RUN_S / 30, LIMITS) == []
    assert wrong("one", burst, RUN_S, LIMITS) == [
        "one: 12 connections, 20 in the end",
        "one: 25 descriptors, 33 in the end",
    ]
    assert left_over("one", FLAT, replace(burst[-1], unfinished=0)) == []
    assert left_over("one", FLAT, replace(FLAT, connections=35, descriptors=48, unfinished=0)) == [
        "one: 12 connections before the first pod, 35 after the last",
        "one: 25 descriptors before the first pod, 48 after the last",
    ]


def test_a_run_without_samples_is_no_good_run() -> None:
    with pytest.raises(ValueError, match="no sample"):
        wrong("one", samples()[:5], RUN_S, LIMITS)


def test_tasks_and_pods_that_are_left_over_are_told() -> None:
    assert left_over("one", FLAT, replace(FLAT, tasks=31, unfinished=0)) == [
        "one: 30 tasks before the first pod, 31 after the last"
    ]
    assert left_over("one", FLAT, FLAT) == ["one: 4 pods are still under way"]
    assert left_over("one", FLAT, replace(FLAT, unfinished=0)) == []


@pytest.mark.parametrize(("last_s", "told"), [(0.25, 0), (0.7, 1)])
def test_pods_that_wait_longer_in_the_end_are_told(last_s: float, told: int) -> None:
    timed = [(float(at), last_s if at >= 800 else 0.3) for at in range(900)]

    assert len(slower(timed, RUN_S, LIMITS)) == told
    assert quantiles(timed, RUN_S)[8] == (last_s, last_s)


@pytest.mark.parametrize(
    ("a_second", "says"), [(1, []), (4, ["p99 until bound is 0.700 s in the end, and was 0.300 s"])]
)
def test_a_few_that_wait_longer_are_told_where_many_were_bound(a_second: int, says: list[str]) -> None:
    numbers = range(900 * a_second)
    timed = [(at / a_second, 0.7 if at / a_second >= 800 and at % 50 == 0 else 0.3) for at in numbers]

    assert slower(timed, RUN_S, LIMITS) == says


def test_tasks_of_a_burst_are_no_growth_in_a_short_window() -> None:
    assert wrong("one", [replace(one, at_s=one.at_s / 30) for one in samples(tasks=0.01)], RUN_S / 30, LIMITS) == []


def test_what_nobody_minds_is_never_too_long() -> None:
    timed = [(float(at), 0.29 if at >= 800 else 0.01) for at in range(900)]

    assert slower(timed, RUN_S, LIMITS) == []
