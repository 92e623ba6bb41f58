"""The evaluation cache: masks and scores of all rows for one class of pods.

A class consists of the pods with one signature. The cache keeps masks and scores at a version of the tables. For the
next pod of the class, only rules that read a changed field run again, on the changed rows. Normalization, its weights
and rules that depend on other rows are applied at the pick, because any changed row alters them.
This is only an optimization: `test_evaluation_cache.py` proves that decisions with and without it are the same.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, ScorePlugin
from scheduler.state.columns.arrays import BoolArray, Int64Array

# Memory limit for all classes of a profile: enough for 500 classes with 5,000 nodes.
_BUDGET_BYTES: Final = 128 * 1024 * 1024
_FIXED_BYTES: Final = 2048
# Expired evaluations that are dropped at each `keep`.
_FORGOTTEN_AT_A_TIME: Final = 2
Weighted = tuple[ScorePlugin, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRules:
    """Rules that apply to a class of pods, grouped by the changes that can alter their answers.

    filters: all of them, in order. node_…: depend only on the node's own fields. booking_…: depend on bookings, with or
    without the node's fields. domain_…: depend on other rows. node_scorers, booking_scorers: those without
    normalization. normalized: scorers with normalization, except domain scorers. normalized_by_bookings: for each of
    `normalized`, whether a booking can alter it. rescored: node scorers that have a `cache_key`.
    """

    filters: tuple[FilterPlugin, ...] = ()
    node_filters: tuple[FilterPlugin, ...] = ()
    booking_filters: tuple[FilterPlugin, ...] = ()
    domain_filters: tuple[FilterPlugin, ...] = ()
    node_scorers: tuple[Weighted, ...] = ()
    booking_scorers: tuple[Weighted, ...] = ()
    normalized: tuple[Weighted, ...] = ()
    normalized_by_bookings: tuple[bool, ...] = ()
    domain_scorers: tuple[Weighted, ...] = ()
    rescored: tuple[ScorePlugin, ...] = ()


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """Evaluation of one class.

    signature: of the class. cache_key: `Runtime.cache_key` at the time of the evaluation. unschedulable: why no node
    can ever take the pod, or "". version, capacity: those of the tables for which the columns below are valid; for an
    unschedulable class, those at the time of that finding.
    allowed: bool[nodes], rows that the node filters accept. feasible: bool[nodes], rows that the booking filters
    accept, too.
    node_total: int64[nodes], weighted sum of the node scorers; None if there are none. total: int64[nodes], node_total
    plus the booking scorers, -1 if not feasible. raw: int64[nodes] for each of `rules.normalized`.
    scored_by: the cache keys of `rules.rescored` for which `node_total` was computed on all rows. scored: whether
    `node_total` and `raw` are valid for every row. If not, no row was feasible at first, and they are valid only for
    rows that have changed since.
    wakes_on: bits of Change that can alter a rejection, or `unschedulable`.
    """

    state: CycleState
    rules: ClassRules
    signature: Hashable = ()
    cache_key: Hashable = ()
    unschedulable: str = ""
    version: int = 0
    capacity: int = 0
    allowed: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    feasible: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    node_total: Int64Array | None = None
    total: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    raw: list[Int64Array] = field(default_factory=list)
    scored: bool = True
    scored_by: tuple[Hashable, ...] = ()
    wakes_on: int = 0

    @property
    def size_bytes(self) -> int:
        """Approximate memory."""
        columns = 1 + len(self.raw) + (self.node_total is not None)
        own = 2 * self.feasible.nbytes + self.total.nbytes * columns
        return _FIXED_BYTES + int(own) + self.state.size_bytes


class EvaluationCache:
    """Evaluations by signature. Drops the least recently used first, and evaluations too old to be useful.

    size_bytes: approximate memory of all evaluations; read only.
    """

    def __init__(self, budget_bytes: int = _BUDGET_BYTES) -> None:
        """budget_bytes: memory limit for all classes together."""
        self._budget_bytes = budget_bytes
        # Each with its size at the time it was kept; least recently used first.
        self._kept: OrderedDict[Hashable, tuple[Evaluation, int]] = OrderedDict()
        self.size_bytes = 0

    def get(self, signature: Hashable) -> Evaluation | None:
        """Return the evaluation of a class, however old; None if it is not cached."""
        kept = self._kept.get(signature)
        if kept is None:
            return None
        self._kept.move_to_end(signature)
        return kept[0]

    def keep(self, signature: Hashable, evaluation: Evaluation, oldest: int) -> None:
        """Keep or replace the evaluation of a class, and update its size. oldest: the oldest useful version."""
        size = evaluation.size_bytes
        self.size_bytes -= self._kept.pop(signature, (evaluation, 0))[1]
        if size <= self._budget_bytes:
            self._kept[signature] = evaluation, size
            self.size_bytes += size
        while self.size_bytes > self._budget_bytes:
            self._drop_first()
        # Drop a few at a time, because thousands may expire together.
        for _ in range(_FORGOTTEN_AT_A_TIME):
            if self._kept and next(iter(self._kept.values()))[0].version < oldest:
                self._drop_first()

    def _drop_first(self) -> None:
        _, (_, size) = self._kept.popitem(last=False)
        self.size_bytes -= size
