"""Decisions for a pod without any cache, as a reference for the evaluation cache."""

from collections.abc import Hashable
from typing import TYPE_CHECKING

from scheduler.core.scheduling_cycle import NoFit, Outcome, Placement
from scheduler.framework.diagnosis import Diagnosis, count_reasons
from scheduler.framework.evaluation_cache import Evaluation, EvaluationCache
from scheduler.framework.profile import Profile
from scheduler.framework.runtime import NOWHERE, Runtime
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change
from scheduler.state.tables import Tables

if TYPE_CHECKING:
    from scheduler.state.cards.booking import CardShare
    from scheduler.state.volumes.plan import VolumePlan


class _NoCache(EvaluationCache):
    def keep(self, signature: Hashable, evaluation: Evaluation, oldest: int) -> None:
        """Keep nothing."""


def evaluation(profile: Profile, tables: Tables, pod: Pod) -> tuple[Runtime, Evaluation]:
    """Evaluate every row now, with a runtime that has no cache."""
    runtime = Runtime(profile, tables, _NoCache())
    return runtime, runtime.evaluate(pod)


def decision(profile: Profile, tables: Tables, pod: Pod, now_ns: int, nominated: str = "") -> Outcome:
    """Return the expected result of `SchedulingCycle.schedule`; the tables stay unchanged."""
    runtime, judged = evaluation(profile, tables, pod)
    nodes = len(tables.row_of)
    if judged.unschedulable:
        return NoFit(pod, Diagnosis(nodes, rejected=judged.unschedulable), judged.wakes_on)
    row = tables.row_of.get(nominated, NOWHERE)
    if row == NOWHERE or not runtime.feasible(pod, judged)[row]:
        row = runtime.best_row(pod, judged)
    if row == NOWHERE:
        reasons = count_reasons(tables.valid, runtime.rejections(pod, judged))
        return NoFit(pod, Diagnosis(nodes, reasons), judged.wakes_on | int(Change.EXISTENCE))
    cards: tuple[CardShare, ...] = ()
    annotations: dict[str, str] = {}
    plan: VolumePlan | None = None
    for plugin in profile.reserve:
        reservation = plugin.reserve(pod, tables, judged.state, row, now_ns)
        cards += reservation.cards
        annotations.update(reservation.annotations or {})
        plan = plan or reservation.volumes
    return Placement(pod=pod, node=tables.names[row], cards=cards, annotations=annotations, volumes=plan)
