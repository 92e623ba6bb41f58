"""Runs a profile's plugins over the tables: which rows are feasible for a pod, and which is best."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.evaluation_cache import Evaluation, EvaluationCache
from scheduler.framework.plugin import (
    MAX_SCORE,
    FilterPlugin,
    Normalization,
    Objection,
    PermitPlugin,
    Plugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    Rejected,
    Relevance,
    ReservePlugin,
    ScorePlugin,
)
from scheduler.pods.pod import Pod
from scheduler.state.arrays import ALL_ROWS, BoolArray, Int64Array, RowArray, Rows
from scheduler.state.tables import Tables

Signature: TypeAlias = Hashable
NOWHERE: Final = -1
# More than this share of the rows changed: judging all of them as views costs less than picking them out.
_FEW: Final = 8


@dataclass(frozen=True, slots=True)
class Profile:
    """The plugins of one profile, per extension point, in order. score: (plugin, weight)."""

    pre_enqueue: tuple[PreEnqueuePlugin, ...] = ()
    pre_filter: tuple[PreFilterPlugin, ...] = ()
    filter: tuple[FilterPlugin, ...] = ()
    score: tuple[tuple[ScorePlugin, int], ...] = ()
    reserve: tuple[ReservePlugin, ...] = ()
    permit: tuple[PermitPlugin, ...] = ()
    pre_bind: tuple[PreBindPlugin, ...] = ()


@dataclass(slots=True)
class Runtime:
    """One profile over one set of tables."""

    profile: Profile
    tables: Tables
    memo: EvaluationCache = field(default_factory=EvaluationCache)

    def signature(self, pod: Pod) -> Signature:
        """Equal for pods that every rule answers alike while the tables stay as they are."""
        keys = (plugin.signature(pod, self.tables) for plugin in self.profile.filter)
        return (pod.template, *(key for key in keys if key is not None))

    def judge(self, pod: Pod, key: Signature) -> Evaluation:
        """What holds for the pod's class now: kept columns where they are still true, the rest judged anew."""
        kept = self.memo.get(key)
        tables = self.tables
        if kept is not None and not kept.never and kept.capacity == tables.capacity:
            if kept.epochs == self._epochs(kept.filters):
                changed = tables.changes.since(kept.version)
                if changed is not None and len(changed) * _FEW <= tables.capacity:
                    if len(changed):
                        self._reevaluate(kept, pod, changed)
                    return kept
        elif kept is not None and kept.never:
            return kept
        fresh = self._evaluate_all(pod)
        self.memo.keep(key, fresh)
        return fresh

    def best_row(self, evaluation: Evaluation) -> int:
        """The feasible row with the highest score, ties by node name; NOWHERE when none is feasible."""
        total = evaluation.total
        for (plugin, weight), raw in zip(evaluation.normalized, evaluation.raw, strict=True):
            total = _with_normalized(total, plugin.normalization, weight, raw, evaluation.feasible)
        best = total.max()
        if best < 0:
            return NOWHERE
        ties = np.flatnonzero(total == best)
        return int(ties[0] if len(ties) == 1 else ties[self.tables.rank[ties].argmin()])

    def objections(self, pod: Pod, evaluation: Evaluation) -> Iterator[list[Objection]]:
        """For each rule in order, its objections over all rows."""
        for plugin in evaluation.filters:
            yield list(plugin.filter(pod, self.tables, evaluation.state, ALL_ROWS))

    def room(self, pod: Pod, evaluation: Evaluation, rows: RowArray) -> int:
        """How many pods of the class `rows` can take more, at most; 0 when none is feasible."""
        rows = rows[evaluation.feasible[rows]]
        if not len(rows):
            return 0
        limits = [limit for p in evaluation.filters if (limit := p.room(pod, self.tables, rows)) is not None]
        if not limits:
            return len(rows)
        return int(np.maximum(np.minimum.reduce(limits), 1).sum())

    def _epochs(self, filters: tuple[FilterPlugin, ...]) -> tuple[int, ...]:
        return tuple(plugin.epoch(self.tables) for plugin in filters)

    def _evaluate_all(self, pod: Pod) -> Evaluation:
        profile, tables, state = self.profile, self.tables, CycleState()
        skipped, never = self._pre_filter(pod, state)
        filters = () if never else tuple(p for p in profile.filter if p not in skipped)
        scoring = () if never else tuple((p, weight) for p, weight in profile.score if p.scores(pod))
        evaluation = Evaluation(
            state=state,
            filters=filters,
            scorers=tuple(pair for pair in scoring if pair[0].normalization is Normalization.NONE),
            normalized=tuple(pair for pair in scoring if pair[0].normalization is not Normalization.NONE),
            never=never,
            version=tables.changes.version,
            epochs=self._epochs(filters),
            capacity=tables.capacity,
            feasible=np.zeros(tables.capacity, dtype=np.bool_),
            total=np.full(tables.capacity, -1, dtype=np.int64),
        )
        if not never:
            evaluation.feasible = self._feasible(evaluation, pod, ALL_ROWS)
            evaluation.total = self._total(evaluation, pod, ALL_ROWS, evaluation.feasible)
            evaluation.raw = [p.score(pod, tables, state, ALL_ROWS) for p, _ in evaluation.normalized]
        return evaluation

    def _pre_filter(self, pod: Pod, state: CycleState) -> tuple[set[Plugin], str]:
        skipped: set[Plugin] = set()
        for plugin in self.profile.pre_filter:
            result = plugin.pre_filter(pod, self.tables, state)
            if isinstance(result, Rejected):
                return skipped, result.reason
            if result is Relevance.SKIP:
                skipped.add(plugin)
        return skipped, ""

    def _reevaluate(self, kept: Evaluation, pod: Pod, changed: RowArray) -> None:
        # One row as a slice: a view costs a tenth of picking the row out, and one row is the common case.
        rows: Rows = slice(int(changed[0]), int(changed[0]) + 1) if len(changed) == 1 else changed
        feasible = self._feasible(kept, pod, rows)
        kept.feasible[rows] = feasible
        kept.total[rows] = self._total(kept, pod, rows, feasible)
        for (plugin, _), raw in zip(kept.normalized, kept.raw, strict=True):
            raw[rows] = plugin.score(pod, self.tables, kept.state, rows)
        kept.version = self.tables.changes.version

    def _feasible(self, evaluation: Evaluation, pod: Pod, rows: Rows) -> BoolArray:
        feasible = self.tables.valid[rows].copy()
        for plugin in evaluation.filters:
            for objection in plugin.filter(pod, self.tables, evaluation.state, rows):
                feasible &= ~objection.rejected
        return feasible

    def _total(self, evaluation: Evaluation, pod: Pod, rows: Rows, feasible: BoolArray) -> Int64Array:
        total = np.zeros(len(feasible), dtype=np.int64)
        for plugin, weight in evaluation.scorers:
            total += plugin.score(pod, self.tables, evaluation.state, rows) * weight
        total[~feasible] = -1
        return total


def _with_normalized(
    total: Int64Array, how: Normalization, weight: int, raw: Int64Array, feasible: BoolArray
) -> Int64Array:
    """`total` plus the weighted, normalised score; infeasible rows stay negative."""
    highest = int(raw.max(where=feasible, initial=0))
    if highest == 0:
        # Every feasible row would get the same.
        return total
    normalized = raw * MAX_SCORE // highest
    if how is Normalization.BY_MAX_REVERSED:
        normalized = MAX_SCORE - normalized
    return np.where(feasible, total + weight * normalized, -1)
