"""Classes of waiting pods as columns, so that one pass compares a cluster event with all of them.

A changed row cannot help a class if it lacks CPU, memory or card units for it, or if no rule of the class reads that
kind of change. One pass over arrays checks both for every class. The remaining classes that request certain cards or
rows are compared with the cards of each row, in one pass per row. Only classes that still remain get a queueing hint.

Also an index of waiting pods by the objects that they refer to. Pods with the same references share one `Referrers`.
Owned by the unschedulable pods. No method awaits, so each one is atomic.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import Final, Generic, Protocol

import numpy as np

from scheduler.pods.pod import Pod
from scheduler.pods.pod_volumes import ClaimKey
from scheduler.queue.entry import Entry, ObjectT, Referrers, SortKey
from scheduler.state.amounts import ANY_BIT, NOTHING, Amount, AvailableOnCards, row_bits
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, resized
from scheduler.state.minimum_request import MinimumRequest


class _Users(Generic[ObjectT]):
    def __init__(self) -> None:
        self._alike: dict[Hashable, Referrers[ObjectT]] = {}
        self._using: dict[ObjectT, dict[Referrers[ObjectT], None]] = {}

    def remove(self, alike: Referrers[ObjectT], entry: Entry, slot: int) -> Entry | None:
        """Remove the pod. Returns some other pod of its class with the same references; None if there is none."""
        pods = alike.pods[slot]
        del pods[entry]
        if pods:
            return next(iter(pods))
        del alike.pods[slot]
        if not alike.pods:
            self._forget(alike)
        return None

    def users(self, objects: Iterable[ObjectT]) -> Iterator[Entry]:
        """Yield one pod per class and set of references, for each set that includes any of `objects`."""
        for one in objects:
            for alike in self._using.get(one, ()):
                for pods in alike.pods.values():
                    yield next(iter(pods))

    def by_object(self) -> set[tuple[ObjectT, int, Entry]]:
        """Return all (object, slot, pod), for consistency checks."""
        return {
            (one, slot, entry)
            for one, users in self._using.items()
            for alike in users
            for slot, pods in alike.pods.items()
            for entry in pods
        }

    def _add(self, entry: Entry, slot: int, key: Hashable, objects: Iterable[ObjectT]) -> Referrers[ObjectT]:
        alike = self._alike.get(key)
        if alike is None:
            alike = self._alike[key] = Referrers(key, tuple(dict.fromkeys(objects)))
            for one in alike.objects:
                self._using.setdefault(one, {})[alike] = None
        alike.pods.setdefault(slot, {})[entry] = None
        return alike

    def _forget(self, alike: Referrers[ObjectT]) -> None:
        del self._alike[alike.key]
        for one in alike.objects:
            users = self._using[one]
            del users[alike]
            if not users:
                del self._using[one]


class ClaimUsers(_Users[ClaimKey]):
    """Pods by the claims that they use. Pods without claims are not included."""

    def add(self, entry: Entry, slot: int) -> Referrers[ClaimKey] | None:
        """Add a pod of the class in the slot; returns None if it uses no claims."""
        pod = entry.pod
        used = pod.volumes.claims
        return self._add(entry, slot, (pod.key.namespace, used), pod.claim_keys) if used else None


class NamespaceUsers(_Users[str]):
    """Pods by namespace. Pods with equal labels, annotations and controller are treated alike by selectors."""

    def add(self, entry: Entry, slot: int) -> Referrers[str]:
        """Add a pod of the class in the slot."""
        namespace = entry.pod.key.namespace
        return self._add(entry, slot, selected_by(entry.pod), (namespace,))


def selected_by(pod: Pod) -> int:
    """Hash of the pod's fields that rules may read together with objects of its namespace.

    The fields themselves would take half a kilobyte per pod. If two pods ever collide, the background re-evaluation
    finds the pod that was skipped.
    """
    return hash((pod.key.namespace, pod.owner_uid, frozenset(pod.labels.items()), frozenset(pod.annotations.items())))


_FIRST_SLOTS: Final = 64
# Above this many (row, class) pairs, only the maximum amounts over all rows are compared: less exact, but cheap.
_MOST_PAIRS: Final = 262_144
# Above these numbers of rows, and of cards on a row, cards are not compared individually.
_MOST_ROWS: Final = 32
_MOST_CARDS: Final = 32
_NODE: Final = int(Change.NODE)
# Changes after which rows that the node's own fields allow may accept the pod again.
_ALLOW_AGAIN: Final = int(Change.VOLUMES | Change.REJECTIONS)


class Available(Protocol):
    """Currently available amounts of rows, see `scheduler.state.amounts`."""

    def amounts(self, rows: RowArray, /) -> Int64Array:
        """int64[amounts, rows]: available amounts."""

    def cards(self, row: int, /) -> AvailableOnCards:
        """Cards of one row."""


class ClassTable:
    """Columns with one slot per class. In a free slot, wakes_on and due are 0.

    minimum: int64[amounts, slots]; cards, exclusive, models, uuids, traits: [slots]; rows: int64[2, slots]: see
    MinimumRequest. choosy: bool[slots], whether the class requests certain cards or rows. wakes_on: int64[slots], bits
    of every Change that can help. order: int64[2, slots], sort key of the best pod. due: bool[slots], whether the class
    needs a hint. since: int64[slots], first position in `EventRows` that the hint covers.
    """

    def __init__(self, *, measured_by: int) -> None:
        """measured_by: bits of Change that can alter the available amounts of a row."""
        self._measured_by = measured_by
        self.minimum: Int64Array = np.full((len(Amount), _FIRST_SLOTS), NOTHING, dtype=np.int64)
        self.cards = np.zeros(_FIRST_SLOTS, dtype=np.int16)
        self.exclusive: BoolArray = np.zeros(_FIRST_SLOTS, dtype=np.bool_)
        self.models: Int64Array = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self.uuids: Int64Array = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self.traits: Int64Array = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self.rows: Int64Array = np.zeros((2, _FIRST_SLOTS), dtype=np.int64)
        self.choosy: BoolArray = np.zeros(_FIRST_SLOTS, dtype=np.bool_)
        self.wakes_on: Int64Array = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self.order: Int64Array = np.zeros((2, _FIRST_SLOTS), dtype=np.int64)
        self.due: BoolArray = np.zeros(_FIRST_SLOTS, dtype=np.bool_)
        self.since: Int64Array = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self._free = list(range(_FIRST_SLOTS - 1, -1, -1))

    def take(self) -> int:
        """Allocate a slot for a new class, which is not due yet."""
        if not self._free:
            self._grow()
        return self._free.pop()

    def need(self, slot: int, minimum: MinimumRequest) -> None:
        """Set the current minimum request of the class."""
        self.minimum[:, slot] = minimum.amounts
        self.cards[slot], self.exclusive[slot] = minimum.cards, minimum.exclusive
        self.models[slot], self.uuids[slot], self.traits[slot] = minimum.models, minimum.uuids, minimum.traits
        self.rows[:, slot] = minimum.rows
        self.choosy[slot] = minimum.cards > 0 or minimum.rows != (ANY_BIT, ANY_BIT)

    def allow(self, rows: RowArray) -> None:
        """Let every class consider these rows again, because fields of their nodes changed."""
        for row in rows.tolist():
            self.rows |= np.array(row_bits(row), dtype=np.int64)[:, np.newaxis]

    def allow_everywhere(self, kinds: int) -> None:
        """Let classes consider all rows again, after changes of these kinds that affect every row."""
        if kinds & _NODE:
            self.rows[:] = ANY_BIT
        elif kinds & _ALLOW_AGAIN:
            # A node without the volume, or one that was skipped, may have room later.
            self.rows[:, self.concerned(kinds & _ALLOW_AGAIN)] = ANY_BIT

    def release(self, slot: int) -> None:
        """Free the slot of a class without pods."""
        self.wakes_on[slot] = 0
        self.due[slot] = False
        self._free.append(slot)

    def concerned(self, kinds: int) -> BoolArray:
        """bool[slots]: True if a change of these kinds can help the class."""
        return np.asarray(self.wakes_on & kinds != 0, dtype=np.bool_)

    def make_due(self, slots: BoolArray, since: int) -> None:
        """Make `slots` due for the events from position `since` on. Slots that are already due keep their position."""
        self.since[slots & ~self.due] = since
        self.due |= slots

    def rule_out(self, slots: BoolArray, rows: RowArray, left: Available) -> BoolArray:
        """bool[slots]: subset of `slots` for which some of `rows` may have enough available.

        The others lack an amount, perhaps for the first time. So from now on they also wake on changes of amounts.
        """
        found = np.flatnonzero(slots)
        enough = np.zeros_like(slots)
        if len(found):
            amounts = left.amounts(rows)
            enough[found] = _some_row_has(amounts, self.minimum[:, found])
            choosy = np.flatnonzero(enough & self.choosy)
            if len(choosy) and len(rows) <= _MOST_ROWS:
                enough[choosy] = False
                enough[self._served(choosy, rows, amounts, left)] = True
            self.wakes_on[slots & ~enough] |= self._measured_by
        return enough

    def _served(self, slots: RowArray, rows: RowArray, amounts: Int64Array, left: Available) -> RowArray:
        """Subset of `slots` for which some of `rows` may have enough, cards included. amounts: int64[amounts, rows]."""
        served = np.zeros(len(slots), dtype=np.bool_)
        for place, row in enumerate(rows.tolist()):
            low, high = row_bits(row)
            here = (self.rows[0, slots] & low != 0) & (self.rows[1, slots] & high != 0) & ~served
            if len(rows) > 1:
                here &= (amounts[:, place, np.newaxis] >= self.minimum[:, slots]).all(axis=0)
            if here.any():
                asking = np.flatnonzero(here)
                served[asking[self._has_cards(slots[asking], left.cards(row))]] = True
        return slots[served]

    def _has_cards(self, slots: RowArray, cards: AvailableOnCards) -> BoolArray:
        """bool[slots]: True if enough cards qualify for the class."""
        asked = self.cards[slots]
        if len(cards.free) > _MOST_CARDS or not asked.any():
            return np.ones(len(slots), dtype=np.bool_)
        fits = cards.free[:, np.newaxis] >= self.minimum[Amount.CARD_UNITS, slots]
        fits &= cards.empty[:, np.newaxis] | ~self.exclusive[slots]
        fits &= cards.models[:, np.newaxis] & self.models[slots] != 0
        fits &= cards.uuids[:, np.newaxis] & self.uuids[slots] != 0
        fits &= cards.traits[:, np.newaxis] & self.traits[slots] == self.traits[slots]
        return np.asarray(np.count_nonzero(fits, axis=0) >= asked, dtype=np.bool_)

    def first_due(self, among: BoolArray | None = None) -> int | None:
        """Slot of the due class with the best pod; None if no class is due. among: bool[slots]; None for all."""
        due = np.flatnonzero(self.due if among is None else self.due & among)
        if len(due) <= 1:
            return int(due[0]) if len(due) else None
        priority, arrival = self.order[:, due]
        best = np.flatnonzero(priority == priority.min())
        return int(due[best[arrival[best].argmin()]])

    def sort_key(self, slot: int) -> SortKey:
        """Sort key of the best pod of the class."""
        return int(self.order[0, slot]), int(self.order[1, slot])

    def _grow(self) -> None:
        slots = len(self.due)
        self.minimum = resized(self.minimum, (len(Amount), 2 * slots), NOTHING)
        self.cards = resized(self.cards, (2 * slots,), 0)
        self.exclusive = resized(self.exclusive, (2 * slots,), 0)
        self.models = resized(self.models, (2 * slots,), 0)
        self.uuids = resized(self.uuids, (2 * slots,), 0)
        self.traits = resized(self.traits, (2 * slots,), 0)
        self.rows = resized(self.rows, (2, 2 * slots), 0)
        self.choosy = resized(self.choosy, (2 * slots,), 0)
        self.wakes_on = resized(self.wakes_on, (2 * slots,), 0)
        self.order = resized(self.order, (2, 2 * slots), 0)
        self.due = resized(self.due, (2 * slots,), 0)
        self.since = resized(self.since, (2 * slots,), 0)
        self._free = list(range(2 * slots - 1, slots - 1, -1))


def _some_row_has(left: Int64Array, minimum: Int64Array) -> BoolArray:
    """bool[classes]: True if some row has the minimum request. left: [amounts, rows]; minimum: [amounts, classes]."""
    rows, classes = left.shape[1], minimum.shape[1]
    if rows * classes > _MOST_PAIRS:
        left, rows = left.max(axis=1, keepdims=True), 1
    if rows == 1:
        return np.asarray((left >= minimum).all(axis=0), dtype=np.bool_)
    enough = np.ones((rows, classes), dtype=np.bool_)
    for of_row, of_class in zip(left, minimum, strict=True):
        enough &= of_row[:, np.newaxis] >= of_class
    return np.asarray(enough.any(axis=0), dtype=np.bool_)
