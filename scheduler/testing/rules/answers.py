"""Answers of a profile's rules about one pod, by node names, so that answers of two worlds compare."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from scheduler.framework.diagnosis import Diagnosis, count_reasons
from scheduler.framework.evaluation_cache import Evaluation
from scheduler.framework.runtime import NOWHERE, Runtime
from scheduler.pods.pod import Pod
from scheduler.state.cards.booking import CardShare
from scheduler.state.columns.arrays import ALL_ROWS


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleResult:
    """feasible: the nodes. scores: of them, the sum, then each raw score. node: the chosen one, "" for none."""

    feasible: tuple[str, ...] = ()
    scores: dict[str, tuple[int, ...]] = field(default_factory=dict)
    node: str = ""
    cards: tuple[CardShare, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    message: str = ""

    def __str__(self) -> str:
        """Text for users."""
        if not self.node:
            return self.message or "fits nowhere"
        cards = f", cards {','.join(str(share.index) for share in self.cards)}" if self.cards else ""
        scores = ", ".join(f"{name} {values}" for name, values in self.scores.items())
        return f"fits {' '.join(self.feasible)}; goes to {self.node}{cards}; scores {scores}"

    def node_that_differs(self, other: "ScheduleResult") -> str:
        """The first node about which they disagree, "" when it is not about one."""
        names = set(self.feasible) ^ set(other.feasible)
        names |= {name for name, scores in self.scores.items() if other.scores.get(name, scores) != scores}
        return min(names, default="")


def answer(runtime: Runtime, pod: Pod) -> ScheduleResult:
    """The scheduler's answer for the pod, from this runtime's cache."""
    evaluation = runtime.evaluate(pod, runtime.signature(pod))
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
