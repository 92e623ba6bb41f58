"""Several configurations over the same runs: figures of each, and differences run by run, as text and JSON."""

import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, TextIO

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from scheduler.process.output import warn
from scheduler.tools.cli.console import Console, print_parts, table
from scheduler.tools.simulate.course import Course, first_unplaced, shares_by_arrived
from scheduler.tools.simulate.report import Report

_FULL: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcome of one run of one configuration. Shares are percent of the cluster's units.

    pods: number of pods tried. asked: their units. at_100: booked when 100 % had arrived; None if less arrived. at_end:
    booked when the last pod had arrived. first: percent arrived at the first pod that was not placed at once; None if
    all were. unplaced: number of such pods. ended: pods that were placed and left. average: booked, over time, until
    the last pod arrived. fragmented: free at that time, but unusable for typical pods. shares: booked at each whole
    percent arrived, from `shares_by_arrived`. took_s: real seconds.
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
    """Statistics over all runs. worst: the lowest, or the highest if low values are good.

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

    average: None if no pod ever leaves, because it would only show how fast they arrived.
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
    """Return the outcome of one run."""
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
    """Compare the configurations, in the order of their first outcome. All of them have the same runs."""
    by_config: dict[str, dict[str, Outcome]] = {}
    for outcome in outcomes:
        by_config.setdefault(outcome.config, {})[outcome.run] = outcome
    first = next(iter(by_config.values()), {})
    return tuple(
        _compared(config, list(own.values()), [first[run] for run in own]) for config, own in by_config.items()
    )


def _compared(config: str, own: Sequence[Outcome], others: Sequence[Outcome]) -> ComparedConfig:
    """Compare one configuration. others: outcomes of the first configuration for the same runs."""

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
    """Return the percent arrived at the first rejection; the run's last percent if there is none."""
    return outcome.asked if outcome.first is None else outcome.first


_NONE: Final = "-"
_REJECTED: Final = (("FIRST REJECTED", "first"), ("REJECTED", "unplaced"))
_WAITS: Final = (("FIRST WAITS", "first"), ("WAITS", "unplaced"))
_AVERAGE: Final = ("AVERAGE", "average")
_FRAGMENTED: Final = ("FRAGMENTED", "fragmented")
_NEVER: Final = "never"


@contextmanager
def progress(jobs: int, err: TextIO) -> Iterator[Callable[[Outcome], None]]:
    """Show progress per outcome: a bar on a terminal, one line each elsewhere."""
    console = Console(err, soft_wrap=True)
    if console.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task("simulating", total=jobs)
            yield lambda _: bar.advance(task)
        return
    done = 0

    def told(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        warn([f"{done}/{jobs}: {outcome.config}, {outcome.run}: {outcome.at_end:.2f}%, {outcome.took_s:.1f} s"])

    yield told


def print_comparison(outcomes: Sequence[Outcome], *, rejects: bool, out: TextIO) -> None:
    """Print the results of the configurations, and differences from the first, run by run."""
    found = compared(outcomes)
    full = ("AT 100%", "at_100") if any(each.at_100 for each in found) else ("AT END", "at_end")
    named = [full, *(_REJECTED if rejects else _WAITS)]
    if any(each.average for each in found):
        named.append(_AVERAGE)
    named.append(_FRAGMENTED)
    parts: list[Table | str] = [_figures(found, named)]
    if any(each.first.gain is not None for each in found):
        parts.append(_gains(found, named))
    print_parts(parts, _closing(found, outcomes), out)


def as_json(outcomes: Sequence[Outcome]) -> str:
    """Return everything, for programs."""
    document = {"configs": compared(outcomes), "runs": outcomes}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _figures(found: Sequence[ComparedConfig], named: Sequence[tuple[str, str]]) -> Table:
    titles = [part for title, _ in named for part in (title, "WORST")]
    rows = [
        (each.config, str(each.runs), *(cell for _, name in named for cell in _cells(each, name))) for each in found
    ]
    head = ("CONFIG", "RUNS", *titles)
    return table(head, rows, right=range(1, len(head)))


def _cells(each: ComparedConfig, name: str) -> tuple[str, str]:
    figure: Figure | None = getattr(each, name)
    if figure is None:
        return _NONE, _NONE
    if name == "first" and not each.unplaced.mean:
        return _NEVER, _NEVER
    if name == "unplaced":
        return f"{figure.mean:.0f}", f"{figure.worst:.0f}"
    return f"{figure.mean:.2f}", f"{figure.worst:.2f}"


def _gains(found: Sequence[ComparedConfig], named: Sequence[tuple[str, str]]) -> Table:
    rows = [(each.config, *(_gain(getattr(each, name)) for _, name in named)) for each in found[1:]]
    head = (f"AGAINST {found[0].config}", *(title for title, _ in named))
    return table(head, rows, right=range(1, len(head)))


def _gain(figure: Figure | None) -> str:
    if figure is None or figure.gain is None:
        return _NONE
    return f"{figure.gain:+.2f}" + ("" if figure.gain_sd is None else f" ± {figure.gain_sd:.2f}")


def _closing(found: Sequence[ComparedConfig], outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield f"Runs: {len(outcomes)}. Pods per run: {_range([each.pods for each in outcomes])}."
    yield f"Seconds per run: {', '.join(f'{each.config} {each.took_s:.1f}' for each in found)}."


def _range(values: Sequence[int]) -> str:
    return f"{min(values):,}" if min(values) == max(values) else f"{min(values):,} to {max(values):,}"
