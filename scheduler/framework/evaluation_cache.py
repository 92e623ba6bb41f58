"""The evaluation cache: what is known of the rows for one class of pods, and since when.

Pods from one template ask the same question. Kept are the feasible mask and the raw scores at a version of the
tables; the next pod of the class re-judges only the rows that changed since. Normalisation and weights of rules
whose scores depend on other rows are applied at the pick, since another row's change moves their maximum.
An optimisation only: `test_evaluation_cache.py` proves that decisions with and without it are the same.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final

from cachetools import LRUCache

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import FilterPlugin, ScorePlugin
from scheduler.state.arrays import BoolArray, Int64Array

# Bytes of columns kept, over all classes of a profile: 500 classes of 5,000 nodes.
_BUDGET_BYTES: Final = 128 * 1024 * 1024
_FIXED_BYTES: Final = 2048


@dataclass(slots=True)
class Evaluation:
    """One class.

    filters, scorers: the rules that have something to say about it. never: why no node will ever do, or "".
    version, epochs, capacity: of the tables when the columns below were true.
    feasible: bool[nodes]. total: int64[nodes], weighted sum of the scores that need no normalisation, and -1 where
    not feasible. raw: int64[nodes] per scorer that needs it.
    """

    state: CycleState
    filters: tuple[FilterPlugin, ...]
    scorers: tuple[tuple[ScorePlugin, int], ...]
    normalized: tuple[tuple[ScorePlugin, int], ...]
    never: str
    version: int
    epochs: tuple[int, ...]
    capacity: int
    feasible: BoolArray
    total: Int64Array
    raw: list[Int64Array] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """What keeping it costs, about."""
        return _FIXED_BYTES + int(self.feasible.nbytes + self.total.nbytes * (1 + len(self.raw)))


class EvaluationCache:
    """Evaluations by class key, the least recently used leaving first."""

    def __init__(self, budget_bytes: int = _BUDGET_BYTES) -> None:
        """budget_bytes: of columns, over all classes."""
        self._budget = budget_bytes
        self._kept: LRUCache[Hashable, Evaluation] = LRUCache(maxsize=budget_bytes, getsizeof=lambda j: j.size_bytes)

    def get(self, key: Hashable) -> Evaluation | None:
        """The evaluation of a class, as old as it is."""
        return self._kept.get(key)

    def keep(self, key: Hashable, evaluation: Evaluation) -> None:
        """Keep or replace the evaluation of a class."""
        if evaluation.size_bytes <= self._budget:
            self._kept[key] = evaluation

    def forget(self, key: Hashable) -> None:
        """Drop the evaluation of a class."""
        self._kept.pop(key, None)
