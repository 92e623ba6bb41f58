"""The evaluation cache: what is known of the rows for one class of pods, and since when.

Pods from one template ask the same question; a class is the pods of one signature. Kept are masks and scores at a
version of the tables; the next pod of the class has only those rules asked again that look at what has changed, about
the rows on which it changed. Normalisation, its weights, and rules whose answer depends on other rows are applied at
the pick, since another row's change moves them.
An optimisation only: `test_evaluation_cache.py` proves that decisions with and without it are the same.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from cachetools import LRUCache

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, ScorePlugin
from scheduler.state.columns.arrays import BoolArray, Int64Array

# Bytes kept, over all classes of a profile: 500 classes of 5,000 nodes.
_BUDGET_BYTES: Final = 128 * 1024 * 1024
_FIXED_BYTES: Final = 2048
Weighted = tuple[ScorePlugin, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRules:
    """The rules that have something to say about a class of pods, apart by what can alter their answers.

    filters: all of them, in order. node_…: the node's own fields alone. booking_…: bookings, or both. domain_…: other
    rows. A score that needs no normalisation is in `…_scorers`, else it is in `normalized`, or in `domain_scorers`;
    normalized_by_bookings: for each of `normalized`, whether a booking can alter it.
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


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """One class.

    moment: as `Runtime.moment`, when it was made. never: why no node will ever do, or "".
    version, capacity: of the tables when the columns below were true.
    allowed: bool[nodes], what the node filters leave. feasible: bool[nodes], what the booking filters leave of that.
    node_total: int64[nodes], weighted sum of the node scorers, None without any. total: int64[nodes], of them and the
    booking scorers, -1 where not feasible. raw: int64[nodes] for each of `rules.normalized`.
    scored: whether `node_total` and `raw` hold for every row; if not, nothing was feasible at first, and they hold for
    the rows that have changed since.
    wakes_on: bits of Change that can alter what some rule has rejected so far, or what `never` says.
    """

    state: CycleState
    rules: ClassRules
    moment: Hashable = ()
    never: str = ""
    version: int = 0
    capacity: int = 0
    allowed: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    feasible: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    node_total: Int64Array | None = None
    total: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    raw: list[Int64Array] = field(default_factory=list)
    scored: bool = True
    wakes_on: int = 0

    @property
    def size_bytes(self) -> int:
        """What keeping it costs, about."""
        columns = 1 + len(self.raw) + (self.node_total is not None)
        own = 2 * self.feasible.nbytes + self.total.nbytes * columns
        return _FIXED_BYTES + int(own) + self.state.size_bytes


class EvaluationCache:
    """Evaluations by signature, the least recently used leaving first."""

    def __init__(self, budget_bytes: int = _BUDGET_BYTES) -> None:
        """budget_bytes: over all classes."""
        self._kept: LRUCache[Hashable, Evaluation] = LRUCache(maxsize=budget_bytes, getsizeof=lambda e: e.size_bytes)

    @property
    def size_bytes(self) -> int:
        """What all classes cost, about."""
        return int(self._kept.currsize)

    def get(self, signature: Hashable) -> Evaluation | None:
        """The evaluation of a class, as old as it is."""
        return self._kept.get(signature)

    def keep(self, signature: Hashable, evaluation: Evaluation) -> None:
        """Keep or replace the evaluation of a class, or count it again."""
        try:
            self._kept[signature] = evaluation
        except ValueError:  # larger than the budget; its size is worked out once
            self._kept.pop(signature, None)
