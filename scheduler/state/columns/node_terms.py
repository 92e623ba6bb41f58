"""Node affinity terms of pods or volumes, evaluated over the rows.

Source: k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from scheduler.kube import objects
from scheduler.state.columns.arrays import BoolArray, Rows
from scheduler.state.columns.labels import Labels
from scheduler.state.columns.row_masks import mask_of, only_row
from scheduler.state.columns.selectors import Matcher, all_parsed

NAME_FIELD: Final = "metadata.name"


class LabelledRows(Protocol):
    """The part of the tables that terms read."""

    labels: Labels

    @property
    def capacity(self) -> int:
        """Number of rows in every column."""

    @property
    def valid(self) -> BoolArray:
        """bool[nodes]: True if the row is a node."""

    @property
    def names(self) -> list[str]:
        """Node names by row."""

    @property
    def row_of(self) -> dict[str, int]:
        """Node name -> row."""


@dataclass(frozen=True, slots=True)
class NodeField:
    """A requirement of `matchFields`: the node's name is `value`, or, if `negated`, it is not."""

    value: str
    negated: bool

    def accepts(self, name: str) -> bool:
        """Whether the node of this name matches."""
        return (name == self.value) is not self.negated

    def over(self, tables: LabelledRows, rows: Rows) -> BoolArray:
        """bool[rows]: True for rows that match."""
        row = tables.row_of.get(self.value)
        named = mask_of(() if row is None else (row,), rows, tables.capacity)
        return ~named if self.negated else named


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """Expressions and fields, ANDed; at least one."""

    expressions: tuple[Matcher, ...]
    fields: tuple[NodeField, ...] = ()

    def accepts(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether a node with these labels and this name matches."""
        return all(each.expression.accepts(labels.get(each.expression.key)) for each in self.expressions) and all(
            field.accepts(name) for field in self.fields
        )

    def over(self, tables: LabelledRows, rows: Rows) -> BoolArray:
        """bool[rows]: True for rows that match."""
        masks = [matcher.over(tables.labels, rows) for matcher in self.expressions]
        masks += [field.over(tables, rows) for field in self.fields]
        matched = masks[0]
        for mask in masks[1:]:
            matched &= mask
        return matched

    @property
    def size_bytes(self) -> int:
        return sum(matcher.size_bytes for matcher in self.expressions)


@dataclass(frozen=True, slots=True)
class Required:
    """Requirements on a node. selector: the nodeSelector, or None. terms: ORed; None without affinity."""

    selector: NodeTerm | None
    terms: tuple[NodeTerm, ...] | None

    def accepts(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether a node with these labels and this name matches."""
        return (self.selector is None or self.selector.accepts(labels, name)) and (
            self.terms is None or any(term.accepts(labels, name) for term in self.terms)
        )

    def over(self, tables: LabelledRows, rows: Rows) -> BoolArray:
        """bool[rows]: True for rows that match."""
        if (row := only_row(rows)) is not None:
            # The common case is one changed row: arrays would cost more than reading its labels.
            return np.array([self.accepts(tables.labels.of_row(row), tables.names[row])], dtype=np.bool_)
        matched = None if self.selector is None else self.selector.over(tables, rows)
        if self.terms is None:
            return np.ones_like(tables.valid[rows]) if matched is None else matched
        any_term = np.zeros_like(tables.valid[rows])
        for term in self.terms:
            any_term |= term.over(tables, rows)
        return any_term if matched is None else matched & any_term

    @property
    def keys(self) -> frozenset[str]:
        """Label keys that the requirements read."""
        parts = (*(self.terms or ()), *(() if self.selector is None else (self.selector,)))
        return frozenset(matcher.expression.key for part in parts for matcher in part.expressions)

    @property
    def size_bytes(self) -> int:
        parts = (*(self.terms or ()), *(() if self.selector is None else (self.selector,)))
        return sum(part.size_bytes for part in parts)


def parsed_term(term: objects.NodeSelectorTerm) -> NodeTerm | None:
    """The parsed term; None if it is empty or invalid and so matches no node."""
    expressions = all_parsed(term.match_expressions)
    fields = [_parsed_field(requirement) for requirement in term.match_fields]
    valid = tuple(field for field in fields if field is not None)
    if expressions is None or len(valid) < len(fields) or not (expressions or valid):
        return None
    return NodeTerm(tuple(Matcher(expression) for expression in expressions), valid)


def _parsed_field(requirement: objects.Requirement) -> NodeField | None:
    """The parsed field. The API server allows no other field or operator, and only one value."""
    valid = requirement.key == NAME_FIELD and requirement.operator in {"In", "NotIn"} and len(requirement.values) == 1
    return NodeField(requirement.values[0], requirement.operator == "NotIn") if valid else None
