"""Runs a profile's plugins over the tables to find the feasible rows for a pod and the best of them."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from scheduler.framework.answers import check_rejection, checked_scores
from scheduler.framework.card_rules import CARD_RULES
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.diagnosis import Resolvable, resolvable
from scheduler.framework.evaluation_cache import ClassRules, Evaluation, EvaluationCache, Weighted
from scheduler.framework.plugin import (
    MAX_SCORE,
    POINT,
    DomainScorePlugin,
    FilterPlugin,
    Normalization,
    Plugin,
    Rejected,
    Rejection,
    Relevance,
    ReservePlugin,
)
from scheduler.framework.profile import Profile
from scheduler.pods.pod import Pod
from scheduler.state.changes import Change, ChangedRows
from scheduler.state.columns.arrays import ALL_ROWS, BoolArray, Int64Array, RowArray, Rows
from scheduler.state.minimum_request import MinimumRequest, minimum_request_of
from scheduler.state.tables import Tables

Signature: TypeAlias = Hashable
NOWHERE: Final = -1
_POINTS: Final = MAX_SCORE // POINT
# Above this share of changed rows, evaluating all rows as views is cheaper than selecting rows.
_FEW: Final = 2
# Beyond this many missed changes, evaluating a few rows afresh is cheaper than catching up.
_FEW_CHANGES: Final = 256
# Per row. By then most rows have changed several times, and a cached evaluation would be recomputed anyway.
FORGOTTEN_AFTER_CHANGES: Final = 64
_NODE: Final = int(Change.NODE)
# Changes that only rules without bookings read.
_OF_NODE: Final = int(Change.NODE | Change.VOLUMES | Change.REJECTIONS)


@dataclass(slots=True)
class Runtime:
    """Runs the plugins of one profile against one set of tables."""

    profile: Profile
    tables: Tables
    cache: EvaluationCache = field(default_factory=EvaluationCache)
    # State of the last class, if many rows were evaluated. It is large, and useful only for the next call of that
    # class.
    _row_cache: CycleState | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Start the plugins."""
        for plugin in self.profile.judging():
            plugin.start(self.tables)

    def signature(self, pod: Pod) -> Signature:
        """Return a key: while the tables are unchanged, every rule gives the same answers for pods with equal keys."""
        tables = self.tables
        return (pod.template, *[plugin.signature(pod, tables) for plugin in self.profile.signature_plugins])

    def cache_key(self, pod: Pod) -> Hashable:
        """Return a key that changes when the answers for the pod's class change although no row does."""
        tables = self.tables
        return tuple([plugin.cache_key(pod, tables) for plugin in self.profile.volatile_plugins])

    def minimum_of_class(self, pod: Pod, signature: Signature) -> MinimumRequest:
        """Return the pod's minimum request, with the allowed rows if the evaluation of its class is current."""
        kept, tables = self.cache.get(signature), self.tables
        is_true = kept is not None and not kept.unschedulable and kept.version == tables.changes.version
        allowed = kept.allowed if kept is not None and is_true and kept.cache_key == self.cache_key(pod) else None
        return minimum_request_of(
            self.profile.minimum_request(pod), pod.template.gpu_request, tables.cards.model_code, allowed
        )

    def evaluate(self, pod: Pod) -> Evaluation:
        """Return the current evaluation of the pod's class: reuse valid cached columns and recompute the others."""
        return self._evaluate(pod, self.signature(pod))

    def _evaluate(self, pod: Pod, signature: Signature) -> Evaluation:
        if self._row_cache is not None:
            self._row_cache.drop_row_cache()
            self._row_cache = None
        kept, cache_key = self.cache.get(signature), self.cache_key(pod)
        if kept is not None and kept.cache_key == cache_key:
            if kept.unschedulable:
                return kept
            changed = self.tables.changes.since(kept.version) if kept.capacity == self.tables.capacity else None
            if changed is not None and len(changed.rows) * _FEW <= kept.capacity:
                if changed.rows:
                    self._evaluate_changed(kept, pod, changed)
                if changed.kinds & _NODE:
                    self._rescore(kept, pod)
                    # Columns per label value, or per set of taints, may have grown.
                    self.cache.keep(signature, kept, self._oldest)
                return kept
        fresh = self._evaluate_all(pod)
        fresh.signature, fresh.cache_key = signature, cache_key
        self.cache.keep(signature, fresh, self._oldest)
        return fresh

    @property
    def _oldest(self) -> int:
        """The oldest version whose evaluations may still be useful."""
        changes = self.tables.changes
        return max(changes.oldest, changes.version - FORGOTTEN_AFTER_CHANGES * self.tables.capacity)

    def best_row(self, pod: Pod, evaluation: Evaluation) -> int:
        """Return the feasible row with the highest score, ties by node name; NOWHERE if none is feasible."""
        total = self.totals(pod, evaluation)
        best = total[total.argmax()]
        if best < 0:
            return NOWHERE
        (ties,) = (total == best).nonzero()
        return int(ties[0] if len(ties) == 1 else ties[self.tables.rank[ties].argmin()])

    def totals(self, pod: Pod, evaluation: Evaluation) -> Int64Array:
        """Return int64[nodes]: the sums of the weighted scores, negative if not feasible. Do not modify it.

        May omit addends that are equal for all feasible rows.
        """
        total, feasible, rules = evaluation.total, evaluation.feasible, evaluation.rules
        if rules.domain_filters or rules.domain_scorers:
            total, feasible = self._with_domains(pod, evaluation)
        for (plugin, weight), raw in zip(rules.normalized, evaluation.raw, strict=True):
            total = _with_normalized(total, plugin.normalization, weight, raw, feasible)
        return total

    def feasible(self, pod: Pod, evaluation: Evaluation) -> BoolArray:
        """Return bool[nodes]: rows that no rule rejects now, domain rules included. Do not modify it."""
        return self.left(pod, evaluation, evaluation.rules.domain_filters, ALL_ROWS, evaluation.feasible)

    def rejections(self, pod: Pod, evaluation: Evaluation) -> Iterator[list[Rejection]]:
        """Yield, for each of the filters in order, its rejections of all rows."""
        for plugin in evaluation.rules.filters:
            yield list(plugin.diagnose(pod, self.tables, evaluation.state, ALL_ROWS))
        evaluation.state.drop_row_cache()

    def resolvable(self, evaluation: Evaluation, rejections: Sequence[Sequence[Rejection]]) -> Resolvable:
        """Return all rows of the tables where evictions may make room. rejections: from `rejections`."""
        rules, of_node = evaluation.rules.filters, set(evaluation.rules.node_filters)
        groups = zip((rule not in of_node for rule in rules), rejections, strict=True)
        (rows,) = resolvable(self.tables.valid, groups).nonzero()
        return Resolvable(rows, rows[~evaluation.allowed[rows]])

    def resolvable_on(self, pod: Pod, rows: RowArray) -> tuple[Resolvable, int]:
        """Return the subset of `rows` where evictions may make room, and bits of Change that can help on the rest."""
        judged, valid = self.begin(pod), self.tables.valid[rows]
        rules = judged.rules
        allowed = self.left(pod, judged, rules.node_filters, rows, valid)
        groups = (
            (plugin not in rules.node_filters, plugin.diagnose(pod, self.tables, judged.state, rows))
            for plugin in rules.filters
        )
        found = resolvable(valid, groups)
        return Resolvable(rows[found], rows[found & ~allowed]), judged.wakes_on

    def fits_on(self, pod: Pod, rows: RowArray | None) -> tuple[bool, Evaluation]:
        """Return whether one of `rows` takes the pod now, with the evaluation that shows it. rows: None for all.

        If the last evaluation of the class is old, only these rows are evaluated, and the result is not cached.
        """
        kept = self.cache.get(signature := self.signature(pod))
        if rows is not None and (
            kept is None or kept.cache_key != self.cache_key(pod) or self._is_far_behind(kept, len(rows))
        ):
            return self.evaluated_on(pod, rows)
        evaluation = self._evaluate(pod, signature)
        if evaluation.unschedulable:
            return False, evaluation
        if rows is None:
            return bool(self.feasible(pod, evaluation).any()), evaluation
        domains = evaluation.rules.domain_filters
        return bool(self.left(pod, evaluation, domains, rows, evaluation.feasible[rows]).any()), evaluation

    def _is_far_behind(self, kept: Evaluation, rows: int) -> bool:
        if kept.capacity != self.tables.capacity:
            return True
        behind = self.tables.changes.version - kept.version
        return not kept.unschedulable and behind > max(_FEW_CHANGES, rows)

    def evaluated_on(self, pod: Pod, rows: RowArray, only: frozenset[int] | None = None) -> tuple[bool, Evaluation]:
        """Compute `fits_on` without the cache; valid even while pods are lifted from the tables. only: see `begin`."""
        judged = self.begin(pod, only)
        left = self.left(pod, judged, judged.rules.filters, rows, self.tables.valid[rows])
        return not judged.unschedulable and bool(left.any()), judged

    def begin(self, pod: Pod, only: frozenset[int] | None = None) -> Evaluation:
        """Run PreFilter, which prepares Filter and Score: an evaluation of no rows yet, or of an unschedulable class.

        only: the only card slots that the pod may use; None for all cards.
        """
        state, version, skipped = CycleState(), self.tables.changes.version, set[Plugin]()
        for plugin in self.profile.pre_filter:
            result = plugin.pre_filter(pod, self.tables, state)
            if isinstance(result, Rejected):
                return Evaluation(
                    state=state,
                    rules=ClassRules(),
                    unschedulable=result.reason,
                    version=version,
                    wakes_on=int(result.wakes_on),
                )
            if result is Relevance.SKIP:
                skipped.add(plugin)
        state.write(CARD_RULES, self.profile.card_rules(skipped, only))
        return Evaluation(state=state, rules=self.profile.class_rules(pod, skipped), version=version)

    def _evaluate_all(self, pod: Pod) -> Evaluation:
        fresh, tables = self.begin(pod), self.tables
        if fresh.unschedulable:
            return fresh
        rules, shape = fresh.rules, (tables.capacity,)
        fresh.capacity = tables.capacity
        fresh.allowed = self.left(pod, fresh, rules.node_filters, ALL_ROWS, tables.valid).copy()
        fresh.feasible = self.left(pod, fresh, rules.booking_filters, ALL_ROWS, fresh.allowed).copy()
        fresh.scored = bool(np.count_nonzero(fresh.feasible))
        fresh.node_total = np.zeros(shape, dtype=np.int64) if rules.node_scorers else None
        fresh.raw = [np.zeros(shape, dtype=np.int64) for _ in rules.normalized]
        if fresh.scored:
            self._score_kept(pod, fresh, ALL_ROWS, node_changed=True)
        fresh.total = self._total(pod, fresh, ALL_ROWS, fresh.feasible).copy()
        fresh.scored_by = self._scored_by(pod, rules)
        fresh.state.drop_row_cache()
        return fresh

    def _evaluate_changed(self, kept: Evaluation, pod: Pod, changed: ChangedRows) -> None:
        # One row as a slice, the common case: a view costs a tenth of selecting the row by index.
        first = changed.rows[0]
        rows: Rows = slice(first, first + 1) if len(changed.rows) == 1 else np.array(changed.rows, dtype=np.intp)
        rules, node_changed = kept.rules, changed.kinds & _OF_NODE
        if node_changed:
            kept.allowed[rows] = self.left(pod, kept, rules.node_filters, rows, self.tables.valid[rows])
        feasible = self.left(pod, kept, rules.booking_filters, rows, kept.allowed[rows])
        kept.feasible[rows] = feasible
        self._score_kept(pod, kept, rows, node_changed=bool(node_changed) or not kept.scored)
        kept.total[rows] = self._total(pod, kept, rows, feasible)
        kept.version = self.tables.changes.version
        if len(changed.rows) > 1:
            # The pod will probably land on one of these rows. The cache of a single row is small, so it may stay.
            self._row_cache = kept.state

    def _scored_by(self, pod: Pod, rules: ClassRules) -> tuple[Hashable, ...]:
        return tuple([plugin.cache_key(pod, self.tables) for plugin in rules.rescored])

    def _rescore(self, kept: Evaluation, pod: Pod) -> None:
        """Rescore all rows if the cache key of a node scorer has changed."""
        scored_by = self._scored_by(pod, kept.rules)
        if scored_by == kept.scored_by or kept.node_total is None:
            return
        kept.scored_by = scored_by
        shape = kept.node_total.shape
        node_total = np.asarray(sum(self._scored(pod, kept.state, kept.rules.node_scorers, ALL_ROWS, shape)))
        kept.total = np.where(kept.feasible, kept.total + (node_total - kept.node_total), -1)
        kept.node_total = node_total

    def _score_kept(self, pod: Pod, kept: Evaluation, rows: Rows, *, node_changed: bool) -> None:
        """Update the scores kept apart from the total. node_changed: also scores that read only node fields."""
        rules = kept.rules
        if node_changed and kept.node_total is not None:
            shape = kept.node_total[rows].shape
            kept.node_total[rows] = sum(self._scored(pod, kept.state, rules.node_scorers, rows, shape))
        for (plugin, _), raw, by_bookings in zip(rules.normalized, kept.raw, rules.normalized_by_bookings, strict=True):
            if node_changed or by_bookings:
                raw[rows] = checked_scores(plugin, plugin.score(pod, self.tables, kept.state, rows), raw[rows].shape)

    def left(
        self, pod: Pod, evaluation: Evaluation, filters: Sequence[FilterPlugin], rows: Rows, left: BoolArray
    ) -> BoolArray:
        """Return bool[rows]: `left` (itself or a copy) without the rows that the filters reject.

        Adds to `evaluation` the changes that can help on the rejected rows.
        """
        for plugin in filters:
            for rejection in plugin.filter(pod, self.tables, evaluation.state, rows):
                check_rejection(plugin, rejection, left.shape)
                if (left & rejection.rejected).any():
                    left = left & ~rejection.rejected
                    evaluation.wakes_on |= self.profile.wakes_on[plugin]
                    if plugin in self.profile.over_domains:
                        evaluation.wakes_on |= plugin.opened_by(pod, self.tables, evaluation.state)
                    if isinstance(plugin, ReservePlugin):
                        # The plugin that allocates cards also rejects on behalf of the card rules.
                        evaluation.wakes_on |= evaluation.state.read(CARD_RULES).wakes_on
        return left

    def _total(self, pod: Pod, evaluation: Evaluation, rows: Rows, feasible: BoolArray) -> Int64Array:
        """Return int64[rows]. It may be an array that belongs to a plugin, so the caller copies it."""
        count = np.count_nonzero(feasible)
        if not count:
            return np.full(feasible.shape, -1, dtype=np.int64)
        total = None if evaluation.node_total is None else evaluation.node_total[rows]
        for scores in self._scored(pod, evaluation.state, evaluation.rules.booking_scorers, rows, feasible.shape):
            total = scores if total is None else total + scores
        if total is not None and count == len(feasible):
            return total
        return np.where(feasible, 0 if total is None else total, -1)

    def _scored(
        self, pod: Pod, state: CycleState, scorers: Sequence[Weighted], rows: Rows, shape: tuple[int, ...]
    ) -> Iterator[Int64Array]:
        """Yield int64[rows], the weighted scores of each scorer. shape: (rows,)."""
        for plugin, weight in scorers:
            scores = checked_scores(plugin, plugin.score(pod, self.tables, state, rows), shape)
            yield scores if weight == 1 else scores * weight

    def _with_domains(self, pod: Pod, evaluation: Evaluation) -> tuple[Int64Array, BoolArray]:
        """Return (total, feasible) with the domain rules applied; `total` is -1 if not feasible."""
        rules, tables, state = evaluation.rules, self.tables, evaluation.state
        feasible = self.feasible(pod, evaluation)
        total = evaluation.total if feasible is evaluation.feasible else np.where(feasible, evaluation.total, -1)
        for plugin, weight in rules.domain_scorers:
            if isinstance(plugin, DomainScorePlugin):
                scores = plugin.score_domains(pod, tables, state, feasible)
                if scores is None:
                    continue
            else:
                scores = plugin.score(pod, tables, state, ALL_ROWS)
            raw = checked_scores(plugin, scores, total.shape)
            if plugin.normalization is Normalization.NONE:
                total = np.where(feasible, total + weight * raw, -1)
            else:
                total = _with_normalized(total, plugin.normalization, weight, raw, feasible)
        if total is not evaluation.total:
            # The domain rules read all rows. Otherwise keep the cache: it holds the row where the pod will probably
            # land.
            state.drop_row_cache()
        return total, feasible


def _with_normalized(
    total: Int64Array, how: Normalization, weight: int, raw: Int64Array, feasible: BoolArray
) -> Int64Array:
    """Return `total` plus the weighted, normalized score; infeasible rows stay negative."""
    highest = int(raw.max(where=feasible, initial=0)) if np.count_nonzero(raw) else 0
    if highest == 0:
        # The score would be equal for every feasible row.
        return total
    normalized = raw * _POINTS // highest * POINT
    if how is Normalization.BY_MAX_REVERSED:
        normalized = MAX_SCORE - normalized
    return np.where(feasible, total + weight * normalized, -1)
