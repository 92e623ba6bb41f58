"""Selectors indexed by the labels that they require and exclude: an object's labels yield the matching selectors.

No selector is compared with the object: each requirement is an entry under its label, so a query costs only the entries
of the object's own labels, which NumPy adds up.
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import numpy as np

from scheduler.state.columns.arrays import Int64Array, resized
from scheduler.state.columns.selectors import Expression, Expressions, Operator

# (key, value) of a label; a value of None stands for any value.
_Entry: TypeAlias = tuple[str, str | None]
# Entry for selectors that require no label. No label has this key.
_ANY_OBJECT: Final[_Entry] = ("", None)
_NONE: Final[Int64Array] = np.zeros(0, dtype=np.int64)
# From this many slots per entry found, sorting the entries is faster than a sum per slot.
_SPARSE: Final = 16


class LabelIndex:
    """Selectors with operators In, NotIn, Exists and DoesNotExist. The owner chooses the slot of each, >= 0."""

    def __init__(self) -> None:
        self._asking: dict[_Entry, array[int]] = {}
        self._refusing: dict[_Entry, array[int]] = {}
        # int64[slots]: number of entries of `asking` that an object must have.
        self._needs: Int64Array = _NONE

    def __bool__(self) -> bool:
        return bool(self._asking)

    def add(self, slot: int, selector: Expressions) -> None:
        """Add a selector in a free slot."""
        if slot >= len(self._needs):
            self._needs = resized(self._needs, (max(16, 2 * slot),), 0)
        asking = [expression for expression in selector if _asks(expression)]
        self._needs[slot] = max(1, len(asking))
        for entries, entry in self._entries(selector):
            entries.setdefault(entry, array("q")).append(slot)

    def discard(self, slot: int, selector: Expressions) -> None:
        """Remove the selector that was added in this slot."""
        for entries, entry in self._entries(selector):
            slots = entries[entry]
            last = slots.pop()
            if last != slot:
                slots[int(np.flatnonzero(np.frombuffer(slots, dtype=np.int64) == slot)[0])] = last
            if not slots:
                del entries[entry]

    def matches(self, labels: Mapping[str, str]) -> Int64Array:
        """Slots of the selectors that match an object with these labels, ascending."""
        entries = [_ANY_OBJECT, *labels.items(), *((key, None) for key in labels)]
        found = _together(self._asking, entries)
        if not len(found):
            return _NONE
        if len(found) * _SPARSE < len(self._needs):
            slots, met = np.unique(found, return_counts=True)
        else:
            met = np.bincount(found, minlength=len(self._needs))
            slots = np.flatnonzero(met)
            met = met[slots]
        matching: Int64Array = slots[met == self._needs[slots]]
        refusing = _together(self._refusing, entries)
        return matching[~np.isin(matching, refusing)] if len(refusing) else matching

    def _entries(self, selector: Expressions) -> Iterator[tuple[dict[_Entry, "array[int]"], _Entry]]:
        asks = False
        for expression in selector:
            asks = asks or _asks(expression)
            entries = self._asking if _asks(expression) else self._refusing
            for entry in _labels_of(expression):
                yield entries, entry
        if not asks:
            yield self._asking, _ANY_OBJECT


def _asks(expression: Expression) -> bool:
    return expression.operator in {Operator.IN, Operator.EXISTS}


def _labels_of(expression: Expression) -> Iterable[_Entry]:
    """Labels that an expression requires or excludes; an object has at most one of these labels."""
    if expression.operator in {Operator.EXISTS, Operator.DOES_NOT_EXIST}:
        return ((expression.key, None),)
    return ((expression.key, value) for value in expression.values)


def _together(entries: Mapping[_Entry, "array[int]"], wanted: Iterable[_Entry]) -> Int64Array:
    """int64: the slots under all of these entries, with repetitions."""
    found = [np.frombuffer(slots, dtype=np.int64) for entry in wanted if (slots := entries.get(entry)) is not None]
    return np.concatenate(found) if found else _NONE
