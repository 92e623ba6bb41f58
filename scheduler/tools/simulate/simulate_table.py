"""Several runs of `simulate` side by side: progress, tables, JSON."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TextIO

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from scheduler.process.output import warn
from scheduler.tools.cli.console import Console, print_parts, table
from scheduler.tools.simulate.comparison import ComparedConfig, Figure, Outcome, compared

_NONE: Final = "-"
_REJECTED: Final = (("FIRST REJECTED", "first"), ("REJECTED", "unplaced"))
_WAITS: Final = (("FIRST WAITS", "first"), ("WAITS", "unplaced"))
_AVERAGE: Final = ("AVERAGE", "average")
_FRAGMENTED: Final = ("FRAGMENTED", "fragmented")
_NEVER: Final = "never"


@contextmanager
def progress(jobs: int, err: TextIO) -> Iterator[Callable[[Outcome], None]]:
    """Progress per outcome: a bar on a terminal, a line each elsewhere."""
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
    """Results of the configurations, and differences from the first, run by run."""
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
    """Everything, for programs."""
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
    yield f"Runs: {len(outcomes)}. Pods of a run: {_range([each.pods for each in outcomes])}."
    yield f"Seconds a run: {', '.join(f'{each.config} {each.took_s:.1f}' for each in found)}."


def _range(values: Sequence[int]) -> str:
    return f"{min(values):,}" if min(values) == max(values) else f"{min(values):,} to {max(values):,}"
