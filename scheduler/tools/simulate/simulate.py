"""`gpushare-scheduler simulate`: one run or many, and the answer."""

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from config.clusterfile.arrivals import read_arrivals
from config.clusterfile.reading import left_out, read
from config.settings.mistakes import ConfigurationError, Mistake
from scheduler.core.build import BrokenPlugin
from scheduler.process.output import show_json, warn
from scheduler.tools.cli.answering import Exit, give_up, loaded
from scheduler.tools.simulate import simulate_report, simulate_table
from scheduler.tools.simulate.comparison import Outcome
from scheduler.tools.simulate.plot import NoPlot, check_plot, plot
from scheduler.tools.simulate.simulate_runs import Config, Job, Run, outcomes, simulated

_SEEDS: Final = re.compile(r"\d{1,9}(-\d{1,9})?")
_MOST_SEEDS: Final = 10_000
_DEFAULT: Final = "default"


class Misused(ValueError):
    """Flags that do not go together, or cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateFlags:
    """The flags. configs: `FILE` or `NAME=FILE`. shuffle: `1-10,12`. processes: 0 for one on each core."""

    files: tuple[Path, ...]
    configs: tuple[str, ...] = ()
    arrivals: tuple[Path, ...] = ()
    shuffle: str = ""
    rejects: bool = False
    processes: int = 0
    plot: Path | None = None
    json: bool = False
    summary: bool = False


def simulate(program: str, flags: SimulateFlags) -> None:
    """Print the answer, or end the program with the mistakes."""
    try:
        configs, runs = configs_of(flags.configs), list(runs_of(flags))
        if flags.plot is not None:
            check_plot(flags.plot)
        if len(configs) == len(runs) == 1 and flags.plot is None:
            _one(flags, configs[0], runs[0])
        else:
            found = _many(flags, [Job(config, run) for config in configs for run in runs])
            if flags.plot is not None:
                _draw(program, found, flags.plot)
    except (ConfigurationError, BrokenPlugin, Misused, NoPlot) as error:
        give_up(program, str(error))


def configs_of(texts: tuple[str, ...]) -> list[Config]:
    """The configurations to try; the default alone where none is named. Raises Misused."""
    found = []
    for text in texts:
        name, named, file = text.partition("=")
        if not named or Path(text).exists():
            found.append(Config(Path(text).stem, Path(text)))
        elif name:
            found.append(Config(name, Path(file) if file else None))
        else:
            raise Misused(f"--config {text}: expected FILE or NAME=FILE")
    if twice := [name for name, count in Counter(config.name for config in found).items() if count > 1]:
        raise Misused(f"--config: expected each name once, found more than once: {', '.join(twice)}")
    return found or [Config(_DEFAULT)]


def runs_of(flags: SimulateFlags) -> Iterator[Run]:
    """A run for each file of arrivals and each order. Raises Misused."""
    seeds: list[int | None] = [*seeds_of(flags.shuffle)] if flags.shuffle else [None]
    if flags.shuffle and not flags.arrivals:
        raise Misused("--shuffle needs --arrivals: the pods of cluster files come in the order of these files")
    twice = len({file.name for file in flags.arrivals}) < len(flags.arrivals)
    for arrivals in flags.arrivals or (None,):
        label = str(arrivals) if twice and arrivals is not None else ""
        for seed in seeds:
            yield Run(files=flags.files, arrivals=arrivals, seed=seed, rejects=flags.rejects, label=label)


def seeds_of(text: str) -> list[int]:
    """`1-3,7` -> 1, 2, 3, 7. Raises Misused."""
    seeds = list[int]()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not _SEEDS.fullmatch(part) or not 0 <= int(last or first) - int(first) < _MOST_SEEDS:
            raise Misused(f"--shuffle {text}: expected numbers such as 1-10 or 1,2,5")
        seeds += range(int(first), int(last or first) + 1)
    return list(dict.fromkeys(seeds))


def _one(flags: SimulateFlags, config: Config, run: Run) -> None:
    report, _, took_s = simulated(run, loaded(config.file, {}))
    if flags.json:
        show_json(simulate_report.as_json(report))
    elif flags.summary:
        simulate_report.print_summary(report, took_s, sys.stdout)
    else:
        simulate_report.print_tables(report, took_s, sys.stdout)


def _many(flags: SimulateFlags, jobs: list[Job]) -> list[Outcome]:
    """Outcome of each job; all are printed."""
    for config in dict.fromkeys(job.config for job in jobs):
        loaded(config.file, {})
    mistakes = [mistake for file in flags.arrivals for mistake in _mistakes(file)]
    if mistakes:
        raise ConfigurationError(mistakes)
    warn(line for line in [left_out(read(*flags.files).ignored)] if line)
    processes = min(len(jobs), flags.processes or len(os.sched_getaffinity(0)))
    with simulate_table.progress(len(jobs), sys.stderr) as told:
        found = outcomes(jobs, processes, told)
    if flags.json:
        show_json(simulate_table.as_json(found))
    else:
        simulate_table.print_comparison(found, rejects=flags.rejects, out=sys.stdout)
    return found


def _draw(program: str, found: list[Outcome], file: Path) -> None:
    try:
        plot(found, file)
    except OSError as error:
        give_up(program, f"{file} cannot be written: {error.strerror or error}", Exit.FOUND)


def _mistakes(file: Path) -> tuple[Mistake, ...]:
    try:
        read_arrivals(file)
    except ConfigurationError as error:
        return error.mistakes
    return ()
