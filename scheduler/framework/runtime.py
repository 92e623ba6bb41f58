"""Runs a profile's plugins over the tables: which rows are feasible for a pod, and which is best."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.memo import ClassMemo, Judgement
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
from scheduler.pod import Pod
from scheduler.state.arrays import ALL_ROWS, BoolArray, Int64Array, RowArray, Rows
from scheduler.state.tables import Tables

ClassKey: TypeAlias = Hashable
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
    memo: ClassMemo = field(default_factory=ClassMemo)

    def class_key(self, pod: Pod) -> ClassKey:
        """Equal for pods that every rule answers alike while the tables stay as they are."""
        keys = (plugin.class_key(pod, self.tables) for plugin in self.profile.filter)
        return (pod.template, *(key for key in keys if key is not None))

    def judge(self, pod: Pod, key: ClassKey) -> Judgement:
        """What holds for the pod's class now: kept columns where they are still true, the rest judged anew."""
        kept = self.memo.get(key)
        tables = self.tables
        if kept is not None and not kept.never and kept.capacity == tables.capacity:
            if kept.epochs == self._epochs(kept.filters):
                changed = tables.changes.since(kept.version)
                if changed is not None and len(changed) * _FEW <= tables.capacity:
                    if len(changed):
                        self._rejudge(kept, pod, changed)
                    return kept
        elif kept is not None and kept.never:
            return kept
        fresh = self._judge_all(pod)
        self.memo.keep(key, fresh)
        return fresh

    def best_row(self, judgement: Judgement) -> int:
        """The feasible row with the highest score, ties by node name; NOWHERE when none is feasible."""
        total = judgement.total
        for (plugin, weight), raw in zip(judgement.normalized, judgement.raw, strict=True):
            total = _with_normalized(total, plugin.normalization, weight, raw, judgement.feasible)
        best = total.max()
        if best < 0:
            return NOWHERE
        ties = np.flatnonzero(total == best)
        return int(ties[0] if len(ties) == 1 else ties[self.tables.rank[ties].argmin()])

    def objections(self, pod: Pod, judgement: Judgement) -> Iterator[list[Objection]]:
        """For each rule in order, its objections over all rows."""
        for plugin in judgement.filters:
            yield list(plugin.filter(pod, self.tables, judgement.state, ALL_ROWS))

    def room(self, pod: Pod, judgement: Judgement, rows: RowArray) -> int:
        """How many pods of the class `rows` can take more, at most; 0 when none is feasible."""
        rows = rows[judgement.feasible[rows]]
        if not len(rows):
            return 0
        limits = [limit for p in judgement.filters if (limit := p.room(pod, self.tables, rows)) is not None]
        if not limits:
            return len(rows)
        return int(np.maximum(np.minimum.reduce(limits), 1).sum())

    def _epochs(self, filters: tuple[FilterPlugin, ...]) -> tuple[int, ...]:
        return tuple(plugin.epoch(self.tables) for plugin in filters)

    def _judge_all(self, pod: Pod) -> Judgement:
        profile, tables, state = self.profile, self.tables, CycleState()
        skipped, never = self._pre_filter(pod, state)
        filters = () if never else tuple(p for p in profile.filter if p not in skipped)
        scoring = () if never else tuple((p, weight) for p, weight in profile.score if p.scores(pod))
        judgement = Judgement(
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
            judgement.feasible = self._feasible(judgement, pod, ALL_ROWS)
            judgement.total = self._total(judgement, pod, ALL_ROWS, judgement.feasible)
            judgement.raw = [p.score(pod, tables, state, ALL_ROWS) for p, _ in judgement.normalized]
        return judgement

    def _pre_filter(self, pod: Pod, state: CycleState) -> tuple[set[Plugin], str]:
        skipped: set[Plugin] = set()
        for plugin in self.profile.pre_filter:
            result = plugin.pre_filter(pod, self.tables, state)
            if isinstance(result, Rejected):
                return skipped, result.reason
            if result is Relevance.SKIP:
                skipped.add(plugin)
        return skipped, ""

    def _rejudge(self, kept: Judgement, pod: Pod, changed: RowArray) -> None:
        # One row as a slice: a view costs a tenth of picking the row out, and one row is the common case.
        rows: Rows = slice(int(changed[0]), int(changed[0]) + 1) if len(changed) == 1 else changed
        feasible = self._feasible(kept, pod, rows)
        kept.feasible[rows] = feasible
        kept.total[rows] = self._total(kept, pod, rows, feasible)
        for (plugin, _), raw in zip(kept.normalized, kept.raw, strict=True):
            raw[rows] = plugin.score(pod, self.tables, kept.state, rows)
        kept.version = self.tables.changes.version

    def _feasible(self, judgement: Judgement, pod: Pod, rows: Rows) -> BoolArray:
        feasible = self.tables.valid[rows].copy()
        for plugin in judgement.filters:
            for objection in plugin.filter(pod, self.tables, judgement.state, rows):
                feasible &= ~objection.rejected
        return feasible

    def _total(self, judgement: Judgement, pod: Pod, rows: Rows, feasible: BoolArray) -> Int64Array:
        total = np.zeros(len(feasible), dtype=np.int64)
        for plugin, weight in judgement.scorers:
            total += plugin.score(pod, self.tables, judgement.state, rows) * weight
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
