"""From which nodes a volume can be used, one by one and for thousands of volumes at once."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

import numpy as np

from scheduler.kube.budgets import excess
from scheduler.kube.objects import NodeSelector
from scheduler.state.columns.arrays import BoolArray, Int64Array, RowArray, Rows, resized
from scheduler.state.columns.labels import LabelColumn
from scheduler.state.columns.node_terms import LabelledRows, NodeTerm, Required
from scheduler.state.columns.row_masks import count_of
from scheduler.state.columns.selectors import Expressions, Matcher, Operator, all_parsed
from scheduler.state.columns.vocabulary import Vocabulary
from scheduler.state.volumes.attachments import drop

# As many as a pod may have, see `scheduler.kube.budgets`.
_MOST_TERMS: Final = 64
_MOST_REQUIREMENTS: Final = 128
_MOST_VALUES: Final = 2048
_FIRST_SLOTS: Final = 64
_NONE: Final = np.iinfo(np.int64).max
_EVERYWHERE: Final = -1
_OTHER: Final = -2


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """The nodes that match one of `terms`. Those of one node affinity are one object.

    key, values: the one label that says all, "" when it takes more.
    """

    terms: tuple[Expressions, ...]
    key: str = ""
    values: tuple[str, ...] = ()

    def over(self, nodes: LabelledRows, rows: Rows) -> BoolArray:
        """bool[rows], the caller's own. Nothing is kept: there may be as many of these as volumes."""
        if self.key:
            column = nodes.labels.column(self.key)
            found = [code for value in self.values if (code := column.values.code(value)) is not None]
            if len(found) == 1:
                return np.asarray(column.codes[rows] == found[0], dtype=np.bool_)
            return np.isin(column.codes[rows], found)
        return Required(None, tuple(NodeTerm(tuple(map(Matcher, term))) for term in self.terms)).over(nodes, rows)

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels matches."""
        return any(all(each.accepts(labels.get(each.key)) for each in term) for term in self.terms)


def reach_of(terms: Iterable[Expressions]) -> Reach:
    """terms: none of them empty."""
    kept = tuple(terms)
    if len(kept) == 1 and len(kept[0]) == 1 and kept[0][0].operator is Operator.IN:
        return Reach(kept, kept[0][0].key, tuple(sorted(kept[0][0].values)))
    return Reach(kept)


def of_node_selector(selector: NodeSelector) -> Reach:
    """Of a volume's node affinity. A term that is not valid matches no node; so does one that names a node.

    Source: component-helpers, storage/volume/pv_helpers.go, CheckNodeAffinity, which compares labels only.
    """
    written = dict.fromkeys(selector.node_selector_terms)
    parsed = [all_parsed(term.match_expressions) for term in written if not term.match_fields]
    return reach_of(expressions for expressions in parsed if expressions)


def selector_excess(selector: NodeSelector) -> str:
    """What of it is more than is read, "" when nothing is."""
    terms = selector.node_selector_terms
    requirements = [one for term in terms for one in (*term.match_expressions, *term.match_fields)]
    counted = (
        ("node affinity terms", len(terms), _MOST_TERMS),
        ("node affinity requirements", len(requirements), _MOST_REQUIREMENTS),
        ("node affinity values", sum(len(one.values) for one in requirements), _MOST_VALUES),
    )
    return ", ".join(excess(what, count, most) for what, count, most in counted if count > most)


class Reaches:
    """One `Reach` for each node affinity that volumes have, for as long as one has it."""

    def __init__(self) -> None:
        """None."""
        self._reach: dict[NodeSelector, Reach] = {}
        self._uses: Counter[NodeSelector] = Counter()

    def of(self, affinity: NodeSelector) -> Reach:
        """Of an affinity that some volume has."""
        return self._reach[affinity]

    def take(self, affinity: NodeSelector) -> None:
        """One volume more has it."""
        self._uses[affinity] += 1
        if affinity not in self._reach:
            self._reach[affinity] = of_node_selector(affinity)

    def drop(self, affinity: NodeSelector) -> None:
        """One volume less."""
        self._uses[affinity] -= 1
        if not self._uses[affinity]:
            del self._uses[affinity], self._reach[affinity]


class Reachable:
    """Things of a size, each of which can be used from some nodes: which one does it for each node?

    sizes: int64[slots]; a slot that is not in use has -1. Owned by who adds and removes.
    """

    def __init__(self) -> None:
        """Nothing."""
        self.sizes: Int64Array = np.full(_FIRST_SLOTS, -1, dtype=np.int64)
        self._ties: Int64Array = np.zeros(_FIRST_SLOTS, dtype=np.int64)
        self._free = list(range(_FIRST_SLOTS - 1, -1, -1))
        # By slot: number of the label that says all, or one of the two below; number of its value.
        self._key_of: RowArray = np.full(_FIRST_SLOTS, _EVERYWHERE, dtype=np.intp)
        self._value_of: RowArray = np.zeros(_FIRST_SLOTS, dtype=np.intp)
        self._keys: list[_ByValue] = []
        self._number_of: dict[str, int] = {}
        self._others: dict[Reach, set[int]] = {}
        self._reach_at: dict[int, Reach] = {}
        # The slots in use in their order, and where each slot is in it; those of each label, by value. Holds until
        # something is added.
        self._order: RowArray | None = None
        self._rank: RowArray = np.zeros(0, dtype=np.intp)
        self._by_key: dict[int, RowArray] = {}

    @property
    def slots(self) -> int:
        """How many there are, in use or not."""
        return len(self.sizes)

    def add(self, name: str, size: int, reach: Reach | None) -> int:
        """Returns its slot. reach: None for every node. name: breaks ties, in an order of no meaning."""
        if not self._free:
            self._grow()
        slot = self._free.pop()
        self.sizes[slot] = size
        self._ties[slot] = int.from_bytes(blake2b(name.encode(), digest_size=7).digest())
        self._order = None
        if reach is None:
            self._key_of[slot], self._value_of[slot] = _EVERYWHERE, 0
        elif len(reach.values) == 1:
            key = self._number_of.setdefault(reach.key, len(self._keys))
            if key == len(self._keys):
                self._keys.append(_ByValue(reach.key))
            self._key_of[slot], self._value_of[slot] = key, self._keys[key].values.take(reach.values[0])
        else:
            self._key_of[slot] = _OTHER
            self._reach_at[slot] = reach
            self._others.setdefault(reach, set()).add(slot)
        return slot

    def remove(self, slot: int) -> None:
        """It is gone. The slot keeps its place among the others until something is added."""
        self.sizes[slot] = -1
        self._free.append(slot)
        key = int(self._key_of[slot])
        if key >= 0:
            self._keys[key].values.drop(int(self._value_of[slot]))
        elif key == _OTHER:
            drop(self._others, self._reach_at.pop(slot), slot)

    def first(self, candidates: BoolArray, count: int, nodes: LabelledRows, rows: Rows) -> Int64Array:
        """int64[count, rows]: for each node the slots of the smallest candidates in its reach, -1 for none.

        candidates: bool[slots], of those in use.
        """
        order = self._arranged()
        found = [np.full((count, count_of(rows, nodes.capacity)), _NONE, dtype=np.int64)]
        for key, all_slots in self._by_key.items():
            slots = all_slots[candidates[all_slots]]
            if key == _EVERYWHERE:
                found[0][:] = _smallest(self._rank[slots], count)
            elif len(slots):
                found.append(self._keys[key].first(self._value_of[slots], self._rank[slots], count, nodes, rows))
        for reach, others in self._others.items():
            smallest = _smallest(np.sort(self._rank[[slot for slot in others if candidates[slot]]]), count)
            if smallest[0, 0] != _NONE:
                found.append(np.where(reach.over(nodes, rows), smallest, _NONE))
        best = found[0] if len(found) == 1 else np.sort(np.concatenate(found), axis=0)[:count]
        picked: Int64Array = np.append(order, -1)[np.minimum(best, len(order))]
        return picked

    def _arranged(self) -> RowArray:
        if self._order is None:
            in_use = np.flatnonzero(self.sizes >= 0)
            self._order = in_use[np.lexsort((self._ties[in_use], self.sizes[in_use]))]
            self._rank = np.zeros(self.slots, dtype=np.intp)
            self._rank[self._order] = np.arange(len(self._order))
            keys = self._key_of[self._order]
            self._by_key = {}
            for key in set(keys.tolist()) - {_OTHER}:
                slots = self._order[keys == key]
                self._by_key[key] = slots[np.argsort(self._value_of[slots], kind="stable")]
        return self._order

    def _grow(self) -> None:
        slots = self.slots
        self.sizes = resized(self.sizes, (2 * slots,), -1)
        self._ties = resized(self._ties, (2 * slots,), 0)
        self._key_of = resized(self._key_of, (2 * slots,), _EVERYWHERE)
        self._value_of = resized(self._value_of, (2 * slots,), 0)
        self._free = list(range(2 * slots - 1, slots - 1, -1))


class _ByValue:
    """Those of which one value of one label says all."""

    def __init__(self, key: str) -> None:
        """None."""
        self._key = key
        self.values: Vocabulary[str] = Vocabulary()
        self._seen: tuple[LabelColumn, int, int] | None = None
        self._numbers: RowArray = np.zeros(0, dtype=np.intp)

    def first(self, numbers: RowArray, ranks: RowArray, count: int, nodes: LabelledRows, rows: Rows) -> Int64Array:
        """int64[count, rows] of ranks. numbers, ranks: intp[candidates], of their values, in the order of the two."""
        begins = np.flatnonzero(np.diff(numbers, prepend=-1))
        places = np.arange(len(numbers)) - np.repeat(begins, np.diff(begins, append=len(numbers)))
        table = np.full((count, len(self.values) + 1), _NONE, dtype=np.int64)
        among = places < count
        table[places[among], numbers[among]] = ranks[among]
        column = nodes.labels.column(self._key)
        picked: Int64Array = table[:, self._number_of(column)[column.codes[rows]]]
        return picked

    def _number_of(self, column: LabelColumn) -> RowArray:
        """intp[codes + 1]: the number of each value that nodes have, the last one where it is none of ours."""
        seen = (column, column.values.version, self.values.version)
        if seen != self._seen:
            self._seen = seen
            self._numbers = np.full(len(column.values) + 1, -1, dtype=np.intp)
            for value, number in self.values.items():
                code = column.values.code(value)
                if code is not None:
                    self._numbers[code] = number
        return self._numbers


def _smallest(ranks: RowArray, count: int) -> Int64Array:
    """int64[count, 1]: the first of `ranks`, which are in order."""
    found = np.full((count, 1), _NONE, dtype=np.int64)
    kept = ranks[:count]
    found[: len(kept), 0] = kept
    return found
