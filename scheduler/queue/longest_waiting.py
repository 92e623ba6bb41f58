"""The unschedulable pods that have waited longest, stored as columns so that they are found without a loop.

A tenant may have ten thousand waiting pods, each a class of its own. So only the first pod of each namespace is
returned, which thousands of pods of another namespace do not delay.

Owned by the unschedulable pods. No method awaits, so each one is atomic. now_s: monotonic seconds.
"""

from collections.abc import Collection, Hashable
from math import inf
from typing import Final, NamedTuple

import numpy as np

from scheduler.pods.pod import Pod
from scheduler.queue.entry import Entry
from scheduler.queue.waking import PodClass
from scheduler.state.columns.arrays import Int64Array, resized

_FIRST_SLOTS: Final = 64


class StarvingPod(NamedTuple):
    """An unschedulable pod. waited_s: seconds, > 0."""

    pod: Pod
    waited_s: float


class LongestWaiting:
    """Pods in groups of one class, priority and namespace; each group has a slot.

    order: int64[2, slots], sort key of the first pod of the group. since_s: float64[slots], when that pod began to
    wait; inf for a free slot. passed_until_s: float64[slots], time until which the group is skipped. namespace:
    int64[slots], hash of the namespace.
    """

    def __init__(self) -> None:
        self._groups: dict[Hashable, PodClass] = {}
        self._at: dict[int, PodClass] = {}
        self._free = list(range(_FIRST_SLOTS - 1, -1, -1))
        self._order: Int64Array = np.zeros((2, _FIRST_SLOTS), dtype=np.int64)
        self._since_s = np.full(_FIRST_SLOTS, inf)
        self._passed_until_s = np.full(_FIRST_SLOTS, -inf)
        self._namespace: Int64Array = np.zeros(_FIRST_SLOTS, dtype=np.int64)

    def add(self, entry: Entry, signature: Hashable) -> None:
        """Add a waiting pod. signature: its class."""
        key = _key(entry, signature)
        group = self._groups.get(key)
        if group is None:
            if not self._free:
                self._grow()
            group = PodClass(key=key, slot=self._free.pop(), best=entry)
            self._groups[key] = self._at[group.slot] = group
            self._rank(group)
            return
        first = group.best
        group.add(entry)
        if group.best is not first:
            self._rank(group)

    def discard(self, entry: Entry, signature: Hashable) -> None:
        """Remove a pod that was added with this signature."""
        group = self._groups[_key(entry, signature)]
        first = group.best
        if group.discard(entry):
            if group.best is not first:
                self._rank(group)
            return
        del self._groups[group.key]
        del self._at[group.slot]
        self._since_s[group.slot] = inf
        self._free.append(group.slot)

    def pass_over(self, entry: Entry, signature: Hashable, until_s: float) -> None:
        """Skip the pod, and the pods behind it in its group, until `until_s`."""
        entry.passed_until_s = until_s
        group = self._groups.get(_key(entry, signature))
        if group is not None:
            self._rank(group)

    def first(self, before_s: float, now_s: float, *, without: Collection[int]) -> list[StarvingPod]:
        """First pods of each priority and namespace that have waited since `before_s` or longer.

        The best priority comes first, then the longest wait. without: priorities to skip.
        """
        slots = np.flatnonzero((self._since_s <= before_s) & (self._passed_until_s <= now_s))
        if without:
            slots = slots[~np.isin(self._order[0, slots], [-priority for priority in without])]
        slots = slots[np.lexsort((self._order[1, slots], self._since_s[slots], self._order[0, slots]))]
        # A hash collision is improbable; the two namespaces would then share their turns.
        numbers = self._namespace[slots] ^ self._order[0, slots]
        firsts = slots[np.sort(np.unique(numbers, return_index=True)[1])].tolist()
        found = (self._at[slot].best for slot in firsts)
        return [StarvingPod(entry.pod, now_s - entry.waits_since_s) for entry in found]

    def __len__(self) -> int:
        return sum(len(group.pods()) for group in self._groups.values())

    def _rank(self, group: PodClass) -> None:
        slot, first = group.slot, group.best
        self._order[:, slot] = first.sort_key
        self._since_s[slot], self._passed_until_s[slot] = first.waits_since_s, first.passed_until_s
        self._namespace[slot] = hash(first.pod.key.namespace)

    def _grow(self) -> None:
        slots = len(self._since_s)
        self._order = resized(self._order, (2, 2 * slots), 0)
        self._since_s = resized(self._since_s, (2 * slots,), inf)
        self._passed_until_s = resized(self._passed_until_s, (2 * slots,), -inf)
        self._namespace = resized(self._namespace, (2 * slots,), 0)
        self._free = list(range(2 * slots - 1, slots - 1, -1))


def _key(entry: Entry, signature: Hashable) -> Hashable:
    return signature, entry.sort_key[0], entry.pod.key.namespace
