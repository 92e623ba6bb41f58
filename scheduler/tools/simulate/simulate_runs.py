"""Runs of `simulate`: one, or many in processes, each with its outcome."""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from threading import Thread

from config.clusterfile.arrivals import read_arrivals
from config.clusterfile.reading import read
from config.settings.mistakes import ConfigurationError, Mistake
from config.settings.scheduler import SchedulerConfiguration, resolve
from scheduler.core.build import build_engine, installed_plugins, resource_names
from scheduler.tools.cli.answering import loaded
from scheduler.tools.simulate.arriving import pods_coming, shuffled
from scheduler.tools.simulate.comparison import Outcome, outcome_of
from scheduler.tools.simulate.course import Course
from scheduler.tools.simulate.replay import replay
from scheduler.tools.simulate.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Input of a simulation.

    arrivals: None: the pods of `files` alone. seed: of the order of arrival; None: unchanged.
    """

    files: tuple[Path, ...]
    arrivals: Path | None = None
    seed: int | None = None
    rejects: bool = False
    label: str = ""

    @property
    def name(self) -> str:
        """Name that distinguishes it from other runs of one comparison."""
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
    """The report on one run, how it went, and how many seconds it took. Raises ConfigurationError."""
    cluster, resources = read(*run.files), resource_names(configuration)
    arrivals = [] if run.arrivals is None else read_arrivals(run.arrivals)
    if run.seed is not None:
        arrivals = shuffled(arrivals, run.seed)
    coming = pods_coming(arrivals, resources, resolve(configuration)[0].scheduler_names[0])
    built, course = build_engine(configuration, installed_plugins()), Course()
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
    """Outcomes of the jobs, in their order. told: called with each as soon as it is known.

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
    # A fresh process imports its modules; a forked one would inherit this one's state.
    context = get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    with ProcessPoolExecutor(processes, context, initializer=_end_when_closed, initargs=(theirs,)) as pool, ours:
        waiting: dict[Future[Outcome | tuple[Mistake, ...]], Job] = {pool.submit(_outcome, job): job for job in jobs}
        while waiting:
            done, _ = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                take(waiting.pop(future), future.result())


def _end_when_closed(pipe: Connection) -> None:
    """End this process when the other end of the pipe is closed: the parent has ended."""
    Thread(target=_end_after, args=(pipe,), daemon=True).start()


def _end_after(pipe: Connection) -> None:
    wait_for([pipe])
    os._exit(1)


def _outcome(job: Job) -> Outcome | tuple[Mistake, ...]:
    """Mistakes travel as data: an exception with its own arguments would not arrive."""
    try:
        report, course, took_s = simulated(job.run, loaded(job.config.file, {}))
    except ConfigurationError as error:
        return error.mistakes
    return outcome_of(report, course, config=job.config.name, run=job.run.name, took_s=took_s)
