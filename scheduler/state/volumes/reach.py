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

# As many as a pod may have, see `scheduler.kube.budgets`.
_MOST_TERMS: Final = 64
_MOST_REQUIREMENTS: Final = 128
_MOST_VALUES: Final = 2048
_FIRST_SLOTS: Final = 64
_NONE: Final = np.iinfo(np.int64).max


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
        self._reach: dict[int, Reach | None] = {}
        self._arranged: _Arranged | None = None

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
        self._reach[slot] = reach
        self._arranged = None
        return slot

    def remove(self, slot: int) -> None:
        """It is gone. The slot keeps its place among the others until something is added."""
        self.sizes[slot] = -1
        del self._reach[slot]
        self._free.append(slot)

    def first(self, candidates: BoolArray, count: int, nodes: LabelledRows, rows: Rows) -> Int64Array:
        """int64[count, rows]: for each node the slots of the smallest candidates in its reach, -1 for none.

        candidates: bool[slots], of those in use.
        """
        if self._arranged is None:
            self._arranged = _Arranged(self.sizes, self._ties, self._reach)
        return self._arranged.first(candidates, count, nodes, rows)

    def _grow(self) -> None:
        slots = self.slots
        self.sizes = resized(self.sizes, (2 * slots,), -1)
        self._ties = resized(self._ties, (2 * slots,), 0)
        self._free = list(range(2 * slots - 1, slots - 1, -1))


class _Arranged:
    """The slots in their order, and by what their reach looks at. Holds until something is added."""

    def __init__(self, sizes: Int64Array, ties: Int64Array, reach: Mapping[int, Reach | None]) -> None:
        in_use = np.array(sorted(reach), dtype=np.intp)
        self._slots = in_use[np.lexsort((ties[in_use], sizes[in_use]))]
        rank = {slot: place for place, slot in enumerate(self._slots.tolist())}
        everywhere: list[int] = []
        by_key: dict[str, list[tuple[str, int]]] = {}
        others: dict[Reach, list[int]] = {}
        for slot, one in reach.items():
            if one is None:
                everywhere.append(rank[slot])
            elif one.key:
                by_key.setdefault(one.key, []).extend((value, rank[slot]) for value in one.values)
            else:
                others.setdefault(one, []).append(rank[slot])
        self._everywhere = np.array(sorted(everywhere), dtype=np.intp)
        self._by_key = [_ByValue(key, pairs) for key, pairs in by_key.items()]
        self._others = [(one, np.array(sorted(ranks), dtype=np.intp)) for one, ranks in others.items()]

    def first(self, candidates: BoolArray, count: int, nodes: LabelledRows, rows: Rows) -> Int64Array:
        """As Reachable."""
        asked = candidates[self._slots]
        shape = (count, count_of(rows, nodes.capacity))
        found = [np.broadcast_to(_smallest(self._everywhere, asked, count), shape)]
        found += [one.first(asked, count, nodes, rows) for one in self._by_key]
        for one, ranks in self._others:
            smallest = _smallest(ranks, asked, count)
            if smallest[0, 0] != _NONE:
                found.append(np.where(one.over(nodes, rows), smallest, _NONE))
        best = found[0] if len(found) == 1 else np.sort(np.concatenate(found), axis=0)[:count]
        slots = np.append(self._slots, -1)
        picked: Int64Array = slots[np.minimum(best, len(self._slots))]
        return picked


class _ByValue:
    """Those of which one label says all."""

    def __init__(self, key: str, pairs: list[tuple[str, int]]) -> None:
        """pairs: (value, rank)."""
        self._key = key
        values = {value: number for number, value in enumerate(dict.fromkeys(value for value, _ in pairs))}
        self._values = list(values)
        numbers = np.array([values[value] for value, _ in pairs], dtype=np.intp)
        ranks = np.array([rank for _, rank in pairs], dtype=np.intp)
        order = np.lexsort((ranks, numbers))
        self._numbers: RowArray = numbers[order]
        self._ranks: RowArray = ranks[order]
        self._seen: tuple[LabelColumn, int] | None = None
        self._codes: RowArray = np.zeros(0, dtype=np.intp)

    def first(self, asked: BoolArray, count: int, nodes: LabelledRows, rows: Rows) -> Int64Array:
        """int64[count, rows] of ranks."""
        column = nodes.labels.column(self._key)
        kept = asked[self._ranks]
        numbers, ranks = self._numbers[kept], self._ranks[kept]
        # By value: the first is the smallest, since they are in order.
        begins = np.flatnonzero(np.diff(numbers, prepend=-1))
        places = np.arange(len(numbers)) - np.repeat(begins, np.diff(begins, append=len(numbers)))
        table = np.full((count, len(self._values) + 1), _NONE, dtype=np.int64)
        among = places < count
        table[places[among], numbers[among]] = ranks[among]
        numbers_of = np.full(len(column.values) + 1, len(self._values), dtype=np.intp)
        codes = self._codes_in(column)
        numbers_of[codes[codes >= 0]] = np.flatnonzero(codes >= 0)
        picked: Int64Array = table[:, numbers_of[column.codes[rows]]]
        return picked

    def _codes_in(self, column: LabelColumn) -> RowArray:
        """intp[values]: the code of each value, -1 where no node has it."""
        seen = (column, column.values.version)
        if seen != self._seen:
            self._seen = seen
            codes = [column.values.code(value) for value in self._values]
            self._codes = np.array([-1 if code is None else code for code in codes], dtype=np.intp)
        return self._codes


def _smallest(ranks: RowArray, asked: BoolArray, count: int) -> Int64Array:
    """int64[count, 1]: the first of `ranks`, in order, that are asked for."""
    found = np.full((count, 1), _NONE, dtype=np.int64)
    kept = ranks[asked[ranks]][:count]
    found[: len(kept), 0] = kept
    return found
