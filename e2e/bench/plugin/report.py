"""The device plugin's figures as Markdown tables, each beside what it must reach. Pure."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from e2e.bench.plugin.site import PluginRun

ALLOCATE_BELOW_MS: Final = 5.0
PRE_START_BELOW_MS: Final = 50.0
RESIDENT_BELOW_MIB: Final = 110.0
IDLE_BELOW_PERCENT: Final = 0.5
TAIL: Final = 0.99

_MODES: Final = {"cdi": "CDI", "environment": "environment"}


@dataclass(frozen=True, slots=True)
class PluginFigure:
    """One quantity of a process. below: what it must stay under."""

    label: str
    of: Callable[[PluginRun], float | None]
    form: str
    below: float


_PROCESS: Final = (
    PluginFigure("resident memory after that, MiB", lambda run: run.resident_mib, ".0f", RESIDENT_BELOW_MIB),
    PluginFigure("CPU while idle, % of a core", lambda run: run.idle_percent, ".2f", IDLE_BELOW_PERCENT),
)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that `share` of them do not exceed. values: at least one; share: in (0, 1]."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def calls_table(runs: Sequence[PluginRun]) -> str:
    """One row for each kind of call of each run; calls that were all refused have none."""
    lines = ["| ms | calls | median | p99 | largest | p99 must stay |", "|---|---:|---:|---:|---:|---|"]
    for run in runs:
        lines += _call_rows(run)
    return "\n".join(lines)


def wrong_line(runs: Sequence[PluginRun]) -> str:
    """How many containers of all runs have not got their cards."""
    wrong = sum(len(run.calls.wrong) for run in runs)
    return f"Containers without their card: {wrong} of {sum(run.pods for run in runs)}."


def process_table(runs: Sequence[PluginRun]) -> str:
    """One column for each run that was watched while idle."""
    watched = [run for run in runs if run.idle_percent is not None]
    lines = [
        f"| | {' | '.join(_MODES[run.mode] for run in watched)} | must stay |",
        "|---|" + "---:|" * len(watched) + "---|",
    ]
    for row in _PROCESS:
        values = [value for run in watched if (value := row.of(run)) is not None]
        cells = " | ".join(f"{value:{row.form}}" for value in values)
        lines.append(f"| {row.label} | {cells} | {_verdict(max(values), row.below) if values else ''} |")
    return "\n".join(lines)


def line(run: PluginRun) -> str:
    """One run in one line, for progress."""
    figures = [
        f"{label} p99 {percentile(taken, TAIL):.1f} ms"
        for label, taken in (("Allocate", run.calls.allocate_ms), ("PreStartContainer", run.calls.pre_start_ms))
        if taken
    ]
    return f"{_title(run)}: {', '.join([*figures, f'{run.resident_mib:.0f} MiB', *run.calls.wrong[:1]])}"


def _title(run: PluginRun) -> str:
    waiting = f", {run.waiting} of them waiting" if run.waiting > 1 else ""
    return f"{_MODES[run.mode]}, {run.pods} pods{waiting}"


def _call_rows(run: PluginRun) -> Iterator[str]:
    kinds = (
        ("Allocate", run.calls.allocate_ms, ALLOCATE_BELOW_MS),
        ("PreStartContainer", run.calls.pre_start_ms, PRE_START_BELOW_MS),
    )
    for label, taken, below in kinds:
        if taken:
            tail = percentile(taken, TAIL)
            figures = f"{len(taken)} | {median(taken):.2f} | {tail:.2f} | {max(taken):.1f}"
            # Pods that wait beside the one that is asked for are the worse case, told and not promised.
            verdict = _verdict(tail, below) if run.waiting == 1 else ""
            yield f"| {label}, {_title(run)} | {figures} | {verdict} |"


def _verdict(value: float, below: float) -> str:
    return f"< {below:g}: reached" if value < below else f"< {below:g}: **missed**"
