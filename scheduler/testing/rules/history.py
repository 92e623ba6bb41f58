"""Runs a history: after every step, compares the live cluster with one built from scratch from the same objects."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

import numpy as np

from scheduler.framework.diagnosis import Diagnosis, count_reasons
from scheduler.framework.evaluation_cache import Evaluation
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import NOWHERE, Runtime
from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare
from scheduler.state.columns.arrays import ALL_ROWS
from scheduler.state.ledger import of_tables
from scheduler.testing.rules.plans import PodPlan, Setting, with_settings
from scheduler.testing.rules.steps import PodIs, PodIsBound, SetNode, Step
from scheduler.testing.rules.world import Restless, TrialWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleResult:
    """Scheduling result for a pod. feasible: names of nodes. scores: by node, the sum, then each raw score.

    node: the chosen node, or "".
    """

    feasible: tuple[str, ...] = ()
    scores: dict[str, tuple[int, ...]] = field(default_factory=dict)
    node: str = ""
    cards: tuple[CardShare, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    message: str = ""

    def __str__(self) -> str:
        """Return text for users."""
        if not self.node:
            return self.message or "fits nowhere"
        cards = f", cards {','.join(str(share.index) for share in self.cards)}" if self.cards else ""
        scores = ", ".join(f"{name} {values}" for name, values in self.scores.items())
        return f"fits {' '.join(self.feasible)}; is placed on {self.node}{cards}; scores {scores}"

    def node_that_differs(self, other: "ScheduleResult") -> str:
        """Return the first node on which they disagree; "" if they disagree on something else."""
        names = set(self.feasible) ^ set(other.feasible)
        names |= {name for name, scores in self.scores.items() if other.scores.get(name, scores) != scores}
        return min(names, default="")


def answer(runtime: Runtime, pod: Pod) -> ScheduleResult:
    """Return the scheduler's answer for the pod, from this runtime's cache."""
    evaluation = runtime.evaluate(pod)
    nodes = len(runtime.tables.row_of)
    if evaluation.unschedulable:
        return ScheduleResult(message=Diagnosis(nodes, rejected=evaluation.unschedulable).message)
    row = runtime.best_row(pod, evaluation)
    if row == NOWHERE:
        reasons = count_reasons(runtime.tables.valid, runtime.rejections(pod, evaluation))
        return ScheduleResult(message=Diagnosis(nodes, reasons).message)
    return _with_place(runtime, pod, evaluation, row)


def _with_place(runtime: Runtime, pod: Pod, evaluation: Evaluation, row: int) -> ScheduleResult:
    tables, names = runtime.tables, runtime.tables.names
    rows = sorted(np.flatnonzero(runtime.feasible(pod, evaluation)).tolist(), key=lambda found: names[found])
    columns: list[Any] = [evaluation.total, *evaluation.raw]
    columns += [p.score(pod, tables, evaluation.state, ALL_ROWS) for p, _ in evaluation.rules.domain_scorers]
    cards: tuple[CardShare, ...] = ()
    annotations: dict[str, str] = {}
    for plugin in runtime.profile.reserve:
        reservation = plugin.reserve(pod, tables, evaluation.state, row, 1)
        plugin.unreserve(pod)
        cards += reservation.cards
        annotations.update(reservation.annotations or {})
    return ScheduleResult(
        feasible=tuple(names[found] for found in rows),
        scores={names[found]: tuple(int(column[found]) for column in columns) for found in rows},
        node=names[row],
        cards=cards,
        annotations=annotations,
    )


_PROBE_UID = "uid-probe"


@dataclass(frozen=True, slots=True)
class History:
    """A sequence of steps to run. probes: settings of pods that are evaluated after every step, but never placed."""

    steps: tuple[Step, ...]
    probes: tuple[tuple[Setting, ...], ...] = ()


def reduced(history: History, fails: Callable[[History], bool]) -> History:
    """Remove all steps, settings and probes that the failure does not need. Return a local minimum."""
    size = len(history.steps)
    while size := size // 2:
        number = 0
        while number < len(history.steps):
            fewer = replace(history, steps=(*history.steps[:number], *history.steps[number + size :]))
            if fails(fewer):
                history = fewer
            else:
                number += size
    while (smaller := next(filter(fails, _without_one(history)), None)) is not None:
        history = smaller
    return history


def _without_one(history: History) -> Iterator[History]:
    steps, probes = history.steps, history.probes
    for number in range(len(probes)):
        yield History(steps, (*probes[:number], *probes[number + 1 :]))
    for number, step in enumerate(steps):
        before, after = steps[:number], steps[number + 1 :]
        yield History((*before, *after), probes)
        if isinstance(step, SetNode | PodIs | PodIsBound):
            for left_out in range(len(step.settings)):
                settings = (*step.settings[:left_out], *step.settings[left_out + 1 :])
                yield History((*before, replace(step, settings=settings), *after), probes)


class FailureKind(Enum):
    """Ways in which a rule fails."""

    ANSWER = auto()  # the rules' answers differ from those of a fresh evaluation
    WAITING = auto()  # a pod waits although a node is feasible
    TABLES = auto()  # bookings differ from the pods' allocations
    RESTLESS = auto()  # pods are woken endlessly
    RAISED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The first failure. step: number of steps done. log: the executed steps, as sentences.

    pod: the affected one, or None. kept, fresh: the two answers. world: its state then.
    """

    kind: FailureKind
    step: int
    log: tuple[str, ...]
    world: TrialWorld
    pod: Pod | None = None
    kept: ScheduleResult = field(default_factory=ScheduleResult)
    fresh: ScheduleResult = field(default_factory=ScheduleResult)
    error: Exception | None = None


