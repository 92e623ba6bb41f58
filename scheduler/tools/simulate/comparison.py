"""Several configurations over the same runs: the figures of each, and how they differ run by run. Pure."""

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.tools.simulate.course import Course, first_unplaced, shares_by_arrived
from scheduler.tools.simulate.report import Report

_FULL: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run of one configuration. Shares are percent of the cluster's units.

    pods: number of pods tried. asked: their units. at_100: booked when 100 % had arrived; None if less arrived. at_end:
    booked when the last pod had arrived. first: percent arrived at the first pod that was not placed at once; None if
    all were. unplaced: number of such pods. ended: pods that were placed and left. average: booked, over time, until
    the last pod arrived. fragmented: free at that time, and unusable for typical pods. shares: booked at each whole
    percent arrived, as `shares_by_arrived`. took_s: real seconds.
    """

    config: str
    run: str
    pods: int
    asked: float
    at_100: float | None
    at_end: float
    first: float | None
    unplaced: int
    ended: int
    average: float
    fragmented: float
    shares: tuple[float | None, ...]
    took_s: float


@dataclass(frozen=True, slots=True)
class Figure:
    """Statistics over all runs. worst: the lowest, or the highest where low is good.

    gain, gain_sd: difference from the first configuration, run by run: mean and standard deviation (undefined for one
    run); None for the first configuration itself.
    """

    mean: float
    worst: float
    gain: float | None = None
    gain_sd: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedConfig:
    """One configuration. at_100: None if a run ends before 100 % have arrived; use at_end then.

    average: None if no pod ever leaves: it only shows how fast they arrived.
    """

    config: str
    runs: int
    at_100: Figure | None
    at_end: Figure
    first: Figure
    unplaced: Figure
    average: Figure | None
    fragmented: Figure
    took_s: float


def outcome_of(report: Report, course: Course, *, config: str, run: str, took_s: float) -> Outcome:
    """Outcome of one run."""
    shares, units = shares_by_arrived(course), max(course.units, 1)
    last = course.came[-1] if course.came else None
    return Outcome(
        config=config,
        run=run,
        pods=len(course.came),
        asked=_FULL * last.asked / units if last else 0.0,
        at_100=shares[_FULL] if len(shares) > _FULL else None,
        at_end=_FULL * last.used / units if last else 0.0,
        first=first_unplaced(course),
        unplaced=sum(1 for came in course.came if not came.placed),
        ended=sum(1 for placed in report.placed if placed.ended),
        average=_FULL * course.average / units,
        fragmented=_FULL * report.fragmented / units,
        shares=shares,
        took_s=took_s,
    )


def compared(outcomes: Iterable[Outcome]) -> tuple[ComparedConfig, ...]:
    """Each configuration, in the order in which they come first; all of them have the same runs."""
    by_config: dict[str, dict[str, Outcome]] = {}
    for outcome in outcomes:
        by_config.setdefault(outcome.config, {})[outcome.run] = outcome
    first = next(iter(by_config.values()), {})
    return tuple(
        _compared(config, list(own.values()), [first[run] for run in own]) for config, own in by_config.items()
    )


def _compared(config: str, own: Sequence[Outcome], others: Sequence[Outcome]) -> ComparedConfig:
    """others: of the first configuration, run by run the same."""

    def figure(read: Callable[[Outcome], float], worst: Callable[[Iterable[float]], float] = min) -> Figure:
        values, before = [read(each) for each in own], [read(each) for each in others]
        gains = [one - other for one, other in zip(values, before, strict=True)]
        if own[0] is others[0]:
            return Figure(statistics.fmean(values), worst(values))
        deviation = statistics.stdev(gains) if len(gains) > 1 else None
        return Figure(statistics.fmean(values), worst(values), statistics.fmean(gains), deviation)

    full = all(each.at_100 is not None for each in (*own, *others))
    return ComparedConfig(
        config=config,
        runs=len(own),
        at_100=figure(lambda each: each.at_100 or 0.0) if full else None,
        at_end=figure(lambda each: each.at_end),
        first=figure(_first),
        unplaced=figure(lambda each: each.unplaced, max),
        average=figure(lambda each: each.average) if any(each.ended for each in (*own, *others)) else None,
        fragmented=figure(lambda each: each.fragmented, max),
        took_s=statistics.fmean(each.took_s for each in own),
    )


def _first(outcome: Outcome) -> float:
    """A run that rejects nothing has come to its end."""
    return outcome.asked if outcome.first is None else outcome.first
