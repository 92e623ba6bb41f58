"""Races as a table: medians with minimum and maximum, ours beside the yardstick, goals beside both."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

from e2e.bench.contenders import OURS, YARDSTICK
from e2e.bench.race.race import Run
from e2e.bench.race.rows import Goals

EVENTS_AT_LEAST: Final = 0.99


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a ratio, as text and as a test."""

    label: str
    reached: Callable[[float], bool]


@dataclass(frozen=True, slots=True)
class RaceFigure:
    """One measured quantity: its label, how to take it from a run, and how to print it."""

    label: str
    of: Callable[[Run], float]
    form: str


RATE: Final = RaceFigure("pods bound per second", lambda run: run.pods_per_s, ",.0f")
CPU: Final = RaceFigure("CPU of the scheduler per pod, ms", lambda run: run.cpu_ms_per_pod, ".2f")
_ALL_CPU: Final = RaceFigure(
    "scheduler, API server and etcd: CPU per pod, ms", lambda run: run.all_cpu_ms_per_pod, ".2f"
)
_MEMORY: Final = RaceFigure("peak memory of the scheduler, MiB", lambda run: run.peak_mib, ",.0f")
_START: Final = RaceFigure("from its start to the first pod bound, s", lambda run: run.start_s, ".1f")


def line(run: Run) -> str:
    """One run in one line, for progress."""
    figures = [f"{run.pods_per_s:,.0f} pods/s", f"{run.cpu_ms_per_pod:.2f} ms CPU per pod", f"{run.peak_mib:,.0f} MiB"]
    counted = [f"{counted.number} {counted.label}" for counted in run.counts if not counted.wrong]
    return f"{run.scheduler}: {', '.join([*figures, *counted, *problems(run)])}"


def table(runs: Sequence[Run], goals: Goals | None) -> str:
    """Markdown table of all runs of one row; ratios only where both schedulers ran."""
    by_scheduler = {name: [run for run in runs if run.scheduler == name] for name in (OURS, YARDSTICK)}
    ran = {name: own for name, own in by_scheduler.items() if own}
    ratio = " ÷ ".join(ran) if len(ran) > 1 else "ratio"
    lines = [f"| | {' | '.join(ran)} | {ratio} | must reach |", "|---|" + "---:|" * (len(ran) + 2)]
    lines.append(_measured(RATE, ran, _at_least(goals.rate_at_least) if goals else None))
    lines.append(_measured(CPU, ran, _at_most(goals.cpu_at_most) if goals and goals.cpu_at_most else None))
    all_cpu = goals.all_cpu_at_most if goals else None
    lines.append(_measured(_ALL_CPU, ran, _at_most(all_cpu) if all_cpu else None))
    lines += [_measured(row, ran, None) for row in (_MEMORY, _START)]
    lines += [f"| {label} | {' | '.join(cells)} | | |" for label, cells in _checks(ran)]
    return "\n".join(lines)


def problems(run: Run) -> list[str]:
    """What makes the figures of a run worthless; empty: nothing."""
    found = [f"{counted.number} {counted.label}" for counted in run.counts if counted.wrong]
    if run.events < EVENTS_AT_LEAST * run.pods:
        found.append(f"only {run.events} of {run.pods} pods have a Scheduled event")
    if run.verdict.overcommitted_nodes:
        found.append(f"{run.verdict.overcommitted_nodes} nodes are over-committed")
    if run.scheduler == OURS:
        counts = {
            "cards are over-committed": run.verdict.overcommitted_cards,
            "pods lack an allocation key": run.verdict.unannotated,
            "pods are booked otherwise than they ask": run.verdict.misbooked,
        }
        found += [f"{count} {label}" for label, count in counts.items() if count]
    return found


def _at_least(bound: float) -> Goal:
    return Goal(f"≥ {bound}", lambda ratio: ratio >= bound)


def _at_most(bound: float) -> Goal:
    return Goal(f"≤ {bound}", lambda ratio: ratio <= bound)


def _measured(row: RaceFigure, ran: dict[str, list[Run]], goal: Goal | None) -> str:
    cells = [_spread([row.of(run) for run in runs], row.form) for runs in ran.values()]
    verdict = goal.label if goal else ""
    ratio = ""
    if len(ran) > 1:
        ours, theirs = (median(row.of(run) for run in runs) for runs in ran.values())
        ratio = f"{ours / theirs:.2f}"
        if goal:
            verdict += ": reached" if goal.reached(ours / theirs) else ": **missed**"
    return f"| {row.label} | {' | '.join(cells)} | {ratio} | {verdict} |"


def _spread(values: Sequence[float], form: str) -> str:
    return f"{median(values):{form}} ({min(values):{form}} - {max(values):{form}})"


def _checks(ran: dict[str, list[Run]]) -> list[tuple[str, list[str]]]:
    """Rows of what was looked at after each run; the worst of the runs."""

    def worst(of: Callable[[Run], int], *, ours_only: bool) -> list[str]:
        return ["-" if ours_only and name != OURS else f"{max(of(run) for run in runs)}" for name, runs in ran.items()]

    labels = [counted.label for counted in next(iter(ran.values()))[0].counts]
    own = [(label, worst(partial(_number_of, label), ours_only=False)) for label in labels]
    return [
        *own,
        ("pods without a Scheduled event", worst(lambda run: run.pods - run.events, ours_only=False)),
        ("nodes over-committed", worst(lambda run: run.verdict.overcommitted_nodes, ours_only=False)),
        ("cards over-committed", worst(lambda run: run.verdict.overcommitted_cards, ours_only=True)),
        ("pods without all their annotations", worst(lambda run: run.verdict.unannotated, ours_only=True)),
    ]


def _number_of(label: str, run: Run) -> int:
    return next(counted.number for counted in run.counts if counted.label == label)
