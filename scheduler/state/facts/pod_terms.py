"""Distinct affinity terms of placed pods, each with a slot, and the terms that match a pod.

Source: kube-scheduler, framework/types.go, AffinityTerm.Matches.
"""

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Final, Generic, Protocol, TypeVar

import numpy as np
from cachetools import LRUCache

from scheduler.kube.objects import PodAffinityTerm
from scheduler.state.columns.arrays import BoolArray, Int64Array, resized
from scheduler.state.columns.selectors import Expressions, of_label_selector
from scheduler.state.facts.label_index import LabelIndex

# A signature of more terms than this is a digest, because signatures are often compared and hashed.
_SPELLED_OUT: Final = 16
# Namespaces for which the terms that select them are cached, at a byte per slot each.
_KEPT_NAMESPACES: Final = 64
# Terms that keep their number after their last pod has left: terms of a replaced workload, or of queries.
_REMEMBERED: Final = 1024
_NO_TERMS: Final[Int64Array] = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class TermKey:
    """Content of a term. namespace_selector: None if it has none, () for every namespace.

    weight: a preference's weight, negative for anti-affinity; 1 for a requirement.
    """

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Expressions | None
    selector: Expressions
    weight: int = 1


# Most terms name only their own pod's namespace, so there are as many distinct values as namespaces.
_one_namespace = lru_cache(maxsize=4096)(lambda namespace: frozenset({namespace}))


def term_key(term: PodAffinityTerm, namespace: str, weight: int = 1) -> TermKey | None:
    """Content of a term of a pod in `namespace`; None if it can match no pod.

    matchLabelKeys and mismatchLabelKeys are not read: the API server has merged them into the selector.
    """
    selector = of_label_selector(term.label_selector)
    if selector is None:
        return None
    own_only = not term.namespaces and term.namespace_selector is None
    names = _one_namespace(namespace) if own_only else frozenset(term.namespaces)
    return TermKey(term.topology_key, names, of_label_selector(term.namespace_selector), selector, weight)


class Scoped(Hashable, Protocol):
    """Conditions on a pod, as in TermKey."""

    @property
    def namespaces(self) -> frozenset[str]:
        """Names of the namespaces."""

    @property
    def namespace_selector(self) -> Expressions | None:
        """Selector of namespaces; None if there is none."""

    @property
    def selector(self) -> Expressions:
        """Selector of the pod's labels."""


ScopedT = TypeVar("ScopedT", bound=Scoped)


class PodTerms(Generic[ScopedT]):
    """Terms in use, or other conditions on pods. version: changes when `matching` may give another result."""

    def __init__(self) -> None:
        self.version = 0
        self._slots: dict[ScopedT, int] = {}
        self._keys: dict[int, ScopedT] = {}
        self._free: list[int] = []
        # int64[slots]: a number that no other term ever gets, so that an old signature never matches a new term.
        self._numbers: Int64Array = _NO_TERMS
        # int64[slots]: number of uses; a pod counts once for each time it has the term.
        self._holders: Int64Array = _NO_TERMS
        self._given = 0
        self._remembered: LRUCache[ScopedT, int] = LRUCache(_REMEMBERED)
        # Indexed by their conditions on a pod's labels: terms that name its namespace, and terms that select
        # namespaces.
        self._naming: dict[str, LabelIndex] = {}
        self._selecting = LabelIndex()
        # The latter, indexed by their conditions on a namespace's labels; and, by namespace, bool[slots]: True if
        # selected.
        self._of_namespaces = LabelIndex()
        self._selected: dict[str, BoolArray] = {}

    def __bool__(self) -> bool:
        return bool(self._slots)

    @property
    def size(self) -> int:
        """Number of slots; every slot is less than this."""
        return len(self._numbers)

    def slot(self, key: ScopedT) -> int:
        """Slot of a term in use. Raises KeyError for others."""
        return self._slots[key]

    def key(self, slot: int) -> ScopedT:
        """The term of a slot in use."""
        return self._keys[slot]

    def number(self, slot: int) -> int:
        """A number that is never reused for another term."""
        return int(self._numbers[slot])

    def take(self, key: ScopedT) -> int:
        """Return the slot of a term, and count one more use."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._enter(key)
        self._holders[slot] += 1
        return slot

    def drop(self, slot: int) -> None:
        """Remove one use of the term. After the last one, the slot may be reused for another term."""
        self._holders[slot] -= 1
        if not self._holders[slot]:
            self._leave(slot)

    def namespaces_changed(self) -> None:
        """Update the matches because a namespace was added, deleted, or relabeled."""
        if self._selecting:
            self._changed()

    def matching(self, namespace: str, about: Mapping[str, str], labels: Mapping[str, str]) -> Int64Array:
        """Slots of the terms that match a pod like this, ascending. about: the namespace's labels."""
        naming = self._naming.get(namespace)
        named = _NO_TERMS if naming is None else naming.matches(labels)
        if not self._selecting:
            return named
        found = self._selecting.matches(labels)
        found = found[self._selects(namespace, about)[found]]
        return np.union1d(named, found) if len(named) and len(found) else named if len(named) else found

    def signature(self, slots: Int64Array) -> Hashable:
        """Key that is equal for equal sets of terms, whatever terms are added or dropped."""
        if not len(slots):
            return ()
        numbers = np.sort(self._numbers[slots])
        if len(numbers) <= _SPELLED_OUT:
            return tuple(numbers.tolist())
        return blake2b(numbers.tobytes(), digest_size=16).digest()

    def _enter(self, key: ScopedT) -> int:
        slot = self._slots[key] = self._free.pop() if self._free else len(self._slots)
        if slot >= len(self._numbers):
            size = (max(16, 2 * slot),)
            self._numbers, self._holders = resized(self._numbers, size, 0), resized(self._holders, size, 0)
        self._keys[slot] = key
        self._numbers[slot] = self._number_of(key)
        for index in self._indexes(key):
            index.add(slot, key.selector)
        if key.namespace_selector is not None:
            self._of_namespaces.add(slot, key.namespace_selector)
        self._changed()
        return slot

    def _number_of(self, key: ScopedT) -> int:
        """A number for the term: a recent one is used again, so that signatures stay the same."""
        number = self._remembered.get(key)
        if number is None:
            self._given += 1
            number = self._remembered[key] = self._given
        return number

    def _leave(self, slot: int) -> None:
        key = self._keys.pop(slot)
        del self._slots[key]
        self._free.append(slot)
        for index in self._indexes(key):
            index.discard(slot, key.selector)
        if key.namespace_selector is not None:
            self._of_namespaces.discard(slot, key.namespace_selector)
        for namespace in key.namespaces:
            if not self._naming[namespace]:
                del self._naming[namespace]
        self._changed()

    def _selects(self, namespace: str, about: Mapping[str, str]) -> BoolArray:
        selected = self._selected.get(namespace)
        if selected is None:
            if len(self._selected) >= _KEPT_NAMESPACES:
                self._selected.clear()
            selected = self._selected[namespace] = np.zeros(len(self._numbers), dtype=np.bool_)
            selected[self._of_namespaces.matches(about)] = True
        return selected

    def _indexes(self, key: Scoped) -> Iterator[LabelIndex]:
        if key.namespace_selector is not None:
            yield self._selecting
        for namespace in key.namespaces:
            yield self._naming.setdefault(namespace, LabelIndex())

    def _changed(self) -> None:
        self.version += 1
        self._selected.clear()
