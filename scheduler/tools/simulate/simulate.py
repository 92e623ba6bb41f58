"""`gpushare-scheduler simulate`: simulates one run or many, and prints the answer."""

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from threading import Thread
from typing import Final

from config.clusterfile.arrivals import read_arrivals
from config.clusterfile.reading import left_out, read
from config.settings.mistakes import ConfigurationError, Mistake
from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.core.build import BrokenPlugin, build_engine, installed_plugins, resource_names
from scheduler.process.output import show_json, warn
from scheduler.tools.cli.answering import Exit, give_up, loaded
from scheduler.tools.explain.answers import as_json
from scheduler.tools.simulate import comparison, simulate_report
from scheduler.tools.simulate.comparison import Outcome, outcome_of
from scheduler.tools.simulate.course import Course
from scheduler.tools.simulate.player import pods_coming, shuffled
from scheduler.tools.simulate.plot import NoPlot, check_plot, plot
from scheduler.tools.simulate.replay import replay
from scheduler.tools.simulate.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Input of a simulation.

    arrivals: None for only the pods in `files`. seed: shuffles the order of arrival; None to keep it.
    """

    files: tuple[Path, ...]
    arrivals: Path | None = None
    seed: int | None = None
    rejects: bool = False
    label: str = ""

    @property
    def name(self) -> str:
        """Name that distinguishes the run from other runs of one comparison."""
        own = self.label or (self.files[0] if self.arrivals is None else self.arrivals).name
        return own if self.seed is None else f"{own} shuffled {self.seed}"


@dataclass(frozen=True, slots=True)
class Config:
    """A configuration to try. file: None for the defaults and the environment."""

    name: str
    file: Path | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """One run of one configuration."""

    config: Config
    run: Run


def simulated(run: Run, configuration: SchedulerConfiguration) -> tuple[Report, Course, float]:
    """Simulate one run. Returns the report, its course, and its duration in seconds. Raises ConfigurationError."""
    cluster, resources = read(*run.files), resource_names(configuration)
    arrivals = [] if run.arrivals is None else read_arrivals(run.arrivals)
    if run.seed is not None:
        arrivals = shuffled(arrivals, run.seed)
    coming = pods_coming(arrivals, resources, resolve(configuration)[0].scheduler_names[0])
    built, course = build_engine(configuration, installed_plugins(), preempts=False), Course()
    began_s = time.perf_counter()
    report = replay(
        cluster,
        built,
        resources=resources,
        unit_mib=configuration.memory_unit_mib,
        arrivals=coming,
        rejects=run.rejects,
        course=course,
    )
    return report, course, time.perf_counter() - began_s


def outcomes(jobs: Sequence[Job], processes: int, told: Callable[[Outcome], None]) -> list[Outcome]:
    """Return the outcomes of the jobs, in order. told: called with each outcome as soon as it is known.

    Raises ConfigurationError with the mistakes of the first invalid files.
    """
    found: dict[Job, Outcome] = {}

    def take(job: Job, result: Outcome | tuple[Mistake, ...]) -> None:
        if isinstance(result, tuple):
            raise ConfigurationError(result)
        found[job] = result
        told(result)

    if processes == 1:
        for job in jobs:
            take(job, _outcome(job))
    else:
        _in_processes(jobs, processes, take)
    return [found[job] for job in jobs]


def _in_processes(
    jobs: Sequence[Job], processes: int, take: Callable[[Job, Outcome | tuple[Mistake, ...]], None]
) -> None:
    # A fresh process imports its modules; a forked one would inherit the state of this process.
    context = get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    with ProcessPoolExecutor(processes, context, initializer=_end_when_closed, initargs=(theirs,)) as pool, ours:
        waiting: dict[Future[Outcome | tuple[Mistake, ...]], Job] = {pool.submit(_outcome, job): job for job in jobs}
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                take(waiting.pop(future), future.result())


def _end_when_closed(pipe: Connection) -> None:
    """End this process when the other end of the pipe is closed, because then the parent has ended."""
    Thread(target=_end_after, args=(pipe,), daemon=True).start()


def _end_after(pipe: Connection) -> None:
    wait_for([pipe])
    os._exit(1)


def _outcome(job: Job) -> Outcome | tuple[Mistake, ...]:
    """Return the outcome, or mistakes as data: such an exception could not be sent to the parent process."""
    try:
        report, course, took_s = simulated(job.run, loaded(job.config.file, {}))
    except ConfigurationError as error:
        return error.mistakes
    return outcome_of(report, course, config=job.config.name, run=job.run.name, took_s=took_s)


_SEEDS: Final = re.compile(r"\d{1,9}(-\d{1,9})?")
_MOST_SEEDS: Final = 10_000
_DEFAULT: Final = "default"


class Misused(ValueError):
    """Flags that exclude each other, or are invalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateFlags:
    """Flags of `simulate`. configs: `FILE` or `NAME=FILE`. shuffle: `1-10,12`. processes: 0 for one on each core."""

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
    """Return the configurations to try; only the default if none is named. Raises Misused."""
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
    """Yield a run for each file of arrivals and each order. Raises Misused."""
    seeds: list[int | None] = [*seeds_of(flags.shuffle)] if flags.shuffle else [None]
    if flags.shuffle and not flags.arrivals:
        raise Misused("--shuffle needs --arrivals: pods of cluster files arrive in the order of these files")
    twice = len({file.name for file in flags.arrivals}) < len(flags.arrivals)
    for arrivals in flags.arrivals or (None,):
        label = str(arrivals) if twice and arrivals is not None else ""
        for seed in seeds:
            yield Run(files=flags.files, arrivals=arrivals, seed=seed, rejects=flags.rejects, label=label)


def seeds_of(text: str) -> list[int]:
    """Parse seeds: `1-3,7` -> 1, 2, 3, 7. Raises Misused."""
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
        show_json(as_json(report))
    elif flags.summary:
        simulate_report.print_summary(report, took_s, sys.stdout)
    else:
        simulate_report.print_tables(report, took_s, sys.stdout)


def _many(flags: SimulateFlags, jobs: list[Job]) -> list[Outcome]:
    """Run all jobs, print the outcomes, and return them."""
    for config in dict.fromkeys(job.config for job in jobs):
        loaded(config.file, {})
    mistakes = [mistake for file in flags.arrivals for mistake in _mistakes(file)]
    if mistakes:
        raise ConfigurationError(mistakes)
    warn(line for line in [left_out(read(*flags.files).ignored)] if line)
    processes = min(len(jobs), flags.processes or len(os.sched_getaffinity(0)))
    with comparison.progress(len(jobs), sys.stderr) as told:
        found = outcomes(jobs, processes, told)
    if flags.json:
        show_json(comparison.as_json(found))
    else:
        comparison.print_comparison(found, rejects=flags.rejects, out=sys.stdout)
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
