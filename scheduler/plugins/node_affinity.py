"""NodeAffinity: nodeSelector and node affinity, required and preferred, as algebra on label columns.

Source: kube-scheduler, plugins/nodeaffinity/node_affinity.go;
k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

import numpy as np

from scheduler.framework.cycle_state import CycleState, StateKey
from scheduler.framework.plugin import (
    FilterPlugin,
    Normalization,
    Objection,
    PreFilterPlugin,
    PreFilterResult,
    Rejected,
    Relevance,
    ScorePlugin,
)
from scheduler.kube import objects
from scheduler.pods.pod import Pod, Template
from scheduler.state.changes import Change
from scheduler.state.columns.arrays import BoolArray, Int64Array, Rows
from scheduler.state.columns.row_masks import mask_of, only_row
from scheduler.state.columns.selectors import Matcher, all_parsed, equalities
from scheduler.state.tables import Tables

REASON: Final = "node(s) didn't match Pod's node affinity/selector"
CONFLICT: Final = "pod affinity terms conflict"
_NAME_FIELD: Final = "metadata.name"


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


@dataclass(frozen=True, slots=True)
class Required:
    """What a node must have. selector: the nodeSelector, or None. terms: ORed; None when there is no affinity."""

    selector: NodeTerm | None
    terms: tuple[NodeTerm, ...] | None

    def accepts(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether a node with these labels and this name matches."""
        return (self.selector is None or self.selector.accepts(labels, name)) and (
            self.terms is None or any(term.accepts(labels, name) for term in self.terms)
        )

    def over(self, tables: Tables, rows: Rows) -> BoolArray:
        """bool[rows]: which of them match."""
        if (row := only_row(rows)) is not None:
            # One row that changed, the common case: arrays would cost more than the reading of its labels.
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
        """The labels that it looks at."""
        parts = (*(self.terms or ()), *(() if self.selector is None else (self.selector,)))
        return frozenset(matcher.expression.key for part in parts for matcher in part.expressions)

    @property
    def size_bytes(self) -> int:
        """What is kept of the verdicts."""
        parts = (*(self.terms or ()), *(() if self.selector is None else (self.selector,)))
        return sum(part.size_bytes for part in parts)


Preferred: TypeAlias = tuple[tuple[int, NodeTerm], ...]
_REQUIRED: Final[StateKey[Required]] = StateKey("node_affinity.required")
_PREFERRED: Final[StateKey[Preferred]] = StateKey("node_affinity.preferred")


