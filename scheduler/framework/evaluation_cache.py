"""The evaluation cache: what is known of the rows for one class of pods, and since when.

Pods from one template ask the same question; a class is the pods of one signature. Kept are masks and scores at a
version of the tables; the next pod of the class has only those rules asked again that look at what has changed, about
the rows on which it changed. Normalisation, its weights, and rules whose answer depends on other rows are applied at
the pick, since another row's change moves them.
An optimisation only: `test_evaluation_cache.py` proves that decisions with and without it are the same.
"""

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, ScorePlugin
from scheduler.state.columns.arrays import BoolArray, Int64Array

# Bytes kept, over all classes of a profile: 500 classes of 5,000 nodes.
_BUDGET_BYTES: Final = 128 * 1024 * 1024
_FIXED_BYTES: Final = 2048
# For each that comes.
_FORGOTTEN_AT_A_TIME: Final = 2
Weighted = tuple[ScorePlugin, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassRules:
    """The rules that have something to say about a class of pods, apart by what can alter their answers.

    filters: all of them, in order. node_…: the node's own fields alone. booking_…: bookings, or both. domain_…: other
    rows. A score that needs no normalisation is in `…_scorers`, else it is in `normalized`, or in `domain_scorers`;
    normalized_by_bookings: for each of `normalized`, whether a booking can alter it. of_cluster: of the node scorers,
    those that have a `cluster_input`.
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
    of_cluster: tuple[ScorePlugin, ...] = ()


@dataclass(slots=True, kw_only=True)
class Evaluation:
    """One class.

    cache_key: as `Runtime.cache_key`, when it was made. unschedulable: why no node will ever do, or "".
    version, capacity: of the tables when the columns below were true; where no node will ever do, when that was found.
    allowed: bool[nodes], what the node filters leave. feasible: bool[nodes], what the booking filters leave of that.
    node_total: int64[nodes], weighted sum of the node scorers, None without any. total: int64[nodes], of them and the
    booking scorers, -1 where not feasible. raw: int64[nodes] for each of `rules.normalized`.
    cluster_inputs: of each of `rules.of_cluster`, when `node_total` was true of all rows.
    scored: whether `node_total` and `raw` hold for every row; if not, nothing was feasible at first, and they hold for
    the rows that have changed since.
    wakes_on: bits of Change that can alter what some rule has rejected so far, or what `unschedulable` says.
    """

    state: CycleState
    rules: ClassRules
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
    cluster_inputs: tuple[Hashable, ...] = ()
    wakes_on: int = 0

    @property
    def size_bytes(self) -> int:
        """What keeping it costs, about."""
        columns = 1 + len(self.raw) + (self.node_total is not None)
        own = 2 * self.feasible.nbytes + self.total.nbytes * columns
        return _FIXED_BYTES + int(own) + self.state.size_bytes


class EvaluationCache:
    """Evaluations by signature, the least recently used leaving first.

    size_bytes: what all of them cost, about; read only.
    They leave when there is no room, and when so much has changed since that they are of no use.
    """

    def __init__(self, budget_bytes: int = _BUDGET_BYTES) -> None:
        """budget_bytes: over all classes."""
        self._budget_bytes = budget_bytes
        # With what it cost when it was kept; the least recently used first.
        self._kept: OrderedDict[Hashable, tuple[Evaluation, int]] = OrderedDict()
        self.size_bytes = 0

    def get(self, signature: Hashable) -> Evaluation | None:
        """The evaluation of a class, as old as it is."""
        kept = self._kept.get(signature)
        if kept is None:
            return None
        self._kept.move_to_end(signature)
        return kept[0]

    def keep(self, signature: Hashable, evaluation: Evaluation, oldest: int) -> None:
        """Keep or replace the evaluation of a class, or count it again. oldest: the first version of use."""
        size = evaluation.size_bytes
        self.size_bytes -= self._kept.pop(signature, (evaluation, 0))[1]
        if size <= self._budget_bytes:
            self._kept[signature] = evaluation, size
            self.size_bytes += size
        while self.size_bytes > self._budget_bytes:
            self._drop_first()
        # Not all at once: thousands may have become too old together.
        for _ in range(_FORGOTTEN_AT_A_TIME):
            if self._kept and next(iter(self._kept.values()))[0].version < oldest:
                self._drop_first()

    def _drop_first(self) -> None:
        _, (_, size) = self._kept.popitem(last=False)
        self.size_bytes -= size