def run(history: History, profile: Profile) -> Failure | None:
    """Return the first failure; None if there is none."""
    world, log = TrialWorld(profile), list[str]()
    for number, step in enumerate(history.steps, start=1):
        try:
            found = _step(world, step, log) and _check(world, history, number, log)
        except Restless:
            found = Failure(kind=FailureKind.RESTLESS, step=number, log=tuple(log), world=world)
        except Exception as error:  # noqa: BLE001 - whatever the rule raises is part of the history
            found = Failure(kind=FailureKind.RAISED, step=number, log=tuple(log), world=world, error=error)
        if found:
            return found
    return None


def probes(history: History, world: TrialWorld) -> list[Pod]:
    """Return the pods to evaluate: the plain one, the history's probes, and the waiting pods."""
    plans = [PodPlan(), *(with_settings(PodPlan(), settings) for settings in history.probes)]
    asked = [world.reader.read(plan.wire("probe", _PROBE_UID)) for plan in plans]
    return [*asked, *(world.pod(live) for live in world.waiting_pods())]


def _step(world: TrialWorld, step: Step, log: list[str]) -> bool:
    """Execute the step. Return whether it changed anything."""
    world.pass_time()
    world.happened.clear()
    what = step.happen(world)
    if what:
        log.append(what)
        try:
            world.settle()
        finally:
            log[-1] = "; ".join((what, *world.happened))
    return bool(what)


def _check(world: TrialWorld, history: History, number: int, log: list[str]) -> Failure | None:
    fresh = world.fresh()
    # In the order of the history first, so that effects of one pod on the next become visible.
    for pod in probes(history, world):
        kept, expected = answer(world.runtime, pod), answer(fresh_runtime(fresh), pod)
        if kept != expected:
            return Failure(
                kind=FailureKind.ANSWER,
                step=number,
                log=tuple(log),
                world=world,
                pod=pod,
                kept=kept,
                fresh=expected,
            )
    for live in world.waiting_pods():
        pod = world.pod(live)
        expected = answer(fresh_runtime(fresh), pod)
        if expected.node:
            return Failure(kind=FailureKind.WAITING, step=number, log=tuple(log), world=world, pod=pod, fresh=expected)
    if of_tables(world.tables) != of_tables(fresh.tables):
        return Failure(kind=FailureKind.TABLES, step=number, log=tuple(log), world=world)
    return None


def fresh_runtime(of: Runtime) -> Runtime:
    """Return a runtime over the same tables, with an empty cache."""
    return Runtime(of.profile, of.tables)
