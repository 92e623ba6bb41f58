"""Terms of node affinity, read: as algebra on label columns, and over one node.

Source: k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scheduler.kube import objects
from scheduler.state.columns.arrays import BoolArray, Rows
from scheduler.state.columns.row_masks import mask_of
from scheduler.state.columns.selectors import Matcher, all_parsed
from scheduler.state.tables import Tables

NAME_FIELD: Final = "metadata.name"


@dataclass(frozen=True, slots=True)
class NodeField:
    """One of `matchFields`: the node's name is `value`, or, `negated`, it is not."""

    value: str
    negated: bool

    def accepts(self, name: str) -> bool:
        """Whether the node of this name matches."""
        return (name == self.value) is not self.negated

    def over(self, tables: Tables, rows: Rows) -> BoolArray:
        """bool[rows]: which of them match."""
        row = tables.row_of.get(self.value)
        named = mask_of(() if row is None else (row,), rows, tables.capacity)
        return ~named if self.negated else named


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Expressions and fields, ANDed. At least one of them is there."""

    expressions: tuple[Matcher, ...]
    fields: tuple[NodeField, ...] = ()

    def accepts(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether a node with these labels and this name matches."""
        return all(each.expression.accepts(labels.get(each.expression.key)) for each in self.expressions) and all(
            field.accepts(name) for field in self.fields
        )

    def over(self, tables: Tables, rows: Rows) -> BoolArray:
        """bool[rows]: which of them match."""
        masks = [matcher.over(tables.labels, rows) for matcher in self.expressions]
        masks += [field.over(tables, rows) for field in self.fields]
        matched = masks[0]
        for mask in masks[1:]:
            matched &= mask
        return matched

    @property
    def size_bytes(self) -> int:
        """What is kept of the verdicts."""
        return sum(matcher.size_bytes for matcher in self.expressions)


def parsed_term(term: objects.NodeSelectorTerm) -> NodeTerm | None:
    """The term; None when it is empty or not valid: it matches no node."""
    expressions = all_parsed(term.match_expressions)
    fields = [_parsed_field(requirement) for requirement in term.match_fields]
    valid = tuple(field for field in fields if field is not None)
    if expressions is None or len(valid) < len(fields) or not (expressions or valid):
        return None
    return NodeTerm(tuple(Matcher(expression) for expression in expressions), valid)


def _parsed_field(requirement: objects.Requirement) -> NodeField | None:
    """The API server admits no other field, no other operator and no more values than one."""
    valid = requirement.key == NAME_FIELD and requirement.operator in {"In", "NotIn"} and len(requirement.values) == 1
    return NodeField(requirement.values[0], requirement.operator == "NotIn") if valid else None
