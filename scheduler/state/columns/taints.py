"""Node taints, interned as whole sets: each distinct set is evaluated once, not once per node."""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from scheduler.kube.objects import Taint
from scheduler.state.columns.arrays import FIRST_CAPACITY, Int32Array, Rows, resized
from scheduler.state.columns.vocabulary import Vocabulary

TaintSet: TypeAlias = tuple[Taint, ...]
_NO_TAINTS: Final = 0


class Taints:
    """Taints of the nodes. taint_set: int32[nodes], code in `sets` of each node's set of taints; 0 is the empty set."""

    def __init__(self) -> None:
        self.taint_set: Int32Array = np.full(FIRST_CAPACITY, _NO_TAINTS, dtype=np.int32)
        self.sets: Vocabulary[TaintSet] = Vocabulary()
        self.sets.take(())

    def set_row(self, row: int, taints: TaintSet) -> None:
        old = int(self.taint_set[row])
        if self.sets.value(old) == taints:
            return
        self.taint_set[row] = self.sets.take(taints) if taints else _NO_TAINTS
        if old != _NO_TAINTS:
            self.sets.drop(old)

    def grow(self, capacity: int) -> None:
        self.taint_set = resized(self.taint_set, (capacity,), _NO_TAINTS)

    def of_row(self, row: int) -> TaintSet:
        return self.sets.value(int(self.taint_set[row]))


class Verdicts:
    """A caller's verdict for each set of taints, cached by set: a changed row costs one look-up."""

    __slots__ = ("_by_code", "_by_set", "_verdict", "_version")

    def __init__(self, verdict: Callable[[TaintSet], Any], dtype: type[np.generic]) -> None:
        """verdict: called once per distinct set. dtype: its result's dtype."""
        self._verdict = verdict
        self._by_set: dict[TaintSet, Any] = {}
        self._by_code: NDArray[Any] = np.zeros(0, dtype=dtype)
        self._version = -1

    @property
    def size_bytes(self) -> int:
        """Approximate memory of the cached verdicts."""
        return int(self._by_code.nbytes) + 128 * len(self._by_set)

    def over(self, taints: Taints, rows: Rows) -> NDArray[Any]:
        """dtype[rows], a new array: the verdict of each row's set."""
        if taints.sets.version != self._version:
            self._judge(taints.sets)
        return self._by_code[taints.taint_set[rows]]

    def _judge(self, sets: Vocabulary[TaintSet]) -> None:
        known, verdict = self._by_set, self._verdict
        self._by_set = {taints: known[taints] if taints in known else verdict(taints) for taints, _ in sets.items()}
        self._by_code = np.zeros(len(sets), dtype=self._by_code.dtype)
        for taints, code in sets.items():
            self._by_code[code] = self._by_set[taints]
        self._version = sets.version