class NodeAffinity(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Rejects nodes that do not match the pod's node selector and node affinity; prefers those it prefers.

    A node matches when it has all of `nodeSelector` and matches one of the terms of
    `requiredDuringSchedulingIgnoredDuringExecution`; the weights of the preferred terms that match are its score.

    - `node(s) didn't match Pod's node affinity/selector`
    - `pod affinity terms conflict`, for every node: every term asks for several values of `metadata.name` at once

    In a term all `matchExpressions` (`In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`) and all `matchFields`
    (`metadata.name` `In` or `NotIn` one value) have to hold. `NotIn` and `DoesNotExist` also take nodes that lack
    the key; `Gt` and `Lt` take no value that is not an integer. A term that is empty or not valid (`Gt` with a
    text) matches no node; no terms at all match no node. A preferred term that is not valid is left out, where
    kube-scheduler ends the attempt with an error. Nodes that a term excludes by name are counted under this rule's
    reason, where kube-scheduler writes `node(s) didn't satisfy plugin(s) [NodeAffinity]`.
    Source: kube-scheduler, plugins/nodeaffinity/node_affinity.go.
    """

    name: ClassVar[str] = "NodeAffinity"
    on_by_default: ClassVar[bool] = True
    depends: ClassVar[Change] = Change.LABELS
    normalization: ClassVar[Normalization] = Normalization.BY_MAX
    default_weight: ClassVar[int] = 2

    def pre_filter(self, pod: Pod, tables: Tables, state: CycleState) -> PreFilterResult:  # noqa: ARG002 - the pod says all
        """Work the required part out; reject terms that no node can meet."""
        wanted = required(pod.template)
        if wanted is None:
            return Relevance.SKIP
        if names_conflict(pod.template):
            return Rejected(CONFLICT)
        state.write(_REQUIRED, wanted)
        return Relevance.JUDGE

    def filter(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Sequence[Objection]:  # noqa: ARG002
        """Nodes that do not match the selector and one of the required terms."""
        return (Objection(~state.read(_REQUIRED).over(tables, rows), REASON),)

    def scores(self, pod: Pod) -> bool:
        """Pods that prefer something."""
        affinity = pod.template.node_affinity
        return affinity is not None and bool(affinity.preferred_during_scheduling_ignored_during_execution)

    def score(self, pod: Pod, tables: Tables, state: CycleState, rows: Rows) -> Int64Array:
        """int64[rows]: the weights of the preferred terms that match, added up."""
        total = np.zeros(len(tables.valid[rows]), dtype=np.int64)
        for weight, term in _preferred(pod, state):
            total += weight * term.over(tables, rows)
        return total


def required(template: Template) -> Required | None:
    """What the pod requires; None when it requires nothing. A term that is not valid matches no node."""
    affinity = template.node_affinity
    wanted = None if affinity is None else affinity.required_during_scheduling_ignored_during_execution
    if wanted is None and not template.node_selector:
        return None
    selector = tuple(Matcher(expression) for expression in equalities(template.node_selector))
    terms = None
    if wanted is not None:
        written_terms = dict.fromkeys(wanted.node_selector_terms)
        terms = tuple(term for written in written_terms if (term := parsed_term(written)) is not None)
    return Required(NodeTerm(selector) if selector else None, terms)


def preferred(template: Template) -> Preferred:
    """(weight, term) of what the pod prefers.

    A term that is not valid is left out: a preference cannot object. kube-scheduler ends the attempt with an error.
    """
    affinity = template.node_affinity
    written = () if affinity is None else affinity.preferred_during_scheduling_ignored_during_execution
    terms = [(preference.weight, parsed_term(preference.preference)) for preference in written]
    return tuple((weight, term) for weight, term in terms if term is not None)


def parsed_term(term: objects.NodeSelectorTerm) -> NodeTerm | None:
    """The term; None when it is empty or not valid: it matches no node."""
    expressions = all_parsed(term.match_expressions)
    fields = [_parsed_field(requirement) for requirement in term.match_fields]
    valid = tuple(field for field in fields if field is not None)
    if expressions is None or len(valid) < len(fields) or not (expressions or valid):
        return None
    return NodeTerm(tuple(Matcher(expression) for expression in expressions), valid)


def names_conflict(template: Template) -> bool:
    """Whether every required term asks for node names that exclude each other."""
    affinity = template.node_affinity
    wanted = None if affinity is None else affinity.required_during_scheduling_ignored_during_execution
    if wanted is None or not wanted.node_selector_terms:
        return False
    for term in wanted.node_selector_terms:
        asked = [frozenset(r.values) for r in term.match_fields if r.key == _NAME_FIELD and r.operator == "In"]
        if not asked or frozenset.intersection(*asked):
            return False
    return True


def _parsed_field(requirement: objects.Requirement) -> NodeField | None:
    """The API server admits no other field, no other operator and no more values than one."""
    valid = requirement.key == _NAME_FIELD and requirement.operator in {"In", "NotIn"} and len(requirement.values) == 1
    return NodeField(requirement.values[0], requirement.operator == "NotIn") if valid else None


def _preferred(pod: Pod, state: CycleState) -> Preferred:
    """Worked out at the first Score: a profile may leave the Filter, and with it PreFilter, out."""
    try:
        return state.read(_PREFERRED)
    except KeyError:
        terms = preferred(pod.template)
        state.write(_PREFERRED, terms)
        return terms
