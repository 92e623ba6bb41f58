"""Which of the pods that fit nowhere have waited for longest: the classes as columns, so that a look costs no loop.

A tenant may have ten thousand pods that wait, each a class of its own. So the first of each namespace is found, and
whoever asks takes the namespaces in turn.
"""

from collections.abc import Collection
from math import inf
from typing import Final, NamedTuple

import numpy as np

from scheduler.pods.pod import Pod
from scheduler.queue.entry import Entry
from scheduler.state.columns.arrays import Int64Array, resized

_FIRST_SLOTS: Final = 64


class Starved(NamedTuple):
    """A pod that fits nowhere. waited_s: for how long, > 0."""

    pod: Pod
    waited_s: float


class LongestWaiting:
    """By slot of `ClassTable`.

    since_s: float64[slots], since when the best pod of the class waits; inf of a free slot. namespace: int64[slots],
    a number for its namespace. passed_until_s: float64[slots], until when that pod is passed over.
    """

    def __init__(self) -> None:
        """No classes."""
        self._since_s = np.full(_FIRST_SLOTS, inf)
        self._passed_until_s = np.full(_FIRST_SLOTS, -inf)
        self._namespace: Int64Array = np.zeros(_FIRST_SLOTS, dtype=np.int64)

    def rank(self, slot: int, best: Entry) -> None:
        """The best pod of the class is this."""
        if slot >= len(self._since_s):
            self._grow()
        self._since_s[slot] = best.waits_since_s
        self._passed_until_s[slot] = best.passed_until_s
        self._namespace[slot] = hash(best.pod.key.namespace)

    def forget(self, slot: int) -> None:
        """The class has no pods left."""
        self._since_s[slot] = inf

    def first(self, order: Int64Array, before_s: float, now_s: float, *, without: Collection[int]) -> list[int]:
        """Of each priority and namespace the first class whose best pod waits since `before_s` or longer.

        order: int64[2, slots], as ClassTable; the result is in this order. without: priorities that are left out.
        """
        slots = np.flatnonzero((self._since_s <= before_s) & (self._passed_until_s <= now_s))
        if without:
            slots = slots[~np.isin(order[0, slots], [-priority for priority in without])]
        slots = slots[np.lexsort((order[1, slots], order[0, slots]))]
        # Two namespaces with one number are improbable, and one of them then has its turn with the other.
        numbers = self._namespace[slots] ^ order[0, slots]
        found: list[int] = slots[np.sort(np.unique(numbers, return_index=True)[1])].tolist()
        return found

    def _grow(self) -> None:
        slots = 2 * len(self._since_s)
        self._since_s = resized(self._since_s, (slots,), inf)
        self._passed_until_s = resized(self._passed_until_s, (slots,), -inf)
        self._namespace = resized(self._namespace, (slots,), 0)
