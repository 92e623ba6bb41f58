"""Nodes from which a volume can be used."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from scheduler.kube.objects import NodeSelector
from scheduler.state.columns.arrays import BoolArray, Rows
from scheduler.state.columns.node_terms import LabelledRows, NodeTerm, Required
from scheduler.state.columns.selectors import Expressions, Matcher, Operator, all_parsed


@dataclass(frozen=True, slots=True, eq=False)
class Reach:
    """Nodes that match one of `terms`. Equal node affinities share one object.

    key, values: set if one label decides: a node matches if its label `key` has one of `values`. Otherwise key is "".
    """

    terms: tuple[Expressions, ...]
    key: str = ""
    values: tuple[str, ...] = ()

    def over(self, nodes: LabelledRows, rows: Rows) -> BoolArray:
        """bool[rows], a new array. Not cached: there may be as many Reach objects as volumes."""
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
    """Reach of these terms, none of which is empty."""
    kept = tuple(terms)
    if len(kept) == 1 and len(kept[0]) == 1 and kept[0][0].operator is Operator.IN:
        return Reach(kept, kept[0][0].key, tuple(sorted(kept[0][0].values)))
    return Reach(kept)


def of_node_selector(selector: NodeSelector) -> Reach:
    """Reach of a volume's node affinity. An invalid term, or one that names a node, matches no node.

    Source: component-helpers, storage/volume/pv_helpers.go, CheckNodeAffinity, which compares labels only.
    """
    written = dict.fromkeys(selector.node_selector_terms)
    parsed = [all_parsed(term.match_expressions) for term in written if not term.match_fields]
    return reach_of(expressions for expressions in parsed if expressions)


class Reaches:
    """One `Reach` for each node affinity of volumes, as long as a volume has it."""

    def __init__(self) -> None:
        self._reach: dict[NodeSelector, Reach] = {}
        self._uses: Counter[NodeSelector] = Counter()

    def of(self, affinity: NodeSelector) -> Reach:
        """Reach of an affinity that a volume has."""
        return self._reach[affinity]

    def take(self, affinity: NodeSelector) -> None:
        """Count one more volume with this affinity."""
        self._uses[affinity] += 1
        if affinity not in self._reach:
            self._reach[affinity] = of_node_selector(affinity)

    def drop(self, affinity: NodeSelector) -> None:
        """Count one volume fewer with this affinity."""
        self._uses[affinity] -= 1
        if not self._uses[affinity]:
            del self._uses[affinity], self._reach[affinity]
